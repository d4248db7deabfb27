"""What is looked for: one module each.

A check by experiment yields `Experiment`s for a subject, none where it does not apply. A check by
the clock, or by counting, returns findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from labkit.diagnose.checks import (
    batch_size,
    bias,
    gradients,
    layout,
    optimizer,
    precision,
    recomputation,
    switches,
    syncs,
    threads,
    transfers,
    zeroing,
)
from labkit.diagnose.experiment import Experiment
from labkit.diagnose.subject import Subject

EXPERIMENTS: tuple[Callable[[Subject], Iterator[Experiment]], ...] = (
    switches.experiments,
    syncs.experiments,
    threads.experiments,
    precision.experiments,
    batch_size.experiments,
    gradients.experiments,
    recomputation.experiments,
    optimizer.experiments,
    zeroing.experiments,
    layout.experiments,
    bias.experiments,
    transfers.experiments,
)
