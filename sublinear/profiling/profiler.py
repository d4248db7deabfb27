"""Measure a model's chain: bytes and seconds of each block, for each way to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from labkit.comparing import measuring
from labkit.device import check_current, survive
from labkit.restore import preserve_rng
from sublinear.blocks import Blocks
from sublinear.chain import Block, Chain
from sublinear.probe import Clock, fastest, probing
from sublinear.profiling.bench import Bench
from sublinear.profiling.estimate import Roofline, RooflineClock, on_meta
from sublinear.profiling.tensors import bytes_of, tensors
from sublinear.profiling.training import (
    Inputs,
    Loss,
    Training,
    drop_gradients,
    parameters,
    restored,
    training,
)
from sublinear.repeatable import norms
from sublinear.split import split


def profile(
    model: nn.Module,
    inputs: Inputs,
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: Roofline | None = None,
    blocks: Blocks | None = None,
    options: bool = True,
    repeats: int = 3,
) -> Chain:
    """The chain of ``model`` on ``inputs``, as `fit` takes them, everything put back as it was.

    Each block is run alone, ``repeats`` times, twice where these two agree, or more often on a busy
    machine, and its fastest times are scaled so that they sum to those of the fastest whole step,
    if one fits into memory. With a `Roofline` as ``device`` nothing is run: shapes come from meta
    tensors and seconds from the roofline. ``options``: measure the selective way to keep a block
    too. Raises ValueError, by name, for blocks that do not compute the same twice, and Busy while
    something else is measured.
    """
    check_number("repeats", repeats)
    if device is not None and not isinstance(device, Roofline):
        raise TypeError(
            f"device={device!r}: a Roofline is accepted, or None to measure where the inputs are"
        )
    task = training(inputs, loss, optimizer)
    check_trains(model)
    if device is None:
        with measuring(None):
            blocks = blocks or split(model, task.args, task.kwargs)
            return profiled(model, task, blocks, repeats, options)
    return _estimated(model, task, device, options)


def profiled(
    model: nn.Module,
    task: Training,
    blocks: Blocks,
    repeats: int,
    options: bool,
    on_block: Callable[[], object] | None = None,
) -> Chain:
    """As `profile`, of a step; ``on_block`` is called after each block."""
    # A model may move its inputs.
    where = next(tensors((list(model.parameters()), task.args, task.kwargs))).device
    check_current(where)
    with restored(model, task):
        chain = Bench(blocks, where, Clock(), repeats, options).chain(task, on_block)
        state, beside = step_bytes(model, task, where)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    chain = replace(chain, device=name, step_bytes=beside)
    chain = _with_fixed(chain, model, task, state)
    with survive() as outcome:
        step = time_step(model, task, repeats)
    if outcome.error:
        # That a plain step does not fit may be why a plan is asked for: blocks as they are alone.
        return chain
    return calibrated(chain, *step, wrapped=blocks.partial)


def _estimated(model: nn.Module, task: Training, roofline: Roofline, options: bool) -> Chain:
    state = state_bytes(task.optimizer)
    model, task = on_meta(model, task)
    blocks = split(model, task.args, task.kwargs)
    clock = RooflineClock(roofline)
    with preserve_rng(), clock:
        meta = torch.device("meta")
        chain = Bench(blocks, meta, clock, 1, options).chain(task)
    chain = replace(chain, device=str(roofline), source="estimated")
    return _with_fixed(chain, model, task, state)


def _with_fixed(chain: Chain, model: nn.Module, task: Training, state: int) -> Chain:
    """With the bytes of weights, an optimizer's state, spare statistics; and the batch size."""
    first = next(tensors((task.args, task.kwargs)), None)
    size = first.shape[0] if first is not None and first.dim() else 1
    fixed = bytes_of([*model.parameters(), *model.buffers()]) + state
    layers = norms(model.modules())
    spare = sum(buffer.nbytes for layer in layers for buffer in layer.buffers())
    return replace(chain, batch_size=size, fixed_bytes=fixed, spare_bytes=spare)


def check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r}: a whole number from 1 is accepted")


def check_trains(model: nn.Module) -> None:
    """Raise ValueError unless the model trains, and nothing steps while its blocks are tried."""
    for label, parameter in model.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ValueError(
                f"parameter {label} has a hook that runs when its gradient is there, such as an "
                "optimizer's step, and would run while blocks are tried: remove it, and register "
                "it again with the planned model"
            )
    if not model.training:
        raise ValueError(
            "the model is in evaluation mode, which saves nothing for backward: call model.train() "
            "first"
        )


# -------------------------------------------------------------------------------------- whole steps


def time_step(model: nn.Module, task: Training, repeats: int) -> tuple[float, ...]:
    """Seconds of a model's forward, of the backward, and of all the rest, of the fastest steps.

    Of ``repeats`` whole steps, two at least, of which the first warms up, or of more, as `fastest`
    takes them. Everything is put back.
    """
    with restored(model, task):
        _time_once(model, task)
        return fastest(partial(_time_once, model, task), max(1, repeats - 1))


def _time_once(model: nn.Module, task: Training) -> tuple[float, ...]:
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
    return ahead - begin, back - turn, turn - ahead + clock.now() - back


def calibrated(chain: Chain, ahead: float, back: float, rest: float, *, wrapped: bool) -> Chain:
    """Seconds of blocks scaled to sum to those of a whole step; what is left of it is extra.

    Blocks that run alone find colder caches, and so overpredict the overhead of a plan. Of a
    ``wrapped`` model the blocks are a part, and its own code stays extra, too.
    """
    forward = sum(block.options[0].forward for block in chain.blocks)
    backward = sum(block.options[0].backward for block in chain.blocks)
    forwards, backwards = ahead / forward, back / backward
    if wrapped:
        forwards, backwards = min(1.0, forwards), min(1.0, backwards)
    blocks = tuple(_scaled(block, forwards, backwards) for block in chain.blocks)
    extra = rest + ahead + back - forwards * forward - backwards * backward
    return replace(chain, blocks=blocks, extra_seconds=extra)


def _scaled(block: Block, ahead: float, back: float) -> Block:
    """What an option computes again is a part of its backward that scales as forwards do."""
    plain = block.options[0].backward
    options = []
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
