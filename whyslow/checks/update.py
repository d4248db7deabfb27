"""An update, or clipping, that goes through the parameters one by one.

torch's own optimizers have a form for all at once, which is tried. A loop by hand is held against
torch's own function for the whole list, on tensors of the same sizes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from labkit.device import synchronize
from whyslow.clock import share_of
from whyslow.experiment import Experiment
from whyslow.findings import Finding, found
from whyslow.phases import AFTER_BACKWARD, UPDATE, Phases
from whyslow.remedies import CLIPPING, LOOP
from whyslow.subject import Subject

_FORMS = ("fused", "foreach")
# From so many operators for each parameter on, a hand-written update is held against Adam.
LIKE_ADAM = 6


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The fused form of torch's own optimizers; where there is none, the one over lists."""
    slow = {}
    for optimizer in subject.seen.optimizers:
        form = _better(optimizer)
        if form is not None:
            slow[optimizer] = form
    if slow:
        first, form = next(iter(slow.items()))
        names = ", ".join(sorted({type(each).__name__ for each in slow}))
        words = {"kind": type(first).__name__, "form": form}
        yield Experiment(
            LOOP, f"{names} with {form}=True", partial(_quick, slow), part=UPDATE, words=words
        )


@contextmanager
def _quick(slow: dict[torch.optim.Optimizer, str]) -> Iterator[None]:
    """The optimizers in the forms that they lack."""
    before = [(group, dict(group)) for each in slow for group in each.param_groups]
    moved = []
    for each, form in slow.items():
        for group in each.param_groups:
            group.update({name: name == form for name in _FORMS if name in group})
        if form == "fused":
            moved += _counts_to_device(each)
    try:
        yield
    finally:
        for group, values in before:
            group.update({name: values[name] for name in _FORMS if name in values})
        for state, count in moved:
            state["step"] = state["step"].to(count.device)


def _better(optimizer: torch.optim.Optimizer) -> str | None:
    """The quicker form that this optimizer has and does not use."""
    groups = optimizer.param_groups
    if not _is_torchs(optimizer) or any(group.get("differentiable") for group in groups):
        return None
    for form in _FORMS:
        if all(form in group for group in groups):
            return None if all(group[form] for group in groups) else form
    return None


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


def _counts_to_device(optimizer: torch.optim.Optimizer) -> list[tuple[dict[str, Any], Any]]:
    """The fused form wants the number of steps where the parameters are."""
    moved = []
    for parameter, state in optimizer.state.items():
        count = state.get("step")
        if isinstance(count, torch.Tensor) and count.device != parameter.device:
            moved.append((state, count))
            state["step"] = count.to(parameter.device)
    return moved


def by_hand(subject: Subject, phases: Phases) -> Iterator[Finding]:
    """Clipping and updating by hand, where the clock and the count of operators show them."""
    seen = subject.seen
    trained = [each for each in seen.parameters if each.requires_grad]
    count, after = len(trained), seen.launches.get(AFTER_BACKWARD, 0)
    if count < 2:
        return
    against = f"operators for {count} tensors, against"
    if seen.optimizers and after >= 2 * count:
        how = f"{after} {against} clip_grad_norm_ on as many"
        yield _lost(CLIPPING, phases, AFTER_BACKWARD, _clipping(trained), how, {})
    phase = None
    if not seen.optimizers and seen.backwards and after >= count:
        phase = AFTER_BACKWARD
    own = any(not _is_torchs(each) for each in seen.optimizers)
    if own and seen.launches.get(UPDATE, 0) >= count:
        phase = UPDATE
    if phase is not None:
        calls = seen.launches[phase]
        kind = torch.optim.AdamW if calls >= LIKE_ADAM * count else torch.optim.SGD
        how = f"{calls} {against} a fused {kind.__name__} on as many"
        words = {"kind": kind.__name__, "form": "fused"}
        yield _lost(LOOP, phases, phase, _updating(trained, kind), how, words)


def _lost(
    name: str,
    phases: Phases,
    phase: str,
    instead: Callable[[], object],
    how: str,
    words: dict[str, Any],
) -> Finding:
    """What a phase takes beyond the time of ``instead``."""
    least = _seconds(instead)
    lost = [max(0.0, step.get(phase, 0.0) - least) for step in phases.steps]
    share = share_of(lost, phases.wholes)
    return found(name, *share, f"by the clock: {how}", words)


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
