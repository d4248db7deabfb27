"""Faults that only a GPU has, on a rehearsed card that is made slow where the fault is. ``python -m
tests.rehearsal.diagnose_checks``.

Prints a JSON object: name of the program -> names of its findings, the worst first. The rehearsed
card has no speed of its own: reading a value back, a copy from pageable memory, and each launch
sleep, so that nothing of this says how much a real card would gain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import whyslow
from labkit.restore.attributes import patched
from whyslow.experiments import EXPERIMENTS
from whyslow.subject import Subject, observe

# Seconds that a slow card takes for what is wrong with a program, and for a layer's launches.
SLOW = 0.02
SLOW_LAUNCHES = 0.008
# The budget of a diagnosis: each experiment takes six steps at least.
SECONDS = 4
PROGRAMS: dict[str, Callable[[], list[str]]] = {}


def program(make: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Add a program under its name in words."""
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make


class Trainer:
    """A step on the card; ``read`` reads the loss, ``pinned`` does not wait for the copies."""

    def __init__(self, read: bool = False, pinned: bool = False) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, foreach=True)
        self.read, self.pinned = read, pinned

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
        """One update."""
        inputs, targets = (each.to("cuda", non_blocking=self.pinned) for each in batch)
        loss = F.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item() if self.read else 0.0


def batches(pinned: bool = True) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of eight rows, in memory that is page-locked or not."""
    made = [(torch.randn(8, 32), torch.randint(4, (8,))) for _ in range(3)]
    if pinned:
        return [(inputs.pin_memory(), targets.pin_memory()) for inputs, targets in made]
    return made


def tried(trainer: Trainer, given: list[Any]) -> list[str]:
    """The experiments that apply."""
    subject = Subject(trainer.step, given, list(given))
    step = subject.serve()
    step()
    subject.seen = observe(step, lambda item: None)
    return [each.name for check in EXPERIMENTS for each in check(subject)]


@program
def a_read_in_each_step_is_counted() -> list[str]:
    return tried(Trainer(read=True, pinned=True), batches())


@program
def no_read_is_counted_without_one() -> list[str]:
    return tried(Trainer(pinned=True), batches())


@program
def pageable_copies_are_counted() -> list[str]:
    return tried(Trainer(), batches(pinned=False))


class SlowReads(TorchFunctionMode):
    """A card on which each read waits for much work."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.item and args[0].device.type == "cuda":
            time.sleep(SLOW)
        return func(*args, **(kwargs or {}))


@program
def slow_reads_are_named_first() -> list[str]:
    with SlowReads():
        return named(Trainer(read=True, pinned=True), batches())


@program
def slow_pageable_copies_are_named_first() -> list[str]:
    trainer = Trainer()
    copy = trainer.step

    def step(batch: Any) -> float:
        # A bus on which page-locked memory alone is fast.
        time.sleep(SLOW * sum(not each.is_pinned() for each in batch))
        return copy(batch)

    trainer.step = step  # type: ignore[method-assign]
    return named(trainer, batches(pinned=False))


@program
def slow_launches_are_named_first() -> list[str]:
    forward = nn.Linear.forward

    def slow(layer: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW_LAUNCHES)
        return forward(layer, inputs)

    trainer = Trainer(pinned=True)
    with patched(nn.Linear, "forward", slow):
        # A larger batch is tried last.
        return named(trainer, batches(), seconds=3 * SECONDS)


@program
def another_card_is_refused_by_name() -> list[str]:
    model = nn.Linear(32, 4).to("cuda:1")
    inputs = torch.ones(2, 32, device="cuda:1")

    def step() -> None:
        model(inputs).sum().backward()

    told = []
    try:
        whyslow.diagnose(step, seconds=1)
    except ValueError as error:
        told.append(str(error))
    with torch.cuda.device(1):
        whyslow.diagnose(step, seconds=0.1)
    return told


def named(trainer: Trainer, given: list[Any], seconds: float = SECONDS) -> list[str]:
    """What a diagnosis finds, the worst first; the weights are as before."""
    before = [each.detach().clone() for each in trainer.model.parameters()]
    found = whyslow.diagnose(trainer.step, given, seconds=seconds)
    after = list(trainer.model.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    return [each.name for each in found] or [str(found)]


if __name__ == "__main__":
    print(json.dumps({name: make() for name, make in PROGRAMS.items()}))
