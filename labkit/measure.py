"""Time one step, or two against each other, so that the answer can be trusted.

Two arms are timed in blocks in the order A B B A: each block of A stands beside one of B, so that a machine that slows
down, heats up or is shared hits both alike; one step after each change of arm is not timed. The result is the median of
the paired ratios with a bootstrap interval.
Neighbouring blocks of the *same* arm give the A/A control of the very same run: the ratio that this machine shows where
there is nothing to be seen.
"""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from labkit.arms import ArmDied, LocalArm
from labkit.device import is_out_of_memory, pick
from labkit.preserve import preserve_flags, preserve_rng
from labkit.progress import progress
from labkit.results import CLAIM_PAIRS, CONTROL_LIMIT, Comparison, Measurement, Workload
from labkit.turn import TURN

BLOCK_SECONDS = 0.005  # shorter blocks drown in the clock's and the caches' noise
MIN_PAIRS = 24  # no run is ended early, however sure it looks, before this many
ENOUGH = 0.25  # stop before the budget when both intervals are this part of the limit

Update = Callable[[Comparison], None]


def measure(step: Any, *, seconds: float | None = None, threads: int | None = 1) -> Measurement:
    """Time one zero-argument step or `Workload` alone: absolute times only, with nothing to hold them against."""
    with measuring(threads):
        arm = as_arm(step, "step")
        state = _Timed(arm)
        bar = _bar(budget(seconds))
        with contextlib.closing(arm), contextlib.closing(bar):
            state.warm_up(bar.total)
            begin = now = time.perf_counter()
            while state.alive and (len(state.times) < CLAIM_PAIRS or now - begin < bar.total):
                state.block()
                now = time.perf_counter()
                bar.update(min(now - begin, bar.total) - bar.n)
            return state.result()


def compare(
    baseline: Any,
    candidate: Any,
    *,
    seconds: float | None = None,
    threads: int | None = 1,
    on_update: Update | None = None,
    stop: threading.Event | None = None,
) -> Comparison:
    """Time two zero-argument steps, or Workloads, against each other in blocks A B B A.

    ``seconds`` is the budget for the measuring proper (10 by default, less in the test size); it ends sooner once both
    intervals are narrow. ``threads`` is torch's thread count on the CPU (None leaves it alone). ``on_update`` receives
    partial results between blocks, at most five times a second. After ``stop.set()`` or an interrupt the partial result
    is returned. torch's switches and random generators are given back as they were.
    """
    with measuring(threads), contextlib.ExitStack() as stack:
        arms = [as_arm(baseline, "baseline"), as_arm(candidate, "candidate")]
        for arm in arms:
            stack.callback(arm.close)
        return alternate(arms[0], arms[1], seconds=budget(seconds), on_update=on_update, stop=stop)


@contextlib.contextmanager
def measuring(threads: int | None) -> Iterator[None]:
    """What every measurement happens in: alone, on one torch thread, and everything global is given back afterwards."""
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(
            f"threads={threads!r}: use a positive number of CPU threads, or None for torch's own setting"
        )
    TURN.take(threading.current_thread())
    freeze = gc.get_freeze_count() == 0
    try:
        gc.collect()  # what the notebook has dropped must not sit in the memory that the arms need
        if freeze:
            gc.freeze()  # else each release of an arm searches all of torch for garbage: longer than a short run
        with preserve_rng(), preserve_flags():
            if threads is not None:
                torch.set_num_threads(threads)
            yield
    finally:
        if freeze:
            gc.unfreeze()
        TURN.give_back()


def as_arm(step: Any, label: str) -> Any:
    """``step`` as an arm: arms as they are, Workloads and plain functions wrapped."""
    if hasattr(step, "block") and not callable(step):
        return step
    workload = step if isinstance(step, Workload) else Workload(step, unit="steps")
    return LocalArm(
        lambda: replace(workload, close=None), label
    )  # what the caller opened, the caller closes


def budget(seconds: float | None) -> float:
    """The time budget in seconds: the caller's, or the default for this size. ValueError when it makes no sense."""
    seconds = pick(cpu=10.0, test=0.5) if seconds is None else seconds
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"seconds={seconds!r}: use a positive time budget in seconds")
    return seconds


