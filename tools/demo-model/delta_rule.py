"""The gated delta rule in chunks of 64 tokens.

Its two sequential pieces, the inverse of a unit lower-triangular matrix and the scan over chunks, are Triton kernels on
a GPU and plain PyTorch elsewhere.  Shapes: P (batch x heads), N chunks, C tokens in a chunk, D width of a head.
"""

import torch

try:
    import triton
    import triton.language as tl

    HAVE_TRITON = torch.cuda.is_available()
except ImportError:
    HAVE_TRITON = False

CHUNK = 64

if HAVE_TRITON:

    @triton.jit
    def _inverse_kernel(A, O, C: tl.constexpr):
        """O = (I + A)^-1 for one strictly lower-triangular C x C matrix per program, by forward substitution."""
        p = tl.program_id(0).to(tl.int64) * C * C
        r = tl.arange(0, C)
        t = -tl.load(A + p + r[:, None] * C + r[None, :])
        t = tl.where(r[:, None] > r[None, :], t, 0.0)
        for i in range(1, C):
            a = -tl.load(A + p + i * C + r)
            a = tl.where(r < i, a, 0.0)
            a = a + tl.sum(a[:, None] * t, 0)
            t = tl.where((r == i)[:, None], a[None, :], t)
        t += tl.where(r[:, None] == r[None, :], 1.0, 0.0)
        tl.store(O + p + r[:, None] * C + r[None, :], t)

    @triton.jit
    def _scan_kernel(W, U, K, G, S0, S, V, SE, N, C: tl.constexpr, D: tl.constexpr):
        """For each chunk: S[c] = state;  V = U - W state;  state = G state + K^T V."""
        p = tl.program_id(0).to(tl.int64)
        r = tl.arange(0, C)
        d = tl.arange(0, D)
        tile = r[:, None] * D + d[None, :]
        square = d[:, None] * D + d[None, :]
        s = tl.load(S0 + p * D * D + square)
        for c in range(N):
            o = (p * N + c) * C * D
            os = (p * N + c) * D * D
            tl.store(S + os + square, s)
            w = tl.load(W + o + tile)
            u = tl.load(U + o + tile)
            k = tl.load(K + o + tile)
            v = u - tl.dot(w, s, input_precision="tf32")
            tl.store(V + o + tile, v)
            s = s * tl.load(G + p * N + c) + tl.dot(tl.trans(k), v, input_precision="tf32")
        tl.store(SE + p * D * D + square, s)

    @triton.jit
    def _scan_backward_kernel(W, K, G, dV, dS, dSE, oV, oS, N, C: tl.constexpr, D: tl.constexpr):
        """Reverse scan: oV = total gradient of V (and of U), oS = gradient of the state after chunk c."""
        p = tl.program_id(0).to(tl.int64)
        r = tl.arange(0, C)
        d = tl.arange(0, D)
        tile = r[:, None] * D + d[None, :]
        square = d[:, None] * D + d[None, :]
        g = tl.load(dSE + p * D * D + square)
        for i in range(N):
            c = N - 1 - i
            o = (p * N + c) * C * D
            os = (p * N + c) * D * D
            tl.store(oS + os + square, g)
            k = tl.load(K + o + tile)
            w = tl.load(W + o + tile)
            v = tl.load(dV + o + tile) + tl.dot(k, g, input_precision="tf32")
            tl.store(oV + o + tile, v)
            g = g * tl.load(G + p * N + c) - tl.dot(tl.trans(w), v, input_precision="tf32") + tl.load(dS + os + square)


def use_kernels(tensor):
    return tensor.is_cuda and HAVE_TRITON


