"""A reader's own run beside the recorded runs of other machines: which belong together, one table, one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.records.files import Failure, Planned, Record, Result, read_all, reference_folder
from labkit.race import RaceResult
from labkit.results import Comparison, same_value
from labkit.text import format_seconds, format_settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Own = Comparison | RaceResult | Sequence[Comparison]
MISSING = "not recorded yet"


def reference(notebook: str, machine: str | None = None, folder: Path | None = None) -> Recorded:
    """The recorded runs of a notebook, such as ``reference("06_mixed_precision")``, of all machines or of one.

    ValueError for a machine without a record, naming those that have one.
    """
    records, refused = read_all(notebook, folder)
    names = [record.machine for record in records]
    if machine is not None and machine not in names:
        raise ValueError(
            f"machine={machine!r}: {notebook} was recorded on {', '.join(names) or 'no machine'}"
        )
    return Recorded(
        notebook, tuple(r for r in records if machine in (None, r.machine)), tuple(refused)
    )


@dataclass(frozen=True)
class Recorded:
    """Recorded runs of one notebook. ``refused`` holds the reasons why other files are not shown."""

    notebook: str
    records: tuple[Record, ...]
    refused: tuple[str, ...] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that have a record, those with a GPU first."""
        return tuple(
            record.machine
            for record in sorted(self.records, key=lambda record: record.device == "cpu")
        )

    def on(self, *machines: str) -> Recorded:
        """Only these machines' records."""
        return Recorded(
            self.notebook, tuple(r for r in self.records if r.machine in machines), self.refused
        )

    def matching(self, own: Comparison | RaceResult) -> list[tuple[str, Comparison | RaceResult]]:
        """What each machine recorded for the same question: its label, with whatever else was set, and its result."""
        found = []
        for record in self.records:
            alike = [
                (_unlike(own, result), result)
                for result in record.results
                if _same_question(own, result)
            ]
            if alike:
                unlike, result = min(
                    reversed(alike), key=lambda pair: len(pair[0])
                )  # of repeated runs the last
                label = record.label + (f", at {format_settings(unlike)}" if unlike else "")
                found.append((label, result))
        return found  # type: ignore[return-value]  # _same_question lets only these pass

    def swept(self, own: Sequence[Comparison], control: str) -> list[tuple[str, list[Comparison]]]:
        """Each machine's sweep of the same control: its label, and one comparison a value, also values of its own."""
        questions = [_but(_question(result), control) for result in own]
        found = []
        for record in self.records:
            values: dict[str, tuple[dict[str, Any], Comparison]] = {}
            for other in record.results:
                if (
                    not isinstance(other, Comparison)
                    or other.lab != own[0].lab
                    or control not in other.candidate.settings
                ):
                    continue
                if _but(_question(other), control) in questions:
                    value, unlike = (
                        str(other.candidate.settings.get(control)),
                        _but(_unlike(own[0], other), control),
                    )
                    if value not in values or len(unlike) < len(values[value][0]):
                        values[value] = unlike, other
            if values:
                unlike = next(iter(values.values()))[0]
                label = record.label + (f", at {format_settings(unlike)}" if unlike else "")
                found.append((label, [other for _, other in values.values()]))
        return found

    def beside(self, own: Own) -> Beside:
        """The reader's run, sweep or race beside the recorded ones: `print` the table, or end a cell in it for both."""
        return Beside(self, own)

    def __str__(self) -> str:
        parts = ["\n".join(_lines(record)) for record in self.records]
        if not parts:
            alike = get_close_matches(
                self.notebook, {path.stem for path in reference_folder().glob("*/*.json")}, 1
            )
            meant = (
                f"Did you mean {alike[0]!r}?"
                if alike
                else f"`course record {self.notebook}` records it here."
            )
            parts = [f"{self.notebook}: {MISSING}. {meant}"]
        return "\n\n".join([*parts, *(f"Not shown: {reason}" for reason in self.refused)])

    __repr__ = __str__


