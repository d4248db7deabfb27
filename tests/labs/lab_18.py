"""18, gradient clipping: what shows that the technique acts; answers to its exercise."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    norms = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        norms.append(nn.utils.get_total_norm([weight.grad for weight in weights]).item())

    hook = register_optimizer_step_pre_hook(note)
    try:
        for max_norm in ("off", 0.01):
            counters(names, max_norm=max_norm)
    finally:
        hook.remove()
    off, clipped = norms
    assert off > 0.1
    assert clipped == pytest.approx(0.01, rel=1e-3)


def gradients(parameters):
    return [p.grad for p in parameters if p.grad is not None]


def norm_of(parameters):
    return torch.stack([part.norm() for part in gradients(parameters)]).norm()


def right(parameters, max_norm, norm=norm_of):
    """The right norm, or another."""
    found = norm(parameters)
    for part in gradients(parameters):
        if found.isfinite():
            part.mul_((max_norm / found).clamp(max=1))
        else:
            part.zero_()
    return found


def sum_of_norms(parameters):
    return sum(part.norm() for part in gradients(parameters))


def largest_of_norms(parameters):
    return max(part.norm() for part in gradients(parameters))


def right_with_if(parameters, max_norm):
    norm = sum(float((part**2).sum()) for part in gradients(parameters)) ** 0.5
    if not norm < float("inf"):
        for part in gradients(parameters):
            part.fill_(0)
    elif norm > max_norm:
        for part in gradients(parameters):
            part *= max_norm / norm
    return norm


def right_with_torch(parameters, max_norm):
    norm = clip_grad_norm_(parameters, max_norm)
    if not norm.isfinite():
        for part in gradients(parameters):
            part.zero_()
    return norm


def always_scales(parameters, max_norm):
    norm = norm_of(parameters)
    for part in gradients(parameters):
        part.mul_(max_norm / norm)
    return norm


def always_to_length_one(parameters, max_norm):
    return right(parameters, 1.0)


def each_tensor_alone(parameters, max_norm):
    norm = norm_of(parameters)
    for part in gradients(parameters):
        part.mul_((max_norm / part.norm()).clamp(max=1))
    return norm


def by_value(parameters, max_norm):
    norm = norm_of(parameters)
    clip_grad_value_(parameters, max_norm)
    return norm


def copies(parameters, max_norm):
    norm = norm_of(parameters)
    for part in gradients(parameters):
        part = part * (max_norm / norm).clamp(max=1)
    return norm


def gives_all_a_gradient(parameters, max_norm):
    norm = right(parameters, max_norm)
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return norm


def takes_them_away(parameters, max_norm):
    norm = right(parameters, max_norm)
    if not norm.isfinite():
        for p in parameters:
            p.grad = None
    return norm


def forgets_that_one_may_be_none(parameters, max_norm):
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    return norm if norm > 1e9 else right(parameters, max_norm)


def adds_a_none(parameters, max_norm):
    sum((p.grad for p in parameters), torch.zeros(()))
    return right(parameters, max_norm)


def makes_new_ones(parameters, max_norm):
    norm = norm_of(parameters)
    for p in parameters:
        p.grad = None if p.grad is None else p.grad * (max_norm / norm).clamp(max=1)
    return norm


def makes_new_zeros(parameters, max_norm):
    norm = right(parameters, max_norm)
    for p in parameters:
        p.grad = torch.zeros_like(p) if not norm.isfinite() else p.grad
    return norm


def leaves_nan(parameters, max_norm):
    return clip_grad_norm_(parameters, max_norm)


def returns_what_is_left(parameters, max_norm):
    right(parameters, max_norm)
    return norm_of(parameters)


def returns_zero_for_nan(parameters, max_norm):
    return right(parameters, max_norm).nan_to_num(0, 0, 0)


def returns_nothing(parameters, max_norm):
    right(parameters, max_norm)


def wrong_name(parameters, max_norm):
    return parameters[0].gradient


CHECK = exercises.check_18_clip
RIGHT = right
ALSO_RIGHT = [right_with_if, right_with_torch]
RAISES = [(wrong_name, AttributeError, "gradient")]
WRONG = [
    (lambda parameters, max_norm: norm_of(parameters), "…they became (3, 4), not (0.6, 0.8)"),
    (always_scales, "…which are short, with max_norm=1: they became (0.6, 0.8)"),
    (always_to_length_one, "…with max_norm=3.5: they became (0.2857, 0.4286, 0.8571)"),
    (each_tensor_alone, "…they became (1, 1), not (0.6, 0.8)"),
    (partial(right, norm=sum_of_norms), "…they became (0.4286, 0.5714), not (0.6, 0.8)"),
    (partial(right, norm=largest_of_norms), "…they became (0.75, 1), not (0.6, 0.8)"),
    (by_value, "…they became (1, 1), not (0.6, 0.8)"),
    (copies, "…they became (3, 4), not (0.6, 0.8)"),
    (gives_all_a_gradient, "…a weight without a gradient has got one"),
    (takes_them_away, "…a gradient is gone"),
    (forgets_that_one_may_be_none, "…whose grad is None, with max_norm=1: leave that weight out"),
    (adds_a_none, "…whose grad is None, with max_norm=1: leave that weight out"),
    (makes_new_ones, "the gradients 3 and 4, with max_norm=1: a gradient is a new tensor"),
    (makes_new_zeros, "the gradients inf and 1, with max_norm=1: a gradient is a new tensor"),
    (leaves_nan, "the gradients inf and 1, with max_norm=1: they became (nan, 0)"),
    (returns_what_is_left, "…the norm before clipping is 5; returned was 1"),
    (returns_zero_for_nan, "…the norm before clipping is inf; returned was 0"),
    (returns_nothing, "…return the norm; returned was None"),
]