# ---------------------------------------------------------------- inverse
@torch.library.custom_op("demo_model::unit_inverse", mutates_args=())
def unit_inverse(A: torch.Tensor) -> torch.Tensor:
    """(I + A)^-1 for strictly lower-triangular A [..., C, C] in f32."""
    size = A.shape[-1]
    if use_kernels(A):
        A = A.contiguous()
        inverse = torch.empty_like(A)
        _inverse_kernel[(A.numel() // (size * size),)](A, inverse, size, num_warps=4)
        return inverse
    identity = torch.eye(size, device=A.device, dtype=A.dtype)
    return torch.linalg.solve_triangular(identity + A, identity.expand_as(A), upper=False).contiguous()


@unit_inverse.register_fake
def _(A):
    return torch.empty_like(A, memory_format=torch.contiguous_format)


def _inverse_setup(ctx, inputs, output):
    ctx.save_for_backward(output)


def _inverse_backward(ctx, gradient):
    (inverse,) = ctx.saved_tensors
    return -(inverse.mT @ gradient @ inverse.mT).tril(-1)


unit_inverse.register_autograd(_inverse_backward, setup_context=_inverse_setup)


# ---------------------------------------------------------------- scan over chunks
@torch.library.custom_op("demo_model::scan", mutates_args=())
def scan(
    W: torch.Tensor, U: torch.Tensor, K: torch.Tensor, G: torch.Tensor, S0: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """W, U, K [P,N,C,D], G [P,N], S0 [P,D,D] -> states at chunk starts [P,N,D,D], V [P,N,C,D], final state [P,D,D]."""
    P, N, C, D = W.shape
    S = W.new_empty(P, N, D, D)
    V = torch.empty_like(U, memory_format=torch.contiguous_format)
    end = W.new_empty(P, D, D)
    if use_kernels(W) and C == D:
        inputs = (x.contiguous() for x in (W, U, K, G, S0))
        _scan_kernel[(P,)](*inputs, S, V, end, N, C, D, num_warps=8)
        return S, V, end
    state = S0
    for c in range(N):
        S[:, c] = state
        V[:, c] = U[:, c] - W[:, c] @ state
        state = G[:, c, None, None] * state + K[:, c].mT @ V[:, c]
    end.copy_(state)
    return S, V, end


@scan.register_fake
def _(W, U, K, G, S0):
    P, N, C, D = W.shape
    return W.new_empty(P, N, D, D), W.new_empty(P, N, C, D), W.new_empty(P, D, D)


@torch.library.custom_op("demo_model::scan_backward", mutates_args=())
def scan_backward(
    W: torch.Tensor, K: torch.Tensor, G: torch.Tensor, dV: torch.Tensor, dS: torch.Tensor, d_end: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """-> total gradients of V [P,N,C,D] and of the states after each chunk [P,N,D,D]"""
    P, N, C, D = W.shape
    total_V = W.new_empty(P, N, C, D)
    total_S = W.new_empty(P, N, D, D)
    if use_kernels(W) and C == D:
        inputs = (x.contiguous() for x in (W, K, G, dV, dS, d_end))
        _scan_backward_kernel[(P,)](*inputs, total_V, total_S, N, C, D, num_warps=8)
        return total_V, total_S
    gradient = d_end
    for c in reversed(range(N)):
        total_S[:, c] = gradient
        total_V[:, c] = dV[:, c] + K[:, c] @ gradient
        gradient = G[:, c, None, None] * gradient - W[:, c].mT @ total_V[:, c] + dS[:, c]
    return total_V, total_S


@scan_backward.register_fake
def _(W, K, G, dV, dS, d_end):
    P, N, C, D = W.shape
    return W.new_empty(P, N, C, D), W.new_empty(P, N, D, D)


def _scan_setup(ctx, inputs, output):
    W, _, K, G, _ = inputs
    S, V, _ = output
    ctx.save_for_backward(W, K, G, S, V)


def _scan_backward(ctx, dS, dV, d_end):
    W, K, G, S, V = ctx.saved_tensors
    total_V, total_S = scan_backward(W, K, G, dV, dS, d_end)
    # The start state gets no gradient.
    return -(total_V @ S.mT), total_V, V @ total_S.mT, (S * total_S).sum((-1, -2)), None


scan.register_autograd(_scan_backward, setup_context=_scan_setup)


# ---------------------------------------------------------------- the rule
def delta_rule(q, k, v, g, beta):
    """Gated delta rule from a zero state.

    q, k [B,T,hk,D] (normalised, q scaled), v [B,T,hv,D], log decay g and beta [B,T,hv], T a multiple of 64
    -> outputs [B,T,hv,D], final states [B*hv,D,D]
    """
    B, T, key_heads, key_width = q.shape
    value_heads, value_width = v.shape[2:]
    ratio, N = value_heads // key_heads, T // CHUNK

    def chunks(x, heads):  # [B,T,h,D] -> [B,h,N,C,D]
        return x.view(B, N, CHUNK, heads, -1).permute(0, 3, 1, 2, 4)

    def chunk_scalars(x):  # [B,T,hv] -> [B,hk,ratio,N,C]
        return x.view(B, N, CHUNK, key_heads, ratio).permute(0, 3, 4, 1, 2)

    def flat(x):  # [B,hk,ratio,N,...] -> [P,N,...]
        return x.reshape(B * value_heads, N, *x.shape[4:])

    def unflat(x):
        return x.view(B, key_heads, ratio, N, *x.shape[2:])

    q, k = chunks(q, key_heads).unsqueeze(2), chunks(k, key_heads).unsqueeze(2)
    v = chunks(v, value_heads).reshape(B, key_heads, ratio, N, CHUNK, value_width)
    G = chunk_scalars(g).cumsum(-1)
    beta = chunk_scalars(beta).unsqueeze(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = torch.exp((G.unsqueeze(-1) - G.unsqueeze(-2)).masked_fill(~lower, float("-inf")))
    inverse = unit_inverse((beta * (k @ k.mT) * decay).tril(-1))
    from_start = G.exp().unsqueeze(-1)
    to_end = (G[..., -1:] - G).exp().unsqueeze(-1)
    U = inverse @ (beta * v)
    W = inverse @ (beta * from_start * k)
    chunk_decay = G[..., -1].exp().reshape(B * value_heads, N)
    zero = torch.zeros(B * value_heads, key_width, value_width, device=q.device, dtype=torch.float32)
    S, V, end = scan(flat(W), flat(U), flat(to_end * k), chunk_decay, zero)
    out = (from_start * q) @ unflat(S) + ((q @ k.mT) * decay) @ unflat(V)
    return out.reshape(B, value_heads, T, value_width).transpose(1, 2), end
