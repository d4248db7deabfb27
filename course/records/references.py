"""A reader's own run beside the recorded runs of other machines: which belong together, and how
they are shown.

A recorded result answers the same question when its lab has the same name and its sides differ in
the same settings (in a race: when it has the same metric). Of several, the one whose other settings
are the most alike is taken, and of equals the last; what differs stands in its label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from course.records.format import Result
from course.records.matching import Question
from course.records.store import Record, read_all, reference_folder
from course.records.words import (
    MISSING,
    arrival_text,
    at,
    record_text,
    what_changed,
)
from labkit import pick_device, show
from labkit.racing import RaceResult
from labkit.results import Comparison, same_value
from labkit.sweep import Sweep
from labkit.text import aligned

Own: TypeAlias = Comparison | RaceResult | Sequence[Comparison]
Settings: TypeAlias = dict[str, Any]

YOU = "you"


def reference(notebook: str, machine: str | None = None, folder: Path | None = None) -> Recorded:
    """The recorded runs of a notebook, such as ``"06_mixed_precision"``, of all machines or of one.

    ValueError for a machine without a record, naming those that have one.
    """
    records, refused = read_all(notebook, folder)
    recorded = Recorded(notebook, tuple(records), tuple(refused))
    if machine is None:
        return recorded
    names = [record.machine for record in records]
    if machine not in names:
        known = ", ".join(names) or "no machine"
        raise ValueError(f"machine={machine!r}: {notebook} was recorded on {known}")
    return recorded.on(machine)


@dataclass(frozen=True)
class Recorded:
    """Recorded runs of one notebook. ``refused``: the reasons why other files are not shown."""

    notebook: str
    records: tuple[Record, ...]
    refused: tuple[str, ...] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that have a record, those with a GPU first."""
        order = sorted(self.records, key=lambda record: record.device == "cpu")
        return tuple(record.machine for record in order)

    @property
    def nearest(self) -> str | None:
        """The machine to show first: with a GPU where this one has one, measured with the code of
        now, and of several such the newest record. None without records.
        """
        here = pick_device().type

        def likeness(record: Record) -> tuple[bool, bool, datetime]:
            return record.device == here, record.doubt is None, record.recorded

        return max(self.records, key=likeness).machine if self.records else None

    def on(self, *machines: str) -> Recorded:
        """Only these machines' records."""
        records = tuple(record for record in self.records if record.machine in machines)
        return Recorded(self.notebook, records, self.refused)

    def matching(self, own: Comparison | RaceResult) -> list[tuple[str, Comparison | RaceResult]]:
        """What each machine recorded for the same question: a label and the result.

        The label names machine and date, and what else was set than in ``own``: as little as was
        recorded, and of sizes the nearest.
        """
        found = []
        for record in self.records:
            best: tuple[tuple[int, float], Settings, Comparison | RaceResult] | None = None
            for result in _same_question(own, record.results):
                unlike = _unlike(own, result)
                apart = len(unlike), _far(own, unlike)
                if best is None or apart <= best[0]:
                    best = apart, unlike, result
            if best is not None:
                found.append((at(record.label, best[1]), best[2]))
        return found

    def swept(self, own: Sequence[Comparison], control: str) -> list[tuple[str, list[Comparison]]]:
        """Each machine's sweep of the same control: a label, and one comparison a value.

        Values are the machine's own, also those that ``own`` has not.
        """
        questions = [Question.of(result) for result in own]
        found = []
        for record in self.records:
            best: dict[str, tuple[Settings, Comparison]] = {}
            for other in record.results:
                if not isinstance(other, Comparison):
                    continue
                settings = other.candidate.settings
                asked = any(each.fits(other, ignoring=control) for each in questions)
                if control not in settings or not asked:
                    continue
                value, unlike = str(settings[control]), _but(_unlike(own[0], other), control)
                if value not in best or len(unlike) < len(best[value][0]):
                    best[value] = unlike, other
            if best:
                unlike, _ = next(iter(best.values()))
                results = [other for _, other in best.values()]
                found.append((at(record.label, unlike), results))
        return found

    def beside(self, own: Own) -> Beside:
        """The reader's run, sweep or race beside the recorded ones,
        to print or to end a cell in.
        """
        return Beside(self, own)

    def show(self, *results: Own | Mapping[str, Own]) -> None:
        """Display each of the reader's results beside the recorded ones, then the records.

        A mapping names its results: each name stands above its own.
        """
        from IPython.display import display

        sections: list[tuple[str, Beside]] = []
        for result in results:
            if isinstance(result, Mapping):
                for name, own in result.items():
                    sections.append((str(name), self.beside(own)))
            else:
                sections.append(("", self.beside(result)))
        for name, beside in sections:
            if name:
                print(name)
            display(beside)
        print(self)

    def __str__(self) -> str:
        parts = [record_text(record) for record in self.records] or [self._missing()]
        parts += [f"Not shown: {reason}" for reason in self.refused]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _missing(self) -> str:
        known = {path.stem for path in reference_folder().glob("*/*.json")}
        alike = get_close_matches(self.notebook, known, 1)
        advice = f"`course record {self.notebook}` records it here."
        if alike:
            advice = f"Did you mean {alike[0]!r}?"
        return f"{self.notebook}: {MISSING}. {advice}"


