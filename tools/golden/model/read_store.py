"""Reads a packed store without the engine: every weight decoded, under the names that reference.py uses.

Written from docs/store-format.md. A store has its norm weights as the factor itself for all architectures.

    python read_store.py STORE          # lists tensors, formats and shapes
"""
import argparse
import json
from pathlib import Path

import numpy as np

from checkpoint import bf16_values
from reference import Config, Linear

PLANE_ALIGN = 64
RECORD_ALIGN = 16 * 1024
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
MODEL_NAMES = {
    "embed": "model.embed_tokens.weight",
    "lm_head": "lm_head.weight",
    "final_norm": "model.norm.weight",
}
LAYER_NAMES = {
    "input_norm": "input_layernorm.weight",
    "post_attention_norm": "post_attention_layernorm.weight",
    "attn_q": "self_attn.q_proj.weight",
    "attn_k": "self_attn.k_proj.weight",
    "attn_v": "self_attn.v_proj.weight",
    "attn_o": "self_attn.o_proj.weight",
    "attn_q_norm": "self_attn.q_norm.weight",
    "attn_k_norm": "self_attn.k_norm.weight",
    "linear_qkv": "linear_attn.in_proj_qkv.weight",
    "linear_z": "linear_attn.in_proj_z.weight",
    "linear_b": "linear_attn.in_proj_b.weight",
    "linear_a": "linear_attn.in_proj_a.weight",
    "linear_conv": "linear_attn.conv1d.weight",
    "linear_a_log": "linear_attn.A_log",
    "linear_dt_bias": "linear_attn.dt_bias",
    "linear_norm": "linear_attn.norm.weight",
    "linear_out": "linear_attn.out_proj.weight",
    "router": "mlp.gate.weight",
    "shared_gate": "mlp.shared_expert.gate_proj.weight",
    "shared_up": "mlp.shared_expert.up_proj.weight",
    "shared_down": "mlp.shared_expert.down_proj.weight",
    "shared_expert_gate": "mlp.shared_expert_gate.weight",
}
VECTORS = ("norm.weight", "A_log", "dt_bias")  # ends of the names of one-dimensional weights


