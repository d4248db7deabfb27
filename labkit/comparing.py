"""Time one step, or two against each other, so that the answer can be trusted.

`labkit.alternating` has the engine and its rules. On the CPU steps run on one torch thread unless
asked otherwise, set in the measuring thread, since torch's thread count does not reach threads that
run already. One measurement at a time in a kernel: `measuring` refuses a second one, from whatever
thread.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from labkit.alternating import Update, alone, alternate
from labkit.arm import Arm, LocalArm
from labkit.device import pick
from labkit.restore import Restoration, giving_back, preserve_flags, preserve_rng, restoring
from labkit.restore.collector import frozen_heap
from labkit.results import Comparison, Measurement, Workload
from labkit.turn import TURN

# A run that is not clear at the end of its budget goes on, to this multiple of it at most.
PATIENCE = 3.0

Step = Callable[[], Any] | Workload


def measure(
    step: Step, *, seconds: float | None = None, threads: int | None = 1, restore: bool = True
) -> Measurement:
    """Time one zero-argument step or `Workload` alone: with nothing to hold the times against.

    The step runs hundreds of times. What it reaches is as before afterwards, as in `compare`, which
    says what ``restore`` does. ``seconds``, ``threads`` and errors are as there, too: Busy,
    TypeError, ValueError, FloatingPointError. Times are in seconds a step.

    >>> matrix = torch.ones(64, 64)
    >>> result = measure(lambda: matrix @ matrix, seconds=0.1)
    >>> result.median > 0, len(result.times) >= 6
    (True, True)
    """
    with (
        measuring(threads),
        contextlib.closing(as_arm(step, "step")) as arm,
        _as_before([step], restore) as restoration,
    ):
        result = alone(arm, seconds=budget(seconds))
    return replace(result, notes=restoration.notes)


def compare(
    baseline: Step,
    candidate: Step,
    *,
    seconds: float | None = None,
    threads: int | None = 1,
    on_update: Update | None = None,
    restore: bool = True,
) -> Comparison:
    """Time two zero-argument steps, or Workloads, against each other in blocks A B B A.

    ``seconds`` is the budget for the measuring proper (10 by default, less in the test size); it
    ends sooner once the interval is narrow, and goes on while the verdict is unclear, to three
    times the budget at most. Steps that are given ready-made cannot be built again: the result is
    of one build. ``threads`` is torch's thread count on the CPU (None leaves it alone).
    ``on_update`` receives partial results between blocks, at most five times a second. After an
    interrupt the partial result is returned.

    Each step runs hundreds of times. Afterwards models, optimizers, schedulers, tensors,
    containers, variables, generators and torch's switches that the steps reach are as before, bit
    for bit: see `labkit.restore.restoring`. ``result.notes`` names what cannot be put back, such as
    an iterator. With ``restore=False`` the steps train what they are given: only the global
    generators and torch's switches are put back.

    The verdict follows Kalibera and Jones 2013 ("Rigorous benchmarking in reasonable time"): see
    `labkit.results.statistics`. Busy while another measurement is running; TypeError for what is no
    step and for a budget that is no number; ValueError for one that is not positive, for a loss on
    a card that is not the current one, and for a training that cannot be put back; MemoryError
    where copies do not fit; FloatingPointError for a step that returns nan or infinity. What a step
    raises comes through, but running out of memory ends that side alone.

    >>> weights = torch.ones(256, 256)
    >>> result = compare(lambda: weights.neg_(), lambda: weights[:8].neg_(), seconds=0.2)
    >>> result.speedup > 1, result.baseline.median > result.candidate.median
    (True, True)
    >>> weights.sum().item()
    65536.0
    """
    with measuring(threads), contextlib.ExitStack() as stack:
        arms = [as_arm(baseline, "baseline"), as_arm(candidate, "candidate")]
        for arm in arms:
            stack.callback(arm.close)
        with _as_before([baseline, candidate], restore) as restoration:
            result = alternate(
                *arms,
                seconds=budget(seconds),
                patience=patience_of(None),
                on_update=on_update,
                stop=None,
                most_builds=1,
            )
    return replace(result, notes=restoration.notes)


def _as_before(sides: list[Step], restore: bool) -> contextlib.AbstractContextManager[Restoration]:
    """Put back what the steps reach."""
    steps = []
    for side in sides if restore else ():
        steps.append(side.step if isinstance(side, Workload) else side)
    return restoring(*steps, advice=", or pass restore=False: then the steps train on")


@contextlib.contextmanager
def measuring(threads: int | None) -> Iterator[None]:
    """What every measurement happens in: alone, on ``threads`` torch threads.

    Everything global is given back afterwards. Busy while another measurement is running.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(
            f"threads={threads!r}: use a positive number of CPU threads, "
            "or None for torch's own setting"
        )
    thread = threading.current_thread()
    with giving_back(partial(TURN.give_back_to, TURN.depth_of(thread), thread)):
        TURN.take(thread)
        with frozen_heap(), preserve_rng(), preserve_flags():
            if threads is not None:
                torch.set_num_threads(threads)
            yield


def as_arm(step: Step, label: str) -> Arm:
    """A Workload or a plain function as an arm; TypeError for what is neither."""
    workload = step
    if not isinstance(workload, Workload):
        if isinstance(step, torch.nn.Module | torch.optim.Optimizer):
            raise TypeError(
                f"{label} is a {type(step).__name__}: use a function without arguments, which does "
                "one step with it"
            )
        if not callable(step):
            raise TypeError(
                f"{label}={step!r}: use a function without arguments, which does one step, and "
                "not what it returns"
            )
        workload = Workload(step, unit="steps")
    # What the caller opened, the caller closes.
    return LocalArm(lambda: replace(workload, close=None), label)


def budget(seconds: float | None) -> float:
    """The time budget in seconds: the caller's, or the default for this size.

    ValueError for one that is not positive and finite, TypeError for what is no number.
    """
    if seconds is None:
        seconds = pick(cpu=10.0, test=0.2)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"seconds={seconds!r}: use a positive time budget in seconds, a number")
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"seconds={seconds!r}: use a positive time budget in seconds")
    return seconds


def patience_of(patience: float | None) -> float:
    """How many budgets a run that stays unclear may take: the caller's, or the default.

    ValueError for less than one, or no end; TypeError for what is no number.
    """
    if patience is None:
        return pick(cpu=PATIENCE, test=1.0)
    if not isinstance(patience, int | float) or isinstance(patience, bool):
        raise TypeError(f"patience={patience!r}: use a number of budgets, 1 or more")
    if not 1 <= patience < math.inf:
        raise ValueError(f"patience={patience!r}: use a number of budgets, 1 or more")
    return patience
