"""What goes into a measurement and what comes out of it: plain frozen values, their statistics and their verdict."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from labkit import report
from labkit.text import aligned, format_bytes, format_rate, format_seconds

CLAIM_PAIRS = 6  # with fewer, even if all agree, the sign test cannot reach 5 %: 2 * 0.5**5 = 0.06
CONTROL_LIMIT = {
    "cpu": 0.02,
    "cuda": 0.005,
}  # widest half-width of an A/A control that we still call quiet
NOISY_MARGIN = 5  # in a noisy run an effect has to clear this many noise floors


@dataclass(frozen=True)
class Workload:
    """What a lab times: one training step, and how much it gets through.

    ``step`` takes nothing and may return its loss (detached); ``samples`` is the number of ``unit`` it processes.
    ``evaluate`` returns the metric of a race; ``close`` releases what the step holds, such as worker processes.
    """

    step: Callable[[], Any]
    samples: float = 1
    unit: str = "samples"
    evaluate: Callable[[], float] | None = None
    close: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        if not callable(self.step):
            raise TypeError(
                f"Workload(step={self.step!r}): the step must be a function without arguments"
            )
        try:
            inspect.signature(self.step).bind()
        except TypeError as error:
            raise TypeError(
                f"a step takes no arguments ({error}): bind them, as in `lambda: step(inputs)`"
            ) from None
        except ValueError:
            pass  # a built-in function without a signature: calling it will tell
        if not self.samples > 0:
            raise ValueError(
                f"Workload(samples={self.samples!r}): a step processes a positive number of {self.unit}"
            )


@dataclass(frozen=True)
class Measurement:
    """Times of one arm: seconds per step, one entry a block, in the order they were taken."""

    label: str
    settings: dict[str, Any] = field(default_factory=dict)
    times: tuple[float, ...] = ()
    # The number, from 0, of the build that each of the times was taken of; empty means one build.
    builds: tuple[int, ...] = ()
    steps_per_block: int = 1
    samples: float = 1
    unit: str = "samples"
    cold: float | None = (
        None  # seconds of the very first step: compilation, cuDNN's search, first allocations
    )
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    error: str | None = None  # what ended this arm: out of memory, or the death of its process
    counters: dict[str, int] | str | None = (
        None  # exact counts of a step, or why there are none; for records
    )

    def __post_init__(self) -> None:
        if self.builds and len(self.builds) != len(self.times):
            raise ValueError(
                f"{len(self.builds)} builds for {len(self.times)} times of {self.label!r}: "
                "give the build of each time, or none where there was one build"
            )

    @property
    def build_count(self) -> int:
        """Of how many builds the times were taken; 0 without times."""
        if not self.times:
            return 0
        return len(set(self.builds)) or 1

    @cached_property
    def median(self) -> float:
        """Median seconds per step; nan when nothing was timed."""
        return float(np.median(self.times)) if self.times else math.nan

    @cached_property
    def iqr(self) -> float:
        """Interquartile range of the seconds per step."""
        return float(np.subtract(*np.percentile(self.times, [75, 25]))) if self.times else math.nan

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.median

    def __str__(self) -> str:
        return table([self])

    def _repr_html_(self) -> str:
        return report.measurement(self)


@dataclass(frozen=True)
class Comparison:
    """Two arms that were timed side by side."""

    baseline: Measurement
    candidate: Measurement
    device: str = "cpu"
    seconds: float = 0.0  # spent measuring
    stopped: bool = False
    lab: str = ""  # the name of the lab's function

    @property
    def arms(self) -> tuple[Measurement, Measurement]:
        """Both arms, the baseline first."""
        return self.baseline, self.candidate

    @cached_property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The settings in which the sides differ: name -> (baseline's value, candidate's)."""
        return changed(self.baseline.settings, self.candidate.settings)

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The settings that both sides have alike: name -> value."""
        settings = self.candidate.settings
        return {name: value for name, value in settings.items() if name not in self.changed}

    @property
    def pairs(self) -> int:
        """How many neighbouring blocks of both sides there are."""
        return len(self.ratios)

    @property
    def build_count(self) -> int:
        """How many times each side was built for these times; of the side that was built less often."""
        return min(self.baseline.build_count, self.candidate.build_count)

    def with_peaks(self, *peaks: tuple[int | None, int | None]) -> Comparison:
        """The same with each arm's peak memory (allocated, reserved), in bytes."""
        baseline, candidate = (
            replace(arm, peak_bytes=allocated, reserved_bytes=reserved)
            for arm, (allocated, reserved) in zip(self.arms, peaks, strict=True)
        )
        return replace(self, baseline=baseline, candidate=candidate)

    @cached_property
    def ratios(self) -> tuple[float, ...]:
        """baseline / candidate of each pair of neighbouring blocks; above 1 the candidate is faster.

        Of the time per sample, where the arms process different amounts a step: other batch sizes, say.
        """
        scale = self.candidate.samples / self.baseline.samples
        return tuple(
            scale * a / b for a, b in zip(self.baseline.times, self.candidate.times, strict=False)
        )

    @cached_property
    def control(self) -> tuple[float, ...]:
        """A/A ratios: neighbouring blocks of the same arm. In A1 B1 B2 A2 A3 B3 ... those are B1/B2 and A2/A3."""
        a, b = self.baseline.times, self.candidate.times
        same_b = [first / second for first, second in zip(b[0::2], b[1::2], strict=False)]
        same_a = [first / second for first, second in zip(a[1::2], a[2::2], strict=False)]
        return tuple(same_b + same_a)

    @cached_property
    def speedup(self) -> float:
        """Median of the paired ratios; nan when there is none."""
        return float(np.median(self.ratios)) if self.ratios else math.nan

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Bootstrap 95 % interval of the speed-up."""
        return median_interval(self.ratios)

    @cached_property
    def control_interval(self) -> tuple[float, float]:
        """Bootstrap 95 % interval of the A/A control's median, which is 1 on a perfect machine."""
        return median_interval(self.control)

    @property
    def noise_floor(self) -> float:
        """How far from 1 the A/A control's interval reaches: effects inside it cannot be told from noise."""
        low, high = self.control_interval
        return max(abs(math.log(low)), abs(math.log(high))) if low > 0 else math.inf

    @property
    def noisy(self) -> bool:
        """Whether the control alone varied by more than it does on a quiet machine: 2 % on CPU, 0.5 % on CUDA."""
        low, high = self.control_interval
        return not (high - low) / 2 <= CONTROL_LIMIT[self.device]

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``same`` or ``cannot tell``.

        A difference is claimed when the interval lies wholly outside the noise floor, or, in a noisy run, outside five
        of them. ``same`` needs a quiet run, and an interval within the limit for this kind of device.
        """
        if len(self.ratios) < CLAIM_PAIRS or self.baseline.error or self.candidate.error:
            return "cannot tell"
        low, high = (math.log(bound) for bound in self.interval)
        margin = self.noise_floor * (NOISY_MARGIN if self.noisy else 1)
        if low > margin:
            return "faster"
        if high < -margin:
            return "slower"
        same = CONTROL_LIMIT[self.device]
        return "same" if not self.noisy and -same <= low and high <= same else "cannot tell"

    @property
    def memory_ratio(self) -> float:
        """Peak memory of the candidate over that of the baseline; nan where it was not measured."""
        if not self.baseline.peak_bytes or self.candidate.peak_bytes is None:
            return math.nan
        return self.candidate.peak_bytes / self.baseline.peak_bytes

    def in_short(self, digits: int = 2) -> str:
        """``1.26x [1.25, 1.27] faster``: for a line in a table; or what ended a side."""
        if error := self.baseline.error or self.candidate.error:
            return f"ended by {error}"
        low, high = self.interval
        return f"{self.speedup:.{digits}f}x [{low:.{digits}f}, {high:.{digits}f}] {self.verdict}"

    def __str__(self) -> str:
        low, high = self.interval
        ended = ", stopped early" if self.stopped else ""
        restless = self.noisy and len(self.ratios) >= CLAIM_PAIRS
        noisy = " (noisy: is something else using this machine?)" if restless else ""
        per = (
            ""
            if self.baseline.samples == self.candidate.samples
            else f" for the same number of {self.baseline.unit}"
        )
        lines = [
            table([self.baseline, self.candidate]),
            f"speed-up {self.speedup:.3f}x  [{low:.3f}, {high:.3f}]{per}   {self.verdict.upper()}",
            f"{len(self.ratios)} pairs in {self.seconds:.1f} s on {self.device}{ended}; "
            f"A/A noise floor {self.noise_floor:.1%}{noisy}",
        ]
        return "\n".join(lines)

    # A notebook shows the HTML; where there is none, a cell that ends in lab.run(...) shows the table.
    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report.comparison(self)


def same_value(one: Any, other: Any) -> bool:
    """Whether two values of a setting are the same: equal numbers, or values with the same text.

    By text since a record holds a dtype, say, by its name, and what was read from it has to equal what runs here.
    """
    if isinstance(one, int | float) and isinstance(other, int | float) and one == other:
        return True
    return str(one) == str(other)


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: name -> (value before, value after); None where a side lacks the setting."""
    differing = {}
    for name in dict.fromkeys([*after, *before]):
        pair = before.get(name), after.get(name)
        if not same_value(*pair):
            differing[name] = pair
    return differing


