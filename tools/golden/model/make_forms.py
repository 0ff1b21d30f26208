"""Writes tiny checkpoints in the forms that others publish, each with the float64 logits of its decoded weights.

    pip install "mlx[cpu]==0.32.4" mlx-lm==0.32.2 tokenizers numpy
    python make_forms.py tests/golden/forms

MLX folders are written by mlx_lm.convert from a checkpoint of make_tiny's making, and decoded by mlx itself. FP8 is encoded
and decoded with mlx's E4M3; blocks and scales are done here by the formula. The fields of golden.json are `ids` and `logits`
as in tests/golden/README.md, of fewer tokens.
"""
import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
from tokenizers import Tokenizer, models

from checkpoint import read_checkpoint, write_safetensors
from make_tiny import Writer, file_config, text_config
from reference import FULL, LINEAR, Model, Trace, config_from_hf, float32_error, golden_ids

N_TOKEN = 40
FP8_BLOCK = 128
FP8_MAX = 448.0
# Rows are multiples of 64: of every group.
SHAPES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_value_heads": 4,
    "num_experts": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
# Rows and columns end inside a block.
FP8_SHAPES = SHAPES | {
    "hidden_size": 144,
    "num_experts": 3,
    "moe_intermediate_size": 136,
    "shared_expert_intermediate_size": 136,
}


def mixed(path, module):
    """All numbers of bits and all groups that MLX has, and a module that is left as it was."""
    if not hasattr(module, "to_quantized"):
        return False
    recipe = {
        "lm_head": (6, 64),
        "embed_tokens": (8, 64),
        "in_proj_qkv": (5, 32),
        "in_proj_z": (3, 64),
        "out_proj": (8, 32),
        "q_proj": (6, 32),
        "k_proj": (4, 32),
        "o_proj": (2, 32),
        "mlp.gate": None,
        "shared_expert_gate": (8, 64),
        "0.mlp.switch_mlp.gate_proj": (4, 64),
        "0.mlp.switch_mlp.up_proj": (4, 64),
        "0.mlp.switch_mlp.down_proj": (8, 64),
        "1.mlp.switch_mlp.down_proj": (3, 32),
    }
    for end, how in recipe.items():
        if path.endswith(end):
            return False if how is None else {"bits": how[0], "group_size": how[1]}
    return True


# Name, architecture, seed, arguments of mlx_lm.convert.
MLX_FORMS = [
    ("mlx_4bit", "qwen3_5_moe", 1, {"q_bits": 4, "q_group_size": 64}),
    ("mlx_mixed", "qwen3_5_moe", 2, {"q_bits": 4, "q_group_size": 64, "quant_predicate": mixed}),
    ("mlx_f16", "qwen3_5_moe", 3, {"q_bits": 4, "q_group_size": 32, "dtype": "float16"}),
    ("mlx_mxfp4", "qwen3_5_moe", 4, {"q_mode": "mxfp4"}),
    ("mlx_nvfp4", "qwen3_5_moe", 5, {"q_mode": "nvfp4"}),
    ("mlx_next", "qwen3_next", 6, {"q_bits": 4, "q_group_size": 64}),
    ("mlx_qwen3", "qwen3_moe", 7, {"q_bits": 8, "q_group_size": 32}),
]


def tiny(arch, shapes, seed):
    """config.json and tensors of a checkpoint in the original layout, with a linear and a full layer."""
    defaults = argparse.Namespace(layers=2, dtype="bf16", square=False, quantable=False, no_mtp=True)
    text = text_config(defaults) | shapes | {"layer_types": [LINEAR, FULL], "full_attention_interval": 2}
    tensors = Writer(arch, text, "bf16", seed).model(with_mtp=False)
    return file_config(arch, text), tensors


