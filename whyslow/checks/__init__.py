"""What is looked for: by `Experiment`s that apply to a subject, and in the lines that ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whyslow.checks import model, settings, update, waits
from whyslow.experiment import Experiment
from whyslow.subject import Subject

Check = Callable[[Subject], Iterator[Experiment]]

# Of those that work on the same part of a step, the first ones come first.
EXPERIMENTS: tuple[Check, ...] = (
    settings.switches,
    update.optimizers,
    model.precision,
    waits.waits,
    model.gradients,
    settings.threads,
    model.compiling,
)