def median_interval(
    values: tuple[float, ...], confidence: float = 0.95, resamples: int = 1000
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median; (nan, nan) without values. NumPy's own generator is untouched."""
    if not values:
        return math.nan, math.nan
    data = np.asarray(values)
    picks = np.random.default_rng(0).integers(len(data), size=(resamples, len(data)))
    tail = 100 * (1 - confidence) / 2
    # "nearest", since a race's times may be infinite and cannot be interpolated
    low, high = np.percentile(np.median(data[picks], axis=1), [tail, 100 - tail], method="nearest")
    return float(low), float(high)


def table(sides: Sequence[Measurement]) -> str:
    """A text table, one column a side."""
    return aligned(table_rows(sides))


def table_rows(sides: Sequence[Measurement]) -> list[list[str]]:
    """The rows of the table, the first its head: text and HTML have the same figures."""
    rows = [["", *(side.label for side in sides)]]
    rows.append(["step, median", *(format_seconds(side.median) for side in sides)])
    rows.append(["step, IQR", *(format_seconds(side.iqr) for side in sides)])
    rows.append(["throughput", *(format_rate(side.throughput, side.unit) for side in sides)])
    rows.append(["first step", *(format_seconds(side.cold) for side in sides)])
    if any(side.peak_bytes is not None for side in sides):
        rows.append(["peak memory", *(format_bytes(side.peak_bytes) for side in sides)])
    if any(side.reserved_bytes is not None for side in sides):
        rows.append(["peak reserved", *(format_bytes(side.reserved_bytes) for side in sides)])
    if any(side.error for side in sides):
        rows.append(["ended by", *(side.error or "-" for side in sides)])
    return rows
