"""Where the runs of a panel are seen.

The live part, the outputs of the cell, and recorded machines beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as W
import torch

from labkit import html, plots, report
from labkit.busy import Others
from labkit.lab import Lab
from labkit.memory_timeline import MemoryComparison
from labkit.panel import memory_view
from labkit.panel.controls import marked
from labkit.panel.guess import Guess
from labkit.panel.history import row
from labkit.panel.live import Chart, Live, summary
from labkit.panel.modes import MEMORY, RACE, TIME
from labkit.panel.outputs import Outputs, png
from labkit.panel.race_view import RaceView, race_sentence, race_summary, why_no_factor
from labkit.panel.run import Found, News, PanelRun, Result
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison
from labkit.sweep import Progress, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Seconds between two looks at what other programs take.
LOOK = 1.0
NOTHING_YET = "Stopped before there was anything to compare."
READY = {
    TIME: "Ready: set your guess, then Run.",
    MEMORY: "Ready: set your guess, then Run. What is alive when, in one step of each side?",
    RACE: "Ready: set your guess, then Run. Both sides train to the target.",
}
CELL_BEGAN = (
    "Another cell began during this run: its random numbers, default dtype and speed, "
    "and this measurement, disturb each other; press Run again when it has ended."
)
DISTURBED = "Another cell ran meanwhile: both were disturbed."
BEGUN = {
    TIME: "Building and warming up both sides ...",
    MEMORY: "Recording one step of each side ...",
    RACE: "Building both sides ...",
}


class Beside(Protocol):
    """A result beside recorded ones."""

    def figure(self, *, dark: bool = False) -> Figure: ...


class Recorded(Protocol):
    """Recorded runs of other machines."""

    refused: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]: ...

    @property
    def nearest(self) -> str | None: ...

    def on(self, *machines: str) -> Recorded: ...

    def matching(self, own: Any) -> Sequence[tuple[str, Any]]: ...

    def beside(self, own: Any) -> Beside: ...


class PanelScreen:
    """Shows the runs of one panel.

    It keeps their results: the latest ``result``, and the ``history``.
    """

    def __init__(self, lab: Lab, recorded: Recorded | None, guess: Guess) -> None:
        self.result: Result = None
        self.history: list[Comparison | RaceResult | MemoryComparison] = []
        self.live = Live()
        self.outputs = Outputs()
        self.machines = None if recorded is None else _machine_menu(recorded)
        self._lab = lab
        self._guess = guess
        self._recorded = recorded
        self._chart: Chart | None = None
        self._race: RaceView | None = None
        # What each mode showed last.
        self._states: dict[str, dict[str, Any]] = {}
        self._asked = 0.0
        self._others = Others()
        self._busy = ""

    def say(self, text: str, tone: str = "") -> None:
        """Set the status line."""
        self.live.say(text, tone)

    def show_mode(self, mode: str) -> None:
        """Show what this mode found last, or its empty place."""
        number = self.live.state.get("run", 0)
        self.live.state = self._states.get(mode, {"mode": mode}) | {"run": number}
        self.live.say("" if mode in self._states else READY[mode])

    def begun(self, run: PanelRun) -> None:
        """The run is about to start."""
        fixed = {"mode": run.mode, "guess": self._guess.drawn}
        self._chart = Chart(self.live, run.number, run.budget, fixed)
        self._race = None
        if run.mode == RACE:
            self._race = RaceView(self._lab.race_options)
        self._others, self._busy = Others(), ""
        self._asked = time.monotonic()
        self._notify(run)
        self.live.say(BEGUN[run.mode])

    def show(self, run: PanelRun, news: News) -> None:
        """Draw a partial result of the run."""
        self._look_around(run)
        if not isinstance(news, Progress):
            self._show_race(run, news)
            return
        before = run.position
        if before is None or before.index != news.index:
            self._next_value(run, news)
        if self._chart is not None:
            self._chart.draw(news)

    def disturbed(self, run: PanelRun) -> None:
        """Another cell began while the run measures."""
        self._notify(run)

    def _look_around(self, run: PanelRun) -> None:
        """Say how busy others keep this machine."""
        now = time.monotonic()
        if now - self._asked >= LOOK:
            self._asked = now
            self._busy = self._others.notice(self._lab.threads or torch.get_num_threads())
        self._notify(run)

    def _notify(self, run: PanelRun) -> None:
        """Say all that disturbs the run."""
        cell = CELL_BEGAN if run.disturbed else ""
        text = " ".join(filter(None, [cell, self._busy]))
        if text != self.live.notice:
            self.live.notice = text

    def _show_race(self, run: PanelRun, news: RaceResult | RaceRun) -> None:
        assert self._race is not None
        self._race.take(news)
        if isinstance(news, RaceRun) and not run.halted:
            self.live.say(f"Training {news.arm}, seed {news.seed}")
        self.live.state = self._race_state(run)

    def _race_state(self, run: PanelRun) -> dict[str, Any]:
        assert self._race is not None
        return self._race.state(self._guess.drawn) | {
            "mode": RACE,
            "guess": self._guess.drawn,
            "run": run.number,
            "running": True,
        }

    def _next_value(self, run: PanelRun, position: Progress) -> None:
        """The run has come to its first comparison, or a sweep to its next value."""
        partial_result = position.partial
        text = "Measuring"
        if run.swept is not None:
            value = partial_result.candidate.settings[run.swept]
            text = f"Sweeping {run.swept}: {value}, {position.index + 1} of {position.count}"
        # Said once: later it would hide a refusal, and after Stop what Stop has said.
        if not run.halted:
            self.live.say(text)
        if self._chart is not None:
            self._chart.restart(*self._recorded_lines(partial_result))

    def finish(self, run: PanelRun, result: Found) -> str:
        """Show and publish what the run returned; what the status line says."""
        self.result = result
        if isinstance(result, Comparison | Sweep):
            said = self._finish_times(run, result)
        elif isinstance(result, RaceResult):
            said = self._finish_race(run, result)
        else:
            said = self._finish_memory(run, result)
        self.live.history = [row(number, each) for number, each in enumerate(self.history, 1)]
        if run.disturbed:
            # What both threads write at once may be lost.
            self._notify(run)
            said = f"{said}. {DISTURBED}"
        return said

    def _finish_times(self, run: PanelRun, result: Comparison | Sweep) -> str:
        runs = []
        for each in [result] if isinstance(result, Comparison) else result:
            if each.ratios or any(side.error for side in each.arms):
                runs.append(each)
        if not runs:
            return NOTHING_YET
        self.history += runs
        self._draw_last(run, runs)
        last = runs[-1]
        self._keep(run, self._times_told(last, run.swept))
        if run.swept is None:
            own: Comparison | Sweep = runs[0]
            figure = plots.comparison_figure
        else:
            own = Sweep(run.swept, tuple(runs))
            figure = partial(plots.sweep_figure, control=run.swept)
        self._publish(run, own, figure)
        word = "Stopped" if last.stopped else "Done"
        return f"{word}: {summary(runs)}"

    def _times_told(self, last: Comparison, swept: str | None) -> dict[str, Any]:
        """The sentence, the distance of the guess, and what a time cannot say."""
        told: dict[str, Any] = {"sentence": report.comparison_sentence(last)}
        if swept is not None:
            value = last.candidate.settings[swept]
            told |= {"caption": f"as fast as the baseline, at {swept} {value}", "figure": True}
        elif last.ratios:
            told["told"] = self._guess.told(last.speedup, last.interval)
        return told

    def _finish_race(self, run: PanelRun, result: RaceResult) -> str:
        if not result.arms:
            return NOTHING_YET
        self.history.append(result)
        assert self._race is not None
        self._race.take(result)
        self.live.state = self._race_state(run)
        told: dict[str, Any] = {"sentence": race_sentence(result), "progress": 1.0}
        if len(result.arms) > 1:
            ratio, low, high = result.speedup(result.arms[1])
            told["told"] = self._guess.told(ratio, (low, high), why_no_factor(result))
        self._keep(run, told)
        self._publish(run, result, plots.race_figure)
        return f"{'Stopped' if result.stopped else 'Done'}: {race_summary(result)}"

    def _finish_memory(self, run: PanelRun, result: MemoryComparison) -> str:
        if run.halted:
            return NOTHING_YET
        self.history.append(result)
        told = memory_view.state(result)
        exactly = (result.ratio, result.ratio)
        told["told"] = self._guess.told(result.ratio, exactly, result.why_no_factor)
        fixed = {"mode": MEMORY, "guess": self._guess.drawn}
        self.live.state = fixed | {"run": run.number, "running": True}
        self._keep(run, told)
        self._publish(run, result, plots.memory_figure)
        return f"Done: {told['badge']}, {told['speedup']}"

    def _keep(self, run: PanelRun, told: dict[str, Any]) -> None:
        """Add the last words, and remember them for when the mode is shown again."""
        if run.disturbed:
            told = told | {"sentence": f"{told['sentence']} {DISTURBED}"}
        self.live.state = self.live.state | told
        self._states[run.mode] = self.live.state | {"running": False}

    def ended(self, run: PanelRun) -> None:
        """The run is over."""
        self.live.state = self.live.state | {"running": False}

    def _draw_last(self, run: PanelRun, runs: Sequence[Comparison]) -> None:
        last = Progress(len(runs) - 1, len(runs), runs[-1])
        if run.position is None or run.position.index != last.index:
            self._next_value(run, last)
        if self._chart is not None:
            self._chart.draw(last, done=True)

    def _publish(self, run: PanelRun, own: Found, draw: Callable[..., Figure]) -> None:
        """Figure and result as outputs of the cell that showed the panel."""
        if not self.outputs.shown:
            return
        markup, text = own._repr_html_(), str(own)
        if run.disturbed:
            markup, text = f"{markup}{html.result(html.note(DISTURBED))}", f"{text}\n{DISTURBED}"
        picked = self._picked()
        if picked and not isinstance(own, MemoryComparison):
            beside = picked.beside(own)
            figure = beside.figure(dark=self.live.dark)
            markup, text = f"{markup}{_html_of(beside)}", f"{text}\n\n{beside}"
        else:
            figure = draw(own, dark=self.live.dark)
        picture = png(figure)
        self.outputs.publish(picture, markup, text)
        if self.outputs.lost:
            self.live.results = {"png": picture, "html": markup}

    def _picked(self) -> Recorded | None:
        """The recorded runs of the machines that the menu shows; None for no machine."""
        if self._recorded and self.machines is not None and self.machines.value:
            return self._recorded.on(*self.machines.value)
        return None

    def _recorded_lines(self, own: Comparison) -> tuple[list[tuple[str, float]], str]:
        """What the picked machines recorded for the same question, or a note that they did not."""
        picked = self._picked()
        if picked is None:
            return [], ""
        # A partial result does not know its lab.
        named = replace(own, lab=self._lab.name)
        lines = []
        for label, other in picked.matching(named):
            if other.ratios:
                lines.append((label, other.speedup))
        if lines:
            return lines, ""
        return lines, "these settings were not recorded there"

    def machine_row(self) -> list[W.Widget]:
        """The menu of recorded machines, in a line of its own; none without records."""
        if self._recorded is None or self.machines is None:
            return []
        texts: list[W.Widget] = [W.Label("Recorded runs of"), self.machines]
        for reason in _unrecorded(self._recorded):
            texts.append(W.Label(reason))
        return [marked(W.HBox(texts), "row")]


def _machine_menu(recorded: Recorded) -> W.Dropdown:
    """The recorded machines, each and all: the value is a tuple of their names."""
    machines = recorded.machines
    shown = tuple(name for name in machines if name == recorded.nearest)
    options: list[tuple[str, tuple[str, ...]]] = [("no other machine", ())]
    for name in machines:
        options.append((name, (name,)))
    if len(machines) > 1:
        options.append(("all of them", machines))
    return marked(W.Dropdown(options=options, value=shown), "beside")


def _unrecorded(recorded: Recorded) -> list[str]:
    """Why there is less to pick from than one might expect."""
    if recorded.machines:
        return []
    return list(recorded.refused) or ["not recorded yet"]


def _html_of(beside: Beside) -> str:
    """A result beside recorded ones as HTML."""
    show = getattr(beside, "_repr_html_", None)
    if show is None:
        return html.result(html.preformatted(str(beside)))
    return str(show())
