"""Where the runs of a panel are seen.

The live part, the outputs of the cell, and recorded machines beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as W

from labkit import html, plots
from labkit.panel.controls import marked
from labkit.panel.live import Chart, Live, row, summary
from labkit.panel.outputs import Outputs, png
from labkit.panel.run import PanelRun, Result
from labkit.results import Comparison
from labkit.sweep import Progress, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Beside(Protocol):
    """A result beside recorded ones."""

    def figure(self, *, dark: bool = False) -> Figure: ...


class Recorded(Protocol):
    """Recorded runs of other machines."""

    refused: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]: ...

    def on(self, *machines: str) -> Recorded: ...

    def matching(self, own: Any) -> Sequence[tuple[str, Any]]: ...

    def beside(self, own: Any) -> Beside: ...


class PanelScreen:
    """Shows the runs of one panel.

    It keeps their results: the latest ``result``, and the ``history``.
    """

    def __init__(self, lab: str, recorded: Recorded | None) -> None:
        self.result: Result = None
        self.history: list[Comparison] = []
        self.live = Live()
        self.outputs = Outputs()
        self.machines = _machine_menu(recorded)
        self._lab = lab
        self._recorded = recorded
        self._chart: Chart | None = None

    def say(self, text: str, tone: str = "") -> None:
        """Set the status line."""
        self.live.say(text, tone)

    def begun(self, run: PanelRun) -> None:
        """The run is about to start."""
        self._chart = Chart(self.live, run.number, run.budget)
        self.live.say("Building and warming up both sides ...")

    def show(self, run: PanelRun, position: Progress) -> None:
        """Draw a partial result of the run."""
        before = run.position
        if before is None or before.index != position.index:
            self._next_value(run, position)
        if self._chart is not None:
            self._chart.draw(position)

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

    def finish(self, run: PanelRun, result: Comparison | Sweep) -> str:
        """Show and publish what the run returned; what the status line says."""
        self.result = result
        runs = []
        for each in [result] if isinstance(result, Comparison) else result:
            if each.ratios or any(side.error for side in each.arms):
                runs.append(each)
        if not runs:
            return "Stopped before there was anything to compare."
        self.history += runs
        self._draw_last(run, runs)
        rows = []
        for number, each in enumerate(self.history, 1):
            rows.append(row(number, each))
        self.live.history = rows
        if self.outputs.shown:
            self._publish(run, runs)
        word = "Stopped" if runs[-1].stopped else "Done"
        return f"{word}: {summary(runs)}"

    def ended(self, run: PanelRun) -> None:
        """The run is over."""
        self.live.state = self.live.state | {"running": False}

    def _draw_last(self, run: PanelRun, runs: Sequence[Comparison]) -> None:
        last = Progress(len(runs) - 1, len(runs), runs[-1])
        if run.position is None or run.position.index != last.index:
            self._next_value(run, last)
        if self._chart is not None:
            self._chart.draw(last, done=True)

    def _publish(self, run: PanelRun, runs: Sequence[Comparison]) -> None:
        """Figure and result as outputs of the cell that showed the panel."""
        own: Comparison | Sweep = runs[0]
        if run.swept is not None:
            own = Sweep(run.swept, tuple(runs))
        markup, text = own._repr_html_(), str(own)
        if self._recorded and self.machines.value:
            beside = self._recorded.on(*self.machines.value).beside(own)
            figure = beside.figure(dark=self.live.dark)
            markup, text = f"{markup}{_html_of(beside)}", f"{text}\n\n{beside}"
        elif isinstance(own, Sweep):
            figure = plots.sweep_figure(own, own.control, dark=self.live.dark)
        else:
            figure = plots.comparison_figure(own, dark=self.live.dark)
        picture = png(figure)
        self.outputs.publish(picture, markup, text)
        if self.outputs.lost:
            self.live.results = {"png": picture, "html": markup}

    def _recorded_lines(self, own: Comparison) -> tuple[list[tuple[str, float]], str]:
        """What the picked machines recorded for the same question, or a note that they did not."""
        if not self._recorded or not self.machines.value:
            return [], ""
        # A partial result does not know its lab.
        named = replace(own, lab=self._lab)
        lines = []
        for label, other in self._recorded.on(*self.machines.value).matching(named):
            if other.ratios:
                lines.append((label, other.speedup))
        if lines:
            return lines, ""
        return lines, "these settings were not recorded there"

    def machine_row(self) -> list[W.Widget]:
        """The menu of recorded machines, in a line of its own; none without records."""
        if self._recorded is None:
            return []
        texts = [W.Label("Recorded runs of"), self.machines]
        for reason in _unrecorded(self._recorded):
            texts.append(W.Label(reason))
        return [marked(W.HBox(texts), "row")]


def _machine_menu(recorded: Recorded | None) -> W.Dropdown:
    """The recorded machines, each and all: the value is a tuple of their names."""
    machines: tuple[str, ...] = ()
    if recorded is not None:
        machines = recorded.machines
    options: list[tuple[str, tuple[str, ...]]] = [("no other machine", ())]
    for name in machines:
        options.append((name, (name,)))
    if len(machines) > 1:
        options.append(("all of them", machines))
    return marked(W.Dropdown(options=options, value=machines[:1]), "beside")


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
