"""Compact PyTorch implementation of the text part of Qwen3.5-MoE: training forward, prefill and one-token decode.

Documents packed into one row are kept apart: attention by a mask, the convolution by a mask, the recurrent state by a
decay of e^-60 at each document start.  Shapes: B rows, T tokens, H hidden, D width of a head.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from delta_rule import delta_rule

DOCUMENT_DECAY = 60.0


@dataclass
class Config:
    vocab: int = 8256  # 8192 ranks and 33 added tokens, padded to a multiple of 64
    hidden: int = 256
    layers: int = 8  # every 4th is full attention
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary: int = 16  # head_dim * 0.25
    theta: float = 1e7
    k_heads: int = 4  # linear attention: key heads, value heads and their width
    v_heads: int = 8
    lin_dim: int = 64
    conv: int = 4
    experts: int = 64
    top_k: int = 6
    expert_dim: int = 64
    shared_dim: int = 64
    eps: float = 1e-6

    def kind(self, layer):
        return "full" if (layer + 1) % 4 == 0 else "linear"


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def matrix(rows, columns, gain=1.0):
    return nn.Parameter(torch.randn(rows, columns) * columns**-0.5 * gain)


# ---------------------------------------------------------------- experts
class Dispatch(torch.autograd.Function):
    """x [M,H] -> copies sorted by expert [M*k,H]; the backward is a gather too, without atomics."""

    @staticmethod
    def forward(ctx, x, order, inverse, k):
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x[order // k]

    @staticmethod
    def backward(ctx, gradient):
        (inverse,) = ctx.saved_tensors
        return gradient[inverse].view(-1, ctx.k, gradient.shape[-1]).sum(1), None, None, None


class Combine(torch.autograd.Function):
    """The inverse of Dispatch: sums the k results of every token."""

    @staticmethod
    def forward(ctx, y, order, inverse, k):
        ctx.save_for_backward(order)
        ctx.k = k
        return y[inverse].view(-1, k, y.shape[-1]).sum(1)

    @staticmethod
    def backward(ctx, gradient):
        (order,) = ctx.saved_tensors
        return gradient[order // ctx.k], None, None, None


class MoE(nn.Module):
    """Router, experts and a gated shared expert."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        H, experts, width, shared = config.hidden, config.experts, config.expert_dim, config.shared_dim
        self.gate = nn.Parameter(torch.randn(experts, H) * 0.02)
        self.gate_up = nn.Parameter(torch.randn(experts, 2 * width, H) * H**-0.5)
        self.down = nn.Parameter(torch.randn(experts, H, width) * width**-0.5 * 0.3)
        self.sh_gate = matrix(shared, H)
        self.sh_up = matrix(shared, H)
        self.sh_down = matrix(H, shared, 0.3)
        self.sh_g = nn.Parameter(torch.zeros(1, H))

    def forward(self, h, dtype, grouped):
        """h [M,H] in f32 -> (y [M,H], load-balance loss)"""
        config, x = self.config, h.to(dtype)
        logits = h @ self.gate.t()  # router in f32
        weights, chosen = torch.topk(logits, config.top_k, -1)
        weights = torch.softmax(weights, -1)  # = softmax over all, then renormalised
        ones = torch.ones(chosen.numel(), device=h.device)
        count = torch.zeros(config.experts, device=h.device).index_add_(0, chosen.reshape(-1), ones)
        probability = torch.softmax(logits, -1).mean(0)
        balance = config.experts * (probability * count / (h.shape[0] * config.top_k)).sum()
        if grouped:
            y = self.chosen_experts(x, weights, chosen, count)
        else:
            y = self.all_experts(x, torch.zeros_like(logits).scatter(1, chosen, weights))
        shared = F.silu(F.linear(x, self.sh_gate.to(dtype))) * F.linear(x, self.sh_up.to(dtype))
        shared = F.linear(shared, self.sh_down.to(dtype))
        return y.float() + torch.sigmoid(h @ self.sh_g.t()) * shared.float(), balance

    def chosen_experts(self, x, weights, chosen, count):
        """Only the chosen experts, by grouped matrix products."""
        k, width = self.config.top_k, self.config.expert_dim
        order = torch.argsort(chosen.reshape(-1))
        inverse = torch.argsort(order)
        offsets = count.cumsum(0).to(torch.int32)
        rows = Dispatch.apply(x, order, inverse, k)
        up = torch._grouped_mm(rows, self.gate_up.to(x.dtype).transpose(1, 2), offs=offsets)
        act = F.silu(up[:, :width]) * up[:, width:] * weights.reshape(-1)[order].unsqueeze(-1).to(x.dtype)
        down = torch._grouped_mm(act, self.down.to(x.dtype).transpose(1, 2), offs=offsets)
        return Combine.apply(down, order, inverse, k)

    def all_experts(self, x, weights):
        """All experts, those not chosen weighted 0: simple, and exact in f32."""
        width = self.config.expert_dim
        up = torch.einsum("mh,eih->mei", x, self.gate_up.to(x.dtype))
        act = F.silu(up[..., :width]) * up[..., width:] * weights.unsqueeze(-1).to(x.dtype)
        return torch.einsum("mei,ehi->mh", act, self.down.to(x.dtype))


