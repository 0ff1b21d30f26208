"""Writes the golden vectors of a checkpoint or of a packed store: what the float64 reference computes.

    python make_golden.py tests/golden/qwen3_5_moe tests/golden/qwen3_5_moe/golden.json
    python make_golden.py --store STORE OUT.json       # the store's weights decoded; logits only

The fields are described in tests/golden/README.md.
"""
import argparse
import json
from pathlib import Path

import numpy as np

from read_store import open_store
from reference import LINEAR, Model, Trace, float32_error, golden_ids, open_checkpoint

BLOCK_POSITIONS = [0, 5, 64, 149]


def rounded(values, decimals):
    """Nested lists of numbers that JSON can hold."""
    return np.round(values, decimals).tolist()


def linear_state(layer, state):
    """A linear-attention layer's conv [n_conv - 1, n_channel] and s [n_head_v, head_dim_k, head_dim_v]."""
    return {"layer": layer, "conv": rounded(state["conv"], 9), "s": rounded(state["s"], 9)}


def golden(model, logits_only):
    """The golden vectors, and what limits a float32 engine: the closest routing decision, and rounding."""
    ids = golden_ids()
    state, trace = model.new_state(), Trace()
    logits = model.forward(ids, state, trace)
    vectors = {"ids": ids.tolist(), "logits": rounded(logits, 7)}
    if not logits_only:
        linear_layers = [i for i, kind in enumerate(model.config.layers) if kind == LINEAR]
        ends = sorted({linear_layers[0], linear_layers[-1]}) if linear_layers else []
        vectors |= {
            "block_positions": BLOCK_POSITIONS,
            "block_outputs": [rounded(x[BLOCK_POSITIONS], 9) for x in trace.block_outputs],
            "layer_0_experts": trace.experts[0].tolist(),
            "linear_states": [linear_state(i, state["layers"][i]) for i in ends],
        }
    rounding = float32_error(model.config, model.weights, ids, logits)
    return vectors, f"smallest router gap {np.min(trace.router_gaps):.1e}, float32 error {rounding:.1e}"


def main():
    """Writes one golden file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", action="store_true", help="MODEL is a packed store")
    args = parser.parse_args()
    opened = open_store(args.model) if args.store else open_checkpoint(args.model)
    vectors, limits = golden(Model(*opened), logits_only=args.store)
    args.out.write_text(json.dumps(vectors, separators=(",", ":")) + "\n")
    print(f"{args.out}: logits std {np.std(vectors['logits']):.3f}, {limits}")


if __name__ == "__main__":
    main()
