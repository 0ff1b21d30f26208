"""Cut the Qwen3.5 tokenizer down to its first 8,192 ranks and its 33 added tokens; write the other text files too.

The first N ranks of a byte-level BPE are themselves a valid BPE (every merge only needs earlier ranks), so the small
tokenizer uses the same algorithm, normaliser and split rules as the big one.  Added tokens keep their order and flags.

usage: make_tokenizer.py FULL_TOKENIZER_JSON OUT_DIR [--ranks 8192]
"""

import argparse
import json
import os
from pathlib import Path

TOKEN_FIELDS = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")


def cut(tokenizer, ranks):
    """The tokenizer with its first `ranks` ranks; added tokens are numbered after them."""
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda entry: entry[1])
    kept = dict(vocabulary[:ranks])
    merges = [(a, b) for a, b in tokenizer["model"]["merges"] if a + b in kept and a in kept and b in kept]
    tokenizer["model"] |= {"vocab": kept, "merges": [list(merge) for merge in merges]}
    for i, token in enumerate(tokenizer["added_tokens"]):
        token["id"] = ranks + i
    return tokenizer


def tokenizer_config(added, template):
    """tokenizer_config.json"""
    special = [token["content"] for token in added if token["special"] and token["content"].startswith("<|")]
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(token["id"]): {key: token[key] for key in TOKEN_FIELDS} for token in added},
        "additional_special_tokens": special,
        "bos_token": None,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 4096,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def generation_config(ids):
    """generation_config.json"""
    return {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
        "top_k": 20,
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|endoftext|>"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("full", help="tokenizer.json of a Qwen3.5 model")
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=8192)
    options = parser.parse_args()
    tokenizer = cut(json.loads(Path(options.full).read_text(encoding="utf-8")), options.ranks)
    added = tokenizer["added_tokens"]
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    files = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": tokenizer_config(added, template),
        "generation_config.json": generation_config({token["content"]: token["id"] for token in added}),
    }
    os.makedirs(options.out, exist_ok=True)
    for name, content in files.items():
        Path(options.out, name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    Path(options.out, "chat_template.jinja").write_text(template, encoding="utf-8")
    print(f"{options.ranks} ranks, {len(tokenizer['model']['merges'])} merges, {len(added)} added tokens")


if __name__ == "__main__":
    main()
