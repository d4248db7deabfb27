"""Compiled code: what compiling would save, and code that is compiled again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
        whole=forgotten,
        compiles=FIRST + EACH * sum(seen.launches.values()),
    )


def codes() -> int:
    """How many functions torch has compiled in this process; -1 while its compiler is not there."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return -1 if module is None else len(module.input_codes.seen)


@contextmanager
def forgotten() -> Iterator[None]:
    """What was compiled inside is given up at the end; nothing else was there."""
    with giving_back(torch.compiler.reset):
        yield


@dataclass
class Compilations:
    """Seconds of each compilation, in order."""

    seconds: list[float] = field(default_factory=list)
    _began: float = 0.0
    _depth: int = 0

    def begins(self, *_: Any) -> None:
        """torch begins to compile."""
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter()

    def ends(self, *_: Any) -> None:
        """It is done."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds.append(time.perf_counter() - self._began)


@contextmanager
def watched() -> Iterator[Compilations]:
    """Note what torch compiles inside; nothing where nothing was compiled before."""
    noted = Compilations()
    callback = sys.modules.get("torch._dynamo.callback")
    if callback is None:
        yield noted
        return
    handler = callback.callback_handler

    def remove() -> None:
        # Gone already, where it is called again after an interrupt.
        with suppress(ValueError):
            handler.remove_start_callback(noted.begins)
        with suppress(ValueError):
            handler.remove_end_callback(noted.ends)

    with giving_back(remove):
        handler.register_start_callback(noted.begins)
        handler.register_end_callback(noted.ends)
        yield noted


def again(seconds: list[float], wholes: list[float]) -> Iterator[Finding]:
    """What compiling again costs: ``seconds`` of each compilation, in steps of these ``wholes``."""
    if len(seconds) < LEAST or not wholes:
        return
    share = share_of([sum(seconds) / len(wholes)] * len(wholes), wholes)
    how = f"by the clock: {len(seconds)} compilations in {len(wholes)} warm steps"
    yield found(RECOMPILED, *share, how)
