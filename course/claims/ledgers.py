"""Claims: what a source says, what we expect, and what the recorded runs found.

A notebook declares its claims in one cell, tagged ``claims``; ``python -m course results`` collects them
all in ``RESULTS.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from course.records.format import Result
from course.records.planned import PlanRatios
from course.records.references import Recorded, reference
from course.records.store import Record
from course.records.words import MISSING
from labkit.race import RaceResult
from labkit.results import Comparison, same_value

Range = tuple[float, float]
HIGHER_IS_BETTER = {
    "speedup": True,
    "batch": True,
    "memory": False,
    "flops": False,
    "launches": False,
    "saved_bytes": False,
}
METRIC = {
    "speedup": "speed-up",
    "batch": "largest batch, candidate / baseline",
    "memory": "peak memory, candidate / baseline",
    "flops": "FLOPs, candidate / baseline",
    "launches": "launches, candidate / baseline",
    "saved_bytes": "bytes saved for backward, candidate / baseline",
}


@dataclass(frozen=True)
class Claim:
    """One claim about one lab.

    ``said`` is the source's figure in its own terms, ``figure`` the same as a range of our ``metric``; (1, inf) is a
    plain "faster". ``metric``: ``speedup`` (baseline / candidate time; in a race, time to the target), ``memory`` (peak
    of the candidate / baseline), ``batch`` (the largest that fits, see `planned`), or a counter's ratio: ``flops``,
    ``launches``, ``saved_bytes``.

    ``change`` picks the comparison by what its candidate sets differently, and ``at`` by what both arms have set;
    ``...`` stands for any value. In a race, ``change={"arm": "*cycle_steps=*", "against": "max_lr=*"}``: patterns as of
    file names, without ``against`` the baseline. Where several fit, ``pick`` takes the ``"largest"`` or ``"smallest"``
    figure. ``device`` is ``"cpu"``, ``"cuda"`` or ``"any"``. ``expect`` is where our figure should be, ``why`` explains
    it. A claim with a ``headline``, a few words that say what was compared, stands on the course's map.
    """

    text: str
    source: str
    said: str
    figure: Range
    expect: Range
    why: str
    change: Mapping[str, Any]
    at: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "speedup"
    lab: str = "make_workload"
    device: str = "any"
    pick: str | None = None
    headline: str = ""

    def __post_init__(self) -> None:
        if self.metric not in HIGHER_IS_BETTER:
            raise ValueError(f"metric={self.metric!r}: use one of {', '.join(HIGHER_IS_BETTER)}")
        if self.device not in ("any", "cpu", "cuda"):
            raise ValueError(f"device={self.device!r}: use 'any', 'cpu' or 'cuda'")
        if self.pick not in (None, "largest", "smallest"):
            raise ValueError(f"pick={self.pick!r}: use 'largest', 'smallest' or None")
        for name in ("figure", "expect"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: use (low, high), with 0 <= low <= high"
                )


@dataclass(frozen=True)
class Correction:
    """An error in a source: its words, what is right, and how one knows. ``holds`` is a check that can be run today."""

    source: str
    says: str
    right: str
    evidence: str
    holds: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Finding:
    """What one machine's record says to a claim: a figure with its interval, and a verdict."""

    machine: str  # with the date, and the doubt if there is one
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    verdict: str = MISSING
    contradicts: bool = False  # it lies wholly outside of what we said to expect

    def __str__(self) -> str:
        if math.isnan(self.value):
            return self.verdict
        interval = f" [{self.low:.3g}, {self.high:.3g}]" if self.high > self.low else ""
        return f"{self.value:.3g}{interval} {self.verdict}"


def findings(claim: Claim, references: Recorded) -> list[Finding]:
    """One finding for each machine of the claim's kind. ValueError when a record's answer is not unique."""
    records = [record for record in references.records if claim.device in ("any", record.device)]
    return [_finding(claim, record) for record in records] or [Finding("")]


def _finding(claim: Claim, record: Record) -> Finding:
    figures = {
        str(where): figure for result in record.results for where, figure in _figures(claim, result)
    }
    if not figures:
        return Finding(record.label)
    if len(figures) > 1 and claim.pick is None:
        raise ValueError(
            f"{claim.text!r}: {record.label} has {len(figures)} comparisons that fit; narrow `at`, or `pick`"
        )
    firm = [figure for figure in figures.values() if figure[-1] != "cannot tell"]
    value, low, high, word = (min if claim.pick == "smallest" else max)(firm or figures.values())
    if word == "cannot tell":
        return Finding(record.label, value, low, high, word)
    # A plain "faster" or "slower" is refuted by a run that found the two the same.
    direction_only = 0 in claim.figure or math.inf in claim.figure
    verdict = "refuted" if word == "same" and direction_only else _verdict(claim, low, high)
    verdict += " (predicted)" if word == "predicted" else ""
    outside = high < claim.expect[0] or low > claim.expect[1]
    return Finding(record.label, value, low, high, verdict, outside)


