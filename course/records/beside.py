"""The memory planner beside other ways to save memory, as one machine measured them.

`tests/benchmarks/bench_beside.py --record` writes ``data/reference/sublinear.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course.records.store import reference_folder
from course.written import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMA = 1
OURS = "sublinear"
# So much slower is as fast, what `labkit.compare` calls the same; and so much larger is as small.
AS_FAST, AS_SMALL = 1.02, 1.005


@dataclass(frozen=True)
class Way:
    """One way to train a model: peak bytes of a step, and its time over that of a plain step.

    ``setting``: of the same way, such as the number of pieces; ``interval``: of the time, 95 %.
    """

    name: str
    setting: str
    bytes: int
    time: float
    interval: tuple[float, float]

    @property
    def label(self) -> str:
        """``activation_memory_budget 0.5``."""
        return f"{self.name} {self.setting}".strip()


@dataclass(frozen=True)
class Model:
    """A model of the zoo, its number of blocks, a plain step of it, and the ways tried."""

    name: str
    blocks: int
    plain_bytes: int
    plain_seconds: float
    ways: tuple[Way, ...]

    @property
    def ours(self) -> tuple[Way, ...]:
        """The planner's plans, from the smallest on."""
        found = [way for way in self.ways if way.name == OURS]
        return tuple(sorted(found, key=lambda way: way.bytes))

    @property
    def others(self) -> tuple[Way, ...]:
        """All other ways."""
        return tuple(way for way in self.ways if way.name != OURS)

    def as_good(self, other: Way) -> bool:
        """Whether a plan, or plain training, is as small and as fast as ``other``."""
        ours = [(self.plain_bytes, 1.0), *((way.bytes, way.time) for way in self.ours)]
        small = [taken for size, taken in ours if size <= AS_SMALL * other.bytes]
        return min(small, default=math.inf) <= AS_FAST * other.time


@dataclass(frozen=True)
class Beside:
    """All models that were recorded on one machine."""

    machine: str
    date: str
    torch: str
    threads: int
    models: tuple[Model, ...]

    @cached_property
    def better(self) -> tuple[tuple[str, Way], ...]:
        """Model and way where no plan was as small and as fast."""
        return tuple(self._better())

    def _better(self) -> Iterator[tuple[str, Way]]:
        for model in self.models:
            for way in model.others:
                if not model.as_good(way):
                    yield model.name, way

    def figure(self, *, dark: bool = False) -> Figure:
        """A panel for each model: its peak and time over those of plain training, every way."""
        return _figure(self, dark=dark)


def recorded(path: Path | None = None) -> Beside:
    """The record of this checkout. Raises ValueError for another schema."""
    path = path or record_path()
    content = json.loads(path.read_text(encoding="utf-8"))
    if (schema := content.pop("schema")) != SCHEMA:
        raise ValueError(f"{path.name}: schema {schema}; this version knows {SCHEMA}")
    models = []
    for model in content.pop("models"):
        ways = tuple(map(_way, model.pop("ways")))
        models.append(Model(**model, ways=ways))
    return Beside(**content, models=tuple(models))


def write(found: Beside, path: Path | None = None) -> None:
    """Write a record, which `recorded` reads."""
    text = json.dumps({"schema": SCHEMA, **asdict(found)}, indent=1)
    write_whole(path or record_path(), text + "\n")


def record_path() -> Path:
    """Where the record lies."""
    return reference_folder() / "sublinear.json"


def _way(entry: dict[str, Any]) -> Way:
    low, high = entry.pop("interval")
    return Way(**entry, interval=(low, high))


COLUMNS = 3


def _figure(found: Beside, *, dark: bool) -> Figure:
    from labkit.plots import new_figure

    rows = -(-len(found.models) // COLUMNS)
    figure, axes = new_figure(COLUMNS, rows=rows, width=10, height=3 * rows, dark=dark)
    for axis, model in zip(axes, found.models, strict=False):
        _panel(axis, model)
    for axis in axes[len(found.models) :]:
        axis.set_axis_off()
    for place in range(0, len(axes), COLUMNS):
        axes[place].set_ylabel("time, of a plain step")
    for axis in axes[-COLUMNS:]:
        axis.set_xlabel("peak, of a plain step")
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    ink = axes[0].title.get_color()
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        framealpha=0,
        labelcolor=ink,
    )
    count = sum(len(model.others) for model in found.models)
    figure.suptitle(
        f"In {count - len(found.better)} of {count} cases a plan is as small and no slower "
        f"({found.machine}, {found.date}, torch {found.torch})",
        fontsize=10,
        color=ink,
    )
    return figure


def _panel(axis: Axes, model: Model) -> None:
    from labkit.plots import BLUE, GREY, PALETTE

    axis.plot(1, 1, "o", color=GREY, ms=4, label="plain")
    _marks(axis, model, model.ours, BLUE, "o", OURS)
    path = [(way.bytes / model.plain_bytes, way.time) for way in model.ours]
    axis.plot(*zip(*path, (1, 1), strict=True), color=BLUE, lw=1)
    names = list(dict.fromkeys(way.name for way in model.others))
    for name, colour, mark in zip(names, PALETTE[1:], "s^vDPX", strict=False):
        ways = tuple(way for way in model.others if way.name == name)
        _marks(axis, model, ways, colour, mark, name)
    axis.set_title(model.name)
    axis.set_xlim(None, max(1.04, axis.get_xlim()[1]))


def _marks(
    axis: Axes, model: Model, ways: tuple[Way, ...], colour: str, mark: str, name: str
) -> None:
    places = [way.bytes / model.plain_bytes for way in ways]
    times = [way.time for way in ways]
    below = [way.time - way.interval[0] for way in ways]
    above = [way.interval[1] - way.time for way in ways]
    axis.errorbar(
        places,
        times,
        [below, above],
        fmt=mark,
        ms=4,
        lw=0.8,
        color=colour,
        label=name,
    )
