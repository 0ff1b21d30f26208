"""The forward pass of Qwen3.5-MoE, Qwen3-Next and Qwen3-MoE in float64: the oracle of the engine's tests.

Literal and slow, NumPy only, and sharing no code with the engine. Checked against transformers 5.24 in
float64: logits differ by less than 4e-13 on tiny checkpoints of the first two. Text only: no vision, no
multi-token-prediction head.

    model = Model(*open_checkpoint("tests/golden/qwen3_5_moe"))
    logits = model.forward(ids)                        # one prefill, [n_tokens, n_vocab]
    state = model.new_state()
    model.forward(ids[:70], state)                     # or any split of it
    model.forward(ids[70:], state)

    python reference.py CHECKPOINT                     # checks chunked against recurrent, split against whole
"""
import argparse
from dataclasses import dataclass, field

import numpy as np

from checkpoint import read_checkpoint

FULL = "full_attention"
LINEAR = "linear_attention"


@dataclass(frozen=True)
class Linear:
    """Shapes of the Gated DeltaNet layers."""

    n_head_k: int
    n_head_v: int
    head_dim_k: int
    head_dim_v: int


@dataclass(frozen=True)
class Config:
    """What the formulas need to know beside the weights' own shapes."""

    layers: list  # FULL or LINEAR, one a layer
    n_head: int
    n_head_kv: int
    head_dim: int
    attention_gate: bool  # q_proj has, per head, the query and then the output gate
    n_rot: int  # leading dims of a head that are rotated
    rope_theta: float
    linear: Linear | None
    n_expert_used: int
    norm_topk_prob: bool
    rms_norm_eps: float
    tie_word_embeddings: bool
    norm_is_offset: bool  # norm weights are w, to be applied as 1 + w


@dataclass
class Trace:
    """What one forward call computed on the way, one entry a layer."""

    block_outputs: list = field(default_factory=list)  # [n_tokens, d_model]
    experts: list = field(default_factory=list)  # [n_tokens, n_expert_used], most probable first
    router_gaps: list = field(default_factory=list)  # [n_tokens]: last kept minus first dropped router logit


def config_from_hf(top):
    """Config of a config.json."""
    text = top.get("text_config", top)
    architecture = text["model_type"].removesuffix("_text")
    plain = architecture == "qwen3_moe"
    n_layer, interval = text["num_hidden_layers"], text.get("full_attention_interval", 4)
    default_layers = [FULL if plain or (i + 1) % interval == 0 else LINEAR for i in range(n_layer)]
    layers = text.get("layer_types") or default_layers
    rope = text.get("rope_parameters") or text
    n_rot = int(text["head_dim"] * rope.get("partial_rotary_factor", 1.0 if plain else 0.25))
    linear = None
    if LINEAR in layers:
        linear = Linear(
            n_head_k=text["linear_num_key_heads"],
            n_head_v=text["linear_num_value_heads"],
            head_dim_k=text["linear_key_head_dim"],
            head_dim_v=text["linear_value_head_dim"],
        )
    return Config(
        layers=layers,
        n_head=text["num_attention_heads"],
        n_head_kv=text["num_key_value_heads"],
        head_dim=text["head_dim"],
        attention_gate=not plain,
        n_rot=n_rot,
        rope_theta=rope["rope_theta"],
        linear=linear,
        n_expert_used=text["num_experts_per_tok"],
        norm_topk_prob=architecture == "qwen3_5_moe" or text["norm_topk_prob"],
        rms_norm_eps=text["rms_norm_eps"],
        tie_word_embeddings=text["tie_word_embeddings"],
        norm_is_offset=not plain,
    )


def open_checkpoint(folder):
    """(Config, weights) of a checkpoint folder, for Model."""
    top, weights = read_checkpoint(folder)
    return config_from_hf(top), weights


def sigmoid(x):
    """Logistic function, without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def silu(x):
    """x · sigmoid(x)"""
    return x * sigmoid(x)


def softplus(x):
    """ln(1 + e^x), without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def softmax(x):
    """Over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, eps):
    """Divided by the root of the mean square of the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def l2norm(x):
    """Divided by the root of the sum of squares of the last axis; ε is inside the root."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def rope(x, cos, sin):
    """Rotates the leading n_rot dims of every head.

    x [n_tokens, n_head, head_dim], cos and sin [n_tokens, n_rot / 2].
    Pairs are (j, j + n_rot/2); the dims after n_rot pass through.
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def delta_recurrent(q, k, v, g, beta, s):
    """The gated delta rule, token by token.

    q, k [n_tokens, n_head_v, head_dim_k] (normalised, q scaled), v [n_tokens, n_head_v, head_dim_v],
    g, beta [n_tokens, n_head_v], s [n_head_v, head_dim_k, head_dim_v] -> (o, shaped as v, and the new s).
    """
    o = np.empty_like(v)
    for t in range(len(q)):
        s = s * np.exp(g[t])[:, None, None]
        predicted = np.einsum("hkv,hk->hv", s, k[t])
        d = (v[t] - predicted) * beta[t][:, None]
        s = s + k[t][:, :, None] * d[:, None, :]
        o[t] = np.einsum("hkv,hk->hv", s, q[t])
    return o, s


