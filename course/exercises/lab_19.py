"""The exercise of notebook 19: batch norm folded into the convolution before it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng

Answer = Callable[..., Any]
NEAR = 1e-4


class Case(NamedTuple):
    """A convolution, the norm behind it, and what is special."""

    name: str
    conv: nn.Conv2d
    norm: nn.BatchNorm2d


@check("one layer computes what two did, and its bias is back")
def check_19_fold(answer: Answer) -> None:
    """`answer(conv, norm)` changes the convolution in place, so that it alone computes what both
    do in evaluation mode. The norm stays as it is.
    """
    with preserve_rng():
        torch.manual_seed(19)
        cases = list(_cases())
        inputs = [torch.randn(2, case.conv.in_channels, 6, 6) for case in cases]
    for case, x in zip(cases, inputs, strict=True):
        _folds(answer, case, x)


def _cases() -> Iterator[Case]:
    yield Case("a convolution without a bias", nn.Conv2d(3, 4, 3, bias=False), _trained(4))
    yield Case("a convolution with a bias", nn.Conv2d(3, 4, 3), _trained(4))
    # Its weights have one channel each: a scale along the second axis would be 6 times as many.
    depthwise = nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False)
    yield Case("a depthwise convolution", depthwise, _trained(6))
    # Beside a variance of 1 nobody would notice that eps is left out.
    yield Case("a small variance", nn.Conv2d(3, 4, 1, bias=False), _trained(4, variance=1e-4))
    plain = _trained(4, affine=False)
    yield Case("a norm without weight and bias (affine=False)", nn.Conv2d(3, 4, 1), plain)


@torch.no_grad()
def _trained(channels: int, variance: float = 1.0, *, affine: bool = True) -> nn.BatchNorm2d:
    """A norm as after a training: none of its numbers is 0 or 1."""
    norm = nn.BatchNorm2d(channels, affine=affine).eval()
    norm.running_mean = torch.randn(channels)
    norm.running_var = variance * (0.5 + 2 * torch.rand(channels))
    if affine:
        norm.weight.copy_(0.5 + torch.rand(channels))
        norm.bias.copy_(torch.randn(channels))
    return norm


def _folds(answer: Answer, case: Case, x: Tensor) -> None:
    conv, norm = case.conv, case.norm
    before = copy.deepcopy((conv, norm))
    wrong = _usual_mistakes(*before, x)
    with torch.no_grad():
        right = before[1](before[0](x))
    attempt(answer, conv, norm)
    _norm_is_as_before(case, before[1])
    if all(torch.equal(*pair) for pair in _pairs(conv, before[0])):
        raise NotYet(f"{case.name}: conv is as it was; change its weight and its bias in place")
    if conv.bias is None:
        raise NotYet(
            f"{case.name}: conv.bias is None. What the norm subtracts and adds has to go "
            "somewhere: here a bias comes back"
        )
    with torch.no_grad():
        found = conv(x)
    if found.shape != right.shape:
        shape = tuple(found.shape)
        raise NotYet(f"{case.name} now gives the shape {shape}, not {tuple(right.shape)}")
    if not _near(found, right):
        raise NotYet(_hint(case, found, right, wrong))


def _pairs(one: nn.Module, other: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Parameters and buffers of both that go by one name."""
    mine, others = one.state_dict(), other.state_dict()
    for name in mine.keys() | others.keys():
        empty = torch.empty(0)
        yield mine.get(name, empty), others.get(name, empty)


def _norm_is_as_before(case: Case, before: nn.BatchNorm2d) -> None:
    same = all(torch.equal(*pair) for pair in _pairs(case.norm, before))
    if not same or case.norm.training is not before.training:
        raise NotYet(f"{case.name}: norm has changed; only conv is to change")


def _near(one: Tensor, other: Tensor) -> bool:
    # Not `>`, which nan would pass.
    return bool((one - other).abs().max() <= NEAR * other.abs().max())


@torch.no_grad()
def _usual_mistakes(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor) -> dict[str, Tensor]:
    """What forgotten parts of the formula give, by their hints."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None and variance is not None
    ones, zeros = torch.ones_like(mean), torch.zeros_like(mean)
    gamma = ones if norm.weight is None else norm.weight
    beta = zeros if norm.bias is None else norm.bias
    old = zeros if conv.bias is None else conv.bias
    bare = conv(x) - _wide(old)

    def with_(scale: Tensor, shift: Tensor) -> Tensor:
        return bare * _wide(scale) + _wide(shift)

    scale = gamma / (variance + norm.eps).sqrt()
    no_eps = gamma / variance.sqrt()
    no_root = gamma / (variance + norm.eps)
    return {
        "norm.eps is part of the root": with_(no_eps, beta + (old - mean) * no_eps),
        "running_var is σ², so divide by its root": with_(no_root, beta + (old - mean) * no_root),
        "the old bias passes the norm, too": with_(scale, beta - mean * scale),
        "the running mean is to be subtracted": with_(scale, beta + old * scale),
        "the mean is scaled as the weights are": with_(scale, beta + old - mean),
        "norm.bias is to be added": with_(scale, (old - mean) * scale),
        "norm.weight scales, too": with_(scale / gamma, beta + (old - mean) * scale / gamma),
    }


def _wide(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1)


def _hint(case: Case, found: Tensor, right: Tensor, wrong: dict[str, Tensor]) -> str:
    off = ((found - right).abs().max() / right.abs().max()).item()
    said = f"{case.name}: outputs are off by up to {off:.2g} of the largest"
    for hint, outputs in wrong.items():
        if not _near(outputs, right) and _near(found, outputs):
            return f"{said}; {hint}"
    return said
