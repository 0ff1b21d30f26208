"""Write a training checkpoint as a Hugging Face style folder: model.safetensors (bf16) and config.json.

usage: export.py CHECKPOINT OUT_DIR      OUT_DIR already holds tokenizer.json (make_tokenizer.py)
"""

import argparse
import json

import checkpoint
from model import Config


def text_config(config, end_of_text):
    """The fields of `text_config` in config.json."""
    rotary = config.rotary / config.head_dim
    rope = {
        "rope_type": "default",
        "rope_theta": config.theta,
        "partial_rotary_factor": rotary,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    }
    return {
        "model_type": "qwen3_5_moe_text",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": config.eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "tie_word_embeddings": False,
        "full_attention_interval": 4,
        "layer_types": [config.kind(i) + "_attention" for i in range(config.layers)],
        "linear_conv_kernel_dim": config.conv,
        "linear_key_head_dim": config.lin_dim,
        "linear_value_head_dim": config.lin_dim,
        "linear_num_key_heads": config.k_heads,
        "linear_num_value_heads": config.v_heads,
        "mamba_ssm_dtype": "float32",
        "mlp_only_layers": [],
        "num_experts": config.experts,
        "num_experts_per_tok": config.top_k,
        "moe_intermediate_size": config.expert_dim,
        "shared_expert_intermediate_size": config.shared_dim,
        "router_aux_loss_coef": 0.01,
        "output_router_logits": False,
        "initializer_range": 0.02,
        "partial_rotary_factor": rotary,
        "rope_parameters": rope,
        "mtp_num_hidden_layers": 0,
        "mtp_use_dedicated_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": end_of_text,
        "pad_token_id": None,
        "use_cache": True,
        "dtype": "bfloat16",
    }


def model_config(config, ids):
    """config.json; `ids` are the added tokens."""
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text_config(config, ids["<|endoftext|>"]),
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    options = parser.parse_args()
    config = Config()
    with open(f"{options.out}/tokenizer.json", encoding="utf-8") as file:
        ids = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
    weights = checkpoint.load(options.checkpoint, config)
    checkpoint.save(weights, f"{options.out}/model.safetensors", config)
    with open(f"{options.out}/config.json", "w", encoding="utf-8") as file:
        json.dump(model_config(config, ids), file, indent=1)
    print(f"{len(weights)} tensors, {sum(w.numel() for w in weights.values()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