class Beside:
    """The reader's own result and the recorded ones: a text table, and a figure on the same axes."""

    def __init__(self, references: Recorded, own: Own) -> None:
        self.references, self.own = references, own
        self._each: list[Any] = [own] if isinstance(own, Comparison | RaceResult) else list(own)
        if not self._each:
            raise ValueError(
                "beside([]): there is nothing to hold beside the records; run the lab first"
            )
        self._control = _swept(self._each)

    def __str__(self) -> str:
        columns: dict[str, dict[str, str]] = {"you": {}}
        for result in self._each:
            name = self._name(result)
            columns["you"] |= _figures(result, name)
            for label, other in self._recorded(result):
                columns.setdefault(label, {}).update(_figures(other, name))
        if len(columns) == 1:
            columns["other machines"] = {}
        # The arms of a race may be others elsewhere, such as a rate that was tuned there.
        names = dict.fromkeys(name for column in columns.values() for name in column)
        none = (
            "-"
            if isinstance(self.own, RaceResult) and len(names) > len(columns["you"])
            else MISSING
        )
        rows = [
            ["", *columns],
            *([name, *(column.get(name, none) for column in columns.values())] for name in names),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        notes = [f"Not shown: {reason}" for reason in self.references.refused]
        labs = {result.lab for record in self.references.records for result in record.results}
        if labs and not labs & {result.lab for result in self._each}:
            mine = (
                f"lab {self._each[0].lab!r}"
                if self._each[0].lab
                else "a comparison outside of a lab"
            )
            notes.append(
                f"Nothing of {mine} was recorded; {self.references.notebook} has {', '.join(sorted(labs))}"
            )
        return "\n".join([*lines, *notes])

    __repr__ = __str__

    def _name(self, result: Any) -> str:
        """A comparison's row in the table; where both arms follow the swept control, its value is part of it."""
        if isinstance(result, RaceResult):
            return ""
        name, control = what_changed(result), self._control
        if control is None or control in result.changed:
            return name
        return f"{name}, at {format_settings({control: result.candidate.settings[control]})}"

    def figure(self, *, dark: bool = False) -> Figure:
        """The figure of the reader's own result with the recorded ones on the same axes, muted."""
        from labkit import plots

        found: Any = self._recorded(self._each[0])
        if isinstance(self.own, RaceResult):
            return plots.race_figure(self.own, recorded=found, dark=dark)
        if self._control is None:
            return plots.comparison_figure(self._each[0], recorded=found, dark=dark)
        sweeps = self.references.swept(self._each, self._control)
        return plots.sweep_figure(self._each, self._control, recorded=sweeps, dark=dark)

    def _recorded(self, result: Any) -> list[tuple[str, Any]]:
        """What belongs to one of our results; in a sweep only what was taken at its very value."""
        found: list[tuple[str, Any]] = list(self.references.matching(result))
        if self._control is None:
            return found
        value = str(result.candidate.settings[self._control])
        return [
            (label, other)
            for label, other in found
            if str(other.candidate.settings.get(self._control)) == value
        ]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.figure())
        print(self)


def _swept(results: Sequence[Any]) -> str | None:
    """The control that a list of comparisons was swept over."""
    if len(results) == 1:
        return None
    settings = [result.candidate.settings for result in results]
    every = dict.fromkeys(name for chosen in settings for name in chosen)
    names = [name for name in every if len({str(chosen.get(name)) for chosen in settings}) > 1]
    if len(names) != 1:
        raise ValueError(
            f"these {len(results)} comparisons are no sweep of one control; they differ in {names}"
        )
    return names[0]


def _but(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def _question(result: Comparison) -> dict[str, tuple[str, str]]:
    """What the two sides have set differently. As texts: a record holds a dtype, say, by its name."""
    return {name: (str(one), str(other)) for name, (one, other) in result.changed.items()}


def _same_question(own: Result, other: Result) -> bool:
    if type(own) is not type(other) or isinstance(own, Failure | Planned) or own.lab != other.lab:
        return False
    if isinstance(own, RaceResult) and isinstance(other, RaceResult):
        return own.metric == other.metric
    assert isinstance(own, Comparison) and isinstance(other, Comparison)
    return _question(own) == _question(other)


def _unlike(own: Any, other: Any) -> dict[str, Any]:
    """What else the recorded run had set: the sizes of a larger machine, say."""
    if isinstance(own, RaceResult):
        return {} if own.target == other.target else {"target": other.target}
    mine = own.candidate.settings
    return {
        k: v
        for k, v in other.candidate.settings.items()
        if k in mine and not same_value(mine[k], v)
    }


def _figures(result: Comparison | RaceResult, name: str) -> dict[str, str]:
    """Rows of the table: name -> figure; those of a race are named after its arms."""
    if isinstance(result, RaceResult):
        return {arm: _arrival(result, arm) for arm in result.arms}
    rows = {name: result.in_short()}
    if not math.isnan(result.memory_ratio):
        rows[f"  memory, {name}"] = f"{result.memory_ratio:.2f}"
    return rows


def what_changed(result: Comparison) -> str:
    """The candidate in words: what it sets differently."""
    if not result.candidate.settings:  # of `compare`: two functions, of which nothing else is known
        return result.candidate.label
    changed = {name: after for name, (_, after) in result.changed.items()}
    return format_settings(changed) or "the same again (A/A)"


def _arrival(result: RaceResult, arm: str) -> str:
    runs = result.of(arm)
    arrived = sum(run.reached for run in runs)
    return f"median {format_seconds(result.median(arm))}, {arrived} of {len(runs)} seeds arrived"


def _lines(record: Record) -> list[str]:
    """A whole record as text."""
    lines = [f"Recorded on {record.label}, torch {record.card['torch']}:"]
    if record.failed:
        lines.append(f"  the run failed: {record.failed}")
    for result in record.results:
        if isinstance(result, Failure):
            settings = format_settings(result.settings) or "its defaults"
            lines.append(f"  {result.lab}, {settings}: failed with {result.error}")
        elif isinstance(result, Planned):
            lines.append(f"  {result}")
        elif isinstance(result, RaceResult):
            goal = f"{result.metric} {result.target:g}"
            lines += [f"  race to {goal}, {arm}: {_arrival(result, arm)}" for arm in result.arms]
        else:
            memory = (
                "" if math.isnan(result.memory_ratio) else f"; memory {result.memory_ratio:.2f}"
            )
            at = f"  (at {format_settings(result.shared)})" if result.shared else ""
            lines.append(f"  {what_changed(result)}: {result.in_short()}{memory}{at}")
    return lines
