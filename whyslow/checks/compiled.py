"""Compiled code: what compiling would save, and code that is compiled again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from labkit.restore import giving_back
from whyslow.changes import forwards
from whyslow.clock import share_of
from whyslow.experiment import Experiment
from whyslow.findings import Finding, found
from whyslow.remedies import RECOMPILED, UNCOMPILED
from whyslow.subject import Subject

# One compilation is no habit.
LEAST = 2
# Seconds that a first compilation takes about, and more for each operator of a step.
FIRST, EACH = 25.0, 0.05


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The forward passes of the models, and with them their backward passes, by torch.compile.

    Not where the program has compiled code of its own, which would be lost with what is made here.
    """
    seen = subject.seen
    if not seen.parameters or not seen.backwards or seen.compiled or codes() > 0:
        return
    compiled: dict[nn.Module, Any] = {}

    def by_compiler(root: nn.Module, forward: Any) -> Any:
        if root not in compiled:
            compiled[root] = torch.compile(forward)
        return compiled[root]

    yield Experiment(
        UNCOMPILED,
        "the models' forward passes by torch.compile",
        partial(forwards, seen.roots, by_compiler),
        # What was compiled is given up at the end: nothing else was there.
        whole=partial(giving_back, torch.compiler.reset),
        compiles=FIRST + EACH * sum(seen.launches.values()),
    )


def codes() -> int:
    """How many functions torch has compiled in this process; -1 while its compiler is not there."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return -1 if module is None else len(module.input_codes.seen)


@contextmanager
def watched() -> Iterator[list[float]]:
    """Seconds of each compilation inside; none are seen where nothing was compiled before."""
    seconds: list[float] = []
    begun: list[float] = []
    callback = sys.modules.get("torch._dynamo.callback")
    if callback is None:
        yield seconds
        return
    handler = callback.callback_handler

    def begins(*_: Any) -> None:
        begun.append(time.perf_counter())

    def ends(*_: Any) -> None:
        began = begun.pop()
        if not begun:
            seconds.append(time.perf_counter() - began)

    def remove() -> None:
        # Gone already, where it is called again after an interrupt.
        with suppress(ValueError):
            handler.remove_start_callback(begins)
        with suppress(ValueError):
            handler.remove_end_callback(ends)

    with giving_back(remove):
        handler.register_start_callback(begins)
        handler.register_end_callback(ends)
        yield seconds


def again(seconds: list[float], wholes: list[float]) -> Iterator[Finding]:
    """What compiling again costs: ``seconds`` of each compilation, in steps of these ``wholes``."""
    if len(seconds) < LEAST or not wholes:
        return
    share = share_of([sum(seconds) / len(wholes)] * len(wholes), wholes)
    how = f"by the clock: {len(seconds)} compilations in {len(wholes)} warm steps"
    yield found(RECOMPILED, *share, how)
