"""Seconds of blocks as they are in a step, not alone.

Blocks that run alone find colder caches, and so overpredict the overhead of a plan. One whole step
calibrates their sum.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from sublinear.chain import Block, Chain, Option
from sublinear.probe import Clock, fastest, probing
from sublinear.profiling.tensors import bytes_of
from sublinear.profiling.training import Training, drop_gradients, parameters, restored


class StepSeconds(NamedTuple):
    """Seconds of a whole step: of the model's forward, of the backward, and of all the rest."""

    forward: float
    backward: float
    rest: float


def time_step(model: nn.Module, task: Training, repeats: int) -> StepSeconds:
    """The fastest of ``repeats`` whole steps, part by part, or of more, as `fastest` takes them.

    The first of them, and of two at least, warms up. Everything is put back.
    """
    with restored(model, task):
        _time_once(model, task)
        return StepSeconds(*fastest(partial(_time_once, model, task), max(1, repeats - 1)))


def _time_once(model: nn.Module, task: Training) -> StepSeconds:
    clock = Clock()
    begin = clock.now()
    output = model(*task.args, **task.kwargs)
    ahead = clock.now()
    value = task.loss(output)
    turn = clock.now()
    value.backward()
    back = clock.now()
    del output, value
    if task.optimizer is not None:
        task.optimizer.step()
    drop_gradients(parameters(model, task.optimizer))
    return StepSeconds(ahead - begin, back - turn, turn - ahead + clock.now() - back)


def calibrated(chain: Chain, step: StepSeconds, *, wrapped: bool) -> Chain:
    """Seconds of blocks scaled to sum to those of a whole step; the rest is extra.

    Of a ``wrapped`` model the blocks are a part, and its own code stays extra, too.
    """
    forward = backward = 0.0
    for block in chain.blocks:
        forward += block.options[0].forward
        backward += block.options[0].backward
    ahead, back = step.forward / forward, step.backward / backward
    if wrapped:
        ahead, back = min(1.0, ahead), min(1.0, back)
    blocks = []
    for block in chain.blocks:
        blocks.append(_scaled(block, ahead, back))
    extra = step.rest + step.forward + step.backward - ahead * forward - back * backward
    return replace(chain, blocks=tuple(blocks), extra_seconds=extra)


def _scaled(block: Block, ahead: float, back: float) -> Block:
    """What an option computes again is a part of its backward that scales as forwards do."""
    plain = block.options[0].backward
    options: list[Option] = []
    for option in block.options:
        again = max(0.0, option.backward - plain)
        backward = (option.backward - again) * back + again * ahead
        options.append(replace(option, forward=option.forward * ahead, backward=backward))
    return replace(block, options=tuple(options), forward=block.forward * ahead)


def step_bytes(model: nn.Module, task: Training, device: torch.device) -> tuple[int, int]:
    """An optimizer's state, made or to be made by its first step, and what a step needs beside.

    Measured on gradients of 0: the optimizer has stepped then.
    """
    optimizer = task.optimizer
    if optimizer is None:
        return 0, 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    if not state_bytes(optimizer):
        optimizer.step()
    with probing(device) as probe:
        optimizer.step()
        beside = max(0, probe.peak)
    drop_gradients(parameters(model, optimizer))
    return state_bytes(optimizer), beside


def state_bytes(optimizer: torch.optim.Optimizer | None) -> int:
    """Those of an optimizer's state now."""
    return 0 if optimizer is None else bytes_of(list(optimizer.state.values()))