class _Timed:
    """An arm and the times taken of it so far. Running out of memory ends the arm, not the run."""

    def __init__(self, arm: Any) -> None:
        self.arm = arm
        self.times: list[float] = []
        self.steps = 1
        self.cold: float | None = None
        self.error: str | None = None

    @property
    def alive(self) -> bool:
        return self.error is None

    def _seconds_of(self, steps: int) -> float | None:
        return self._guard(lambda: self.arm.block(steps))

    def _guard(self, work: Callable[[], float]) -> float | None:
        try:
            return work()
        except (ArmDied, MemoryError, RuntimeError) as error:
            if not isinstance(error, ArmDied) and not is_out_of_memory(error):
                raise
            self.error = str(error) if isinstance(error, ArmDied) else "out of memory"
        self.arm.close()  # outside of `except`: the traceback would keep the step's tensors alive
        return None

    def warm_up(self, budget: float, stop: threading.Event | None = None) -> None:
        """Build, run the cold first step, then find how many steps make a block long enough to be timed."""
        self.cold = self._guard(self.arm.start)
        if self.cold is None:
            return
        # However long that took: it may have been a compilation, and then the next step is no measure of it.
        spent, enough = 0.0, min(0.25, budget / 20)
        while not (stop and stop.is_set()):
            elapsed = self._seconds_of(self.steps)
            if elapsed is None:
                return
            spent += elapsed
            if elapsed < BLOCK_SECONDS:
                wanted = math.ceil(1.2 * self.steps * BLOCK_SECONDS / max(elapsed, 1e-9))
                self.steps = max(self.steps + 1, min(10 * self.steps, wanted))
            elif spent >= enough:
                return

    def settle(self) -> None:
        """One step that is not timed: the first after a change of arm finds the caches as the other arm left them."""
        self._seconds_of(1)

    def block(self) -> None:
        elapsed = self._seconds_of(self.steps)
        if elapsed is not None:
            self.times.append(elapsed / self.steps)

    def result(self) -> Measurement:
        if self.alive:
            self.arm.check()
        return self.partial()

    def partial(self) -> Measurement:
        arm = self.arm
        return Measurement(
            arm.label,
            arm.settings,
            tuple(self.times),
            steps_per_block=self.steps,
            samples=arm.samples,
            unit=arm.unit,
            cold=self.cold,
            error=self.error,
        )


def alternate(
    baseline: Any,
    candidate: Any,
    *,
    seconds: float,
    on_update: Update | None,
    stop: threading.Event | None,
) -> Comparison:
    """The engine of `compare` on two arms (objects with ``start``, ``block``, ``check``, ``close``)."""
    a, b = _Timed(baseline), _Timed(candidate)
    bar = None if on_update else _bar(seconds)
    begin = last_update = time.perf_counter()
    stopped = False

    def so_far() -> Comparison:
        device = "cuda" if "cuda" in (a.arm.device, b.arm.device) else "cpu"
        return Comparison(a.partial(), b.partial(), device, time.perf_counter() - begin, stopped)

    def halted() -> bool:
        return stop is not None and stop.is_set()

    try:
        for timed in (a, b):
            if not halted():
                timed.warm_up(seconds, stop)
        begin = time.perf_counter()
        order, last = [a, b, b, a], None
        position = 0
        while not halted() and (a.alive or b.alive):
            timed = order[position % 4]
            if timed is not last and timed.alive:
                timed.settle()
            if timed.alive:
                timed.block()
            position, last = position + 1, timed
            now = time.perf_counter()
            if position % 2:
                continue
            if now - begin >= seconds and position >= 4:
                break
            if now - last_update < 0.2:
                continue
            last_update = now
            partial = so_far()
            if on_update:
                on_update(partial)
            if bar is not None:
                bar.set_description_str(f"{partial.speedup:.2f}x", refresh=False)
                bar.update(
                    min(now - begin, bar.total) - bar.n
                )  # draws it after its delay, and then close() clears it
            if len(partial.ratios) >= MIN_PAIRS and _narrow(partial):
                break
        stopped = halted()
    except KeyboardInterrupt:
        if not so_far().ratios:
            raise  # nothing to show for it
        stopped = True
    finally:
        if bar is not None:
            bar.close()
    result = so_far()
    if not stopped:
        result = replace(result, baseline=a.result(), candidate=b.result())
    return result


def _bar(seconds: float) -> Any:
    return progress(total=seconds, unit="s", bar_format="{desc} |{bar}| {n:.2g}/{total:.2g} s")


def _narrow(partial: Comparison) -> bool:
    """Whether more pairs would add nothing. Looks at widths only, never at the effect: no optional stopping."""
    limit = ENOUGH * CONTROL_LIMIT[partial.device]
    return all(
        high - low <= 2 * limit * mid
        for (low, high), mid in ((partial.interval, partial.speedup), (partial.control_interval, 1))
    )
