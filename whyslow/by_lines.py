"""What the lines that ran say by themselves: clipping or updates by hand, other work of the
reader's own, code that is compiled again.

A loop by hand is held against torch's own function for the whole list, on tensors of the same
sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from labkit import measure
from whyslow import remedies, stacks
from whyslow.experiments import is_torchs
from whyslow.findings import LEAST_SHARE, Finding, found
from whyslow.lines import Parts, cause_of, is_by_hand
from whyslow.stacks import Stack
from whyslow.subject import Subject

# Kinds of lines: what works on gradients, and on weights without any.
CLIPPING, BY_HAND = ("gradients",), ("gradients", "update")
# Work around the training. A little of it is in every step: logging, moving a batch.
AROUND = stacks.OWN, stacks.LOGGING
LEAST = 0.08
# Seconds for which torch's own function is timed.
SECONDS = 0.1
# One compilation is no habit.
COMPILATIONS = 2


def _of_update(subject: Subject) -> tuple[str, ...]:
    """Which lines of the reader's own are its update: beside torch's optimizers, only clipping."""
    optimizers = subject.seen.optimizers
    return CLIPPING if optimizers and all(map(is_torchs, optimizers)) else BY_HAND


def by_hand(subject: Subject, parts: Parts) -> Iterator[Finding]:
    """Clipping or updating in lines of the reader's own, beyond the time of torch's functions."""
    seen, kinds = subject.seen, _of_update(subject)
    trained = [each for each in seen.parameters if each.requires_grad]
    share, interval = parts.share(lambda stack: is_by_hand(stack, *kinds))
    if len(trained) < 2 or not seen.backwards or interval[0] < LEAST_SHARE:
        return
    alike = [torch.nn.Parameter(torch.zeros_like(each)) for each in trained]
    for each in alike:
        each.grad = torch.ones_like(each)
    name, against = remedies.LOOP, "a fused AdamW"
    instead: Callable[[], object] = torch.optim.AdamW(alike, fused=True).step
    if kinds == CLIPPING:
        name, against = remedies.CLIPPING, "clip_grad_norm_"
        instead = partial(torch.nn.utils.clip_grad_norm_, alike, 1.0)
    # Tensors of its own: there is nothing to put back.
    least = measure(instead, seconds=SECONDS, threads=None, restore=False).median
    least /= subject.step_seconds
    lost, low, high = (max(0.0, each - least) for each in (share, *interval))
    how = f"by the lines that read gradients, against {against} on {len(trained)} tensors"
    yield found(name, (lost, (low, high)), how, kind="AdamW")


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
    kinds = _of_update(subject)

    def wanted(stack: Stack) -> bool:
        is_own = cause_of(stack) in AROUND or is_by_hand(stack, *BY_HAND)
        return is_own and not is_by_hand(stack, *kinds)

    share, interval = parts.share(wanted)
    if trains(subject) and not subject.seen.unused and interval[0] >= LEAST:
        how = "by the lines that ran outside of modules, loss, backward pass and update"
        yield found(remedies.BESIDE, (share, interval), how)
