"""Writes a tiny checkpoint with random weights in the layout of the published ones: names, dtypes, config.

    python make_tiny.py OUT [--arch qwen3_5_moe|qwen3_next|qwen3_moe] [--dtype f32|bf16] [--layers N]
                        [--seed N] [--square] [--quantable] [--no-mtp]

The same arguments always give the same bytes. The three architectures differ as the published ones do:

qwen3_5_moe  prefix `model.language_model.`, fused experts, separate linear-attention projections, an `mtp.`
             head, the text settings nested in config.json
qwen3_next   prefix `model.`, per-expert tensors, fused `in_proj_qkvz` and `in_proj_ba`
qwen3_moe    prefix `model.`, per-expert tensors, no linear attention, output gate or shared expert; norm
             weights are the factor itself instead of the factor minus one
"""
import argparse
import json
from pathlib import Path

import numpy as np

from checkpoint import write_safetensors
from reference import FULL, LINEAR

QUANTABLE = {
    "hidden_size": 128,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}


def text_config(args):
    """The settings of the text model, as qwen3_5_moe spells them."""
    config = {
        "model_type": "qwen3_5_moe_text",
        "vocab_size": 256,
        "hidden_size": 64,
        "num_hidden_layers": args.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "attn_output_gate": True,
        "tie_word_embeddings": False,
        "full_attention_interval": 4,
        "layer_types": [FULL if (i + 1) % 4 == 0 else LINEAR for i in range(args.layers)],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16 if args.square else 24,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "mamba_ssm_dtype": "float32",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        "mtp_num_hidden_layers": 0 if args.no_mtp else 1,
        "mtp_use_dedicated_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 255,
        "pad_token_id": None,
        "use_cache": True,
        "dtype": "float32" if args.dtype == "f32" else "bfloat16",
    }
    return config | (QUANTABLE if args.quantable else {})


def file_config(arch, text):
    """config.json of an architecture whose text settings are `text`."""
    if arch == "qwen3_5_moe":
        return {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "model_type": "qwen3_5_moe",
            "text_config": text,
            "tie_word_embeddings": False,
            "image_token_id": 250,
            "video_token_id": 251,
            "vision_start_token_id": 252,
            "vision_end_token_id": 253,
        }
    flat = text | {
        "model_type": arch,
        "architectures": ["Qwen3NextForCausalLM" if arch == "qwen3_next" else "Qwen3MoeForCausalLM"],
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "intermediate_size": 128,
        "rope_theta": 10000.0,
        "rope_scaling": None,
    }
    unknown = {"rope_parameters", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}
    if arch == "qwen3_moe":
        unknown |= {"attn_output_gate", "full_attention_interval", "layer_types", "mamba_ssm_dtype"}
        unknown |= {"partial_rotary_factor", "shared_expert_intermediate_size"}
        unknown |= {name for name in flat if name.startswith("linear_")}
        flat |= {"rope_theta": 1000000.0, "sliding_window": None, "use_sliding_window": False}
    return {name: value for name, value in flat.items() if name not in unknown}


