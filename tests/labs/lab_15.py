"""15, zeroing gradients: what shows that the technique acts; answers to its exercise."""

from typing import Any

import torch

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Filling with zeros runs an operator for each of 16 gradients, and keeps them."""
    zeros, none = counters(names), counters(names, way="none")
    assert zeros.launches == none.launches + 16
    assert zeros.flops == none.flops


def right(parameters):
    return frozen_too(p for p in parameters if p.requires_grad)


def frozen_too(parameters, dtype=None):
    every = list(parameters)
    sizes = [p.numel() for p in every]
    flat = torch.zeros(sum(sizes), dtype=dtype or every[0].dtype)
    for p, piece in zip(every, flat.split(sizes), strict=True):
        p.grad = piece.view_as(p)
    return flat


def by_offsets(parameters):
    trained = [p for p in parameters if p.requires_grad]
    flat = torch.zeros(sum(p.numel() for p in trained), dtype=trained[0].dtype)
    end = 0
    for p in reversed(trained):
        begin, end = end, end + p.numel()
        p.grad = flat[begin:end].reshape(p.shape)
    return flat


def copied(parameters):
    trained = [p for p in parameters if p.requires_grad]
    for p in trained:
        p.grad = torch.zeros_like(p)
    return torch.cat([p.grad.flatten() for p in trained])


def scalar_has_no_place(parameters):
    trained = [p for p in parameters if p.requires_grad]
    flat = trained[0].new_zeros(sum(p.numel() for p in trained))
    begin = 0
    for p in trained:
        p.grad = flat[begin : begin + p.numel()].view_as(p)
        begin += p.numel() if p.dim() else 0
    return flat


def room_for_the_frozen(parameters):
    every = list(parameters)
    flat = frozen_too(every)
    for p in every:
        p.grad = p.grad if p.requires_grad else None
    return flat


def pieces(parameters):
    trained = [p for p in parameters if p.requires_grad]
    return list(right(iter(trained)).split([p.numel() for p in trained]))


def walked_twice(parameters):
    flat = torch.zeros(sum(p.numel() for p in parameters if p.requires_grad), dtype=torch.float64)
    begin = 0
    for p in parameters:
        p.grad = flat[begin : begin + p.numel()].view_as(p)
        begin += p.numel()
    return flat


def lost_in_the_second_pass(parameters):
    """A hook of the first backward pass puts a gradient of its own in the place of the piece."""
    trained = [p for p in parameters if p.requires_grad]
    flat = right(iter(trained))

    def lose(p):
        p.grad = p.grad.clone()

    for p in trained:
        p.register_post_accumulate_grad_hook(lose)
    return flat


def in_float32(parameters):
    return frozen_too((p for p in parameters if p.requires_grad), torch.float32)


def not_cleared(parameters):
    flat = right(parameters)
    return flat.fill_(1)


def returns_nothing(parameters):
    right(parameters)


def doubled(parameters):
    trained = [p for p in parameters if p.requires_grad]
    flat = right(iter(trained))
    for p in trained:
        p.register_hook(lambda gradient: 2 * gradient)
    return flat


def wrong_shape(parameters):
    next(parameters).grad = torch.zeros(1, dtype=torch.float64)


CHECK = exercises.check_15_flat_gradients
RIGHT = right
ALSO_RIGHT = [by_offsets]
RAISES = [(wrong_shape, RuntimeError, "size")]
WRONG = [
    (copied, "…is a copy, no piece of your tensor"),
    (scalar_has_no_place, "…share numbers"),
    (frozen_too, "first.bias is frozen"),
    (room_for_the_frozen, "…has 27 numbers; the trained parameters 23"),
    (pieces, "…this is of type list"),
    (walked_twice, "…walked through only once"),
    (lost_in_the_second_pass, "step 1, after two backward passes"),
    (in_float32, "…make the tensor with their dtype and device"),
    (not_cleared, "…something else than zeros"),
    (returns_nothing, "…this is of type NoneType"),
    (doubled, "…is not that of an ordinary backward"),
]
