"""Is one step of a planned model one plain step? Tried on the reader's own model and batch.

Each step begins from the same parameters, buffers, attributes and random state, with copies of the
inputs, and the optimizer does not step. Compared are the loss, all gradients, those of inputs that
want one included, parameters, buffers and random generators: bit by bit. Where they differ, the
plain step runs again, and the spread of each tensor counts as no difference of that tensor: the
gradient of a bias before batch norm is nothing but rounding, and excuses no other. Under autocast a
weight that is used twice is cast twice where its blocks are computed again, so that gradients round
otherwise. So do pieces that are compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from labkit.device import is_out_of_memory, survive
from sublinear.apply import view_of
from sublinear.equal import Seen, differences, gap_of
from sublinear.profiling import Training, restored
from sublinear.profiling.training import mean_of_outputs
from sublinear.verify import left_behind, raised

# How much further than two plain steps from one another the planned one may be.
_MARGIN = 4

# Of the largest value: what rounding may come to in bfloat16, whose own steps are 2**-8.
CLOSE = 2e-2

# Of each tensor's largest value: by how much compiled code may round otherwise. And of the largest
# gradient of all: one that is nothing but rounding, as that of a bias before batch norm.
_COMPILED = 1e-3
_NOISE = 1e-4

# What code that meets a part of its batch may raise.
_SHAPES = (RuntimeError, ValueError, TypeError, IndexError, KeyError)


@dataclass(frozen=True)
class Proof:
    """What was found: ``differences`` in words, and ``how`` it was proven, or why not."""

    differences: tuple[str, ...]
    how: str
    partial: bool = False


def prove(
    original: nn.Module,
    planned: nn.Module,
    task: Training,
    batch_size: int,
    *,
    compiled: bool = False,
) -> Proof:
    """Compare a step of each; on a part of the batch where the whole does not fit into memory.

    Everything is put back. Differences are reported, not raised. ``compiled``: the planned model's
    pieces are, and may round otherwise.
    """
    with survive():
        return _compare(original, planned, task, compiled)
    how = "not proven: a plain step does not fit into memory"
    rows = batch_size // 2
    # Batch norm needs two.
    while rows > 1:
        # A loss may have the targets of all.
        part = replace(_first(task, batch_size, rows), loss=mean_of_outputs)
        with survive():
            try:
                proof = _compare(original, planned, part, compiled)
            except _SHAPES as error:
                if is_out_of_memory(error):
                    raise
                how = f"{how}, and a part of it fails ({type(error).__name__}: {error})"
                return Proof((), how, partial=True)
            how = f"{proof.how}, on the first {rows} samples: all of them do not fit into memory"
            return replace(proof, how=how, partial=True)
        rows //= 2
    return Proof((), f"{how}, not even with two samples", partial=True)


def _first(task: Training, batch_size: int, rows: int) -> Training:
    """The task with the first rows of all inputs that have as many as the batch."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and tensor.shape[0] == batch_size:
            return tensor[:rows].detach().requires_grad_(tensor.requires_grad)
        return tensor

    args, kwargs = tree_map_only(torch.Tensor, cache(cut), (task.args, task.kwargs))
    return replace(task, args=args, kwargs=kwargs)


def _compare(original: nn.Module, planned: nn.Module, task: Training, compiled: bool) -> Proof:
    how = "one step is the plain one bit by bit"
    wanted = _step(original, original, task)
    try:
        found = _step(planned, original, task)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        return Proof((raised(error),), how)
    lines = differences(wanted, found)
    if not lines:
        return Proof((), how)
    spread = _spread(wanted, _step(original, original, task))
    # What a tensor may differ by that happened to repeat itself: rounding, and no more.
    positive = [gap for gap in spread.values() if gap]
    least = min(median(positive), CLOSE / _MARGIN) if positive else 0.0
    how = f"one step is the plain one within its own spread ({least:.1g} of the largest values)"
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        how, least = "one step is the plain one within the rounding of autocast", CLOSE / _MARGIN
    allowed = {}
    for name, own in spread.items():
        allowed[name] = _MARGIN * max(own, least)
    if compiled:
        how = "one step is the plain one within the rounding of compiled code"
        for name, rounds in _rounding(wanted).items():
            allowed[name] = max(allowed[name], rounds)
    return Proof(tuple(differences(wanted, found, allowed)), how)


def _step(model: nn.Module, original: nn.Module, task: Training) -> Seen:
    with restored(original, task):
        return left_behind(model, original, task)


def _spread(one: Seen, two: Seen) -> dict[str, float]:
    """How far two plain steps are apart, of the largest value of each tensor that rounds.

    Random states, and counts of steps, do not round.
    """
    spread = {}
    for name, value in one.items():
        other = two[name]
        if not torch.is_tensor(value) or not torch.is_tensor(other):
            continue
        rounds = value.is_floating_point() or value.is_complex()
        if rounds and value.shape == other.shape:
            gap, size = gap_of(value, other)
            spread[name] = 0.0
            if gap:
                spread[name] = gap / size if size else math.inf
    return spread


def _rounding(wanted: Seen) -> dict[str, float]:
    """By how much compiled code may round each tensor otherwise, of its largest value."""
    sizes = {}
    for name, value in wanted.items():
        if torch.is_tensor(value) and value.is_floating_point() and value.numel():
            sizes[name] = float(value.abs().max())
    noise = _NOISE * max(sizes[name] for name in sizes if name.startswith("gradient"))
    rounds = {}
    for name, size in sizes.items():
        least = noise / size if size and name.startswith("gradient") else 0.0
        rounds[name] = max(_COMPILED, least)
    return rounds


# ----------------------------------------------------------------------------------- now and then


def spot_checked(
    planned: nn.Module,
    original: nn.Module,
    task: Training,
    batch_size: int,
    every: int,
    *,
    compiled: bool = False,
) -> nn.Module:
    """``planned``, which compares itself with the plain model at every so many training forwards.

    What nobody can notice, such as a file that the model reads, may make it train otherwise later.
    On the batch of that forward, by the mean of all outputs; everything is put back before the
    forward goes on. RuntimeError, with what differs, where they train otherwise. Of its class,
    ``unchecked`` is ``planned``.
    """
    forwards = 0
    plan_forward = type(planned).forward

    @torch.compiler.disable(reason="it compares a planned step with a plain one")
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal forwards
        if self.training and torch.is_grad_enabled():
            forwards += 1
            if forwards % every == 0:
                now = replace(task, args=args, kwargs=kwargs, loss=mean_of_outputs)
                found = prove(original, planned, now, batch_size, compiled=compiled)
                if found.differences:
                    raise RuntimeError(
                        f"forward {forwards}: the planned model no longer trains as the plain one: "
                        f"{'; '.join(found.differences[:3])}. Fit it anew."
                    )
        return plan_forward(planned, *args, **kwargs)

    return view_of(planned, forward, unchecked=planned)
