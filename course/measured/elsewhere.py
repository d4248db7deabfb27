"""What other machines recorded for the question of a front notebook.

Their records are of the longer notebook. It has the same techniques, under other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from course.records.references import Beside, Recorded
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.text import format_factor

Settings = Mapping[str, Any]
Renamed = Callable[[Comparison], Comparison]
# A label, and what was recorded under it.
Found = tuple[str, Any]

KEPT = {"prefetch_factor": 2, "pin_memory": False, "source": "jpeg"}
NEW = {"source": "loader"}
# Wider than any layer that was recorded.
WIDEST = 2**20
# Pixels along a side of large pictures.
LARGE = 224


class Elsewhere:
    """Recorded runs that are asked in their own words: for `LabPanel(recorded=...)`.

    ``renamed`` gives the reader's comparison the lab and the settings of the longer notebook.
    """

    def __init__(self, recorded: Recorded, renamed: Renamed) -> None:
        self._recorded, self._renamed = recorded, renamed
        self.refused = recorded.refused
        self.machines, self.nearest = recorded.machines, recorded.nearest

    def on(self, *machines: str) -> Elsewhere:
        """Only these machines' records."""
        return Elsewhere(self._recorded.on(*machines), self._renamed)

    def matching(self, own: Any) -> Sequence[Found]:
        """What each machine recorded for the same question: a label and the result."""
        return self._recorded.matching(self._asked(own))

    def swept(self, own: Any, control: str) -> Sequence[Found]:
        """Each machine's sweep of the same control: a label and its comparisons."""
        return self._recorded.swept([self._asked(each) for each in own], control)

    def beside(self, own: Any) -> Beside:
        """The reader's result beside the recorded ones."""
        if isinstance(own, Comparison | RaceResult):
            return self._recorded.beside(self._asked(own))
        return self._recorded.beside([self._asked(each) for each in own])

    def _asked(self, own: Any) -> Any:
        return self._renamed(own) if isinstance(own, Comparison) else own


def as_recorded(own: Comparison, lab: str, settings: Callable[[Settings], Settings]) -> Comparison:
    """A comparison with the name of another lab, and other settings for both sides."""
    before, after = (replace(side, settings=dict(settings(side.settings))) for side in own.arms)
    return replace(own, baseline=before, candidate=after, lab=lab)


def loading(own: Comparison) -> Comparison:
    """A run of the front notebook 04: kept workers, or such that start in every epoch.

    Kept ones were recorded where loading takes longer than training. Small pictures have no record
    of theirs.
    """
    loader = own.candidate.settings["loader"]
    new = loader == "new workers"
    large = own.candidate.settings["side"] >= LARGE
    if not new and (loader != "DataLoader" or not large):
        return own

    def settings(chosen: Settings) -> Settings:
        workers = chosen["num_workers"]
        kept = {"num_workers": workers, "persistent_workers": workers > 0 and not new}
        return kept | (NEW if new else KEPT)

    return as_recorded(own, "make_thumbnails" if new else "make_workload", settings)


def precision(own: Comparison) -> Comparison:
    """A run of the front notebook 06: its layers are another lab there, where width is a number.

    That of the wide ones depends on the machine: the widest recorded ones belong to them.
    """
    width = {"wide layers": WIDEST, "tiny layers": 16}.get(own.candidate.settings["model"])
    if width is None:
        return own

    def settings(chosen: Settings) -> Settings:
        rows = chosen["batch_size"]
        return {"precision": chosen["precision"], "width": width, "rows": rows}

    return as_recorded(own, "make_layers", settings)


def alike(own: Comparison, found: Sequence[Found]) -> list[Found]:
    """Those in which every word that both name, such as a model, is the same; sizes may differ."""
    words = {name: value for name, value in own.shared.items() if isinstance(value, str)}
    return [
        (label, other)
        for label, other in found
        if all(other.shared.get(name, value) == value for name, value in words.items())
    ]


def in_lines(found: Sequence[Found]) -> list[str]:
    """The one that gained most, in short lines under a picture, its gain first; [] for none."""
    if not found:
        return []
    label, best = max(found, key=lambda each: each[1].speedup)
    machine, _, rest = label.partition(", ")
    when, _, unlike = rest.partition(", at ")
    day, _, older = when.partition(" (")
    gain = f"On another machine: {format_factor(best.speedup)} times as fast."
    there = [*(["an older notebook"] if older else []), *([unlike] if unlike else [])]
    return [
        gain,
        f"Recorded on {machine}, {day}",
        *([f"There: {', '.join(there)}"] if there else []),
    ]
