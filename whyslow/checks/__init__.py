"""What is looked for: one module each.

A check by experiment yields `Experiment`s for a subject, none where it does not apply. A check by
the clock, or by counting, yields findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whyslow.checks import (
    batch,
    compiled,
    gradients,
    precision,
    settings,
    threads,
    update,
    waits,
)
from whyslow.experiment import Experiment
from whyslow.subject import Subject

# Of those that work on the same part of a step, the first ones come first.
EXPERIMENTS: tuple[Callable[[Subject], Iterator[Experiment]], ...] = (
    settings.experiments,
    update.experiments,
    precision.experiments,
    waits.experiments,
    gradients.experiments,
    threads.experiments,
    compiled.experiments,
    batch.experiments,
)
