"""Python loops over parameters, between the backward pass and the end of the step.

A phase that calls at least one operator for each parameter is held against torch's own function for
the whole list, on tensors of the same sizes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from labkit.device import synchronize
from whyslow.clock import share_of
from whyslow.findings import Finding
from whyslow.observe import Seen
from whyslow.phases import Phases
from whyslow.subject import Subject

# From so many operators for each parameter on, a hand-written update is held against Adam.
LIKE_ADAM = 6

_CLIPPING = (
    "torch.nn.utils.clip_grad_norm_(model.parameters(), norm):\n"
    "one operator over the whole list, and no norm read back for each tensor."
)


def trained(seen: Seen) -> int:
    """How many parameters are trained; less than two are no loop."""
    return len([each for each in seen.parameters if each.requires_grad])


def findings(subject: Subject, phases: Phases) -> Iterator[Finding]:
    """Clipping and updating by hand, where the clock and the count of operators show them."""
    seen = subject.seen
    count = trained(seen)
    if count < 2:
        return
    after = seen.launches.get("after backward", 0)
    if seen.optimizers and after >= 2 * count:
        yield _against(
            "gradient clipping in a Python loop",
            phases,
            "after backward",
            _seconds(_clipping(seen.parameters)),
            f"{after} operators for {count} tensors, against clip_grad_norm_ on as many",
            _CLIPPING,
            "18_gradient_clipping",
        )
    phase = None
    if not seen.optimizers and seen.backwards and after >= count:
        phase = "after backward"
    own = any(not _torchs_own(each) for each in seen.optimizers)
    if own and seen.launches.get("update", 0) >= count:
        phase = "update"
    if phase is None:
        return
    calls = seen.launches[phase]
    kind: type[torch.optim.Optimizer] = torch.optim.SGD
    if calls >= LIKE_ADAM * count:
        kind = torch.optim.AdamW
    yield _against(
        "optimizer loops over parameters",
        phases,
        phase,
        _seconds(_updating(seen.parameters, kind)),
        f"{calls} operators for {count} tensors, against a fused {kind.__name__} on as many",
        f"torch.optim.{kind.__name__}(model.parameters(), ..., fused=True):\n"
        "one pass over all parameters instead of several operators for each.",
        "08_optimizers",
    )


def _torchs_own(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


def _against(
    name: str, phases: Phases, phase: str, reference: float, how: str, remedy: str, notebook: str
) -> Finding:
    wholes = [sum(step.values()) for step in phases.steps]
    lost = [max(0.0, step.get(phase, 0.0) - reference) for step in phases.steps]
    share, interval = share_of(lost, wholes)
    return Finding(name, share, interval, f"by the clock: {how}", remedy, notebook)


def _seconds(work: Callable[[], object], times: int = 9) -> float:
    """The median time of a call, after one that warms up."""
    taken = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        work()
        synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def _alike(parameters: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Parameters of the same sizes, with gradients."""
    made = []
    for each in parameters:
        if each.requires_grad:
            alike = torch.nn.Parameter(torch.zeros_like(each))
            alike.grad = torch.ones_like(each)
            made.append(alike)
    return made


def _clipping(parameters: list[torch.nn.Parameter]) -> Callable[[], object]:
    alike = _alike(parameters)
    return lambda: torch.nn.utils.clip_grad_norm_(alike, 1.0)


def _updating(parameters: list[torch.nn.Parameter], kind: Any) -> Callable[[], object]:
    optimizer = kind(_alike(parameters), lr=1e-3, fused=True)
    step: Callable[[], object] = optimizer.step
    return step