class Writer:
    """Draws the tensors of one checkpoint, in file order, from one random stream."""

    def __init__(self, arch, config, dtype, seed):
        self.arch = arch
        self.config = config
        self.dtype = dtype.upper()
        self.random = np.random.default_rng(seed)
        self.tensors = {}

    def put(self, name, values, dtype=None):
        """Adds a tensor; `dtype` overrides the checkpoint's."""
        self.tensors[name] = (dtype or self.dtype, np.asarray(values, np.float32))

    def normal(self, *shape, scale=1.0):
        """Normal numbers."""
        return self.random.standard_normal(shape) * scale

    def matrix(self, n_out, n_in):
        """A projection, large enough that every path of the network shows in the logits."""
        return self.normal(n_out, n_in, scale=1.2 / np.sqrt(n_in))

    def norm(self, name, n):
        """A norm whose factor lies around 1."""
        offset = self.normal(n, scale=0.3)
        self.put(name, 1.0 + offset if self.arch == "qwen3_moe" else offset)

    def model(self, with_mtp):
        """All tensors."""
        c = self.config
        prefix = "model.language_model." if self.arch == "qwen3_5_moe" else "model."
        layers = c["layer_types"] if self.arch != "qwen3_moe" else [FULL] * c["num_hidden_layers"]
        self.put(prefix + "embed_tokens.weight", self.normal(c["vocab_size"], c["hidden_size"], scale=0.7))
        for i, kind in enumerate(layers):
            self.layer(f"{prefix}layers.{i}.", kind)
        self.norm(prefix + "norm.weight", c["hidden_size"])
        self.put("lm_head.weight", self.matrix(c["vocab_size"], c["hidden_size"]))
        if with_mtp:
            self.put("mtp.fc.weight", self.matrix(c["hidden_size"], 2 * c["hidden_size"]))
            for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
                self.norm(f"mtp.{name}.weight", c["hidden_size"])
            self.layer("mtp.layers.0.", FULL)
        return self.tensors

    def layer(self, name, kind):
        """One block."""
        self.norm(name + "input_layernorm.weight", self.config["hidden_size"])
        self.norm(name + "post_attention_layernorm.weight", self.config["hidden_size"])
        if kind == FULL:
            self.attention(name + "self_attn.")
        else:
            self.deltanet(name + "linear_attn.")
        self.moe(name + "mlp.")

    def attention(self, name):
        """Full attention; with an output gate, q_proj has twice the rows."""
        c = self.config
        d_model, head_dim = c["hidden_size"], c["head_dim"]
        d_q, d_kv = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
        self.put(name + "q_proj.weight", self.matrix(d_q if self.arch == "qwen3_moe" else 2 * d_q, d_model))
        self.put(name + "k_proj.weight", self.matrix(d_kv, d_model))
        self.put(name + "v_proj.weight", self.matrix(d_kv, d_model))
        self.put(name + "o_proj.weight", self.matrix(d_model, d_q))
        self.norm(name + "q_norm.weight", head_dim)
        self.norm(name + "k_norm.weight", head_dim)

    def deltanet(self, name):
        """Linear attention. A_log and the norm (whose weight is the factor itself) are F32, as published."""
        c = self.config
        n_head_v, head_dim_v = c["linear_num_value_heads"], c["linear_value_head_dim"]
        d_v = n_head_v * head_dim_v
        n_channel = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + d_v
        qkv, z = self.matrix(n_channel, c["hidden_size"]), self.matrix(d_v, c["hidden_size"])
        b, a = self.matrix(n_head_v, c["hidden_size"]), self.matrix(n_head_v, c["hidden_size"])
        self.deltanet_inputs(name, qkv, z, b, a)
        self.put(name + "conv1d.weight", self.normal(n_channel, 1, c["linear_conv_kernel_dim"], scale=0.5))
        self.put(name + "dt_bias", self.normal(n_head_v))
        self.put(name + "A_log", np.log(self.random.uniform(0.02, 2.0, n_head_v)), "F32")
        self.put(name + "norm.weight", 1.0 + self.normal(head_dim_v, scale=0.3), "F32")
        self.put(name + "out_proj.weight", self.matrix(c["hidden_size"], d_v))

    def deltanet_inputs(self, name, qkv, z, b, a):
        """The four input projections; Qwen3-Next has their rows grouped by key head in two tensors."""
        if self.arch == "qwen3_5_moe":
            for part, values in (("qkv", qkv), ("z", z), ("b", b), ("a", a)):
                self.put(f"{name}in_proj_{part}.weight", values)
            return
        n_group = self.config["linear_num_key_heads"]
        d_k = n_group * self.config["linear_key_head_dim"]
        parts = [qkv[:d_k], qkv[d_k : 2 * d_k], qkv[2 * d_k :], z]
        self.put(name + "in_proj_qkvz.weight", by_group(parts, n_group))
        self.put(name + "in_proj_ba.weight", by_group([b, a], n_group))

    def moe(self, name):
        """Router, routed experts, shared expert."""
        c = self.config
        d_model, n_expert, d_ff = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
        self.put(name + "gate.weight", self.normal(n_expert, d_model, scale=0.3))
        gate_up = self.normal(n_expert, 2 * d_ff, d_model, scale=1.2 / np.sqrt(d_model))
        down = self.normal(n_expert, d_model, d_ff, scale=1.2 / np.sqrt(d_ff))
        if self.arch == "qwen3_5_moe":
            self.put(name + "experts.gate_up_proj", gate_up)
            self.put(name + "experts.down_proj", down)
        else:
            for expert in range(n_expert):
                self.put(f"{name}experts.{expert}.gate_proj.weight", gate_up[expert, :d_ff])
                self.put(f"{name}experts.{expert}.up_proj.weight", gate_up[expert, d_ff:])
                self.put(f"{name}experts.{expert}.down_proj.weight", down[expert])
        if self.arch == "qwen3_moe":
            return
        d_shared = c["shared_expert_intermediate_size"]
        self.put(name + "shared_expert.gate_proj.weight", self.matrix(d_shared, d_model))
        self.put(name + "shared_expert.up_proj.weight", self.matrix(d_shared, d_model))
        self.put(name + "shared_expert.down_proj.weight", self.matrix(d_model, d_shared))
        self.put(name + "shared_expert_gate.weight", self.matrix(1, d_model))


def by_group(matrices, n_group):
    """Stacks matrices so that group 0's rows of each come first, then group 1's, and so on."""
    split = [np.split(matrix, n_group) for matrix in matrices]
    return np.concatenate([parts[group] for group in range(n_group) for parts in split])


def main():
    """Writes model.safetensors and config.json."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", choices=["qwen3_5_moe", "qwen3_next", "qwen3_moe"], default="qwen3_5_moe")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--square", action="store_true", help="key and value heads of the same width")
    parser.add_argument("--quantable", action="store_true", help="inputs of projections are multiples of 64")
    parser.add_argument("--no-mtp", action="store_true", help="leave the multi-token-prediction head out")
    args = parser.parse_args()
    text = text_config(args)
    writer = Writer(args.arch, text, args.dtype, args.seed)
    tensors = writer.model(with_mtp=args.arch == "qwen3_5_moe" and not args.no_mtp)
    args.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.out / "model.safetensors", tensors)
    config = json.dumps(file_config(args.arch, text), indent=1)
    (args.out / "config.json").write_text(config + "\n")
    print(f"{args.out}: {len(tensors)} tensors, {(args.out / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