def aligned(n, alignment):
    """n rounded up to a multiple of `alignment`."""
    return -(-n // alignment) * alignment


def affine_format(name):
    """(bits, group) of an affine format's name, such as affine4g64."""
    bits, group = name.removeprefix("affine").split("g")
    return int(bits), int(group)


def planes(name, rows, cols):
    """(codes, scales, biases) as slices of a matrix's bytes, and its whole length in bytes."""
    if name in FLOATS:
        codes_bytes = rows * cols * np.dtype(FLOATS[name]).itemsize
        return (slice(0, codes_bytes), None, None), aligned(codes_bytes, PLANE_ALIGN)
    bits, group = affine_format(name)
    codes_bytes, group_bytes = rows * cols * bits // 8, rows * cols // group * 2
    scales = aligned(codes_bytes, PLANE_ALIGN)
    biases = aligned(scales + group_bytes, PLANE_ALIGN)
    slices = slice(0, codes_bytes), slice(scales, scales + group_bytes), slice(biases, biases + group_bytes)
    return slices, aligned(biases + group_bytes, PLANE_ALIGN)


def decode_floats(name, rows, cols, data):
    """A matrix [rows, cols] stored as plain floats, float32."""
    (codes, _, _), _ = planes(name, rows, cols)
    values = np.frombuffer(data[codes], FLOATS[name]).reshape(rows, cols)
    return bf16_values(values) if name == "bf16" else values.astype(np.float32)


def affine_parts(name, rows, cols, data):
    """q [rows, n_group, group] and the float32 scales and biases [rows, n_group, 1] of an affine matrix.

    Codes are a little-endian bit stream along the row.
    """
    bits, group = affine_format(name)
    codes, scales, biases = (np.frombuffer(data[plane], np.uint8) for plane in planes(name, rows, cols)[0])
    digits = np.unpackbits(codes, bitorder="little").reshape(rows, -1, group, bits)
    q = digits @ (1 << np.arange(bits))
    scale, bias = (bf16_values(plane.view(np.uint16)).reshape(rows, -1, 1) for plane in (scales, biases))
    return q, scale, bias


def decode(name, rows, cols, data):
    """A matrix [rows, cols] from its bytes, float32: affine is scale · q + bias, rounded once."""
    if name in FLOATS:
        return decode_floats(name, rows, cols, data)
    q, scale, bias = affine_parts(name, rows, cols, data)
    return (scale.astype(np.float64) * q + bias).astype(np.float32).reshape(rows, cols)


def read_manifest(folder):
    """The manifest's body."""
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    assert manifest["version"] == 1, f"this reader knows version 1, not {manifest['version']}"
    return manifest["body"]


def dense_slices(manifest):
    """(tensor entry, byte range in dense.bin) of every dense tensor."""
    for tensor in manifest["dense"]:
        _, n_bytes = planes(tensor["format"], tensor["rows"], tensor["cols"])
        yield tensor, slice(tensor["offset"], tensor["offset"] + n_bytes)


def expert_parts(manifest, layer):
    """(part, format, rows, cols, byte range in a record) of gate, up and down; and the record's length."""
    config = manifest["config"]
    wide = (config["d_ff_expert"], config["d_model"])
    parts, end = [], 0
    shapes = (("gate", wide), ("up", wide), ("down", wide[::-1]))
    for (part, (rows, cols)), name in zip(shapes, manifest["experts"][layer]["formats"]):
        start, end = end, end + planes(name, rows, cols)[1]
        parts.append((part, name, rows, cols, slice(start, end)))
    return parts, aligned(end, RECORD_ALIGN)


def layer_records(folder, manifest, layer):
    """The expert records of a layer, padding included."""
    data = (Path(folder) / "experts" / f"layer-{layer:03}.bin").read_bytes()
    _, stride = expert_parts(manifest, layer)
    n_expert = manifest["config"]["n_expert"]
    assert len(data) == n_expert * stride, f"layer {layer}: {len(data)} bytes, not {n_expert} x {stride}"
    return [data[start : start + stride] for start in range(0, len(data), stride)]


def config_from_manifest(config):
    """reference.Config of the manifest's configuration."""
    assert config["rope_scaling"] is None, "the reference has no YaRN"
    same = {name: value for name, value in config.items() if name in Config.__dataclass_fields__}
    if same["linear"] is not None:
        same["linear"] = Linear(**{name: same["linear"][name] for name in Linear.__dataclass_fields__})
    return Config(**same, norm_is_offset=False)


def matrices(folder, manifest):
    """(weight name, format, rows, cols, bytes) of everything that a store holds; vectors are [1, n]."""
    dense = (Path(folder) / "dense.bin").read_bytes()
    for tensor, place in dense_slices(manifest):
        role, layer = tensor["role"], tensor["layer"]
        name = MODEL_NAMES[role] if layer is None else f"model.layers.{layer}.{LAYER_NAMES[role]}"
        yield name, tensor["format"], tensor["rows"], tensor["cols"], dense[place]
    for layer in range(len(manifest["experts"])):
        parts, _ = expert_parts(manifest, layer)
        for expert, record in enumerate(layer_records(folder, manifest, layer)):
            for part, encoding, rows, cols, place in parts:
                name = f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"
                yield name, encoding, rows, cols, record[place]


def places_of_out_columns(linear):
    """Where a store has each column of out_proj: in the order of value heads, or the first of each key head first."""
    heads = np.arange(linear["n_head_v"])
    if linear.get("out_heads_tiled", False):
        r = linear["n_head_v"] // linear["n_head_k"]
        heads = heads % r * linear["n_head_k"] + heads // r
    return (heads[:, None] * linear["head_dim_v"] + np.arange(linear["head_dim_v"])).reshape(-1)


def open_store(folder):
    """(Config, weights) of a store, for Model."""
    manifest = read_manifest(folder)
    weights = {}
    for name, encoding, rows, cols, data in matrices(folder, manifest):
        weight = decode(encoding, rows, cols, data)
        if name.endswith("conv1d.weight"):
            weight = weight[:, None, :]
        elif name.endswith(VECTORS):
            weight = weight[0]
        elif name.endswith("linear_attn.out_proj.weight"):
            weight = weight[:, places_of_out_columns(manifest["config"]["linear"])]
        weights[name] = weight
    return config_from_manifest(manifest["config"]), weights


def main():
    """Lists what a store holds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("store", type=Path)
    folder = parser.parse_args().store
    manifest = read_manifest(folder)
    for tensor, place in dense_slices(manifest):
        where = "model" if tensor["layer"] is None else f"layer {tensor['layer']}"
        shape = f"[{tensor['rows']}, {tensor['cols']}]"
        place = f"dense.bin {place.start}..{place.stop}"
        print(f"{where:9} {tensor['role']:20} {tensor['format']:12} {shape:14} {place}")
    for layer, entry in enumerate(manifest["experts"]):
        _, stride = expert_parts(manifest, layer)
        formats = " ".join(entry["formats"])
        print(f"layer {layer:<3} experts {formats}, {len(entry['xxh3'])} records of {stride} bytes")


if __name__ == "__main__":
    main()
