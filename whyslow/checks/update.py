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
from whyslow.experiment import UPDATE, Experiment
from whyslow.findings import LEAST_SHARE, Finding, found
from whyslow.lines import is_by_hand, reads_gradients
from whyslow.parts import Parts
from whyslow.remedies import CLIPPING, LOOP
from whyslow.stacks import Stack
from whyslow.subject import Subject

_FORMS = ("fused", "foreach")


def optimizers(subject: Subject) -> Iterator[Experiment]:
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


def of_update(subject: Subject) -> Callable[[Stack], bool]:
    """Which lines of the reader's own are its update: beside torch's optimizers, only clipping."""
    optimizers = subject.seen.optimizers
    return reads_gradients if optimizers and all(map(_is_torchs, optimizers)) else is_by_hand


def by_hand(subject: Subject, parts: Parts) -> Iterator[Finding]:
    """Clipping or updating in lines of the reader's own, beyond the time of torch's functions."""
    seen = subject.seen
    trained = [each for each in seen.parameters if each.requires_grad]
    share, interval = parts.share(of_update(subject))
    if len(trained) < 2 or not seen.backwards or interval[0] < LEAST_SHARE:
        return
    alike = [torch.nn.Parameter(torch.zeros_like(each)) for each in trained]
    for each in alike:
        each.grad = torch.ones_like(each)
    if of_update(subject) is reads_gradients:
        name, against = CLIPPING, "clip_grad_norm_"
        instead: Callable[[], object] = partial(torch.nn.utils.clip_grad_norm_, alike, 1.0)
    else:
        name, against = LOOP, "a fused AdamW"
        instead = torch.optim.AdamW(alike, lr=1e-3, fused=True).step
    least = _seconds(instead) / subject.step_seconds
    lost, low, high = (max(0.0, each - least) for each in (share, *interval))
    how = f"by the lines that read gradients, against {against} on {len(trained)} tensors"
    yield found(name, lost, (low, high), how, {"kind": "AdamW", "form": "fused"})


def _seconds(work: Callable[[], object], times: int = 9) -> float:
    """The median time of a call, after one that warms up."""
    taken = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        work()
        synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])
