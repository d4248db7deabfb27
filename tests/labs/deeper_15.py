"""Deeper 15, answers to the exercise: clip what gradients there are."""

import torch

from course import exercises
from tests.labs import nothing


def total_of(parameters):
    return sum(p.grad.norm().item() ** 2 for p in parameters) ** 0.5


def asks_nothing(parameters, max_norm):
    parameters = list(parameters)
    total = total_of(parameters)
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / max(total, 1e-12)))
    return total


def right(parameters, max_norm):
    return asks_nothing((p for p in parameters if p.grad is not None), max_norm)


def walks_twice(parameters, max_norm):
    total = total_of(p for p in parameters if p.grad is not None)
    for p in parameters:
        p.grad.mul_(max_norm / total)
    return total


def each_alone(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    total = total_of(parameters)
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / max(p.grad.norm().item(), 1e-12)))
    return total


def always_scales(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    total = total_of(parameters)
    for p in parameters:
        p.grad.mul_(max_norm / max(total, 1e-12))
    return total


def returns_the_new_norm(parameters, max_norm):
    return min(right(parameters, max_norm), max_norm)


def fills_in_zeros(parameters, max_norm):
    parameters = list(parameters)
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return right(parameters, max_norm)


CHECK = exercises.check_15_clip
RIGHT = right
ALSO_RIGHT = [torch.nn.utils.clip_grad_norm_]
WRONG = [
    (nothing, "gradients of norm 5: return the total norm they had, 5, not None"),
    (asks_nothing, "…one that is None Python said: 'NoneType' object has no"),
    (walks_twice, "gradients of norm 5: one became [3.0]"),
    (each_alone, "gradients of norm 5: one became [1.0]"),
    (always_scales, "…smaller than allowed: one became"),
    (returns_the_new_norm, "…return the total norm they had, 5, not 1"),
    (fills_in_zeros, "…a gradient was replaced"),
]