def _figures(claim: Claim, result: Result) -> list[tuple[Any, tuple[float, float, float, str]]]:
    """Where the claim's metric was taken, and (value, low, high, the comparison's own verdict on times)."""
    if getattr(result, "lab", None) != claim.lab:
        return []
    if isinstance(result, RaceResult):
        if claim.metric != "speedup" or not (arm := _arm(result, claim.change.get("arm"))):
            return []
        against = (
            _arm(result, claim.change["against"]) if "against" in claim.change else result.arms[0]
        )
        if against is None:
            return []
        found = result.speedup(arm, against=against)
        return [] if math.isnan(found[0]) else [((arm, against), (*found, ""))]
    if isinstance(result, PlanRatios):
        value = _planned(claim, result)
        return [] if value is None else [(result.settings, (value, value, value, result.source))]
    if not isinstance(result, Comparison) or not _fits(claim, result):
        return []
    where = result.candidate.settings | {"against": result.baseline.settings}
    if claim.metric == "speedup":
        return (
            [(where, (result.speedup, *result.interval, result.verdict))] if result.ratios else []
        )
    ratio = (
        result.memory_ratio if claim.metric == "memory" else _counter_ratio(result, claim.metric)
    )
    return [] if math.isnan(ratio) else [(where, (ratio, ratio, ratio, ""))]


def _arm(race: RaceResult, pattern: str | None) -> str | None:
    """The first arm of a race whose name fits the pattern."""
    return next((arm for arm in race.arms if pattern and fnmatchcase(arm, pattern)), None)


def _fits(claim: Claim, result: Comparison) -> bool:
    after = result.candidate.settings
    if "arm" in claim.change or result.changed.keys() != claim.change.keys():
        return False
    wanted = all(
        value is ... or same_value(after[name], value) for name, value in claim.change.items()
    )
    return wanted and all(same_value(after.get(name), value) for name, value in claim.at.items())


def _planned(claim: Claim, result: PlanRatios) -> float | None:
    """The claim's metric of a plan whose settings are those of the claim."""
    wanted = {**claim.change, **claim.at}
    if not all(
        value is ... or str(result.settings.get(name)) == str(value)
        for name, value in wanted.items()
    ):
        return None
    if claim.metric == "speedup" and "time" in result.figures:
        return 1 / result.figures["time"]
    return result.figures.get(claim.metric)


def _counter_ratio(result: Comparison, counter: str) -> float:
    before, after = result.baseline.counters, result.candidate.counters
    if not isinstance(before, dict) or not isinstance(after, dict) or not before.get(counter):
        return math.nan
    return after[counter] / before[counter]


def _verdict(claim: Claim, low: float, high: float) -> str:
    """Our interval against the source's range: wholly better or worse, inside, or on both sides of a bound."""
    least, most = claim.figure
    if not HIGHER_IS_BETTER[claim.metric]:  # as gains, where more is better
        least, most, low, high = (
            1 / bound if bound else math.inf for bound in (most, least, high, low)
        )
    if math.isinf(most):  # a plain "faster": the bound itself is not
        return "reproduced" if low > least else "refuted" if high <= least else "on the bound"
    if least == 0:  # a plain "slower"
        return "reproduced" if high < most else "refuted" if low >= most else "on the bound"
    if high < least:
        return "refuted"
    return "beaten" if low > most else "reproduced" if low >= least else "on the bound"


def _row(claim: Claim, found: list[Finding]) -> str:
    ours = "<br>".join(
        f"{finding.machine}: {finding}" if finding.machine else str(finding) for finding in found
    )
    settings = ", ".join(
        f"{k} {'(any)' if v is ... else v}" for k, v in {**claim.change, **claim.at}.items()
    )
    where = "" if claim.device == "any" else f", {claim.device} only"
    text = f"{claim.text} ({METRIC[claim.metric]}; {settings}{where})"
    return _cells(text, claim.source, claim.said, ours, claim.why)


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


class Ledger:
    """A notebook's claims with what was found: `print` it, or let a cell end in it."""

    def __init__(
        self, notebook: str, claims: Sequence[Claim], corrections: Sequence[Correction] = ()
    ) -> None:
        self.notebook, self.claims, self.corrections = notebook, tuple(claims), tuple(corrections)
        self.references = reference(notebook)

    def rows(self) -> list[tuple[Claim, list[Finding]]]:
        """Each claim with its findings, a machine each."""
        return [(claim, findings(claim, self.references)) for claim in self.claims]

    def __str__(self) -> str:
        lines: list[str] = []
        for claim, found in self.rows():
            lines += [claim.text, f"  {claim.source}: {claim.said}"]
            lines += [
                f"  {finding.machine + ': ' if finding.machine else ''}{finding}"
                for finding in found
            ]
            lines.append(f"  {claim.why}")
        for correction in self.corrections:
            lines += [
                f'{correction.source} says: "{correction.says}"',
                f"  Right: {correction.right}",
            ]
            lines.append(f"  {correction.evidence}")
        return "\n".join([*lines, *(f"Not shown: {reason}" for reason in self.references.refused)])

    __repr__ = __str__

    def markdown(self) -> str:
        """Two tables, as in ``RESULTS.md``: the claims, and the errors in the sources."""
        lines = []
        if self.claims:
            lines += [
                "| claim | source | its figure | ours | what explains it |",
                "|---|---|---|---|---|",
            ]
            lines += [*(_row(claim, found) for claim, found in self.rows()), ""]
        if self.corrections:
            lines += [
                "Errors in the sources:",
                "",
                "| source | says | right | how we know |",
                "|---|---|---|---|",
            ]
            lines += [
                *(_cells(c.source, c.says, c.right, c.evidence) for c in self.corrections),
                "",
            ]
        lines += [f"Not shown: {reason}\n" for reason in self.references.refused]
        return "\n".join(lines)

    _repr_markdown_ = markdown  # a cell that ends in a ledger shows the tables


def ledger(
    notebook: str, claims: Sequence[Claim], corrections: Sequence[Correction] = ()
) -> Ledger:
    """The claims of a notebook, held against its recorded runs."""
    return Ledger(notebook, claims, corrections)