# ---------------------------------------------------------------- token mixers
class FullAttention(nn.Module):
    """Grouped-query attention with an output gate."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        H, D = config.hidden, config.head_dim
        self.q = matrix(2 * config.heads * D, H)  # queries and gates
        self.k = matrix(config.kv_heads * D, H)
        self.v = matrix(config.kv_heads * D, H)
        self.o = matrix(H, config.heads * D, 0.3)
        self.qn = nn.Parameter(torch.zeros(D))
        self.kn = nn.Parameter(torch.zeros(D))
        frequencies = config.theta ** (-torch.arange(0, config.rotary, 2).double() / config.rotary)
        self.register_buffer("inv", frequencies, persistent=False)

    def rotate(self, x, positions):
        """x [B,T,h,D], positions [B,T]"""
        angles = (positions.double().unsqueeze(-1) * self.inv).float()
        cos, sin = angles.cos().unsqueeze(2), angles.sin().unsqueeze(2)
        half = self.config.rotary // 2
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def forward(self, h, mask, positions, dtype, cache=None):
        config = self.config
        B, T, _ = h.shape
        x, D = h.to(dtype), config.head_dim
        query_gate = F.linear(x, self.q.to(dtype)).view(B, T, config.heads, 2 * D)
        q, gate = query_gate[..., :D].float(), query_gate[..., D:]
        k = F.linear(x, self.k.to(dtype)).view(B, T, config.kv_heads, D).float()
        v = F.linear(x, self.v.to(dtype)).view(B, T, config.kv_heads, D)
        q = self.rotate(rms(q, config.eps) * (1 + self.qn), positions).to(dtype)
        k = self.rotate(rms(k, config.eps) * (1 + self.kn), positions).to(dtype)
        if cache is not None:
            seen = cache["n"]
            cache["k"][:, seen : seen + T] = k
            cache["v"][:, seen : seen + T] = v
            k, v = cache["k"][:, : seen + T], cache["v"][:, : seen + T]
        repeats = config.heads // config.kv_heads
        k, v = k.repeat_interleave(repeats, 2), v.repeat_interleave(repeats, 2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        out = out * torch.sigmoid(gate)
        return F.linear(out.reshape(B, T, -1), self.o.to(dtype)).float()


class DeltaNet(nn.Module):
    """Gated DeltaNet: a short convolution, then linear attention with the gated delta rule."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        H, heads = config.hidden, config.v_heads
        self.key_size, self.value_size = config.k_heads * config.lin_dim, config.v_heads * config.lin_dim
        channels = 2 * self.key_size + self.value_size
        self.qkv = matrix(channels, H)
        self.z = matrix(self.value_size, H)
        self.b = matrix(heads, H)
        self.a = matrix(heads, H)
        self.out = matrix(H, self.value_size, 0.3)
        self.conv = nn.Parameter((torch.rand(channels, config.conv) - 0.5) + torch.tensor([0.0, 0.0, 0.0, 0.5]))
        step = torch.exp(torch.rand(heads) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.log(torch.rand(heads) * 15 + 1))
        self.norm = nn.Parameter(torch.ones(config.lin_dim))

    def split_heads(self, mixed, B, T):
        """-> q (scaled), k (both of unit length) and v by heads"""
        config = self.config
        q, k, v = mixed.split([self.key_size, self.key_size, self.value_size], -1)

        def unit(x):
            x = x.reshape(B, T, config.k_heads, -1)
            return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)

        return unit(q) * config.lin_dim**-0.5, unit(k), v.reshape(B, T, config.v_heads, -1)

    def forward(self, h, same, start, dtype, state=None):
        """same [B,T,3]: token t-3, t-2, t-1 is of the same document; start [B,T]: first token of a document"""
        config = self.config
        B, T, _ = h.shape
        x = h.to(dtype)
        mixed = F.linear(x, self.qkv.to(dtype)).float()
        z = F.linear(x, self.z.to(dtype)).float()
        beta = torch.sigmoid(h @ self.b.t())
        g = -self.A_log.exp() * F.softplus(h @ self.a.t() + self.dt_bias)
        if state is None or T > 1:
            out = self.many(mixed, g - DOCUMENT_DECAY * start.unsqueeze(-1), beta, same, state)
        else:
            out = self.one(mixed, g, beta, state)
        out = rms(out, config.eps) * self.norm * F.silu(z.view(B, T, config.v_heads, -1))
        return F.linear(out.reshape(B, T, -1).to(dtype), self.out.to(dtype)).float()

    def many(self, mixed, g, beta, same, state):
        """Many tokens from an empty state; fills `state` if given."""
        config = self.config
        B, T, _ = mixed.shape
        padded = F.pad(mixed, (0, 0, 3, 0))
        taps = sum(padded[:, j : j + T] * same[..., j : j + 1] * self.conv[:, j] for j in range(3))
        q, k, v = self.split_heads(F.silu(mixed * self.conv[:, 3] + taps), B, T)
        out, end = delta_rule(q, k, v, g, beta)
        if state is not None:
            state["S"] = end.view(B, config.v_heads, config.lin_dim, config.lin_dim)
            state["conv"] = mixed[:, -3:]
        return out

    def one(self, mixed, g, beta, state):
        """One more token."""
        config = self.config
        window = torch.cat([state["conv"], mixed], 1)
        state["conv"] = window[:, 1:]
        q, k, v = self.split_heads(F.silu((window * self.conv.t()).sum(1, keepdim=True)), len(mixed), 1)
        repeats = config.v_heads // config.k_heads
        q, k, v = q[:, 0].repeat_interleave(repeats, 1), k[:, 0].repeat_interleave(repeats, 1), v[:, 0]
        S = state["S"] * g[:, 0, :, None, None].exp()
        correction = beta[:, 0, :, None] * (v - torch.einsum("bhkd,bhk->bhd", S, k))
        S = S + k.unsqueeze(-1) * correction.unsqueeze(-2)
        state["S"] = S
        return torch.einsum("bhkd,bhk->bhd", S, q).unsqueeze(1)


