"""Weights on disk: the Hugging Face layout (model.safetensors) and the names of model.py, in both directions."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

PREFIX = "model.language_model."
TOP = {"embed": PREFIX + "embed_tokens.weight", "norm": PREFIX + "norm.weight", "head": "lm_head.weight"}
NORMS = {"n1": "input_layernorm.weight", "n2": "post_attention_layernorm.weight"}
FULL_ATTENTION = {
    "q": "q_proj.weight",
    "k": "k_proj.weight",
    "v": "v_proj.weight",
    "o": "o_proj.weight",
    "qn": "q_norm.weight",
    "kn": "k_norm.weight",
}
LINEAR_ATTENTION = {
    "qkv": "in_proj_qkv.weight",
    "z": "in_proj_z.weight",
    "b": "in_proj_b.weight",
    "a": "in_proj_a.weight",
    "out": "out_proj.weight",
    "norm": "norm.weight",
    "conv": "conv1d.weight",
    "A_log": "A_log",
    "dt_bias": "dt_bias",
}
MOE = {
    "gate": "gate.weight",
    "gate_up": "experts.gate_up_proj",
    "down": "experts.down_proj",
    "sh_gate": "shared_expert.gate_proj.weight",
    "sh_up": "shared_expert.up_proj.weight",
    "sh_down": "shared_expert.down_proj.weight",
    "sh_g": "shared_expert_gate.weight",
}
FLOAT32 = ("A_log", "linear_attn.norm.weight")


def name_map(config):
    """Every parameter name of model.py and its name in the Hugging Face layout."""
    names = dict(TOP)
    for i in range(config.layers):
        ours, theirs = f"blocks.{i}.", f"{PREFIX}layers.{i}."
        mixer, table = ("self_attn", FULL_ATTENTION) if config.kind(i) == "full" else ("linear_attn", LINEAR_ATTENTION)
        names |= {ours + a: theirs + b for a, b in NORMS.items()}
        names |= {f"{ours}mix.{a}": f"{theirs}{mixer}.{b}" for a, b in table.items()}
        names |= {f"{ours}moe.{a}": f"{theirs}mlp.{b}" for a, b in MOE.items()}
    return names


def to_stored(weights, config):
    """Rename for storage: bf16, except the few tensors that Hugging Face keeps in f32."""
    stored = {}
    for ours, theirs in name_map(config).items():
        tensor = weights[ours].unsqueeze(1) if ours.endswith("mix.conv") else weights[ours]
        dtype = torch.float32 if theirs.endswith(FLOAT32) else torch.bfloat16
        stored[theirs] = tensor.detach().cpu().to(dtype).contiguous().clone()
    return stored


def from_stored(stored, config):
    """The inverse of `to_stored`, in f32."""
    weights = {}
    for ours, theirs in name_map(config).items():
        tensor = stored[theirs].float()
        weights[ours] = tensor.squeeze(1) if ours.endswith("mix.conv") else tensor
    return weights


def load(path, config):
    """Read weights by model.py's names from a training checkpoint (.pt) or from model.safetensors."""
    if Path(path).suffix == ".safetensors":
        return from_stored(load_file(path), config)
    return torch.load(path, map_location="cpu")


def save(weights, path, config):
    """Write model.safetensors."""
    save_file(to_stored(weights, config), path, metadata={"format": "pt"})
