"""11, activation checkpointing: what shows that the technique acts; answers to its exercise."""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from course import exercises
from labkit import MemoryMeter
from tests.labs import counters, nothing


def alive(names: dict[str, Any]) -> None:
    plain, whole, pieces = (counters(names, pieces=number) for number in (0, 1, 8))
    assert pieces.saved_bytes < 0.3 * plain.saved_bytes
    # A second forward pass of all blocks, but for the last product of a piece, which nobody needs.
    assert 1.25 < pieces.flops / plain.flops < 4 / 3
    assert pieces.flops <= whole.flops < 4 / 3 * plain.flops
    # One piece keeps little as well, until all of it is computed again.
    peaks = []
    for number in (0, 1, 8):
        step = names["make_workload"](**names["lab"].settings({"pieces": number})).step
        step()
        with MemoryMeter(saved=False) as memory:
            step()
        peaks.append(memory.peak)
    assert peaks[1] > 0.95 * peaks[0]
    assert peaks[2] < 0.5 * peaks[0]


def function(forward, backward):
    """`answer(piece, x)` from the two methods of an autograd function."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made = type("Recompute", (torch.autograd.Function,), methods)
    return made.apply


def keep(ctx, piece, x):
    ctx.piece, ctx.random = piece, torch.get_rng_state()
    ctx.save_for_backward(x)
    return piece(x)


def again(ctx, gradient):
    with torch.random.fork_rng(devices=[]):
        return sets_the_state_for_good(ctx, gradient)


def sets_the_state_for_good(ctx, gradient):
    torch.set_rng_state(ctx.random)
    return without_dropout(ctx, gradient)


def without_dropout(ctx, gradient):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    with torch.enable_grad():
        y = ctx.piece(x)
    y.backward(gradient)
    return None, x.grad


def only_the_input(ctx, gradient):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    with torch.enable_grad():
        y = ctx.piece(x)
    return None, torch.autograd.grad(y, x, gradient)[0]


def no_chain_rule(ctx, gradient):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    with torch.enable_grad():
        ctx.piece(x).sum().backward()
    return None, x.grad


def parameters_only(ctx, gradient):
    with torch.enable_grad():
        y = ctx.piece(ctx.saved_tensors[0].detach())
    y.backward(gradient)
    return None, None


def without_grad_mode(ctx, gradient):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    y = ctx.piece(x)
    y.backward(gradient)
    return None, x.grad


def one_gradient(ctx, gradient):
    return again(ctx, gradient)[1]


def without_detach(ctx, gradient):
    x = ctx.saved_tensors[0].requires_grad_()
    with torch.enable_grad():
        y = ctx.piece(x)
    y.backward(gradient)
    return None, x.grad


def without_its_gradient(ctx, gradient):
    return without_dropout(ctx, None)


def breaks(ctx, gradient):
    raise RuntimeError("a mistake of another kind")


def keeps_the_graph(ctx, piece, x):
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        ctx.inner, ctx.y = inner, piece(inner)
    ctx.save_for_backward(x, ctx.y)
    return ctx.y.detach()


def uses_the_graph(ctx, gradient):
    ctx.y.backward(gradient)
    return None, ctx.inner.grad


def without_gradient(piece, x):
    with torch.no_grad():
        return piece(x)


def evaluates(ctx, piece, x):
    """Dropout off: no random numbers to repeat."""
    ctx.piece, ctx.random = piece.eval(), torch.get_rng_state()
    ctx.save_for_backward(x)
    return piece(x)


def plain(piece, x):
    return piece(x)


def ready_made(piece, x):
    return checkpoint(piece, x, use_reentrant=False)


UNRECORDED = "your backward ran the piece without recording it"
BELONGS = "the x that you kept still belongs to the network"
CHECK = exercises.check_11_recompute
RIGHT = function(keep, again)
RAISES = [(function(keep, breaks), RuntimeError, "a mistake of another kind")]
WRONG = [
    (nothing, "return the output of the piece; returned was None"),
    (without_gradient, "the output needs no gradient: autograd has to know"),
    (plain, "…are kept for the backward pass"),
    (ready_made, "build it yourself, as a torch.autograd.Function"),
    (function(keep, without_dropout), "a piece with dropout: the gradient of"),
    (function(keep, sets_the_state_for_good), "the backward pass changes the random state"),
    (function(keep, only_the_input), "a piece without dropout: weight 0.0.weight got no gradient"),
    (function(keep, no_chain_rule), "a piece without dropout: the gradient of"),
    (function(keep, parameters_only), "…without dropout: the input got no gradient"),
    (function(keeps_the_graph, uses_the_graph), "…are kept for the backward pass"),
    (function(keep, without_grad_mode), f"{UNRECORDED}…runs under `with torch.enable_grad():`"),
    (function(keep, without_detach), f"{BELONGS}…make a new leaf: `x.detach().requires_grad_()`"),
    (function(keep, without_its_gradient), "…hand on the gradient that your backward was given"),
    (function(keep, one_gradient), "…return a gradient for each argument of forward"),
    (function(evaluates, again), "a piece with dropout: the output is not that of piece(x)"),
]
