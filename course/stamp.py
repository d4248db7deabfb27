"""A claim from the web, and a stamp on it from the reader's own runs: true here, or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from course.way import rows
from labkit import show
from labkit.charts import svg
from labkit.charts.svg import LETTER, LINE
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import aligned

TRUE, NOT, DEPENDS, OPEN = "true here", "not here", "depends", "not decided"
# By class of labkit's pictures.
HUES = {TRUE: "faster", NOT: "slower", DEPENDS: "arm3", OPEN: "baseline"}
HEAD = ["where", "measured"]
NO_RUN = "Run the panel's scenarios, then this cell again."


@dataclass(frozen=True)
class Stamp:
    """What the runs say of a claim that something is faster, or arrives too: `print` it, or end a
    cell in it.

    ``runs``: the setting of each run in words, and its result. ``kinds``: the kinds of step that
    the claim speaks of, in words, and the runs of each.
    """

    claim: str
    runs: tuple[tuple[str, Comparison | RaceResult], ...]
    kinds: tuple[tuple[str, tuple[Comparison, ...]], ...] = ()

    @property
    def word(self) -> str:
        """``true here`` where each decided run is faster, ``not here`` where no run is or may be,
        ``depends`` where some are, ``not decided`` without one.

        ``not decided`` also where a kind has no run; one whose runs are all unclear is not faster.
        """
        tones = [_tone(run) for _, run in self.runs]
        faster = [tone == "faster" for tone in tones if tone != "unclear"]
        if not any(faster) and "unclear" in tones:
            return OPEN
        if not faster or self.missing:
            return OPEN
        unclear = any(all(_tone(run) == "unclear" for run in runs) for _, runs in self.kinds)
        if all(faster) and not unclear:
            return TRUE
        return DEPENDS if any(faster) else NOT

    @property
    def missing(self) -> list[str]:
        """The kinds of step that no run has."""
        return [kind for kind, runs in self.kinds if not runs]

    @property
    def note(self) -> str:
        """What is still to run; empty where nothing is."""
        if not self.runs:
            return NO_RUN
        missing = ", ".join(self.missing)
        unclear = [where for where, run in self.runs if _tone(run) == "unclear"]
        if not missing and unclear and self.word == OPEN:
            return f"Unclear: {'; '.join(unclear)}. Run that again, then this cell."
        return f"Run a scenario with {missing}, too, then this cell again." if missing else ""

    @property
    def rows(self) -> list[list[str]]:
        """The runs as texts, below their head; empty without any."""
        rows = [[setting, _in_short(run)] for setting, run in self.runs]
        return [HEAD, *rows] if rows else []

    def __str__(self) -> str:
        lines = [f"“{self.claim}”: {self.word}", aligned(self.rows), self.note]
        return "\n".join(filter(None, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = [rows(self.rows)] if self.rows else []
        note = [show.note(self.note)] if self.note else []
        return show.result(self._picture(), *table, *note)

    def _picture(self) -> Markup:
        """The claim, and the stamp across its end."""
        letters = self.word.upper()
        wide = LETTER * 1.6 * len(letters) + 30
        left, top, hue = 24.0, 1.6 * LINE, HUES[self.word]
        frame = svg.rect(left, top, wide, 40, f"line middle {hue}")
        words = svg.element(
            "text",
            letters,
            kind="bold",
            x=svg.number(left + wide / 2),
            y=svg.number(top + 28),
            text_anchor="middle",
            style="font-size:22px;letter-spacing:0.12em",
        )
        stamp = svg.element("g", frame, words, transform=f"rotate(-3 {left} {top})")
        said = f"“{self.claim}”: {self.word}"
        return svg.picture(top + 56, said, [svg.text(8, 0.8 * LINE, f"“{self.claim}”"), stamp])


def stamp(
    claim: str,
    results: Iterable[object] | Mapping[str, RaceResult],
    kinds: Mapping[str, Iterable[object]] | None = None,
    **change: tuple[Any, Any],
) -> Stamp:
    """A stamp on a claim, from the runs whose sides differ as ``change`` says and in nothing else.

    ``results`` are a panel's history, ``way=("zeros", "none")`` a control's value before and after.
    Of runs with the same settings the newest counts. ``kinds={"rows": (1, 256)}`` are values of a
    control that the claim is to be tried with, each. Or they are races by their settings in words,
    and the claim is that the candidate arrives where the baseline does. ValueError without
    ``change`` for what is no such dict.
    """
    if isinstance(results, Mapping):
        return Stamp(claim, tuple(results.items()))
    if not change:
        raise ValueError("stamp(...): say what changes, as in way=('zeros', 'none')")
    runs: dict[str, Comparison] = {}
    for result in results:
        if isinstance(result, Comparison) and result.ratios and result.changed == change:
            runs[_setting(result.candidate.settings, change)] = result
    found = [
        (f"{name} {value}", tuple(run for run in runs.values() if _has(run, name, value)))
        for name, values in (kinds or {}).items()
        for value in values
    ]
    return Stamp(claim, tuple(runs.items()), tuple(found))


def _has(run: Comparison, name: str, value: object) -> bool:
    return bool(run.candidate.settings.get(name) == value)


def _tone(run: Comparison | RaceResult) -> str:
    """What colours a run; a race is "faster" where its candidate arrives, "slower" where not."""
    if isinstance(run, Comparison):
        return run.tone
    baseline, candidate = map(run.arrives, run.arms[:2])
    if not baseline:
        return "unclear"
    return "faster" if candidate else "slower"


def _in_short(run: Comparison | RaceResult) -> str:
    if isinstance(run, Comparison):
        return run.in_short() + ("; inside the noise floor" if run.inside_noise_floor else "")
    return f"{run.tally(run.arms[1])} arrive; of the baseline {run.tally(run.arms[0])}"


def _setting(settings: Mapping[str, Any], change: Mapping[str, object]) -> str:
    rest = {name: value for name, value in settings.items() if name not in change}
    return ", ".join(f"{name} {value}" for name, value in rest.items()) or "as it is"
