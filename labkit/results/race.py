"""Runs of a race to a target, and what may be said of its sides.

Sides are held against each other seed by seed, with the statistics of builds: a seed is to a race
what a build is to a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from labkit import charts, show
from labkit.results.comparison import SAME
from labkit.results.statistics import estimate, median_interval
from labkit.show import Markup
from labkit.text import aligned, format_factor, format_seconds, format_steps, number_of

# Fewer seeds give a factor no interval: a metric that is taken every so many steps makes two ratios
# equal often enough that their interval has no width.
FEW_SEEDS = 3
# The verdicts where a side does not always reach the target: no time tells them apart.
ARRIVES = {"faster": "arrives more often", "slower": "arrives less often"}
# Where chance may have decided: of a candidate and its baseline, who arrives.
FEW = {
    (True, True): "both arrive",
    (True, False): "arrives more often, few seeds",
    (False, True): "arrives less often, few seeds",
}


@dataclass(frozen=True)
class RaceRun:
    """One training: ``curve`` holds (steps, training seconds, metric) at each evaluation.

    ``error`` says that memory ran out.
    """

    arm: str
    seed: int
    curve: tuple[tuple[int, float, float], ...]
    reached: bool
    error: str | None = None

    @property
    def seconds(self) -> float:
        """Training seconds to the target; infinity when it was never reached."""
        return self.curve[-1][1] if self.reached else math.inf

    @property
    def steps(self) -> float:
        """Steps to the target; infinity when it was never reached."""
        return self.curve[-1][0] if self.reached else math.inf

    def drawn(self) -> charts.Curve:
        """The run for a picture."""
        points = [(seconds, value) for _, seconds, value in self.curve]
        return charts.Curve(self.arm, points, self.reached)


@dataclass(frozen=True)
class RaceResult:
    """All runs of a race. The first arm is the baseline; ``lab`` names the lab's function.

    ``labels`` say what the arms have set, where these have names of their own; () where the names
    say it.
    """

    runs: tuple[RaceRun, ...]
    target: float
    metric: str
    higher_is_better: bool
    stopped: bool = False
    lab: str = ""
    labels: tuple[str, ...] = ()

    def called(self, baseline: str, candidate: str) -> RaceResult:
        """The same with other names for its first two arms."""
        names = dict(zip(self.arms, (baseline, candidate), strict=False))
        runs = tuple(replace(run, arm=names.get(run.arm, run.arm)) for run in self.runs)
        return replace(self, runs=runs, labels=self.arms)

    @cached_property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.arm for run in self.runs))

    def of(self, arm: str) -> tuple[RaceRun, ...]:
        """The runs of one arm, in the order of their seeds. Raises KeyError for an unknown arm."""
        if arm not in self.arms:
            raise KeyError(f"no side {arm!r} in this race; there are {', '.join(self.arms)}")
        return tuple(run for run in self.runs if run.arm == arm)

    @property
    def seeds(self) -> str:
        """``5 seeds``, ``one seed``: how often its baseline has run."""
        return number_of(len(self.of(self.arms[0])), "seed")

    def arrived(self, arm: str) -> int:
        """How many runs of one arm reached the target."""
        return sum(run.reached for run in self.of(arm))

    def tally(self, arm: str) -> str:
        """``3 of 5``: the seeds of one arm that reached the target."""
        return f"{self.arrived(arm)} of {len(self.of(arm))}"

    def arrives(self, arm: str) -> bool:
        """Whether more than half of a side's seeds reached the target."""
        return 2 * self.arrived(arm) > len(self.of(arm))

    def tally_in_words(self, arm: str) -> str:
        """``3 of 5 seeds``, ``0 of 1 seed``."""
        return f"{self.tally(arm)} {'seed' if len(self.of(arm)) == 1 else 'seeds'}"

    def counts(self, arm: str, baseline: str) -> str:
        """``in 3 of 5 seeds, plain in 5 of 5``: who arrived, with a name for the baseline."""
        return f"in {self.tally_in_words(arm)}, {baseline} in {self.tally(self.arms[0])}"

    def told_by(self, arm: str, against: str | None = None) -> str:
        """What tells ``arm`` from ``against`` (the baseline): "times", "counts" or "nothing".

        Times, as a factor, where every run of both sides arrived. Else counts, of the seeds of
        each side that did; nothing, where none did.
        """
        sides = arm, against or self.arms[0]
        if not any(map(self.arrived, sides)):
            return "nothing"
        whole = all(run.reached for side in sides for run in self.of(side))
        return "times" if whole and self._pairs(arm, against) else "counts"

    def median(self, arm: str, by: str = "seconds") -> float:
        """Median ``seconds`` or ``steps`` to the target over the seeds.

        Infinity when fewer than half reached it.
        """
        return _median([getattr(run, by) for run in self.of(arm)])

    def interval(self, arm: str) -> tuple[float, float]:
        """95 % interval of the median seconds, from six seeds on; (nan, nan) with fewer.

        It may be infinite.
        """
        return median_interval([run.seconds for run in self.of(arm)])

    def ratios(
        self, arm: str, by: str = "seconds", against: str | None = None
    ) -> tuple[float, ...]:
        """``against`` (the baseline) over ``arm`` of each seed, where one of them arrived.

        0 where only ``arm`` never arrived, infinity where only the other one did not.
        """
        ratios = []
        for before, after in self._pairs(arm, against):
            if after.reached:
                ratios.append(getattr(before, by) / getattr(after, by))
            elif before.reached:
                ratios.append(0.0)
        return tuple(ratios)

    def speedup(
        self, arm: str, by: str = "seconds", against: str | None = None
    ) -> tuple[float, float, float]:
        """``against`` (the baseline) over ``arm``, paired by seed, and its 95 % interval.

        The mean of the ratios' logarithms, with an interval by Student's t, which is right for few
        seeds; nan for its ends with fewer than three. Where a run never arrived, the median of the
        ratios without an interval. nan where no seed arrived.
        """
        ratios = self.ratios(arm, by, against)
        if not ratios or not self._all_arrived(arm, against):
            return _median(ratios), math.nan, math.nan
        found = estimate([math.log(ratio) for ratio in ratios])
        if len(ratios) < FEW_SEEDS:
            return math.exp(found.mean), math.nan, math.nan
        return (math.exp(found.mean), *found.interval)

    def verdict(self, arm: str) -> str:
        """``faster``, ``slower``, ``same`` or ``unclear``: of ``arm`` held against the baseline.

        Where all arrived, from three seeds on: ``same`` when the interval lies wholly within 2 % of
        1, else a difference when it lies wholly beyond the noise floor of neighbouring seeds. Where
        some did not: by how many of each side arrived, when so uneven a count has a chance of 5 %
        at most among equal sides (Fisher's exact test).
        """
        if self._all_arrived(arm):
            ratios = self.ratios(arm)
            if len(ratios) < FEW_SEEDS:
                return "unclear"
            return estimate([math.log(ratio) for ratio in ratios]).verdict(SAME)
        pairs = self._pairs(arm)
        before = sum(one.reached for one, _ in pairs)
        after = sum(other.reached for _, other in pairs)
        if before == after or fisher(before, after, len(pairs)) > 0.05:
            return "unclear"
        return "faster" if after > before else "slower"

    def _all_arrived(self, arm: str, against: str | None = None) -> bool:
        return all(one.reached and other.reached for one, other in self._pairs(arm, against))

    def _pairs(self, arm: str, against: str | None = None) -> list[tuple[RaceRun, RaceRun]]:
        """The runs of both sides with the same seed; repeats of a seed in their order."""
        others: dict[int, list[RaceRun]] = {}
        for run in self.of(arm):
            others.setdefault(run.seed, []).append(run)
        pairs = []
        for run in self.of(against or self.arms[0]):
            if others.get(run.seed):
                pairs.append((run, others[run.seed].pop(0)))
        return pairs

    @property
    def aim(self) -> str:
        """``accuracy of at least 0.8``."""
        sign = "at least" if self.higher_is_better else "at most"
        return f"{self.metric} of {sign} {self.target:g}"

    @property
    def headline(self) -> tuple[str, str]:
        """What stands first, of the first candidate: the verdict, and the factor or the counts."""
        if len(self.arms) < 2:
            return "unclear", ""
        candidate = self.arms[1]
        by = self.told_by(candidate)
        if by == "times":
            return self.verdict(candidate), self.factor(candidate)
        if by == "counts":
            figure = f"{self.tally_in_words(candidate)} against {self.tally(self.arms[0])}"
            return self.outcome(candidate), figure
        return "neither arrives", ""

    @property
    def sentence(self) -> str:
        """What each candidate of the race came to, in one sentence."""
        if not self.runs:
            return f"Race to {self.aim}: no run yet."
        if len(self.arms) < 2:
            return f"Race to {self.aim}: only {self.arms[0]} has run."
        found = "; ".join(f"{arm} {self.finding(arm)}" for arm in self.arms[1:])
        return f"Race to {self.aim}: {found}."

    def finding(self, arm: str) -> str:
        """``is 2.00× as fast as plain: faster``; where no factor tells it, who arrived."""
        by = self.told_by(arm)
        if by == "nothing":
            return f"did not reach it, {self.arms[0]} neither"
        if by == "counts":
            return f"reached it {self.counts(arm, self.arms[0])}: {self.outcome(arm)}"
        return f"is {self.factor(arm)} as fast as {self.arms[0]}: {self.verdict(arm)}"

    def outcome(self, arm: str) -> str:
        """The verdict in words that also fit where a side does not always arrive.

        ``both arrive`` where more than half of the seeds of each do, and none clearly more often.
        """
        verdict = self.verdict(arm)
        if self.told_by(arm) == "times":
            return verdict
        if verdict == "unclear" and len(self._pairs(arm)) > 1:
            arrive = self.arrives(arm), self.arrives(self.arms[0])
            return FEW.get(arrive, verdict)
        return ARRIVES.get(verdict, verdict)

    def factor(self, arm: str) -> str:
        """``2.00×``; of fewer than three seeds each by itself, as in ``2.00× and 1.25×``."""
        ratios = self.ratios(arm)
        if len(ratios) < FEW_SEEDS:
            return " and ".join(f"{format_factor(ratio)}×" for ratio in ratios)
        return f"{format_factor(self.speedup(arm)[0])}×"

    def arrival(self, arm: str) -> str:
        """``3 of 5 in 1.50 s``: who arrived, and the median time; ``0 of 5 arrived``."""
        median = self.median(arm)
        if math.isinf(median):
            return f"{self.tally(arm)} arrived"
        return f"{self.tally(arm)} in {format_seconds(median)}"

    def certainty(self, arm: str) -> str:
        """What a factor rests on: ``95 % interval 1.90 to 2.10; 5 seeds``; two seeds one by one.

        "" where no factor tells it.
        """
        if self.told_by(arm) != "times":
            return ""
        ratios = self.ratios(arm)
        _, low, high = self.speedup(arm)
        if not math.isnan(low):
            ends = f"{format_factor(low)} to {format_factor(high)}"
            return f"95 % interval {ends}; {len(ratios)} seeds"
        if len(ratios) == 1:
            return "one seed"
        return f"{' and '.join(map(format_factor, ratios))} in two seeds"

    @property
    def details(self) -> tuple[str, ...]:
        """How sure each factor is: a line for each."""
        lines = [f"{arm}: {self.certainty(arm)}" for arm in self.arms[1:] if self.certainty(arm)]
        if self.stopped:
            lines.append("stopped early")
        return tuple(lines)

    @property
    def rows(self) -> list[list[str]]:
        """The figures of each side as a table, the first row its head."""
        head = ["", "median time", "range", "median steps", "reached by"]
        return [head, *map(self._row, self.arms)]

    def _row(self, arm: str) -> list[str]:
        arrived = self.tally_in_words(arm)
        errors = sorted({run.error for run in self.of(arm) if run.error})
        if errors:
            arrived += f" ({', '.join(errors)})"
        if not self.arrived(arm):
            return [arm, "-", "-", "-", arrived]
        seconds = [run.seconds for run in self.of(arm)]
        spread = " – ".join(map(format_seconds, (min(seconds), max(seconds))))
        steps = format_steps(self.median(arm, "steps"))
        return [arm, format_seconds(self.median(arm)), spread, steps, arrived]

    def picture(
        self,
        recorded: Sequence[tuple[str, RaceResult]] = (),
        going: RaceRun | None = None,
    ) -> Markup:
        """The metric of every run; ``going`` is not over yet, ``recorded`` are labelled results."""
        arms = {arm: self.arrival(arm) for arm in self.arms}
        curves = [run.drawn() for run in self.runs]
        if going:
            arms.setdefault(going.arm, "")
            curves.append(going.drawn()._replace(going=True))
        return charts.race(
            self.sentence,
            self.metric,
            self.target,
            arms,
            curves,
            higher_is_better=self.higher_is_better,
            recorded=[(label, [run.drawn() for run in other.runs]) for label, other in recorded],
        )

    def __str__(self) -> str:
        table = [aligned(self.rows)] if self.runs else []
        return "\n".join([self.sentence, *table, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return show.result(
            show.sentence(*self._words()),
            self.picture(),
            show.details(*self.details, show.table(self.rows)),
        )

    def _words(self) -> list[str]:
        """The sentence as HTML: where one factor tells it all, with the factor large."""
        if len(self.arms) != 2 or self.told_by(self.arms[1]) != "times":
            return [self.sentence]
        verdict, factor = self.headline
        rest = f" as fast to {self.aim} as {self.arms[0]}."
        return [show.badge(verdict), show.element("b", factor, kind="factor"), rest]


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else math.nan


def fisher(one: int, other: int, of: int) -> float:
    """The chance of counts as uneven as ``one`` and ``other``, of ``of`` each, among equal sides.

    Fisher's exact test, two-sided: ``fisher(5, 0, of=5)`` is 2 / 252.
    """
    arrived = one + other
    ways = []
    for count in range(max(0, arrived - of), min(of, arrived) + 1):
        ways.append(math.comb(of, count) * math.comb(of, arrived - count))
    seen = math.comb(of, one) * math.comb(of, other)
    return sum(way for way in ways if way <= seen) / math.comb(2 * of, arrived)