class Beside:
    """The reader's own result and the recorded ones: a picture on the same axes, and a table."""

    def __init__(self, references: Recorded, own: Own) -> None:
        self.references, self.own = references, own
        self._each: list[Any] = [own]
        if isinstance(own, Sequence) and not isinstance(own, str):
            self._each = list(own)
        if not self._each:
            reason = "there is nothing to hold beside the records; run the lab first"
            raise ValueError(f"beside([]): {reason}")
        for result in self._each:
            if not isinstance(result, Comparison | RaceResult):
                raise TypeError(f"beside({result!r}): use what lab.run, sweep or race returned")
        self._control = _swept_control(self._each)

    def __str__(self) -> str:
        return "\n".join([aligned(self._rows()), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = [show.note(note) for note in self._notes()]
        return show.result(self.picture(), show.table(self._rows()), *notes)

    def picture(self) -> show.Markup:
        """The picture of the reader's own result, with the recorded ones on its scale, muted."""
        first = self._each[0]
        recorded: Any = self._recorded(first)
        if isinstance(first, RaceResult):
            return first.picture(recorded)
        if self._control is None:
            return first.picture(recorded)
        sweeps = self.references.swept(self._each, self._control)
        return Sweep(self._control, tuple(self._each)).picture(sweeps)

    def _rows(self) -> list[list[str]]:
        """The table: a column a machine, a row a figure."""
        columns: dict[str, dict[str, str]] = {YOU: {}}
        for result in self._each:
            name = self._name(result)
            columns[YOU] |= _cells(result, name)
            for label, other in self._recorded(result):
                columns.setdefault(label, {}).update(_cells(other, name))
        if len(columns) == 1:
            columns["other machines"] = {}
        names = dict.fromkeys(name for column in columns.values() for name in column)
        absent = MISSING
        if isinstance(self.own, RaceResult) and len(names) > len(columns[YOU]):
            # A race may have other sides elsewhere, such as a rate that was tuned there.
            absent = "-"
        rows = [["", *columns]]
        for name in names:
            rows.append([name, *(column.get(name, absent) for column in columns.values())])
        return rows

    def _notes(self) -> list[str]:
        notes = [f"Not shown: {reason}" for reason in self.references.refused]
        recorded = {result.lab for record in self.references.records for result in record.results}
        if recorded and not recorded & {result.lab for result in self._each}:
            mine = "a comparison outside of a lab"
            if self._each[0].lab:
                mine = f"lab {self._each[0].lab!r}"
            there = f"{self.references.notebook} has {', '.join(sorted(recorded))}"
            notes.append(f"Nothing of {mine} was recorded; {there}")
        return notes

    def _name(self, result: Comparison | RaceResult) -> str:
        """A comparison's row; where both sides follow the swept control,
        its value is part of it.
        """
        if isinstance(result, RaceResult):
            return ""
        name, control = what_changed(result), self._control
        if control is None or control in result.changed:
            return name
        return at(name, {control: result.candidate.settings[control]})

    def _recorded(
        self, result: Comparison | RaceResult
    ) -> list[tuple[str, Comparison | RaceResult]]:
        """What belongs to one of our results; in a sweep only what was taken at its very value."""
        found = self.references.matching(result)
        if self._control is None or isinstance(result, RaceResult):
            return found
        value = str(result.candidate.settings[self._control])
        taken = []
        for label, other in found:
            if isinstance(other, Comparison):
                theirs = other.candidate.settings.get(self._control)
                if str(theirs) == value:
                    taken.append((label, other))
        return taken  # type: ignore[return-value]


def _swept_control(results: Sequence[Comparison | RaceResult]) -> str | None:
    """The control that a list of comparisons was swept over; ValueError if they are no sweep."""
    if len(results) == 1:
        return None
    values: dict[str, set[str]] = {}
    settings = [each.candidate.settings for each in results if isinstance(each, Comparison)]
    for name in dict.fromkeys(name for chosen in settings for name in chosen):
        values[name] = {str(chosen.get(name)) for chosen in settings}
    names = [name for name, found in values.items() if len(found) > 1]
    if len(names) != 1:
        differ = f"they differ in {names}"
        raise ValueError(f"these {len(results)} comparisons are no sweep of one control; {differ}")
    return names[0]


def _but(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def _same_question(
    own: Comparison | RaceResult, results: Sequence[Result]
) -> Iterator[Comparison | RaceResult]:
    """Those of the results that answer what ``own`` asks."""
    for other in results:
        if isinstance(own, RaceResult) and isinstance(other, RaceResult):
            alike = (other.lab, other.metric) == (own.lab, own.metric)
        elif isinstance(own, Comparison) and isinstance(other, Comparison):
            alike = Question.of(own).fits(other)
        else:
            continue
        if alike:
            yield other


def _unlike(own: Comparison | RaceResult, other: Comparison | RaceResult) -> Settings:
    """What else the recorded run had set: the sizes of a larger machine, say."""
    if isinstance(own, RaceResult) and isinstance(other, RaceResult):
        return {} if own.target == other.target else {"target": other.target}
    assert isinstance(own, Comparison) and isinstance(other, Comparison)
    mine, theirs = own.candidate.settings, other.candidate.settings
    return {
        name: value
        for name, value in theirs.items()
        if name in mine and not same_value(mine[name], value)
    }


def _far(own: Comparison | RaceResult, unlike: Settings) -> float:
    """How far sizes are from one's own, in factors of e."""
    if not isinstance(own, Comparison):
        return 0.0
    mine = own.candidate.settings
    pairs = [(mine[name], value) for name, value in unlike.items()]
    sizes = [(one, other) for one, other in pairs if _is_size(one) and _is_size(other)]
    return sum(abs(math.log(one / other)) for one, other in sizes)


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and value > 0 and not isinstance(value, bool)


def _cells(result: Comparison | RaceResult, name: str) -> dict[str, str]:
    """Rows of the table: name -> figure; those of a race are named after its sides."""
    if isinstance(result, RaceResult):
        return {arm: arrival_text(result, arm) for arm in result.arms}
    rows = {name: result.in_short()}
    if not math.isnan(result.memory_ratio):
        rows[f"  memory, {name}"] = f"{result.memory_ratio:.2f}"
    return rows
