"""What a diagnosis says: findings, in the order to mend them, and what it could not find out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit import charts, show
from labkit.show import Bar
from labkit.text import format_seconds
from whyslow.remedies import REMEDIES
from whyslow.shares import Interval, Share, in_words, listed

# What costs less than that is not named: of the time, or of the memory, of a step.
LEAST_SHARE = 0.03


@dataclass(frozen=True)
class Finding:
    """One thing that makes a step slower than it has to be, or that fills the memory.

    ``share`` is the part of the step that it costs, from 0 to 1, with its 95 % ``interval``: of the
    time, or of the memory where ``of`` says so. ``how`` it was measured, the ``remedy`` in two
    lines. ``where``: the reader's line that takes most of what it works on, as in "train.py:12".
    """

    name: str
    share: float
    interval: Interval
    how: str
    remedy: str
    of: str = "time"
    where: str = ""

    def __str__(self) -> str:
        share, interval = in_words((self.share, self.interval))
        lines = [f"{self.name}: {share} of the {self.of} {interval}"]
        lines.append(f"    measured: {self.how}")
        lines += [f"    {line}" for line in self.remedy.splitlines()]
        if self.where:
            lines.append(f"    where: {self.where}")
        return "\n".join(lines)


def found(name: str, share: Share, how: str, *, of: str = "time", **words: Any) -> Finding:
    """A finding with the remedy for its name, in which ``words`` are filled in."""
    return Finding(name, *share, how, REMEDIES[name].format(**words), of)


@dataclass(frozen=True)
class Diagnosis:
    """The findings of one program as `ranked`; iterable, and indexed like a list.

    ``step_seconds`` is how long a step takes with its data, ``phases`` the share of each cause in
    that time, by the lines that ran, ``notes`` what the step did beside training, ``unmeasured``
    what could not be measured, and why. ``looked_for``: the checks that were made. All in words.
    """

    findings: tuple[Finding, ...]
    step_seconds: float
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unmeasured: dict[str, str] = field(default_factory=dict)
    looked_for: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, number: int) -> Finding:
        return self.findings[number]

    @property
    def sentence(self) -> str:
        """The result in words."""
        step = f"One step takes {format_seconds(self.step_seconds)}"
        if not self.findings:
            nothing = f"Nothing found that is sure to cost {LEAST_SHARE:.0%} of it or more"
            if self.looked_for:
                nothing += f", of what was looked for: {', '.join(self.looked_for)}"
            if self.unmeasured:
                nothing += f". Not measured: {', '.join(self.unmeasured)}"
            return f"{step}. {nothing}."
        first = self.findings[0]
        count = f"{len(self)} findings" if len(self) > 1 else "one finding"
        return f"{step}; {count}, first: {first.name} ({first.share:.0%} of the {first.of})."

    def __repr__(self) -> str:
        lines = [self.sentence]
        for number, finding in enumerate(self.findings, 1):
            lines += ["", f"{number}. {finding}"]
        return "\n".join([*lines, "", *self._small_print()])

    def _repr_html_(self) -> str:
        bars, rows = [], [["finding", "remedy", "measured", "where"]]
        for each in self.findings:
            share, note = in_words((each.share, each.interval))
            text = f"{share} of the {each.of}"
            bars.append(Bar(each.name, each.share, text, each.interval, note=note))
            rows.append([each.name, each.remedy, each.how, each.where])
        title = "Share of a step that each costs, with its 95 % interval"
        drawn = [show.note(title), charts.bars(title, bars), show.table(rows)] if bars else []
        small = map(show.note, self._small_print())
        return show.result(show.sentence(self.sentence), *drawn, *small)

    def _small_print(self) -> list[str]:
        lines = [f"By its lines: {listed(self.phases)}."] if self.phases else []
        lines += [f"Note: {note}." for note in self.notes]
        lines += [f"Not measured: {name} ({why})." for name, why in self.unmeasured.items()]
        return [*lines, f"Took {self.seconds:.0f} s."]


def ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings that are sure to cost `LEAST_SHARE`, in the order in which to mend them.

    First what fills the memory: it ends the run. Then what takes time, worst first. Of several by
    one name the worst is kept.
    """
    best: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda each: (each.of == "time", -each.share)):
        if finding.interval[0] >= LEAST_SHARE:
            best.setdefault(finding.name, finding)
    return tuple(best.values())