def write_checkpoint(folder, config, tensors):
    """A folder of one weight file."""
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_tokenizer(folder):
    """mlx_lm.convert wants one."""
    Tokenizer(models.WordLevel({str(i): i for i in range(128)}, unk_token="0")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def make_mlx(out, arch, seed, arguments):
    """Converts a tiny checkpoint."""
    with tempfile.TemporaryDirectory() as temporary:
        source, converted = Path(temporary) / "source", Path(temporary) / "converted"
        write_checkpoint(source, *tiny(arch, SHAPES, seed))
        write_tokenizer(source)
        mlx_lm.convert(str(source), str(converted), quantize=True, **arguments)
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(converted.iterdir()):
            if path.suffix == ".safetensors":
                shutil.copy(path, out)
            elif path.name.startswith("model") or path.name == "config.json":
                (out / path.name).write_text(path.read_text() + "\n")


def numbers(array):
    """An array of mlx as float32."""
    return np.array(array.astype(mx.float32))


def decoded(tensors, settings):
    """The tensors of an MLX folder with every module decoded by mlx, float32."""
    weights = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if module + ".scales" not in tensors:
            weights[name] = numbers(tensor)
            continue
        how = settings.get(module, settings)
        mode = how.get("mode", "affine")
        scales, biases = tensors[module + ".scales"], tensors.get(module + ".biases")
        if mode == "affine":  # mlx computes in the scales' type: exactly in this one.
            scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
        sizes = {"group_size": how["group_size"], "bits": how["bits"], "mode": mode}
        weights[name] = numbers(mx.dequantize(tensor, scales, biases, **sizes, dtype=mx.float32))
    return weights


def open_mlx(folder):
    """(Config, weights) of an MLX folder, for Model: the names of the original, norms as the factor itself."""
    top = json.loads((folder / "config.json").read_text())
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= mx.load(str(path))
    weights = {}
    for name, weight in decoded(tensors, top["quantization"]).items():
        name = name.removeprefix("language_model.")
        if name.endswith("conv1d.weight"):
            weight = np.swapaxes(weight, 1, 2)
        if ".switch_mlp." in name:
            for expert, one in enumerate(weight):
                weights[name.replace("switch_mlp", f"experts.{expert}")] = one
        else:
            weights[name] = weight
    return replace(config_from_hf(top), norm_is_offset=False), weights


def fp8_blocks(weight):
    """Codes [R, C] and bfloat16 scales [ceil(R/128), ceil(C/128)] of a matrix, as float32 values; and what they stand for."""
    rows, cols = weight.shape
    scales = np.zeros((-(-rows // FP8_BLOCK), -(-cols // FP8_BLOCK)), np.float32)
    codes, values = np.zeros(weight.shape, np.uint8), np.zeros(weight.shape, np.float32)
    for i, j in np.ndindex(scales.shape):
        block = np.s_[i * FP8_BLOCK : (i + 1) * FP8_BLOCK, j * FP8_BLOCK : (j + 1) * FP8_BLOCK]
        scale = mx.array(np.abs(weight[block]).max() / FP8_MAX).astype(mx.bfloat16).astype(mx.float32)
        scales[i, j] = numbers(scale)
        codes[block] = np.array(mx.to_fp8(mx.array(weight[block]) / scale))
        values[block] = numbers(mx.from_fp8(mx.array(codes[block]), mx.float32) * scale)
    return codes, scales, values


def make_fp8(out, seed):
    """A checkpoint as published in FP8, experts apart; (Config, decoded weights)."""
    config, tensors = tiny("qwen3_5_moe", FP8_SHAPES, seed)
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        "modules_to_not_convert": ["lm_head", "model.language_model.embed_tokens"],
    }
    apart = {}
    for name, (dtype, values) in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for expert, (gate, up) in enumerate(np.split(one, 2) for one in values):
                apart[name.replace("gate_up_proj", f"{expert}.gate_proj.weight")] = dtype, gate
                apart[name.replace("gate_up_proj", f"{expert}.up_proj.weight")] = dtype, up
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(values):
                apart[name.replace("down_proj", f"{expert}.down_proj.weight")] = dtype, down
        else:
            apart[name] = dtype, values
    kept = ("embed_tokens.weight", "lm_head.weight", "mlp.gate.weight", "expert_gate.weight", "proj_a.weight", "proj_b.weight")
    stored, weights = {}, {}
    for name, (dtype, values) in apart.items():
        if values.ndim != 2 or name.endswith(kept):
            stored[name] = dtype, values
            continue
        codes, scales, weights[name] = fp8_blocks(values)
        stored[name] = "F8_E4M3", codes
        stored[name + "_scale_inv"] = "BF16", scales
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "model.safetensors", stored)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    _, plain = read_checkpoint(out)
    weights |= {name: values for name, values in plain.items() if name not in weights and not name.endswith("_scale_inv")}
    return config_from_hf(config), weights


def write_golden(out, config, weights):
    """golden.json, and what limits a float32 engine."""
    ids = golden_ids()[:N_TOKEN] % SHAPES["vocab_size"]
    model, trace = Model(config, weights), Trace()
    logits = model.forward(ids, model.new_state(), trace)
    vectors = {"ids": ids.tolist(), "logits": np.round(logits, 6).tolist()}
    (out / "golden.json").write_text(json.dumps(vectors, separators=(",", ":")) + "\n")
    rounding = float32_error(config, weights, ids, logits) / np.std(logits)
    gap = np.min(trace.router_gaps)
    print(f"{out}: logits std {np.std(logits):.3f}, smallest router gap {gap:.1e}, float32 error {rounding:.1e} of std")


def main():
    """Writes all forms."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for name, arch, seed, arguments in MLX_FORMS:
        make_mlx(out / name, arch, seed, arguments)
        write_golden(out / name, *open_mlx(out / name))
    write_golden(out / "fp8", *make_fp8(out / "fp8", 8))


if __name__ == "__main__":
    main()