# ---------------------------------------------------------------- the model
class Block(nn.Module):
    def __init__(self, config, kind):
        super().__init__()
        self.config, self.kind = config, kind
        self.n1 = nn.Parameter(torch.zeros(config.hidden))
        self.n2 = nn.Parameter(torch.zeros(config.hidden))
        self.mix = FullAttention(config) if kind == "full" else DeltaNet(config)
        self.moe = MoE(config)

    def forward(self, x, a, b, dtype, grouped, state=None):
        """`a`, `b`: mask and positions (full attention), or same and start (linear attention)."""
        eps = self.config.eps
        x = x + self.mix(rms(x, eps) * (1 + self.n1), a, b, dtype, state)
        y, balance = self.moe((rms(x, eps) * (1 + self.n2)).reshape(-1, self.config.hidden), dtype, grouped)
        return x + y.view_as(x), balance


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.randn(config.vocab, config.hidden) * 0.05)
        self.head = nn.Parameter(torch.randn(config.vocab, config.hidden) * 0.01)
        self.norm = nn.Parameter(torch.zeros(config.hidden))
        self.blocks = nn.ModuleList(Block(config, config.kind(i)) for i in range(config.layers))

    def contexts(self, documents):
        """Document numbers [B,T] -> what the two kinds of blocks need to keep documents apart."""
        B, T = documents.shape
        documents = documents.to(torch.int32)
        causal = torch.ones(T, T, dtype=torch.bool, device=documents.device).tril()
        mask = ((documents[:, :, None] == documents[:, None, :]) & causal).unsqueeze(1)
        positions = torch.arange(T, device=documents.device).expand(B, T)
        padded = F.pad(documents, (3, 0), value=-1)
        same = torch.stack([padded[:, j : j + T] == documents for j in range(3)], -1).float()
        start = 1.0 - same[..., 2]
        return {"full": (mask, positions), "linear": (same, start)}

    def hidden(self, ids, documents, dtype=torch.bfloat16, grouped=True, blocks=None):
        """-> final hidden states [B,T,H], mean load-balance loss; `blocks` may hold compiled versions of the blocks"""
        contexts, x, balance = self.contexts(documents), self.embed[ids], 0.0
        for block, run in zip(self.blocks, blocks or self.blocks):
            x, loss = run(x, *contexts[block.kind], dtype, grouped)
            balance = balance + loss
        return rms(x, self.config.eps) * (1 + self.norm), balance / self.config.layers

    def logits(self, hidden, dtype):
        return F.linear(hidden.to(dtype), self.head.to(dtype)).float()

    # ---------------------------------------------------------------- generation (batched, left-padded)
    def prefill(self, ids, documents, room, dtype=torch.float32):
        """-> logits of the last token [B,vocab], state with space for `room` more tokens"""
        B, T = ids.shape
        contexts, x, states = self.contexts(documents), self.embed[ids], []
        for block in self.blocks:
            state = self.empty_cache(B, T + room, dtype, ids.device) if block.kind == "full" else {}
            x, _ = block(x, *contexts[block.kind], dtype, False, state)
            if block.kind == "full":
                state["n"] = T
            states.append(state)
        live = F.pad(documents > 0, (0, room), value=True)  # padding is never attended
        return self.last_logits(x[:, -1], dtype), {"layers": states, "live": live, "n": T}

    def empty_cache(self, B, length, dtype, device):
        shape = (B, length, self.config.kv_heads, self.config.head_dim)
        return {name: torch.zeros(shape, device=device, dtype=dtype) for name in ("k", "v")} | {"n": 0}

    def step(self, token, state, dtype=torch.float32):
        """One more token for every row -> logits [B,vocab]"""
        seen = state["n"]
        x = self.embed[token].unsqueeze(1)
        positions = torch.full((len(token), 1), seen, device=token.device)
        mask = state["live"][:, None, None, : seen + 1]
        for block, layer in zip(self.blocks, state["layers"]):
            if block.kind == "full":
                layer["n"] = seen
                x, _ = block(x, mask, positions, dtype, False, layer)
            else:
                x, _ = block(x, None, None, dtype, False, layer)
        state["n"] = seen + 1
        return self.last_logits(x[:, 0], dtype)

    def last_logits(self, x, dtype):
        return self.logits(rms(x, self.config.eps) * (1 + self.norm), dtype)
