"""Measure a model's chain: bytes and seconds of each block, for each way to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from labkit.comparing import measuring
from labkit.device import check_current, survive
from labkit.restore import preserve_rng
from sublinear.blocks import Blocks
from sublinear.chain import Chain
from sublinear.probe import Clock
from sublinear.profiling.bench import Bench
from sublinear.profiling.calibrate import (
    calibrated,
    state_bytes,
    step_bytes,
    time_step,
)
from sublinear.profiling.estimate import Roofline, RooflineClock, on_meta
from sublinear.profiling.tensors import bytes_of, tensors
from sublinear.profiling.training import (
    Inputs,
    Keywords,
    Loss,
    Training,
    restored,
    training,
)
from sublinear.repeatable import norms
from sublinear.split import split


def profile(
    model: nn.Module,
    inputs: Inputs,
    kwargs: Keywords | None = None,
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: Roofline | None = None,
    blocks: Blocks | None = None,
    options: bool = True,
    repeats: int = 3,
    on_block: Callable[[], object] | None = None,
) -> Chain:
    """The chain of ``model`` on ``inputs`` (a tensor or a tuple), everything put back as it was.

    Each block is run alone, ``repeats`` times, twice where these two agree, or more often on a busy
    machine, and its fastest times are scaled so that they sum to those of the fastest whole step,
    if one fits into memory.
    To compute again is never predicted to be faster. With a `Roofline` as ``device``
    nothing is run: shapes come from meta tensors and seconds from the roofline. ``options``:
    measure selective ways to keep a block too. ``on_block``: called after each block.
    Blocks that do the same work on
    the same shapes are run once. Torch's number of threads stays as it is. Raises ValueError, by
    name, for blocks that do not compute the same twice, and Busy while something else is measured.
    """
    check_number("repeats", repeats)
    if device is not None and not isinstance(device, Roofline):
        raise TypeError(
            f"device={device!r}: a Roofline is accepted, or None to measure where the inputs are"
        )
    task = training(inputs, kwargs, loss, optimizer)
    _check_model(model)
    first = next(tensors((task.args, task.kwargs)))
    batch_size = first.shape[0] if first.dim() else 1
    if device is not None:
        chain = _estimated(model, task, device, options)
    else:
        # A model may move its inputs.
        where = next(model.parameters(), first).device
        check_current(where)
        with measuring(None):
            blocks = blocks or split(model, task.args, task.kwargs)
            chain = measured(model, task, blocks, where, repeats, options, on_block)
    return replace(chain, batch_size=batch_size)


def _estimated(model: nn.Module, task: Training, roofline: Roofline, options: bool) -> Chain:
    state = state_bytes(task.optimizer)
    model, task = on_meta(model, task)
    blocks = split(model, task.args, task.kwargs)
    clock = RooflineClock(roofline)
    with preserve_rng(), clock:
        meta = torch.device("meta")
        chain = Bench(blocks, meta, clock, 1, options).chain(task)
    chain = replace(chain, device=str(roofline), source="estimated")
    return _with_fixed(chain, model, state)


def measured(
    model: nn.Module,
    task: Training,
    blocks: Blocks,
    where: torch.device,
    repeats: int,
    options: bool,
    on_block: Callable[[], object] | None,
) -> Chain:
    with restored(model, task):
        bench = Bench(blocks, where, Clock(), repeats, options)
        chain = bench.chain(task, on_block)
        state, beside = step_bytes(model, task, where)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    chain = replace(chain, device=name, step_bytes=beside)
    chain = _with_fixed(chain, model, state)
    with survive() as outcome:
        step = time_step(model, task, repeats)
    if outcome.error:
        # That a plain step does not fit may be why a plan is asked for: blocks as they are alone.
        return chain
    return calibrated(chain, step, wrapped=blocks.partial)


def _with_fixed(chain: Chain, model: nn.Module, state: int) -> Chain:
    """With the bytes of weights, an optimizer's state, spare statistics."""
    fixed = bytes_of([*model.parameters(), *model.buffers()]) + state
    layers = norms(model.modules())
    spare = sum(buffer.nbytes for layer in layers for buffer in layer.buffers())
    return replace(chain, fixed_bytes=fixed, spare_bytes=spare)


def check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r}: a whole number from 1 is accepted")


def _check_model(model: nn.Module) -> None:
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