def delta_chunked(q, k, v, g, beta, s, n_chunk):
    """The same by chunks of n_chunk tokens; the last chunk may be shorter."""
    o = np.empty_like(v)
    s = s.copy()
    for start in range(0, len(q), n_chunk):
        rows = slice(start, start + n_chunk)
        for h in range(q.shape[1]):
            inputs = [x[rows, h] for x in (q, k, v, g, beta)]
            o[rows, h], s[h] = delta_chunk(*inputs, s[h])
    return o, s


def delta_chunk(q, k, v, g, beta, s):
    """One chunk of one value head.

    q, k [n, head_dim_k], v [n, head_dim_v], g, beta [n], s [head_dim_k, head_dim_v].
    """
    n = len(q)
    decay = np.cumsum(g)  # [n], inclusive, from the start of the chunk
    row, col = np.indices((n, n))
    # Masked before the exponential: above the diagonal it could overflow.
    mask = np.exp(np.where(col <= row, decay[:, None] - decay[None, :], -np.inf))
    a = np.where(col < row, beta[:, None] * (k @ k.T) * mask, 0.0)
    right = np.concatenate([beta[:, None] * v, (beta * np.exp(decay))[:, None] * k], -1)
    solved = np.linalg.solve(np.eye(n, dtype=a.dtype) + a, right)
    u, w = solved[:, : v.shape[1]], solved[:, v.shape[1] :]
    v_new = u - w @ s
    o = (np.exp(decay)[:, None] * q) @ s + ((q @ k.T) * mask) @ v_new
    s = np.exp(decay[-1]) * s + (np.exp(decay[-1] - decay)[:, None] * k).T @ v_new
    return o, s


