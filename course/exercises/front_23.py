"""The exercise of notebook 23: a small tool that finds three faults in any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course.exercises.tell import NotYet, attempt, check, far

Find = Callable[[Callable[[], object]], Any]
# The words that an answer is made of.
FAULTS = ("reads", "zeros", "anomaly")


@check("three faults, each found in a step whose source you never saw", judged="both")
def check_23_find(answer: Find) -> None:
    """`answer(step)` runs a step and returns the set of its faults: of "reads" (a value is read
    back), "zeros" (gradients are filled with zeros) and "anomaly" (anomaly mode is on).

    It is tried on steps with none of them, with each alone, and with all three.
    """
    for faults in ((), *((fault,) for fault in FAULTS), FAULTS):
        step = _Elsewhere(faults) if far(answer) else _second_step(*faults)
        with _headed(f"A step with {', '.join(faults) or 'no fault'}:"):
            found = attempt(answer, step)
        if found is None:
            raise NotYet("return a set of words, such as {'reads'}; an empty one for no fault")
        if not isinstance(found, (set, frozenset, list, tuple)):
            raise NotYet(f"{found!r} is no set of words")
        _compare(set(found), set(faults))


def _compare(found: set[str], planted: set[str]) -> None:
    if found - set(FAULTS):
        raise NotYet(f"{sorted(found - set(FAULTS))} are none of the words {list(FAULTS)}")
    for fault in FAULTS:
        if fault in found - planted:
            raise NotYet(f"you found {fault!r} in a step that has {sorted(planted) or 'no fault'}")
        if fault in planted - found:
            raise NotYet(f"a step has {sorted(planted)}, and you did not find {fault!r}")


@contextmanager
def _headed(heading: str) -> Iterator[None]:
    """What is printed meanwhile, below a heading; no heading where nothing is."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        if printed.getvalue():
            print(heading)
            print(printed.getvalue(), end="")


class _Elsewhere:
    """A mystery step that is made where it arrives: a closure cannot be sent."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults

    def __reduce__(self) -> tuple[Any, ...]:
        return _second_step, self.faults


def _second_step(*faults: str) -> Callable[[], object]:
    """A mystery step that has run once: the first finds no gradients to fill with zeros."""
    step = mystery(*faults)
    step()
    return step


def mystery(*faults: str) -> Callable[[], object]:
    """A training step with these faults, of `FAULTS`."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(4, 8, generator=generator)
    targets = torch.tensor([0, 1, 2, 3])
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad(set_to_none="zeros" not in faults)
        before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled("anomaly" in faults)
        try:
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
        finally:
            torch.set_anomaly_enabled(*before)
        if "reads" in faults:
            losses.append(loss.item())
        optimizer.step()

    return step
