"""What changes on the page while a run goes on: status, numbers, points, and the history.

The browser shares its cores with what is being timed: an update stays under 2 KiB, and nothing is
animated.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from labkit.panel import bars
from labkit.results import ROLES, Comparison, Measurement
from labkit.sweep import Progress
from labkit.text import format_factor, format_rate, format_seconds

STATIC = Path(__file__).with_name("static")

SCRIPTS = ("elements.js", "charts.js", "race.js", "memory.js", "panel.js")

# On the canvas.
MOST_POINTS, MOST_BANDS = 150, 36
# Seconds between two drawings: each takes time from what is measured.
SELDOM = 0.45

Band = tuple[float, float, float]
Lines = Sequence[tuple[str, float]]


class Live(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """The part that ``static/panel/*.js`` draws.

    ``state`` has the numbers and points of the latest run, ``status`` a text and its tone,
    ``notice`` who else measures on this machine, ``history`` a row of texts for each run,
    ``results`` figure and HTML for a page that was reloaded, ``stale`` whether the panel has other
    settings by now; the page sets ``dark``, its theme.
    """

    # One module out of several files, each of which needs those before it.
    _esm = "".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)
    _css = STATIC / "panel.css"
    state = traitlets.Dict().tag(sync=True)
    status = traitlets.Tuple(("Ready: set your guess, then Run.", "")).tag(sync=True)
    notice = traitlets.Unicode().tag(sync=True)
    history: Any = traitlets.List().tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)
    results = traitlets.Dict().tag(sync=True)
    dark = traitlets.Bool().tag(sync=True)
    stale = traitlets.Bool().tag(sync=True)

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        super().__init__()

    def say(self, text: str, tone: str = "") -> None:
        """Set the status line; ``tone`` is "good", "bad" or nothing."""
        self.status = (text, tone)

    def _send(self, *arguments: Any, **options: Any) -> None:
        """Send in the name of the cell, whichever thread this is.

        A kernel with subshells takes what a page sends to a widget to the subshell that the widget
        last answered to. That one is gone after a reload of the page; a cell's own, the main shell,
        is not.
        """
        self.context.copy().run(super()._send, *arguments, **options)


class Chart:
    """The canvas of one run: how the interval has narrowed, and the lines of recorded machines.

    ``fixed`` stays the same while it goes on: mode and guess.
    """

    def __init__(self, live: Live, number: int, budget: float, fixed: dict[str, Any]) -> None:
        self._live = live
        self._fixed = fixed
        self._number = number
        self._budget = budget
        self._bands: list[Band] = []
        self._settled: Comparison | None = None
        self._lines: Lines = ()
        self._note = ""
        self._drawn = -math.inf
        live.state = fixed | {"run": number, "running": True}

    def restart(self, lines: Lines, note: str) -> None:
        """Begin a comparison, the first or that of a sweep's next value."""
        self._bands = []
        self._settled = None
        self._lines = lines
        self._note = note
        self._drawn = -math.inf

    def draw(self, position: Progress, *, done: bool = False) -> None:
        """Show a partial result, or the last one."""
        so_far = position.partial
        if done or so_far.settled:
            self._settled = so_far
            # Of nan the page could make no scale.
            if math.isfinite(so_far.interval[0]):
                self._bands.append((len(so_far.ratios), *so_far.interval))
        now = time.monotonic()
        if now - self._drawn < SELDOM and not done:
            return
        self._drawn = now
        # More than the budget, once a run goes on until it is clear.
        budget = max(self._budget, so_far.limit)
        part = min(1.0, so_far.seconds / budget)
        whole = (position.index + part) / position.count
        left = f"{max(0.0, budget - so_far.seconds):.0f} s left"
        if done:
            whole, left = 1.0, ""
        self._live.state = (
            state(so_far, self._bands, self._settled, self._fixed.get("step", "step"))
            | self._fixed
            | {
                "run": self._number,
                "running": True,
                "progress": whole,
                "left": left,
                "recorded": [list(line) for line in self._lines],
                "unrecorded": self._note,
            }
        )


def state(
    run: Comparison, bands: Sequence[Band], settled: Comparison | None, step: str = "step"
) -> dict[str, Any]:
    """What the page draws: texts, and the points thinned to what a canvas can show.

    The figures are those of ``settled``, the run when its newest build was last long enough to
    count like the others.
    """
    told = settled or run
    low, high = (format_factor(bound) for bound in told.interval)
    detail, floor = "", 0.0
    if settled is not None and all(map(math.isfinite, settled.interval)):
        floor = settled.noise_floor
        detail = f"95 % interval {low} – {high}\nnoise floor ± {100 * floor:.1f} %"
    elif run.ratios:
        detail = "too few pairs so far"
    every = math.ceil(len(run.ratios) / MOST_POINTS) or 1
    newest = bands[:: -(math.ceil(len(bands) / MOST_BANDS) or 1)][::-1]
    return {
        "speedup": f"{format_factor(told.speedup)}×",
        "caption": "as fast as the baseline",
        "verdict": told.verdict,
        "badge": told.conclusion,
        "detail": detail,
        "pairs": len(run.ratios),
        "floor": floor,
        "points": np.asarray(run.ratios[::every], np.float32).tobytes(),
        "bands": np.asarray(newest, np.float32).tobytes(),
        "sides": [_side("Baseline", run.baseline), _side("Candidate", run.candidate)],
        "bars": bars.of_times(run, step),
    }


def summary(runs: Sequence[Comparison]) -> str:
    """What the status line says of the runs."""
    if len(runs) > 1:
        return f"{len(runs)} comparisons; the figure below shows them all"
    (run,) = runs
    for role, side in zip(ROLES, run.arms, strict=True):
        if side.error:
            return f"the {role} ended by {side.error}"
    factor = f"{format_factor(run.speedup)}×"
    if math.isfinite(run.interval[0]):
        factor += f" [{', '.join(map(format_factor, run.interval))}]"
    return f"{run.conclusion}, {factor}; {run.taken}"


def _side(name: str, side: Measurement) -> list[str]:
    head = name
    if side.error:
        head = f"{name}: {side.error}"
    return [
        head,
        format_seconds(side.median),
        format_seconds(side.iqr),
        format_rate(side.throughput, side.unit),
        format_seconds(side.cold),
        side.peak_text,
    ]
