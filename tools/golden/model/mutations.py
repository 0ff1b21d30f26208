"""How much each classic mistake shows: applies it to reference.py and compares with the golden logits.

    python mutations.py        # writes mutations.md beside it

tests/golden/mutations.json makes the same mistakes in the engine (cargo xtask mutate); this script checks that its
expectations are those of the reference.

A test-suite of the engine should fail for every mistake that is to be caught.
"""
import json
import types
from pathlib import Path

import numpy as np

import reference

HERE = Path(__file__).parent
GOLDEN = HERE.parents[2] / "tests" / "golden"
CHECKPOINT = GOLDEN / "qwen3_5_moe"
TOLERANCE = 1e-4  # what the engine's tests allow a logit to differ
N_SPLIT = 60  # tokens before the continuation

# (the mistake, text in reference.py, text that makes the mistake)
MISTAKES = [
    (
        "norm weight used as w instead of 1 + w",
        "(1.0 + w if self.config.norm_is_offset else w)",
        "w",
    ),
    (
        "linear_attn.norm treated as zero-centred",
        'self.weight(name + "norm.weight") * silu(z)',
        '(1.0 + self.weight(name + "norm.weight")) * silu(z)',
    ),
    (
        "gate applied before the gated norm",
        'rms(o, self.config.rms_norm_eps) * self.weight(name + "norm.weight") * silu(z)',
        'rms(o * silu(z), self.config.rms_norm_eps) * self.weight(name + "norm.weight")',
    ),
    (
        "z gate sigmoid instead of SiLU",
        "* silu(z)",
        "* sigmoid(z)",
    ),
    (
        "attention output gate SiLU instead of sigmoid",
        "o = o * sigmoid(gate)",
        "o = o * silu(gate)",
    ),
    (
        "attention output gate missing",
        "o = o * sigmoid(gate)",
        "pass",
    ),
    (
        "q and gate split as two halves of the whole row",
        "q, gate = q[..., : c.head_dim], q[..., c.head_dim :]",
        "q, gate = q.reshape(n, 2, c.n_head, c.head_dim).swapaxes(0, 1)",
    ),
    (
        "rotary pairs (2j, 2j + 1) instead of (j, j + half)",
        "a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]\n"
        "    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)",
        "a, b, rest = x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2], x[..., 2 * half :]\n"
        "    pairs = np.stack([a * cos - b * sin, b * cos + a * sin], -1)\n"
        "    return np.concatenate([pairs.reshape(*x.shape[:-1], -1), rest], -1)",
    ),
    (
        "rotary over the whole head",
        'n_rot = int(text["head_dim"] * rope.get("partial_rotary_factor", 1.0 if plain else 0.25))',
        'n_rot = text["head_dim"]',
    ),
    (
        "rotary applied before the q and k norms",
        'q = rope(self.norm(q, name + "q_norm.weight"), *angles)\n'
        '        k = rope(self.norm(k, name + "k_norm.weight"), *angles)',
        'q = self.norm(rope(q, *angles), name + "q_norm.weight")\n'
        '        k = self.norm(rope(k, *angles), name + "k_norm.weight")',
    ),
    (
        "key head of value head j taken as j mod n_head_k",
        "np.arange(c.n_head_v) // (c.n_head_v // c.n_head_k)",
        "np.arange(c.n_head_v) % c.n_head_k",
    ),
    (
        "q of linear attention not scaled",
        "q = (l2norm(q) * c.head_dim_k**-0.5)",
        "q = l2norm(q)",
    ),
    (
        "l2norm with mean instead of sum",
        "(x * x).sum(-1, keepdims=True) + 1e-6",
        "(x * x).mean(-1, keepdims=True) + 1e-6",
    ),
    (
        "l2norm as x / max(norm, eps)",
        "np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)",
        "np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-6)",
    ),
    (
        "SiLU after the convolution missing",
        "qkv = silu(self.convolution(qkv, name, state))",
        "qkv = self.convolution(qkv, name, state)",
    ),
    (
        "convolution taps reversed",
        "* taps[:, j] for j",
        "* taps[:, n_tap - 1 - j] for j",
    ),
    (
        "dt_bias omitted",
        'softplus(a + self.weight(name + "dt_bias"))',
        "softplus(a)",
    ),
    (
        "router weights not renormalised",
        "weights = weights / weights.sum(-1, keepdims=True)",
        "pass",
    ),
    (
        "softmax over the selected logits only",
        "weights = weights / weights.sum(-1, keepdims=True)",
        "weights = softmax(np.take_along_axis(logits, experts, -1))",
    ),
    (
        "gate and up halves of an expert swapped",
        "gate, up = np.split(fused[expert]",
        "up, gate = np.split(fused[expert]",
    ),
    (
        "shared expert gate missing",
        "y = y + gate * self.linear(h",
        "y = y + self.linear(h",
    ),
    (
        "mrope sections contiguous instead of interleaved",
        "angle = positions[:, None] * inverse",
        "angle = np.stack([positions] * 3, 1)[:, [0, 0, 1, 2]] * inverse",
    ),
    (
        "state read before the update",
        "s = s + k[t][:, :, None] * d[:, None, :]\n"
        '        o[t] = np.einsum("hkv,hk->hv", s, q[t])',
        'o[t] = np.einsum("hkv,hk->hv", s, q[t])\n'
        "        s = s + k[t][:, :, None] * d[:, None, :]",
    ),
    (
        "prediction from the undecayed state",
        "s = s * np.exp(g[t])[:, None, None]\n"
        '        predicted = np.einsum("hkv,hk->hv", s, k[t])',
        'predicted = np.einsum("hkv,hk->hv", s, k[t])\n'
        "        s = s * np.exp(g[t])[:, None, None]",
    ),
    (
        "no delta: plain gated linear attention",
        "(v[t] - predicted)",
        "v[t]",
    ),
]
FORGOTTEN_STATES = [
    ("continuation starts from a zero recurrent state", "s"),
    ("continuation starts from a zero convolution state", "conv"),
]
NOTE = """# Classic mistakes, and how much each shows

Written by mutations.py. Each mistake was made in the float64 reference and run on the 150 golden ids of
`tests/golden/qwen3_5_moe`: the largest change of a logit (their standard deviation is 1.2) and how many of
the most probable next tokens changed. Mistakes in the rotary embedding change few of those, so a smoke test
passes them.
What changes no logit by more than 1e-4 is the same function or nearly so, and need not be caught.

| mistake | largest change | most probable token changed | a test should |
|---|---|---|---|
"""