class Model:
    """A model: Config and weights by checkpoint name.

    `n_chunk` 0 runs the delta rule token by token, otherwise in chunks of that many tokens. In float32
    it shows how far rounding alone takes the logits.
    """

    def __init__(self, config, weights, n_chunk=0, dtype=np.float64):
        self.config = config
        self.weights = weights
        self.n_chunk = n_chunk
        self.dtype = dtype
        nested = any(name.startswith("model.language_model.") for name in weights)
        self.prefix = "model.language_model." if nested else "model."

    def weight(self, name):
        """A tensor in the type that is computed in."""
        return self.weights[name].astype(self.dtype)

    def linear(self, x, name):
        """x Wᵀ"""
        return x @ self.weight(name).T

    def norm(self, x, name):
        """RMS norm over the last axis with the model's kind of weight."""
        w = self.weight(name)
        return rms(x, self.config.rms_norm_eps) * (1.0 + w if self.config.norm_is_offset else w)

    def new_state(self):
        """State before the first token: position, and per layer KV, or convolution rows and S."""
        return {"pos": 0, "layers": [{} for _ in self.config.layers]}

    def forward(self, ids, state=None, trace=None):
        """Logits [n_tokens, n_vocab] of `ids` after what `state` has seen; fills `trace` if given."""
        state = self.new_state() if state is None else state
        x = self.weights[self.prefix + "embed_tokens.weight"][np.asarray(ids)].astype(self.dtype)
        angles = self.angles(state["pos"] + np.arange(len(ids)))
        for i in range(len(self.config.layers)):
            x = self.block(x, i, state["layers"][i], angles, trace)
            if trace is not None:
                trace.block_outputs.append(x)
        state["pos"] += len(ids)
        x = self.norm(x, self.prefix + "norm.weight")
        tied = self.config.tie_word_embeddings
        return self.linear(x, self.prefix + "embed_tokens.weight" if tied else "lm_head.weight")

    def block(self, x, i, state, angles, trace):
        """Layer i, x [n_tokens, d_model]."""
        name = f"{self.prefix}layers.{i}."
        h = self.norm(x, name + "input_layernorm.weight")
        if self.config.layers[i] == FULL:
            x = x + self.attention(h, name + "self_attn.", state, angles)
        else:
            x = x + self.deltanet(h, name + "linear_attn.", state)
        return x + self.moe(self.norm(x, name + "post_attention_layernorm.weight"), name + "mlp.", trace)

    def angles(self, positions):
        """cos and sin of the rotary angles, [n_tokens, n_rot / 2] each."""
        n_rot = self.config.n_rot
        inverse = self.config.rope_theta ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)
        angle = positions[:, None] * inverse
        return np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

    def attention(self, x, name, state, angles):
        """Softmax attention, gated if the model is; x [n_tokens, d_model]."""
        c, n = self.config, len(x)
        q = self.linear(x, name + "q_proj.weight").reshape(n, c.n_head, -1)
        q, gate = q[..., : c.head_dim], q[..., c.head_dim :]
        k = self.linear(x, name + "k_proj.weight").reshape(n, c.n_head_kv, c.head_dim)
        v = self.linear(x, name + "v_proj.weight").reshape(n, c.n_head_kv, c.head_dim)
        q = rope(self.norm(q, name + "q_norm.weight"), *angles)
        k = rope(self.norm(k, name + "k_norm.weight"), *angles)
        if "k" in state:
            k = np.concatenate([state["k"], k])
            v = np.concatenate([state["v"], v])
        state["k"], state["v"] = k, v
        future = np.arange(len(k))[None, :] > np.arange(len(k) - n, len(k))[:, None]
        o = np.empty_like(q)
        for h in range(c.n_head):
            kv = h // (c.n_head // c.n_head_kv)
            scores = q[:, h] @ k[:, kv].T * c.head_dim**-0.5
            o[:, h] = softmax(np.where(future, -np.inf, scores)) @ v[:, kv]
        if c.attention_gate:
            o = o * sigmoid(gate)
        return self.linear(o.reshape(n, -1), name + "o_proj.weight")

    def deltanet(self, x, name, state):
        """Gated DeltaNet, x [n_tokens, d_model]."""
        c, n = self.config.linear, len(x)
        qkv, z, b, a = self.deltanet_inputs(x, name)
        qkv = silu(self.convolution(qkv, name, state))
        d_k = c.n_head_k * c.head_dim_k
        q = qkv[:, :d_k].reshape(n, c.n_head_k, c.head_dim_k)
        k = qkv[:, d_k : 2 * d_k].reshape(n, c.n_head_k, c.head_dim_k)
        v = qkv[:, 2 * d_k :].reshape(n, c.n_head_v, c.head_dim_v)
        key_head = np.arange(c.n_head_v) // (c.n_head_v // c.n_head_k)
        q = (l2norm(q) * c.head_dim_k**-0.5)[:, key_head]
        k = l2norm(k)[:, key_head]
        g = -np.exp(self.weight(name + "A_log")) * softplus(a + self.weight(name + "dt_bias"))
        s = state.get("s", np.zeros((c.n_head_v, c.head_dim_k, c.head_dim_v), self.dtype))
        if self.n_chunk == 0:
            o, state["s"] = delta_recurrent(q, k, v, g, sigmoid(b), s)
        else:
            o, state["s"] = delta_chunked(q, k, v, g, sigmoid(b), s, self.n_chunk)
        o = rms(o, self.config.rms_norm_eps) * self.weight(name + "norm.weight") * silu(z)
        return self.linear(o.reshape(n, -1), name + "out_proj.weight")

    def deltanet_inputs(self, x, name):
        """qkv [n_tokens, n_channel], z [n_tokens, n_head_v, head_dim_v], b and a [n_tokens, n_head_v]."""
        c, n = self.config.linear, len(x)
        if name + "in_proj_qkv.weight" in self.weights:
            qkv = self.linear(x, name + "in_proj_qkv.weight")
            z = self.linear(x, name + "in_proj_z.weight").reshape(n, c.n_head_v, c.head_dim_v)
            b, a = (self.linear(x, f"{name}in_proj_{part}.weight") for part in "ba")
            return qkv, z, b, a
        # Qwen3-Next: per key head the rows of q, k, and of v and z of its value heads; b and a alike.
        n_shared = c.n_head_v // c.n_head_k
        d_k, d_v = c.head_dim_k, n_shared * c.head_dim_v
        qkvz = self.linear(x, name + "in_proj_qkvz.weight").reshape(n, c.n_head_k, -1)
        q, k, v, z = np.split(qkvz, [d_k, 2 * d_k, 2 * d_k + d_v], -1)
        qkv = np.concatenate([part.reshape(n, -1) for part in (q, k, v)], -1)
        ba = self.linear(x, name + "in_proj_ba.weight").reshape(n, c.n_head_k, -1)
        b, a = np.split(ba, [n_shared], -1)
        return qkv, z.reshape(n, c.n_head_v, c.head_dim_v), b.reshape(n, -1), a.reshape(n, -1)

    def convolution(self, x, name, state):
        """Depthwise causal convolution; the state is the last rows before it, x [n_tokens, n_channel]."""
        taps = self.weight(name + "conv1d.weight").squeeze(1)  # [n_channel, n_tap], the last is "now"
        n_tap = taps.shape[1]
        history = state.get("conv", np.zeros((n_tap - 1, x.shape[1]), self.dtype))
        rows = np.concatenate([history, x])
        state["conv"] = rows[-(n_tap - 1) :]
        return sum(rows[j : j + len(x)] * taps[:, j] for j in range(n_tap))

    def moe(self, x, name, trace):
        """Routed experts, and the shared expert if there is one; x [n_tokens, d_model]."""
        experts, expert_weights = self.route(x, name, trace)
        y = np.zeros_like(x)
        for t in range(len(x)):
            for expert, weight in zip(experts[t], expert_weights[t]):
                gate, up, down = self.expert(name, expert)
                y[t] += weight * (silu(x[t] @ gate.T) * (x[t] @ up.T)) @ down.T
        if name + "shared_expert.gate_proj.weight" in self.weights:
            h = silu(self.linear(x, name + "shared_expert.gate_proj.weight"))
            h = h * self.linear(x, name + "shared_expert.up_proj.weight")
            gate = sigmoid(self.linear(x, name + "shared_expert_gate.weight"))
            y = y + gate * self.linear(h, name + "shared_expert.down_proj.weight")
        return y

    def route(self, x, name, trace):
        """Expert ids and weights, [n_tokens, n_expert_used] each; among equals the lowest id wins."""
        n_used = self.config.n_expert_used
        logits = self.linear(x, name + "gate.weight")
        probabilities = softmax(logits)
        order = np.argsort(-probabilities, axis=-1, kind="stable")
        experts = order[:, :n_used]
        weights = np.take_along_axis(probabilities, experts, -1)
        if self.config.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdims=True)
        if trace is not None:
            ranked = np.take_along_axis(logits, order, -1)
            trace.experts.append(experts)
            trace.router_gaps.append(ranked[:, n_used - 1] - ranked[:, n_used])
        return experts, weights

    def expert(self, name, expert):
        """gate, up [d_ff_expert, d_model] and down [d_model, d_ff_expert] of a routed expert."""
        fused = self.weights.get(name + "experts.gate_up_proj")
        if fused is None:
            parts = ("gate", "up", "down")
            return [self.weight(f"{name}experts.{expert}.{part}_proj.weight") for part in parts]
        gate, up = np.split(fused[expert].astype(self.dtype), 2)
        return gate, up, self.weights[name + "experts.down_proj"][expert].astype(self.dtype)


