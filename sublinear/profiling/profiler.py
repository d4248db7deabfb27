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
    return calibrated(chain, step, wrapped=blocks.partial)


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
