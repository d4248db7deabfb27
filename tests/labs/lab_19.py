"""19, no bias before batch norm: what shows that the technique acts; answers to the exercise."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from course import exercises
from labkit import seed_all
from tests.labs import counters, nothing


def biases(names: dict[str, Any], **settings: Any) -> int:
    """Numbers of all biases of convolutions."""
    seed_all(0)
    chosen = names["lab"].settings(settings)
    net = names["make_net"](chosen["bias"] == "kept", chosen["layer"])
    convolutions = [each for each in net if isinstance(each, nn.Conv2d)]
    assert len(convolutions) > 2
    return sum(each.bias.numel() for each in convolutions if each.bias is not None)


def alive(names: dict[str, Any]) -> None:
    """A bias for each channel is gone, and neither arithmetic nor memory for backward with it."""
    for layer in names["KINDS"]:
        kept, out = (counters(names, layer=layer, bias=bias) for bias in ("kept", "left out"))
        assert kept.flops == out.flops
        assert kept.saved_bytes == out.saved_bytes
        assert biases(names, layer=layer) == (names["DEPTH"] + 1) * names["WIDTH"]
        assert biases(names, layer=layer, bias="left out") == 0


def formula(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scale of the norm, its mean and beta, the old bias."""
    mean = norm.running_mean
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.affine:
        scale = scale * norm.weight
    beta = norm.bias if norm.affine else torch.zeros_like(mean)
    old = torch.zeros_like(mean) if conv.bias is None else conv.bias
    return scale, mean, beta, old


def put(conv: nn.Conv2d, scale: Tensor, bias: Tensor) -> None:
    conv.weight = nn.Parameter(conv.weight.detach() * scale.detach().view(-1, 1, 1, 1))
    conv.bias = nn.Parameter(bias.detach().clone())


def right(conv, norm):
    scale, mean, beta, old = formula(conv, norm)
    put(conv, scale, beta + (old - mean) * scale)


def by_torch(conv, norm):
    folded = fuse_conv_bn_eval(conv.eval(), norm)
    conv.weight, conv.bias = folded.weight, folded.bias


@torch.no_grad()
def in_place(conv, norm):
    scale, mean, beta, old = formula(conv, norm)
    conv.weight.mul_(scale.view(-1, 1, 1, 1))
    conv.register_parameter("bias", nn.Parameter(beta + (old - mean) * scale))


def returns_another(conv, norm):
    other = copy.deepcopy(conv)
    right(other, norm)
    return other


def no_eps(conv, norm):
    eps, norm.eps = norm.eps, 0.0
    right(conv, norm)
    norm.eps = eps


def no_root(conv, norm):
    _, mean, beta, old = formula(conv, norm)
    scale = 1 / (norm.running_var + norm.eps)
    scale = scale * norm.weight if norm.affine else scale
    put(conv, scale, beta + (old - mean) * scale)


def loses_the_old_bias(conv, norm):
    scale, mean, beta, _ = formula(conv, norm)
    put(conv, scale, beta - mean * scale)


def keeps_none(conv, norm):
    scale, *_ = formula(conv, norm)
    old = conv.bias
    put(conv, scale, scale)
    conv.bias = old


def forgets_the_mean(conv, norm):
    scale, _, beta, old = formula(conv, norm)
    put(conv, scale, beta + old * scale)


def mean_without_scale(conv, norm):
    scale, mean, beta, old = formula(conv, norm)
    put(conv, scale, beta + old - mean)


def forgets_beta(conv, norm):
    scale, mean, _, old = formula(conv, norm)
    put(conv, scale, (old - mean) * scale)


def forgets_gamma(conv, norm):
    _, mean, beta, old = formula(conv, norm)
    scale = (norm.running_var + norm.eps).rsqrt()
    put(conv, scale, beta + (old - mean) * scale)


def only_where_affine(conv, norm):
    if norm.affine:
        right(conv, norm)


def along_the_inputs(conv, norm):
    scale, _, _, _ = formula(conv, norm)
    depthwise = conv.weight.detach()
    right(conv, norm)
    if conv.groups > 1:
        conv.weight = nn.Parameter((depthwise * scale.detach().view(1, -1, 1, 1))[:, :1])


def loses_the_padding(conv, norm):
    right(conv, norm)
    conv.padding = (0, 0)


def loses_the_stride(conv, norm):
    right(conv, norm)
    conv.stride = (1, 1)


def spoils_the_norm(conv, norm):
    right(conv, norm)
    norm.running_mean.zero_()


def wakes_the_norm(conv, norm):
    right(conv, norm.train())


def not_a_number(conv, norm):
    scale, *_ = formula(conv, norm)
    put(conv, scale * math.nan, scale)


CHECK = exercises.check_19_fold
RIGHT = right
ALSO_RIGHT = (by_torch, in_place)
RAISES = ((lambda conv, norm: norm.running_meen, AttributeError, "running_meen"),)
FIRST = "a convolution without a bias"
OFF = "outputs are off by up to … of the largest"
WRONG = (
    (nothing, f"{FIRST}: conv is as it was; change its weight"),
    (returns_another, f"{FIRST}: conv is as it was; change its weight"),
    (keeps_none, f"{FIRST}: conv.bias is None. What the norm subtracts"),
    (no_eps, f"a small variance: {OFF}; norm.eps is part of the root\n"),
    (no_root, f"{FIRST}: {OFF}; running_var is σ², so divide by its root\n"),
    (loses_the_old_bias, f"a convolution with a bias: {OFF}; the old bias passes the norm, too\n"),
    (forgets_the_mean, f"{FIRST}: {OFF}; the running mean is to be subtracted\n"),
    (mean_without_scale, f"{FIRST}: {OFF}; the mean is scaled as the weights are\n"),
    (forgets_beta, f"{FIRST}: {OFF}; norm.bias is to be added\n"),
    (forgets_gamma, f"{FIRST}: {OFF}; norm.weight scales, too\n"),
    (only_where_affine, "a norm without weight and bias (affine=False): conv is as it was"),
    (along_the_inputs, f"a depthwise convolution: {OFF}\n"),
    (loses_the_padding, "a depthwise convolution now gives the shape (2, 6, 2, 2), not (2, 6,"),
    (loses_the_stride, "a depthwise convolution now gives the shape (2, 6, 6, 6), not (2, 6,"),
    (spoils_the_norm, f"{FIRST}: norm has changed; only conv is to change"),
    (wakes_the_norm, f"{FIRST}: norm has changed; only conv is to change"),
    (not_a_number, f"{FIRST}: outputs are off by up to nan"),
)
