"""Checks a packed store without the engine: checksums, layout, and every weight against its checkpoint.

    python check_store.py CHECKPOINT STORE      # needs the xxhash package

Floats must be equal, bit for bit, to the checkpoint's (norms: to 1 + w in float32 if the checkpoint has w),
and codes, scales and biases of affine matrices to what the quantiser below makes of the checkpoint's numbers.
"""
import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
import xxhash

from checkpoint import bf16_bits, bf16_values, read_checkpoint
from read_store import FLOATS, affine_format, affine_parts, config_from_manifest, decode_floats
from read_store import dense_slices, expert_parts, layer_records, matrices, read_manifest
from reference import config_from_hf


def ungroup(matrix, n_group, group_rows):
    """Splits rows that are grouped by key head into matrices of `group_rows` rows a group."""
    groups = matrix.reshape(n_group, -1, matrix.shape[1])
    parts = np.split(groups, np.cumsum(group_rows)[:-1], axis=1)
    return [part.reshape(-1, matrix.shape[1]) for part in parts]


def separate_projections(name, tensor, linear):
    """Qwen3-Next's two grouped projections as the store's four: {name: matrix}."""
    n_shared = linear.n_head_v // linear.n_head_k
    prefix = name.rsplit(".", 2)[0] + ".in_proj_"
    if name.endswith("in_proj_ba.weight"):
        b, a = ungroup(tensor, linear.n_head_k, [n_shared, n_shared])
        return {prefix + "b.weight": b, prefix + "a.weight": a}
    d_k, d_v = linear.head_dim_k, n_shared * linear.head_dim_v
    q, k, v, z = ungroup(tensor, linear.n_head_k, [d_k, d_k, d_v, d_v])
    return {prefix + "qkv.weight": np.concatenate([q, k, v]), prefix + "z.weight": z}


def separate_experts(name, tensor):
    """A fused expert tensor by expert: {name: matrix}."""
    prefix, fused = name.rsplit(".", 1)
    separate = {}
    for expert, matrix in enumerate(tensor):
        if fused == "down_proj":
            separate[f"{prefix}.{expert}.down_proj.weight"] = matrix
        else:
            gate, up = np.split(matrix, 2)
            separate |= {f"{prefix}.{expert}.gate_proj.weight": gate, f"{prefix}.{expert}.up_proj.weight": up}
    return separate


def expected_weights(folder):
    """What a store of the checkpoint should hold, by the names of read_store.py; without the MTP head."""
    top, tensors = read_checkpoint(folder)
    config = config_from_hf(top)
    expected = {}
    for name, tensor in tensors.items():
        name = name.replace("model.language_model.", "model.")
        if name.startswith("mtp."):
            continue
        if name.endswith(("in_proj_qkvz.weight", "in_proj_ba.weight")):
            expected |= separate_projections(name, tensor, config.linear)
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            expected |= separate_experts(name, tensor)
        elif config.norm_is_offset and name.endswith("norm.weight") and "linear_attn" not in name:
            expected[name] = np.float32(1) + tensor
        else:
            expected[name] = tensor
    return expected


def quantise(matrix, bits, group):
    """MLX's affine quantiser: q [rows, n_group, group], scale and bias [rows, n_group, 1].

    All in float32; scale and bias are rounded to bfloat16 after the codes were computed. The number of
    largest magnitude in a group becomes exactly representable, unless it is less than half a step from zero.
    """
    groups = matrix.reshape(len(matrix), -1, group)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    n_step = np.float32(2**bits - 1)
    scale = np.maximum((high - low) / n_step, np.float32(1e-7))
    low_is_edge = abs(low) > abs(high)
    scale, edge = np.where(low_is_edge, scale, -scale), np.where(low_is_edge, low, high)
    steps = np.round(edge / scale)
    scale = np.where(steps != 0, edge / np.where(steps != 0, steps, 1), scale)
    bias = np.where(steps != 0, edge, np.float32(0))
    q = np.clip(np.round((groups - bias) / scale), 0, n_step)
    return q, bf16_values(bf16_bits(scale)), bf16_values(bf16_bits(bias))


def check_matrix(name, encoding, rows, cols, data, expected):
    """One stored matrix against the checkpoint's numbers."""
    if encoding in FLOATS:
        got = decode_floats(encoding, rows, cols, data)
        assert np.array_equal(got.view(np.uint32), expected.view(np.uint32)), f"{name}: not the checkpoint's"
        return
    got = affine_parts(encoding, rows, cols, data)
    for part, a, b in zip(("codes", "scales", "biases"), got, quantise(expected, *affine_format(encoding))):
        assert np.array_equal(a, b), f"{name}: {np.count_nonzero(a != b)} of {a.size} {part} differ"


def check_weights(checkpoint, store, manifest):
    """Every stored weight, and that none is missing; returns how many there are of each format."""
    expected = expected_weights(checkpoint)
    counts = {}
    for name, encoding, rows, cols, data in matrices(store, manifest):
        check_matrix(name, encoding, rows, cols, data, expected.pop(name).reshape(rows, cols))
        counts[encoding] = counts.get(encoding, 0) + 1
    assert not expected, f"not in the store: {sorted(expected)}"
    return counts


def check_checksums(folder, manifest):
    """Checksums of manifest, dense tensors, records and sidecars; no gaps, and records padded with zeros."""

    def check(what, data, xxh3):
        assert xxhash.xxh3_64_hexdigest(data) == xxh3, f"{what}: wrong checksum"

    body = (folder / "manifest.json").read_bytes().split(b'"body":', 1)[1].rstrip().removesuffix(b"}")
    check("manifest", body, json.loads((folder / "manifest.json").read_text())["xxh3"])
    dense = (folder / "dense.bin").read_bytes()
    end = 0
    for tensor, place in dense_slices(manifest):
        assert place.start == end, f"{tensor['role']} of layer {tensor['layer']} leaves a gap or overlaps"
        end = place.stop
        check(f"{tensor['role']} of layer {tensor['layer']}", dense[place], tensor["xxh3"])
    assert len(dense) == end, f"dense.bin has {len(dense)} bytes, not {end}"
    for layer, entry in enumerate(manifest["experts"]):
        parts, _ = expert_parts(manifest, layer)
        used_bytes = parts[-1][-1].stop
        for expert, record in enumerate(layer_records(folder, manifest, layer)):
            check(f"layer {layer}, expert {expert}", record, entry["xxh3"][expert])
            assert not any(record[used_bytes:]), f"layer {layer}, expert {expert}: padding is not zero"
    for sidecar in manifest["sidecars"]:
        check(sidecar["name"], (folder / sidecar["name"]).read_bytes(), sidecar["xxh3"])


def main():
    """Checks one store against the checkpoint that it was packed from."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("store", type=Path)
    args = parser.parse_args()
    manifest = read_manifest(args.store)
    check_checksums(args.store, manifest)
    top, _ = read_checkpoint(args.checkpoint)
    from_checkpoint = dataclasses.replace(config_from_hf(top), norm_is_offset=False)
    assert config_from_manifest(manifest["config"]) == from_checkpoint, "the configurations differ"
    counts = check_weights(args.checkpoint, args.store, manifest)
    formats = ", ".join(f"{n} {encoding}" for encoding, n in sorted(counts.items()))
    print(f"{args.store}: {formats}; all equal to {args.checkpoint}")


if __name__ == "__main__":
    main()
