#!/usr/bin/env python3
"""Writes a folder as conversions for MLX have it, 4 bits in groups of 64, with the shapes of Qwen3.5-397B and random weights.

    python3 make_mlx_folder.py OUT [--layers N] [--vocab N]

A layer takes 3.6 GB; every second one has full attention. Shards are about 5 GB, as mlx-lm cuts them.
"""
import argparse
import json
import random
from pathlib import Path

D_MODEL, N_EXPERT, D_FF = 4096, 512, 1024
N_HEAD, N_HEAD_KV, HEAD_DIM = 32, 2, 256
N_HEAD_K, N_HEAD_V, D_HEAD = 16, 64, 128
SHARD_BYTES = 5 << 30
SIZES = {"U32": 4, "BF16": 2, "F32": 4}
RANDOM = random.Random(1).randbytes(64 << 20)
# 2^-8 and -2^-5: scales and biases of plausible weights of 4 bits.
CONSTANTS = {"scales": b"\x80\x3b", "biases": b"\x00\xbd", "BF16": b"\x80\x3f", "F32": b"\x00\x00\x80\x3f"}
# -2^-1: the middle of 8 bits, so that a router has no favourites.
BIAS_OF_GATES = b"\x00\xbf"


def quantised(name, *shape, bits=4):
    """The three tensors of a quantised matrix, or of a stack of them."""
    *stack, cols = shape
    return [
        (f"{name}.weight", "U32", [*stack, cols * bits // 32]),
        (f"{name}.scales", "BF16", [*stack, cols // 64]),
        (f"{name}.biases", "BF16", [*stack, cols // 64]),
    ]


def linear_layer(p):
    """The tensors of a Gated DeltaNet."""
    d_k, d_v = N_HEAD_K * D_HEAD, N_HEAD_V * D_HEAD
    p += "linear_attn."
    tensors = quantised(p + "in_proj_qkv", 2 * d_k + d_v, D_MODEL) + quantised(p + "in_proj_z", d_v, D_MODEL)
    tensors += quantised(p + "in_proj_b", N_HEAD_V, D_MODEL) + quantised(p + "in_proj_a", N_HEAD_V, D_MODEL)
    tensors += quantised(p + "out_proj", D_MODEL, d_v)
    return tensors + [
        (p + "conv1d.weight", "BF16", [2 * d_k + d_v, 4, 1]),
        (p + "A_log", "F32", [N_HEAD_V]),
        (p + "dt_bias", "BF16", [N_HEAD_V]),
        (p + "norm.weight", "BF16", [D_HEAD]),
    ]


def full_layer(p):
    """The tensors of full attention."""
    p += "self_attn."
    tensors = quantised(p + "q_proj", 2 * N_HEAD * HEAD_DIM, D_MODEL) + quantised(p + "o_proj", D_MODEL, N_HEAD * HEAD_DIM)
    tensors += quantised(p + "k_proj", N_HEAD_KV * HEAD_DIM, D_MODEL) + quantised(p + "v_proj", N_HEAD_KV * HEAD_DIM, D_MODEL)
    return tensors + [(p + "q_norm.weight", "BF16", [HEAD_DIM]), (p + "k_norm.weight", "BF16", [HEAD_DIM])]


def moe(p):
    """Router, experts and shared expert."""
    p += "mlp."
    tensors = quantised(p + "gate", N_EXPERT, D_MODEL, bits=8) + quantised(p + "shared_expert_gate", 1, D_MODEL, bits=8)
    for name, stack in (("switch_mlp", [N_EXPERT]), ("shared_expert", [])):
        tensors += quantised(f"{p}{name}.gate_proj", *stack, D_FF, D_MODEL)
        tensors += quantised(f"{p}{name}.up_proj", *stack, D_FF, D_MODEL)
        tensors += quantised(f"{p}{name}.down_proj", *stack, D_MODEL, D_FF)
    return tensors


def model(n_layer, n_vocab):
    """(name, dtype, shape) of all tensors."""
    p = "language_model."
    tensors = quantised(p + "model.embed_tokens", n_vocab, D_MODEL) + quantised(p + "lm_head", n_vocab, D_MODEL)
    tensors.append((p + "model.norm.weight", "BF16", [D_MODEL]))
    for layer in range(n_layer):
        q = f"{p}model.layers.{layer}."
        tensors += [(q + f"{norm}_layernorm.weight", "BF16", [D_MODEL]) for norm in ("input", "post_attention")]
        tensors += (full_layer(q) if layer % 2 else linear_layer(q)) + moe(q)
    return tensors


def n_bytes(dtype, shape):
    """Size of a tensor."""
    n = SIZES[dtype]
    for d in shape:
        n *= d
    return n


def write_tensor(file, name, dtype, size):
    """Random codes, constant scales, biases and vectors."""
    constant = CONSTANTS.get(name.rsplit(".", 1)[1]) or CONSTANTS.get(dtype)
    if name.endswith("gate.biases"):
        constant = BIAS_OF_GATES
    data = constant * (len(RANDOM) // len(constant)) if constant else RANDOM
    while size:
        size -= file.write(data[: min(size, len(data))])


def write_shard(path, tensors):
    """One weight file."""
    header, end = {}, 0
    for name, dtype, shape in tensors:
        start, end = end, end + n_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, dtype, shape in tensors:
            write_tensor(file, name, dtype, n_bytes(dtype, shape))


def config(n_layer, n_vocab):
    """config.json"""
    quantization = {"group_size": 64, "bits": 4, "mode": "affine"}
    for layer in range(n_layer):
        for gate in ("gate", "shared_expert_gate"):
            quantization[f"language_model.model.layers.{layer}.mlp.{gate}"] = {"group_size": 64, "bits": 8}
    kinds = ["full_attention" if layer % 2 else "linear_attention" for layer in range(n_layer)]
    text = {
        "model_type": "qwen3_5_moe_text", "vocab_size": n_vocab, "hidden_size": D_MODEL, "num_hidden_layers": n_layer,
        "layer_types": kinds, "num_attention_heads": N_HEAD, "num_key_value_heads": N_HEAD_KV, "head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": D_HEAD, "linear_value_head_dim": D_HEAD,
        "linear_num_key_heads": N_HEAD_K, "linear_num_value_heads": N_HEAD_V, "num_experts": N_EXPERT,
        "num_experts_per_tok": 10, "moe_intermediate_size": D_FF, "shared_expert_intermediate_size": D_FF,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attn_output_gate": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    }
    return {"model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": False, "quantization": quantization}


def main():
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=248320)
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    (args.out / "config.json").write_text(json.dumps(config(args.layers, args.vocab), indent=1))
    shards, filled = [[]], 0
    for tensor in model(args.layers, args.vocab):
        size = n_bytes(*tensor[1:])
        if shards[-1] and filled + size > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += size
    index = {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(args.out / name, tensors)
        index |= {tensor[0]: name for tensor in tensors}
    (args.out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


if __name__ == "__main__":
    main()
