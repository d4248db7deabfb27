"""The recorded runs of a notebook as figures and Markdown tables, for pages and slides that have
no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course import records
from course.records.format import Result
from course.records.references import Recorded
from course.records.store import Record
from course.records.words import arrival_text, what_changed
from labkit.charts.svg import WIDTH
from labkit.journal import Failure
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.show import Markup
from labkit.sweep import Sweep
from labkit.text import format_settings

COMPARED = "what is compared"
NONE = "No machine has recorded this notebook yet; `python -m course record` does it on yours."


def themed(picture: Markup, *, dark: bool) -> Markup:
    """The picture in one of the themes, and with a size of its own: for a file."""
    theme = "dark" if dark else "light"
    height = picture.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1]
    size = f'data-theme="{theme}" style="width:{WIDTH:.0f}px;height:{height}px;margin:0"'
    return Markup(picture.replace("<svg ", f"<svg {size} ", 1))


@dataclass(frozen=True)
class Shown:
    """One recorded comparison, sweep or race: the lead machine's results, and the control that
    was swept, if any.
    """

    results: tuple[Comparison | RaceResult, ...]
    control: str | None
    # machine and date
    lead: str
    others: Recorded

    @property
    def drawn(self) -> bool:
        """Worth a figure: a sweep or a race. A single ratio stands in the table."""
        return self.control is not None or isinstance(self.results[0], RaceResult)

    @property
    def title(self) -> str:
        """What was compared, in Markdown."""
        first = self.results[0]
        if isinstance(first, RaceResult):
            return f"Race to {first.metric} {first.target:g}"
        if self.control is not None:
            return f"Sweep over `{self.control}`"
        return f"`{what_changed(first)}`"

    @property
    def at(self) -> str:
        """What both arms had set alike in all of it, in Markdown; empty when nothing was."""
        found = [result for result in self.results if isinstance(result, Comparison)]
        arms = [
            {k: str(v) for k, v in arm.settings.items()}
            for each in found
            for arm in (each.baseline, each.candidate)
        ]
        if not arms:
            return ""
        shared = {
            k: v
            for k, v in found[0].baseline.settings.items()
            if all(arm.get(k) == str(v) for arm in arms)
        }
        return f"`{format_settings(shared)}`" if shared else ""

    def svg(self, *, dark: bool) -> str:
        """The picture that labkit draws of it on the reader's own machine, of the lead machine;
        others are muted.
        """
        first = self.results[0]
        if isinstance(first, RaceResult):
            recorded: Any = _short(self.others.matching(first))
            picture = first.picture(recorded)
        else:
            assert self.control is not None
            results: Any = self.results
            swept = _short(self.others.swept(results, self.control))
            picture = Sweep(self.control, tuple(results)).picture(swept)
        return themed(picture, dark=dark)

    def rows(self) -> list[dict[str, str]]:
        """Rows of the table: column -> text."""
        found = []
        for result in self.results:
            recorded = self.others.matching(result)
            if isinstance(result, RaceResult):
                arms = dict.fromkeys(
                    [*result.arms, *(arm for _, other in recorded for arm in other.arms)]
                )  # type: ignore[union-attr]
                for arm in arms:
                    row = {COMPARED: f"{result.metric} {result.target:g}: {arm}"}
                    for label, other in [(self.lead, result), *recorded]:
                        if arm in other.arms:  # type: ignore[union-attr]
                            row[label] = arrival_text(other, arm)  # type: ignore[arg-type]
                    found.append(row)
                continue
            name, control = what_changed(result), self.control
            if control is not None and f"{control}=" not in name:
                name += f", at {format_settings({control: result.candidate.settings[control]})}"
            row = {COMPARED: name, self.lead: result.in_short()}
            for label, other in recorded:
                assert isinstance(other, Comparison)
                value = None if control is None else str(result.candidate.settings[control])
                if value is None or str(other.candidate.settings.get(str(control))) == value:
                    row[label] = other.in_short()
            found.append(row)
        return found


def shown(notebook: str, folder: Path | None = None) -> list[Shown]:
    """What was recorded of a notebook, in its order; empty when nothing was.

    One machine leads: one with a GPU before others, a record of the present code before older
    ones, then the newest.
    """
    reference = records.reference(notebook, folder=folder)
    if not reference.records:
        return []
    lead = min(
        reference.records,
        key=lambda r: (r.device == "cpu", r.doubt is not None, -r.recorded.timestamp()),
    )
    others = reference.on(*(name for name in reference.machines if name != lead.machine))
    return [Shown(results, control, lead.label, others) for results, control in _groups(lead)]


def table(each: Shown) -> str:
    """Its figures as a Markdown table: what is compared, and a column for each machine with its
    date.
    """
    rows = each.rows()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    # "..., at batch_size=64" says that another machine was set otherwise: one column a machine,
    # the note in its cells.
    machines = list(dict.fromkeys(name.split(", at ")[0] for name in columns))
    lines = [machines, ["---"] * len(machines)]
    for row in rows:
        cells = dict.fromkeys(machines, "–")
        for name, text in row.items():
            machine, _, at = name.partition(", at ") if name != COMPARED else (name, "", "")
            cells[machine] = text + (f" (at {at})" if at else "")
        lines.append([cell.replace("|", "\\|") for cell in cells.values()])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _groups(record: Record) -> list[tuple[tuple[Any, ...], str | None]]:
    """Results that were taken one after the other and differ in one control only, together:
    those are sweeps.
    """
    found: list[tuple[list[Any], str | None]] = []
    for result in record.results:
        if not isinstance(result, Comparison | RaceResult):
            # planned or failed: the table of claims says what became of it
            continue
        if found and (control := _sweep([*found[-1][0], result])) is not None:
            found[-1] = [*found[-1][0], result], control
        else:
            found.append(([result], None))
    return [(tuple(results), control) for results, control in found]


def _sweep(results: Sequence[Result | Failure]) -> str | None:
    """The one control in which these comparisons of one lab differ, each with a value of its
    own; else None.
    """
    if not all(isinstance(result, Comparison) and result.candidate.settings for result in results):
        return None
    comparisons = [result for result in results if isinstance(result, Comparison)]
    if len({result.lab for result in comparisons}) != 1:
        return None
    settings = [result.candidate.settings for result in comparisons]
    names = dict.fromkeys(name for each in settings for name in each)
    differing = [name for name in names if len({str(each.get(name)) for each in settings}) > 1]
    if len(differing) != 1 or len({str(each[differing[0]]) for each in settings}) != len(settings):
        return None
    before = [
        {k: str(v) for k, v in r.baseline.settings.items() if k != differing[0]}
        for r in comparisons
    ]
    return differing[0] if all(each == before[0] for each in before) else None


def _short(found: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Machines without their dates, for a legend: date and doubts stand in the table."""
    return [(label.split(",")[0], result) for label, result in found]