def golden_ids():
    """The 150 token ids of the golden vectors."""
    return np.random.default_rng(0).integers(0, 256, 150)


def float32_error(config, weights, ids, logits):
    """How far rounding alone takes the logits: the worse of the recurrence and chunks of 64 in float32."""
    errors = []
    for n_chunk in (0, 64):
        rounded = Model(config, weights, n_chunk, np.float32).forward(ids)
        assert rounded.dtype == np.float32
        errors.append(abs(rounded - logits).max())
    return max(errors)


def main():
    """Checks the reference against itself on a checkpoint."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("checkpoint")
    opened = open_checkpoint(parser.parse_args().checkpoint)
    ids = golden_ids()
    model = Model(*opened)
    whole = model.forward(ids)
    state = model.new_state()
    pieces = [ids[:70], ids[70:103]] + [[token] for token in ids[103:]]
    split = np.concatenate([model.forward(piece, state) for piece in pieces])
    print(f"logits: std {whole.std():.3f}, last row starts {whole[-1][:4].round(6)}")
    print(f"split 70+33+47x1 against whole: {abs(split - whole).max():.1e}")
    for n_chunk in (7, 64):
        chunked = Model(*opened, n_chunk=n_chunk).forward(ids)
        print(f"chunks of {n_chunk} against the recurrence: {abs(chunked - whole).max():.1e}")
    print(f"in float32: {float32_error(*opened, ids, whole):.1e}")


if __name__ == "__main__":
    main()
