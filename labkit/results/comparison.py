"""Two sides that were timed against each other, and what may be said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from labkit import charts, show
from labkit.device import device_in_words
from labkit.results.measurement import Measurement, table_rows
from labkit.results.settings import ROLES, Sides
from labkit.results.statistics import BUILD_SPREAD, FEW_BUILDS, Estimate, estimate, runs_of
from labkit.show import Bar, Markup, Ratio, text_bars
from labkit.text import (
    format_factor,
    format_interval,
    format_rate,
    format_seconds,
    format_settings,
    number_of,
    share_of,
)

# With fewer pairs nothing is told, however alike they are.
CLAIM_PAIRS = 6
# Two sides are the same when the whole interval is this near to 1.
SAME = 0.02
# An interval within so much either way says how much at most the sides may differ.
LITTLE = 0.1


@dataclass(frozen=True)
class Comparison(Sides[Measurement]):
    """Two sides that were timed against each other, in ``seconds``; ``lab`` names its function.

    ``threads`` are torch's on the CPU, 0 where that is not known. ``limit`` is how many seconds it
    may take: the budget, or more once it goes on because it is unclear; 0 where that is not known.
    ``notes`` say what could not be put back.

    ``names`` are what the sides are called, where they are not called by their roles.

    The times of both stand in pairs of neighbouring blocks: pair i is the i-th of both. Both were
    built anew at the same moments, so that a pair of builds was measured in the same time.
    """

    baseline: Measurement
    candidate: Measurement
    device: str = "cpu"
    seconds: float = 0.0
    stopped: bool = False
    lab: str = ""
    limit: float = 0.0
    threads: int = 0
    notes: tuple[str, ...] = ()
    names: tuple[str, str] | None = None

    def called(self, baseline: str, candidate: str) -> Comparison:
        """The same with other names for its sides, in pictures and tables."""
        return replace(self, names=(baseline, candidate))

    def with_peaks(self, *peaks: tuple[int | None, int | None]) -> Comparison:
        """The same with each side's peak memory (of live tensors, reserved), in bytes."""
        sides = []
        for side, (allocated, reserved) in zip(self.arms, peaks, strict=True):
            sides.append(replace(side, peak_bytes=allocated, reserved_bytes=reserved))
        return replace(self, baseline=sides[0], candidate=sides[1])

    @cached_property
    def ratios(self) -> tuple[float, ...]:
        """baseline / candidate of each pair of blocks; above 1 the candidate is faster.

        Of the time per sample, where the sides process different amounts a step, such as other
        batch sizes.
        """
        scale = self.candidate.samples / self.baseline.samples
        pairs = zip(self.baseline.times, self.candidate.times, strict=False)
        return tuple(scale * before / after for before, after in pairs)

    @property
    def error(self) -> str | None:
        """What ended a side, the baseline's first."""
        return self.baseline.error or self.candidate.error

    @property
    def pairs(self) -> int:
        """How many neighbouring blocks of both sides there are."""
        return len(self.ratios)

    @property
    def build_count(self) -> int:
        """How many times each side was built for these pairs; 0 without pairs."""
        return len(self._builds)

    @cached_property
    def _builds(self) -> list[list[float]]:
        """The ratios of each pair of builds, in the order in which they were taken."""
        nothing = (0,) * self.pairs
        before, after = self.baseline.builds or nothing, self.candidate.builds or nothing
        found: dict[tuple[int, int], list[float]] = {}
        for ratio, *build in zip(self.ratios, before, after, strict=False):
            found.setdefault((build[0], build[1]), []).append(ratio)
        return list(found.values())

    @property
    def settled(self) -> bool:
        """Whether the newest build has at least half the pairs of the shortest one before it.

        Until then its few pairs would count like the many of each other build.
        """
        *before, newest = map(len, self._builds or [[]])
        if not before:
            return not self.too_short
        return 2 * newest >= min(before)

    @cached_property
    def _parts(self) -> list[float]:
        """Ratios that are nearly independent: of each build, or of runs of neighbouring pairs."""
        parts: list[list[float]] = self._builds
        if len(parts) < FEW_BUILDS:
            parts = [list(run) for run in runs_of(self.ratios)]
        return [float(np.median(part)) for part in parts]

    @cached_property
    def estimate(self) -> Estimate:
        """The speed-up as a logarithm, with what is known of its error: see `statistics`."""
        found = estimate([math.log(part) for part in self._parts])
        if self.build_count >= FEW_BUILDS or not self.pairs:
            return found
        middle = math.log(float(np.median(self.ratios)))
        return replace(found, mean=middle, allowance=self._allowance)

    @property
    def _allowance(self) -> float:
        """What builds may differ by, where too few of them were timed to measure it."""
        return BUILD_SPREAD / math.sqrt(self.build_count)

    @cached_property
    def control(self) -> tuple[float, ...]:
        """A/A ratios: each build of both sides against the next one; 1 on a perfect machine.

        A build of the baseline is held against another one of the baseline by way of the candidate,
        which was timed in the same moments, and the other way round: a machine that slows down
        meanwhile cancels out. With few builds, of runs of neighbouring pairs.
        """
        parts = zip(self._parts, self._parts[1:], strict=False)
        return tuple(one / other for one, other in parts)

    @property
    def speedup(self) -> float:
        """Median of the pairs' ratios; from three builds on the geometric mean of the builds'
        medians. nan without pairs.
        """
        return math.exp(self.estimate.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the speed-up; (nan, nan) when there are too few pairs for one."""
        return self.estimate.interval

    @property
    def noise_floor(self) -> float:
        """One standard error of the speed-up, as a logarithm, from the control's scatter.

        `verdict` has it as its threshold: an interval that lies wholly beyond it is a difference.
        """
        return self.estimate.noise_floor

    @property
    def too_short(self) -> bool:
        """Whether there are too few pairs for any verdict but ``unclear``."""
        return self.pairs < CLAIM_PAIRS

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``same`` or ``unclear``, from interval and control alone.

        ``same`` when the interval lies wholly within 2 % of 1; else a difference is told when it
        lies wholly beyond the noise floor.
        """
        if self.too_short or self.error:
            return "unclear"
        return self.estimate.verdict(SAME)

    @cached_property
    def direction(self) -> str:
        """``faster`` or ``slower`` where every pair agrees, however unclear the size; else "".

        Every pair has to lie on one side of 1 by more than what counts as the same. Six
        independent pairs of equal sides agree with a chance of 3 % (2 * 0.5**6). With fewer, an
        interval twice as wide as that of 95 % has to lie there as well: of two pairs, in 2.5 %.
        From three builds on, builds are counted in place of pairs: all pairs of a build agree
        where its addresses slow a side down.
        """
        if self.pairs < 2 or self.error:
            return ""
        logs = [math.log(ratio) for ratio in self.ratios]
        found = self.estimate
        if self.build_count < FEW_BUILDS:
            found = estimate(logs, self._allowance)
        sure = found.count >= CLAIM_PAIRS or abs(found.mean) - 2 * found.half_width > SAME
        if sure and min(logs) > SAME:
            return "faster"
        if sure and max(logs) < -SAME:
            return "slower"
        return ""

    @property
    def inside_noise_floor(self) -> bool:
        """Whether it is unclear although the interval leaves out 1: the noise floor reaches it."""
        low, high = self.interval
        return self.conclusion == "unclear" and not self.too_short and (low > 1 or high < 1)

    @property
    def conclusion(self) -> str:
        """The verdict in words: ``slower, size unclear`` where only the direction is sure."""
        if self.verdict == "unclear" and self.direction:
            return f"{self.direction}, size unclear"
        return self.verdict

    @property
    def memory_ratio(self) -> float:
        """Peak memory of the candidate over that of the baseline; nan where it was not measured."""
        if not self.baseline.peak_bytes or self.candidate.peak_bytes is None:
            return math.nan
        return self.candidate.peak_bytes / self.baseline.peak_bytes

    def in_short(self, digits: int = 2) -> str:
        """``1.26x [1.25, 1.27] faster``: for a line in a table; or what ended a side."""
        if self.error:
            return f"ended by {self.error}"
        interval = format_interval(*self.interval, digits)
        return " ".join(filter(None, [f"{self.speedup:.{digits}f}x", interval, self.conclusion]))

    @property
    def tone(self) -> str:
        """What colours the result: the direction where it is sure, else the verdict."""
        return self.direction or self.verdict

    @property
    def headline(self) -> tuple[str, str]:
        """What stands first: the verdict in words, and the factor; "" where there is none.

        ``("slower", "about 7 times")`` where all pairs agree, but are too few to say by how much.
        """
        if self.missing:
            return self.conclusion, ""
        if self.conclusion == self.verdict:
            return self.verdict, f"{format_factor(self.speedup)}×"
        times = max(self.speedup, 1 / self.speedup)
        return self.direction, f"about {times:.{1 if times < 3 else 0}f} times"

    @property
    def missing(self) -> str:
        """Why there is nothing to compare; "" where there is."""
        for role, side in zip(ROLES, self.arms, strict=True):
            if side.error:
                return f"The {role} ended by {side.error}: there is nothing to compare."
        if not self.ratios:
            return "Stopped before there was anything to compare."
        return ""

    @property
    def remark(self) -> str:
        """What follows the factor in `sentence`, with the punctuation between them."""
        if self.conclusion != self.verdict:
            return "; how much exactly is not clear yet"
        words = " as fast as the baseline"
        if self.by_throughput:
            words += f" for the same number of {self.baseline.unit}"
        if self.speedup < 0.1:
            words += f", {format_factor(1 / self.speedup)} times as long"
        if self.verdict == "same":
            return f"{words}: no difference beyond {100 * SAME:.0f} %"
        if self.verdict != "unclear":
            return "; ".join(filter(None, [words, self.saving]))
        if self.too_short:
            return f"{words}: too few pairs to decide"
        low, high = self.interval
        if (most := max(high, 1 / low) - 1) <= LITTLE:
            return f"{words}: if the sides differ, then by less than {math.ceil(100 * most)} %"
        return f"{words}: the pairs differ too much to tell the sides apart"

    @property
    def sentence(self) -> str:
        """``Faster, 2.00× as fast as the baseline; saves 20.6 of 41.2 ms a step.``"""
        if self.missing:
            return self.missing
        verdict, factor = self.headline
        return f"{verdict.capitalize()}, {factor}{self.remark}."

    @property
    def saving(self) -> str:
        """``saves 0.30 of 41.2 ms a step``, ``costs 0.30 ms more than 41.2 ms a step``.

        "" where no difference is told, or the sides process different amounts in a step.
        """
        if self.verdict not in ("faster", "slower") or self.by_throughput:
            return ""
        whole = self.baseline.median
        part, text = share_of(abs(whole - whole / self.speedup), whole)
        if self.speedup < 0.5:
            return f"costs {format_seconds(whole / self.speedup - whole)} more than {text} a step"
        if self.verdict == "faster":
            return f"saves {part} of {text} a step"
        unit = text.split()[1]
        return f"costs {part} {unit} more than {text} a step"

    @property
    def by_throughput(self) -> bool:
        """Whether the sides process different amounts in a step, so that its time would mislead."""
        return bool(self.ratios) and self.baseline.samples != self.candidate.samples

    @property
    def taken(self) -> str:
        """``240 pairs of 10 builds``, ``24 pairs of one build``: what the figures rest on."""
        return f"{number_of(self.pairs, 'pair')} of {number_of(self.build_count, 'build')}"

    @property
    def details(self) -> tuple[str, ...]:
        """How sure the result is, and how it was measured: a line for each."""
        surety = ["too few pairs for an interval"]
        if not math.isnan(self.interval[0]):
            ends = " to ".join(map(format_factor, self.interval))
            surety = [f"95 % interval {ends}", f"noise floor {100 * self.noise_floor:.1f} %"]
        if self.conclusion != self.verdict:
            agree = f"{self.pairs} of {self.pairs} pairs {self.direction}"
            surety.insert(0, f"{agree}; how much is open")
        method = [f"{self.seconds:.1f} s on {device_in_words(self.device)}"]
        if self.threads and self.device == "cpu":
            method[0] += f", {number_of(self.threads, 'thread')}"
        if self.stopped:
            method.append("stopped early")
        if self.shared:
            method.append(f"both sides: {format_settings(self.shared)}")
        lines = ["; ".join(method)]
        if not self.missing:
            lines.insert(0, "; ".join([*surety, self.taken]))
        return (*lines, *self.notes)

    @property
    def rows(self) -> list[list[str]]:
        """The figures of both sides as a table, the first row its head."""
        return [["", *self.roles], *table_rows(self.arms)[1:]]

    @property
    def own_settings(self) -> tuple[str, str]:
        """What each side has set differently, or its label where the settings tell nothing.

        Where sides have names of their own, which is the baseline and which the candidate.
        """
        if self.names:
            return ROLES
        notes = []
        for role, side in zip(ROLES, self.arms, strict=True):
            own = {name: side.settings.get(name) for name in self.changed}
            label = "" if side.label == role else side.label
            notes.append(format_settings(own) if self.changed else label)
        return notes[0], notes[1]

    @property
    def step_times(self) -> tuple[float, float]:
        """Of a step of each side: the baseline's median, and by the speed-up the candidate's.

        The candidate's own median is of other moments: it would contradict the pairs.
        """
        before, after = self.baseline, self.candidate
        if not (self.ratios and 0 < self.speedup < math.inf):
            return before.median, after.median
        each = before.median / self.speedup
        return before.median, each * after.samples / before.samples if self.by_throughput else each

    @property
    def speed_bars(self) -> tuple[Bar, Bar]:
        """Both sides: the time of a step with its quartiles, or the throughput."""
        bars = []
        sides = zip(self.roles, ROLES, self.arms, self.step_times, self.own_settings, strict=True)
        for name, role, side, value, note in sides:
            low, high = (value / side.median * end for end in side.quartiles)
            text = format_seconds(value)
            if self.by_throughput:
                value, low, high = (side.samples / each for each in (value, high, low))
                text = format_rate(value, side.unit)
            bars.append(Bar(name, value, side.error or text, (low, high), role, note))
        return bars[0], bars[1]

    @property
    def peak_bars(self) -> tuple[Bar, ...]:
        """Both sides: their peak memory; none where it was not taken."""
        if all(side.peak_text == "-" for side in self.arms):
            return ()
        bars = []
        for role, side in zip(ROLES, self.arms, strict=True):
            value = math.nan if side.peak_bytes is None else side.peak_bytes
            bars.append(Bar(role, value, side.peak_text, tone=role))
        return tuple(bars)

    def row(self, label: str, note: str = "", tone: str = "") -> Ratio:
        """The speed-up for a picture of several; ``tone`` in place of the result's own."""
        words = f"{format_factor(self.speedup)}× {self.conclusion}"
        if self.missing:
            words = f"ended by {self.error}" if self.error else "no pairs"
        return Ratio(label, self.speedup, self.interval, words, tone or self.tone, note)

    def picture(
        self, recorded: Sequence[tuple[str, Comparison]] = (), guess: float | None = None
    ) -> Markup:
        """Both sides, and each pair of blocks; ``recorded`` has a label and a result of each."""
        return charts.pairs(
            self.sentence,
            self.speed_bars,
            self.peak_bars,
            self.row(""),
            self.ratios,
            floor=self.noise_floor,
            recorded=[other.row(label, tone="recorded") for label, other in recorded],
            guess=guess,
        )

    def __str__(self) -> str:
        bars = text_bars(self.speed_bars, self.peak_bars)
        return "\n".join([self.sentence, bars, *self.details])

    # A notebook shows the HTML; where there is none, a cell that ends in lab.run(...) shows this.
    __repr__ = __str__

    def _repr_html_(self) -> str:
        verdict, factor = self.headline
        words = [self.missing]
        if factor:
            badge = show.badge(self.tone, verdict)
            words = [badge, show.element("b", factor, kind="factor"), self.remark, "."]
        return show.result(
            show.sentence(*words),
            self.picture(),
            show.details(*self.details, show.table(self.rows)),
        )
