#!/usr/bin/env python3
"""Writes crates/quant/tests/data/blocks.bin: what the packages of others decode stored weights to.

    pip install gguf ml_dtypes 'mlx[cpu]' numpy
    python tools/golden/quant/make_block_vectors.py          # from the repository's root

A list of cases, little-endian, no padding:
    u8 n, name[n]                                   a format's name
    u32 n_row, u32 n_col
    u32 n, bytes[n]                                 codes, then the same for scales and for biases
    f32 [n_row, n_col]                              decoded

GGUF blocks: `gguf.quants.dequantize`, in f32 as it computes. Halves are finite; among them are zeros, the smallest and
the largest, of both signs. Microscaling floats: `mlx.core.dequantize` in f32. Affine with f16: numpy in float64,
rounded once (MLX itself computes in f16). FP8: `ml_dtypes.float8_e4m3fn` times the scale, in f32, all codes but NaN.
"""
import struct
from importlib.metadata import version
from pathlib import Path

import gguf
import ml_dtypes
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type

# Type, and where its halves are in a block.
BLOCKS = (
    (Type.Q4_0, "q4_0", (0,)), (Type.Q4_1, "q4_1", (0, 2)), (Type.Q5_0, "q5_0", (0,)), (Type.Q5_1, "q5_1", (0, 2)),
    (Type.Q8_0, "q8_0", (0,)), (Type.Q2_K, "q2_k", (80, 82)), (Type.Q3_K, "q3_k", (108,)),
    (Type.Q4_K, "q4_k", (0, 2)), (Type.Q5_K, "q5_k", (0, 2)), (Type.Q6_K, "q6_k", (208,)),
    (Type.IQ4_NL, "iq4_nl", (0,)), (Type.IQ4_XS, "iq4_xs", (0,)), (Type.MXFP4, "gguf_mxfp4", ()),
    (Type.IQ1_S, "iq1_s", (0,)), (Type.IQ1_M, "iq1_m", ()), (Type.IQ2_XXS, "iq2_xxs", (0,)),
    (Type.IQ2_XS, "iq2_xs", (0,)), (Type.IQ2_S, "iq2_s", (0,)), (Type.IQ3_XXS, "iq3_xxs", (0,)),
    (Type.IQ3_S, "iq3_s", (0,)),
)
HALVES = np.array([0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504, -65504, 1, -1], np.float16)
# Of 256 columns; four times as many of 32.
N_BLOCK = 7


def halves(rng, n):
    ordinary = (rng.standard_normal(n) * 0.01).astype(np.float16)
    return np.where(np.arange(n) % 3 == 2, rng.choice(HALVES, n), ordinary)


def blocks(rng, kind, places):
    cols, size = gguf.GGML_QUANT_SIZES[kind]
    n = N_BLOCK if cols == 256 else 4 * N_BLOCK
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in places:
        data[:, at:at + 2] = halves(rng, n).view(np.uint8).reshape(n, 2)
    if kind == Type.MXFP4:
        # Larger ones are infinite with the largest code.
        data[:, 0] = np.where(np.arange(n) < 8, [0, 1, 2, 3, 252, 127, 126, 128] + [0] * (n - 8), data[:, 0] % 253)
    if kind == Type.IQ1_M:
        # A half in the top four bits of four words.
        bits = halves(rng, n).view(np.uint16)
        for i in range(4):
            data[:, 49 + 2 * i] = data[:, 49 + 2 * i] & 15 | (bits >> (4 * i) & 15).astype(np.uint8) << 4
    decoded = gguf.quants.dequantize(data, kind)
    return n * cols, data, b"", b"", decoded


def microscaling(rng, mode):
    group, cols, rows = (32, 256, 8) if mode == "mxfp4" else (16, 256, 16)
    codes = rng.integers(0, 2**32, (rows, cols // 8), dtype=np.uint32)
    if mode == "mxfp4":
        scales = rng.integers(1, 253, (rows, cols // group), dtype=np.uint8)
    else:
        # Each scale but the NaNs.
        scales = np.resize(np.delete(np.arange(256, dtype=np.uint8), [0x7f, 0xff]), (rows, cols // group))
    with mx.stream(mx.cpu):
        decoded = mx.dequantize(mx.array(codes), mx.array(scales), group_size=group, bits=4, mode=mode,
                                dtype=mx.float32)
    return cols, codes, scales, b"", np.array(decoded)


def affine_f16(rng, bits, group):
    cols, rows = 256, 4
    codes = rng.integers(0, 256, (rows, cols * bits // 8), dtype=np.uint8)
    scales, biases = (halves(rng, rows * cols // group).reshape(rows, -1) for _ in range(2))
    stream = np.unpackbits(codes, axis=-1, bitorder="little").reshape(rows, cols, bits)
    q = (stream * (1 << np.arange(bits))).sum(-1).astype(np.float64)
    per = lambda p: np.repeat(p.astype(np.float64), group, -1)
    return cols, codes, scales, biases, (q * per(scales) + per(biases)).astype(np.float32)


def fp8(rng, dtype, rows, cols):
    codes = np.resize(np.delete(np.arange(256, dtype=np.uint8), [0x7f, 0xff]), (rows, cols))
    scales = (rng.standard_normal((-(-rows // 128), -(-cols // 128))) * 0.01).astype(dtype)
    scales[-1, -1] = 7e-39
    per = np.repeat(np.repeat(scales.astype(np.float32), 128, 0), 128, 1)[:rows, :cols]
    return cols, codes, scales, b"", codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * per


def main():
    rng = np.random.default_rng(7)
    cases = [(name, blocks(rng, kind, places)) for kind, name, places in BLOCKS]
    cases += [(mode, microscaling(rng, mode)) for mode in ("mxfp4", "nvfp4")]
    cases += [(f"affine{bits}g{group}f16", affine_f16(rng, bits, group))
              for bits, group in ((2, 32), (3, 64), (4, 64), (5, 128), (6, 32), (8, 64))]
    cases += [("fp8", fp8(rng, ml_dtypes.bfloat16, 130, 20)), ("fp8f32", fp8(rng, np.float32, 3, 300))]
    out = bytearray()
    for name, (cols, codes, scales, biases, decoded) in cases:
        out += bytes([len(name)]) + name.encode() + struct.pack("<II", decoded.size // cols, cols)
        for plane in (codes, scales, biases):
            data = plane if isinstance(plane, bytes) else np.ascontiguousarray(plane).tobytes()
            out += struct.pack("<I", len(data)) + data
        out += np.ascontiguousarray(decoded, np.float32).tobytes()
    target = Path(__file__).resolve().parents[3] / "crates/quant/tests/data/blocks.bin"
    target.write_bytes(out)
    print(f"{target}: {len(out)} bytes, gguf {version('gguf')}, mlx {mx.__version__}")


if __name__ == "__main__":
    main()
