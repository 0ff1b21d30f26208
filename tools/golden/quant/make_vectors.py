#!/usr/bin/env python3
"""Writes crates/quant/tests/data/affine.bin: what MLX's own affine quantiser makes of rows that are hard to get right.

    pip install 'mlx[cpu]' numpy
    python tools/golden/quant/make_vectors.py          # from the repository's root

Layout, little-endian, no padding:
    u32 n_row, u32 n_col
    f32 [n_row, n_col]   input A, any f32
    f32 [n_row, n_col]   input B, each number exact in bf16
    then for input A, B; bits 2, 3, 4, 5, 6, 8; group 32, 64, 128:
        codes   u8  [n_row, n_col*bits/8]
        scales  u16 [n_row, n_col/group]    bf16
        biases  u16 [n_row, n_col/group]    bf16
        decoded f32 [n_row, n_col]          only for group 64: scale*q + bias, computed by numpy in float64, rounded once

MLX gets input A as float32 and its float32 scales and biases are rounded here to the nearest bf16; it gets input B as
bfloat16, as it does when it converts a bf16 checkpoint, and rounds by itself.
"""
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np

N_COL = 256
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)


def rows():
    rng = np.random.default_rng(1)
    normal = rng.standard_normal((4, N_COL))
    ramp = np.arange(N_COL)
    return np.stack([
        normal[0] * 0.02,                       # like a weight
        normal[1] * 100,
        np.abs(normal[2]) + 1,                  # all positive, away from zero
        -np.abs(normal[3]) - 1000,              # all negative, far away
        np.where(ramp % 64 < 32, 0, 0.5),       # groups of all zeros, all equal, and both
        (ramp % 16 - 7.5) / 7.5,                # evenly spaced: exact ties
        (ramp % 4 - 1) * 0.5,
        np.where(ramp % 50 == 0, 1e30, normal[0]),  # outliers
        normal[1] * 1e-9,                       # below the smallest scale
        normal[2] * 1e-40,                      # denormal
        np.where(ramp % 2, -0.0, 0.0),
        (ramp % 3 - 1) * 3e37,                  # near the end of the range
    ]).astype(np.float32)


def to_bf16(x):
    """Nearest bf16, ties to even, as u16."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(u):
    return (u.astype(np.uint32) << 16).view(np.float32)


def unpack(codes, bits):
    stream = np.unpackbits(codes, axis=-1, bitorder="little").reshape(len(codes), -1, bits)
    return (stream * (1 << np.arange(bits))).sum(-1)


def main():
    a = rows()
    b = from_bf16(to_bf16(a))
    out = bytearray(struct.pack("<II", *a.shape) + a.tobytes() + b.tobytes())
    for values, dtype in ((a, mx.float32), (b, mx.bfloat16)):
        for bits in BITS:
            for group in GROUPS:
                q, s, z = mx.quantize(mx.array(values).astype(dtype), group_size=group, bits=bits)
                codes = np.array(q).view(np.uint8)
                scales, biases = (to_bf16(np.array(p.astype(mx.float32))) for p in (s, z))
                out += codes.tobytes() + scales.tobytes() + biases.tobytes()
                if group == 64:
                    per = lambda p: np.repeat(from_bf16(p).astype(np.float64), group, -1)
                    out += (unpack(codes, bits) * per(scales) + per(biases)).astype(np.float32).tobytes()
    target = Path(__file__).resolve().parents[3] / "crates/quant/tests/data/affine.bin"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(out)
    print(f"{target}: {len(out)} bytes, mlx {mx.__version__}")


if __name__ == "__main__":
    main()
