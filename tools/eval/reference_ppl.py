#!/usr/bin/env python3
"""What `flash-moe eval --text` should say, in float64 and without the engine: perplexity, bits per byte, KL.

    python reference_ppl.py MODEL --text FILE [--window N] [--stride N] [--counting llama.cpp] [--experts K]
    python reference_ppl.py MODEL --text FILE --experts 3 --against MODEL --against-experts 6

A MODEL is a checkpoint folder or a store. Needs numpy and tokenizers. It shares the forward pass with
tools/golden/model, which is checked against transformers; windows, counting and sums are written here from their
description in docs/quality.md. Prints JSON.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent.parent / "golden/model"))
from read_store import open_store  # noqa: E402
from reference import Model, open_checkpoint, sigmoid, silu  # noqa: E402

N_CHUNK = 64  # of the delta rule: equal to the recurrence but for rounding, and faster


class BatchedModel(Model):
    """The same formulas, all tokens of an expert at once."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.kept = {}

    def weight(self, name):
        """A tensor in float64, kept."""
        if name not in self.kept:
            self.kept[name] = super().weight(name)
        return self.kept[name]

    def expert(self, name, expert):
        """The matrices of a routed expert, kept."""
        key = f"{name}{expert}"
        if key not in self.kept:
            self.kept[key] = super().expert(name, expert)
        return self.kept[key]

    def moe(self, x, name, trace):
        """Routed experts and the shared one; x [n_tokens, d_model]."""
        experts, weights = self.route(x, name, trace)
        y = np.zeros_like(x)
        for expert in np.unique(experts):
            rows, slots = np.nonzero(experts == expert)
            gate, up, down = self.expert(name, expert)
            h = silu(x[rows] @ gate.T) * (x[rows] @ up.T)
            y[rows] += weights[rows, slots][:, None] * (h @ down.T)
        if name + "shared_expert.gate_proj.weight" in self.weights:
            h = silu(self.linear(x, name + "shared_expert.gate_proj.weight"))
            h = h * self.linear(x, name + "shared_expert.up_proj.weight")
            gate = sigmoid(self.linear(x, name + "shared_expert_gate.weight"))
            y = y + gate * self.linear(h, name + "shared_expert.down_proj.weight")
        return y


def open_model(folder, n_expert_used):
    """A model of a checkpoint or a store, with another number of experts if one is given."""
    is_store = (Path(folder) / "manifest.json").exists()
    config, weights = open_store(folder) if is_store else open_checkpoint(folder)
    if n_expert_used:
        config = config.__class__(**{**config.__dict__, "n_expert_used": n_expert_used})
    return BatchedModel(config, weights, N_CHUNK)


def windows(n_token, window, stride, second_halves):
    """(start, first counted position, end) of each window of a document."""
    if second_halves:
        return [(at, at + window // 2 + 1, at + window) for at in range(0, n_token - window + 1, window)]
    found, begin, previous_end = [], 0, 1
    while previous_end < n_token:
        end = min(begin + window, n_token)
        first = max(previous_end, begin + 1)
        if first < end:
            found.append((begin, first, end))
        previous_end, begin = end, begin + stride
    return found


def log_softmax(x):
    """Over the last axis."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def read_documents(paths, limit):
    """Texts of all files; a .jsonl file has one a line. The first `limit` bytes of all."""
    texts = []
    for path in paths:
        text = Path(path).read_bytes().decode()
        if str(path).endswith(".jsonl"):
            texts += [json.loads(line)["text"] for line in text.splitlines() if line.strip()]
        else:
            texts.append(text)
    for text in texts:
        data = text.encode()[:limit]
        limit = None if limit is None else limit - len(data)
        yield data.decode(errors="ignore")


def run(models, documents, cut):
    """-ln p of each counted token and its bytes; of a second model, KL and whether the likeliest tokens agree."""
    nll, n_bytes, theirs, kl, same = [], [], [], [], []
    tokenizer, documents = documents
    for text in documents:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for start, first, end in windows(len(ids), *cut):
            part = ids[start:end]
            rows, targets = np.arange(first - start - 1, end - start - 1), np.array(ids[first:end])
            logs = [log_softmax(model.forward(part)[rows]) for model in models]
            picked = [-log[np.arange(len(rows)), targets] for log in logs]
            nll.append(picked[0])
            n_bytes += [token_bytes(tokenizer, token) for token in targets]
            if len(models) > 1:
                ours, reference = logs
                theirs.append(picked[1])
                kl.append((np.exp(reference) * (reference - ours)).sum(-1))
                same.append(ours.argmax(-1) == reference.argmax(-1))
            print(f"{sum(map(len, nll))} tokens", file=sys.stderr)
    return [np.concatenate(column) if column else None for column in (nll, theirs, kl, same)], sum(n_bytes)


def token_bytes(tokenizer, token):
    """Bytes of a token: in byte-level BPE a character of its name is a byte; an added token is its own text."""
    name = tokenizer.id_to_token(int(token))
    added = tokenizer.get_added_tokens_decoder()
    return len(name.encode()) if int(token) in added else len(name)


def report(columns, n_bytes):
    """The figures of `eval --json` that do not depend on how intervals are made."""
    nll, theirs, kl, same = columns
    figures = {
        "n_counted": len(nll),
        "counted_bytes": n_bytes,
        "perplexity": math.exp(nll.mean()),
        "bits_per_byte": nll.sum() / math.log(2) / n_bytes,
    }
    if kl is not None:
        ordered = np.sort(kl)
        figures["reference"] = {
            "perplexity": math.exp(theirs.mean()),
            "perplexity_change": math.exp(nll.mean()) - math.exp(theirs.mean()),
            "kl_mean": kl.mean(),
            "kl_median": ordered[(len(kl) - 1) // 2],
            "kl_p99": ordered[int((len(kl) - 1) * 0.99)],
            "kl_max": ordered[-1],
            "same_top": same.mean(),
        }
    return figures


def main():
    """Runs one model, or two."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model")
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--text-bytes", type=int)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--stride", type=int)
    parser.add_argument("--counting", choices=["strided", "llama.cpp"], default="strided")
    parser.add_argument("--experts", type=int)
    parser.add_argument("--against", help="the reference of the divergence")
    parser.add_argument("--against-experts", type=int)
    args = parser.parse_args()
    models = [open_model(args.model, args.experts)]
    if args.against:
        models.append(open_model(args.against, args.against_experts))
    tokenizer = Tokenizer.from_file(str(Path(args.model) / "tokenizer.json"))
    cut = args.window, args.stride or args.window // 2, args.counting == "llama.cpp"
    documents = tokenizer, list(read_documents(args.text, args.text_bytes))
    print(json.dumps(report(*run(models, documents, cut)), indent=1))


if __name__ == "__main__":
    main()