def mistaken_logits(ids, before, after):
    """Logits of the reference with a piece of its text replaced."""
    source = Path(reference.__file__).read_text()
    assert source.count(before) == 1, f"{source.count(before)} places for {before!r}"
    module = types.ModuleType("mistaken_reference")
    exec(compile(source.replace(before, after), module.__name__, "exec"), vars(module))
    with np.errstate(all="ignore"):  # some mistakes overflow
        return module.Model(*module.open_checkpoint(CHECKPOINT)).forward(ids)


def forgetful_logits(ids, part):
    """Logits of a prefill in two pieces, where `part` of the linear layers' state is lost between them."""
    model = reference.Model(*reference.open_checkpoint(CHECKPOINT))
    state = model.new_state()
    first = model.forward(ids[:N_SPLIT], state)
    for layer in state["layers"]:
        layer.pop(part, None)
    return np.concatenate([first, model.forward(ids[N_SPLIT:], state)])


def main():
    """Writes the table, and compares the list."""
    listed = {m["name"]: m["expected"] for m in json.loads((GOLDEN / "mutations.json").read_text())}
    golden = json.loads((CHECKPOINT / "golden.json").read_text())
    ids, right = golden["ids"], np.array(golden["logits"])
    runs = [(name, mistaken_logits(ids, before, after)) for name, before, after in MISTAKES]
    runs += [(name, forgetful_logits(ids, part)) for name, part in FORGOTTEN_STATES]
    rows = []
    for name, logits in runs:
        difference = abs(logits - right)
        change = np.inf if np.isnan(difference).any() else difference.max()
        expected = "caught" if change > TOLERANCE else "harmless"
        n_changed = np.count_nonzero(logits.argmax(-1) != right.argmax(-1))
        shown = "not finite" if np.isinf(change) else f"{change:.1e}"
        action = "fail" if expected == "caught" else "pass"
        rows.append(f"| {name} | {shown} | {n_changed} of {len(ids)} | {action} |\n")
        if listed.get(name, expected) != expected:
            raise SystemExit(f"mutations.json expects '{name}' to be {listed[name]}, here it is {expected}")
    (HERE / "mutations.md").write_text(NOTE + "".join(rows))


if __name__ == "__main__":
    main()
