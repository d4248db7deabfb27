"""What a step does beside forward pass, backward pass and update."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import nn

from whyslow.checks.batch import batch_size
from whyslow.clock import share_of
from whyslow.findings import Finding, found
from whyslow.observe import Seen
from whyslow.phases import BEFORE, REST, Phases, timed
from whyslow.remedies import BESIDE, BY_SAMPLE
from whyslow.subject import Subject

# A little of it is in every step: logging, moving a batch.
LEAST = 0.08
# So many samples make a loop.
LEAST_SAMPLES = 4


def looked_for(subject: Subject) -> Iterator[str]:
    """Which of both is looked for in this step."""
    if _size(subject) >= LEAST_SAMPLES:
        yield BY_SAMPLE
    if _trains(subject.seen):
        yield BESIDE


def _size(subject: Subject) -> int:
    return batch_size(subject.batches) or subject.seen.samples


def _trains(seen: Seen) -> bool:
    return bool(seen.roots and seen.backwards and not seen.profiled)


def findings(subject: Subject, phases: Phases) -> Iterator[Finding]:
    """A loop over the samples of a batch in Python; other work around the training."""
    seen, size = subject.seen, _size(subject)
    launches = seen.launches.get(BEFORE, 0)
    before = [step.get(BEFORE, 0.0) for step in phases.steps]
    if size >= LEAST_SAMPLES and launches >= size:
        how = f"by the clock: {launches} operators before the model sees its {size} samples"
        yield found(BY_SAMPLE, *share_of(before, phases.wholes), how)
        before = [0.0] * len(before)
    if not _trains(seen) or seen.unused:
        return
    rest = [step.get(REST, 0.0) for step in phases.steps]
    least = _least(seen)
    beside = [max(0.0, one + other - least) for one, other in zip(before, rest, strict=True)]
    share, interval = share_of(beside, phases.wholes)
    if interval[0] >= LEAST:
        how = "by the clock: before the model is called, and after the update"
        yield found(BESIDE, share, interval, how)


def _least(seen: Seen) -> float:
    """Seconds of the same phases in a step on one number, by the same clock: no step has less."""
    number = torch.ones(1, device=seen.device, requires_grad=True)
    same, updates = nn.Identity(), torch.optim.SGD([number], lr=0.0)

    def step() -> torch.Tensor:
        with torch.autocast(seen.device, enabled=seen.lower_precision):
            output = same(number)
        output.sum().backward()
        updates.step()
        updates.zero_grad()
        return output.detach()

    steps = timed(step, 0.0, 12).steps
    return statistics.median(each.get(BEFORE, 0.0) + each.get(REST, 0.0) for each in steps)
