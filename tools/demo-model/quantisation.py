"""Fake quantisation: weights rounded to what an affine b-bit format can hold, but kept as floats."""

import torch

GROUP = 64
EIGHT_BIT = ("embed", "head", "gate", "sh_g")


def affine(weight, levels):
    """Round groups of 64 weights to scale * q + bias with q in 0..levels - 1, as MLX does (scale and bias in bf16)."""
    groups = weight.float().reshape(-1, GROUP)
    low = groups.min(-1, keepdim=True).values
    high = groups.max(-1, keepdim=True).values
    scale = ((high - low) / (levels - 1)).clamp(min=1e-7)
    low_is_edge = low.abs() > high.abs()
    scale = torch.where(low_is_edge, scale, -scale)
    edge = torch.where(low_is_edge, low, high)
    steps = torch.round(edge / scale)
    exact = steps != 0  # make the edge, the largest magnitude, exactly representable
    scale = torch.where(exact, edge / torch.where(exact, steps, torch.ones_like(steps)), scale)
    bias = torch.where(exact, edge, torch.zeros_like(edge))
    scale, bias = scale.bfloat16().float(), bias.bfloat16().float()
    codes = torch.minimum(torch.round((groups - bias) / scale).clamp(min=0), levels - 1)
    return (scale * codes + bias).reshape(weight.shape)


def is_quantised(name, parameter):
    """Whether a parameter is stored at the low bit width (the embedding, the head and the gates keep 8 bits)."""
    leaf = name.split(".")[-1]
    return parameter.ndim >= 2 and leaf not in EIGHT_BIT and leaf != "conv"


def quantise(weights, bits):
    """A copy of the weights with every matrix rounded to `bits`, or to 8 where `is_quantised` says no."""
    rounded = {}
    for name, weight in weights.items():
        if is_quantised(name, weight):
            rounded[name] = affine(weight, torch.tensor(2.0**bits))
        elif name.split(".")[-1] in EIGHT_BIT:
            rounded[name] = affine(weight, torch.tensor(256.0))
        else:
            rounded[name] = weight
    return rounded


class StraightThrough:
    """Swaps a model's matrices for rounded ones around a forward and backward pass.

    The gradient is taken at the rounded weights and applied to the exact ones.
    """

    def __init__(self, model):
        self.views = [p.data.view(-1, GROUP) for n, p in model.named_parameters() if is_quantised(n, p)]
        self.rows = [len(view) for view in self.views]
        self.exact = None
        self.round = torch.compile(affine, dynamic=False)

    @torch.no_grad()
    def enter(self, bits):
        """Replace the weights by their b-bit values."""
        self.exact = torch.cat(self.views)
        levels = torch.tensor(2.0**bits, device=self.exact.device)
        torch._foreach_copy_(self.views, list(self.round(self.exact, levels).split(self.rows)))

    @torch.no_grad()
    def leave(self):
        """Put the exact weights back."""
        torch._foreach_copy_(self.views, list(self.exact.split(self.rows)))
