"""An update, or clipping, that goes through the parameters one by one; other work of that kind.

torch's own optimizers have a form for all at once, which is tried. What the reader's own lines do
is known by the lines that ran: a loop by hand is held against torch's own function for the whole
list, on tensors of the same sizes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from labkit import Timer
from whyslow import remedies, stacks
from whyslow.experiment import UPDATE, Experiment
from whyslow.findings import LEAST_SHARE, Finding, found
from whyslow.lines import Parts, cause_of, is_by_hand, reads_gradients
from whyslow.stacks import Stack
from whyslow.subject import Subject

_FORMS = ("fused", "foreach")
# Work around the training. A little of it is in every step: logging, moving a batch.
AROUND = stacks.OWN, stacks.LOGGING, stacks.SAVING
LEAST = 0.08
# One compilation is no habit.
COMPILATIONS = 2


def optimizers(subject: Subject) -> Iterator[Experiment]:
    """The fused form of torch's own optimizers; where there is none, the one over lists."""
    forms = {optimizer: _better(optimizer) for optimizer in subject.seen.optimizers}
    slow = {optimizer: form for optimizer, form in forms.items() if form}
    if slow:
        first, form = next(iter(slow.items()))
        names = ", ".join(sorted({type(each).__name__ for each in slow}))
        how, words = f"{names} with {form}=True", {"kind": type(first).__name__, "form": form}
        yield Experiment(remedies.LOOP, how, partial(_quick, slow), part=UPDATE, words=words)


@contextmanager
def _quick(slow: dict[torch.optim.Optimizer, str]) -> Iterator[None]:
    """The optimizers in the forms that they lack."""
    before = []
    moved = []
    for each, form in slow.items():
        for group in each.param_groups:
            forms = {name: group[name] for name in _FORMS if name in group}
            before.append((group, forms))
            group.update({name: name == form for name in forms})
        # The fused form wants the number of steps where the parameters are.
        for parameter, state in each.state.items() if form == "fused" else ():
            count = state.get("step")
            if isinstance(count, torch.Tensor) and count.device != parameter.device:
                moved.append((state, count.device))
                state["step"] = count.to(parameter.device)
    try:
        yield
    finally:
        for group, forms in before:
            group.update(forms)
        for state, device in moved:
            state["step"] = state["step"].to(device)


def _better(optimizer: torch.optim.Optimizer) -> str:
    """The quicker form that this optimizer has and does not use, if any."""
    groups = optimizer.param_groups
    if not _is_torchs(optimizer) or any(group.get("differentiable") for group in groups):
        return ""
    form = next((form for form in _FORMS if all(form in group for group in groups)), "")
    return "" if all(group.get(form) for group in groups) else form


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


def _of_update(subject: Subject) -> Callable[[Stack], bool]:
    """Which lines of the reader's own are its update: beside torch's optimizers, only clipping."""
    optimizers = subject.seen.optimizers
    return reads_gradients if optimizers and all(map(_is_torchs, optimizers)) else is_by_hand


def by_hand(subject: Subject, parts: Parts) -> Iterator[Finding]:
    """Clipping or updating in lines of the reader's own, beyond the time of torch's functions."""
    seen = subject.seen
    trained = [each for each in seen.parameters if each.requires_grad]
    share, interval = parts.share(_of_update(subject))
    if len(trained) < 2 or not seen.backwards or interval[0] < LEAST_SHARE:
        return
    alike = [torch.nn.Parameter(torch.zeros_like(each)) for each in trained]
    for each in alike:
        each.grad = torch.ones_like(each)
    if _of_update(subject) is reads_gradients:
        name, against = remedies.CLIPPING, "clip_grad_norm_"
        instead: Callable[[], object] = partial(torch.nn.utils.clip_grad_norm_, alike, 1.0)
    else:
        name, against = remedies.LOOP, "a fused AdamW"
        instead = torch.optim.AdamW(alike, lr=1e-3, fused=True).step
    least = _seconds(instead) / subject.step_seconds
    lost, low, high = (max(0.0, each - least) for each in (share, *interval))
    how = f"by the lines that read gradients, against {against} on {len(trained)} tensors"
    yield found(name, (lost, (low, high)), how, kind="AdamW", form="fused")


def _seconds(work: Callable[[], object], times: int = 9) -> float:
    """The median time of a call, after one that warms up."""
    timer = Timer(sync=True)
    for _ in range(times + 1):
        timer.start()
        work()
        timer.stop()
    return statistics.median(timer.times[1:])


def trains(subject: Subject) -> bool:
    """Whether there may be work around the training."""
    seen = subject.seen
    return bool(seen.roots and seen.backwards and not seen.profiled)


def again(parts: Parts, times: int) -> Iterator[Finding]:
    """What compiling again costs."""
    if times >= COMPILATIONS:
        share = parts.share(lambda stack: cause_of(stack) == stacks.COMPILING)
        how = f"by its lines: {times} compilations in warm steps"
        yield found(remedies.RECOMPILED, share, how)


def around(subject: Subject, parts: Parts) -> Iterator[Finding]:
    """Work around the training, such as averages of weights; a validation is none of it."""
    updates = _of_update(subject)

    def wanted(stack: Stack) -> bool:
        return (cause_of(stack) in AROUND or is_by_hand(stack)) and not updates(stack)

    share, interval = parts.share(wanted)
    if trains(subject) and not subject.seen.unused and interval[0] >= LEAST:
        how = "by the lines that ran outside of modules, loss, backward pass and update"
        yield found(remedies.BESIDE, (share, interval), how)
