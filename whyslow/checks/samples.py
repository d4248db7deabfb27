"""What a step does beside forward pass, backward pass and update."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import nn

from whyslow.checks.batch_size import batch_size
from whyslow.clock import share_of
from whyslow.findings import Finding
from whyslow.observe import Seen
from whyslow.phases import Phases, timed
from whyslow.subject import Subject

# A little of it is in every step: logging, moving a batch.
LEAST = 0.08
BY_SAMPLE = "loop over samples in Python"
BESIDE = "work beside forward, backward and update"
# So many make a loop.
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
    return bool(seen.roots and seen.backwards and not seen.zeroed and not seen.profiled)


def findings(subject: Subject, phases: Phases) -> Iterator[Finding]:
    """A loop over the samples of a batch in Python; other work around the training."""
    seen = subject.seen
    wholes = [sum(step.values()) for step in phases.steps]
    size = _size(subject)
    launches = seen.launches.get("before", 0)
    before = [step.get("before", 0.0) for step in phases.steps]
    if size >= LEAST_SAMPLES and launches >= size:
        share, interval = share_of(before, wholes)
        yield Finding(
            BY_SAMPLE,
            share,
            interval,
            f"by the clock: {launches} operators before the model sees its {size} samples",
            "Transform the batch as one tensor (N, ...), with a random number for each sample;\n"
            "or each sample in a worker of the loader, beside the step.",
            "01_timing_and_vectorization",
        )
        before = [0.0] * len(before)
    if not _trains(seen):
        return
    rest = [step.get("rest", 0.0) for step in phases.steps]
    least = _least(seen)
    beside = [max(0.0, one + other - least) for one, other in zip(before, rest, strict=True)]
    share, interval = share_of(beside, wholes)
    if interval[0] >= LEAST and not seen.unused:
        yield Finding(
            BESIDE,
            share,
            interval,
            "by the clock: before the model is called, and after the update",
            "Log, print, save and compute metrics every 100th step, not in each;\n"
            "prepare batches in the loader's workers.",
            "01_timing_and_vectorization",
        )


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
    return statistics.median(each.get("before", 0.0) + each.get("rest", 0.0) for each in steps)
