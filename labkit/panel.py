"""The live panel of a lab: widgets in the notebook, the measuring in a background thread.

A thread that the Run button starts is the only pattern in which Stop and the sliders answer on every kernel. While it times,
nothing is drawn with matplotlib: a few numbers and points go to a small canvas. When it ends, one figure and one text table
become ordinary outputs of the cell, so that the saved notebook holds them.
"""

from __future__ import annotations

import base64
import html
import io
import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from labkit.device import test_size
from labkit.lab import Lab
from labkit.results import Comparison, Measurement
from labkit.units import format_bytes, format_rate, format_seconds, format_settings

try:
    import anywidget
    import ipywidgets as W
except ImportError as error:
    raise ImportError("LabPanel needs ipywidgets and anywidget; without them call lab.run(...), which takes the same settings") from error

_STATIC = Path(__file__).with_name("static")
_MOST_POINTS = 200  # that the canvas gets: with this many, an update stays under 2 KiB
_BUDGETS = (1, 2, 5, 10, 20, 30, 60)

_guard = threading.Lock()
_measuring: LabPanel | None = None  # the panel whose thread is running: two at once would time each other
_numbers = itertools.count(1)


class _Live(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Status, numbers and canvas, drawn by ``static/panel.js``."""

    _esm = (_STATIC / "panel.js").read_text(encoding="utf-8")
    _css = (_STATIC / "panel.css").read_text(encoding="utf-8")
    state = traitlets.Dict().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    tone = traitlets.Unicode().tag(sync=True)  # "", "busy", "good" or "bad"
    labels = traitlets.Dict().tag(sync=True)  # CSS class -> accessible name
    dark = traitlets.Bool().tag(sync=True)  # set by the page: its theme


@dataclass(frozen=True)
class Control:
    """The two widgets of one control."""

    baseline: Any
    candidate: Any
    values: tuple[Any, ...]  # that this machine offers; one of them: nothing to choose

    @property
    def settable(self) -> bool:
        return len(self.values) > 1


class LabPanel:
    """Widgets for a `Lab`: choose the settings of both arms, Run, watch the estimate settle, Stop.

    ``controls[name].baseline`` and ``.candidate`` are the widgets; ``result`` is what the latest run returned (a Comparison, or
    a list of them after a sweep) and ``history`` has all comparisons. ``seconds`` is the first time budget.
    """

    def __init__(self, lab: Lab, *, seconds: float | None = None) -> None:
        self.lab = lab
        self.result: Comparison | list[Comparison] | None = None
        self.history: list[Comparison] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._shown = False
        self._page: str | None = None  # the page that holds our outputs; another one after a reload
        self._name = f"labkit-{next(_numbers)}-{time.time_ns()}"

        self.controls: dict[str, Control] = {}
        fresh = True  # the candidate differs from the baseline in the first control that can
        for name in lab.controls:
            values = self._available(name)
            second = values[1] if fresh and len(values) > 1 else values[0]
            fresh = fresh and len(values) < 2
            self.controls[name] = Control(_choice(lab.controls[name], values, values[0]), _choice(lab.controls[name], values, second), values)
        seconds = seconds or (1 if test_size() else 10)
        budgets = sorted({*_BUDGETS, seconds})
        self.budget = W.SelectionSlider(options=[(f"{value:g} s", value) for value in budgets], value=seconds)
        self.run_button = W.Button(description="Run", icon="play", tooltip="Time both arms against each other")
        self.stop_button = W.Button(description="Stop", icon="stop", tooltip="End the run and keep what was measured")
        self.same_button = W.Button(description="Same settings (A/A)", tooltip="Give the candidate the baseline's settings: what is left is noise")
        self.sweep_button = W.Button(description="Sweep", tooltip="Compare every value of one control in turn")
        swept = [name for name, control in self.controls.items() if control.settable]
        self.sweep_choice = W.Dropdown(options=swept, disabled=not swept)
        self.follow = W.Checkbox(description="in both arms", indent=False)
        self.code_button = W.ToggleButton(description="Show the code", icon="code")
        self.code, self.table, self.copy = W.HTML(), W.HTML(), W.HTML()
        self.live = _Live(status="Ready: choose the settings of both arms, then Run.")
        self.widget = self._arrange()

        self.run_button.on_click(lambda _: self._pressed(self.run))
        self.stop_button.on_click(lambda _: self.stop())
        self.same_button.on_click(lambda _: self._same_settings())
        self.sweep_button.on_click(lambda _: self._pressed(self.sweep))
        self.live.on_msg(self._page_shown)
        for widget in (self.budget, self.code_button, *self._arm_widgets()):
            widget.observe(self._show_code, "value")

    # What the reader does -----------------------------------------------------------------------------------------------

    def settings(self, arm: str = "candidate") -> dict[str, Any]:
        """What is chosen for "baseline" or "candidate", without the controls that have nothing to choose."""
        return {name: getattr(control, arm).value for name, control in self.controls.items() if control.settable}

    def run(self, wait: bool = False) -> Comparison | list[Comparison] | None:
        """Start a run with the settings shown; with ``wait`` the result. RuntimeError while a panel is measuring."""
        budget = self.budget.value
        arguments = {"baseline": self.settings("baseline"), "seconds": budget, **self.settings()}

        def job(stop: threading.Event) -> Comparison:
            return self.lab.run(on_update=lambda partial: self._update(partial, partial.seconds / budget, budget), stop=stop, **arguments)

        self._start(job)
        return self.wait() if wait else None

    def sweep(self, wait: bool = False) -> Comparison | list[Comparison] | None:
        """Compare each value of the chosen control in turn. RuntimeError while a panel is measuring."""
        control, budget = self.sweep_choice.value, self.budget.value
        if control is None:
            raise RuntimeError("no control of this lab has two values to sweep over on this machine")
        settings = {name: value for name, value in self.settings().items() if name != control}
        arguments = {"baseline": self.settings("baseline"), "follow": self.follow.value, "seconds": budget, **settings}
        values = self.controls[control].values
        self._swept = control

        def update(partial: Comparison) -> None:
            done = values.index(partial.candidate.settings[control])
            self._say(f"Sweeping {control}: {values[done]} ({done + 1} of {len(values)})", "busy")
            self._update(partial, (done + min(1.0, partial.seconds / budget)) / len(values), budget)

        self._start(lambda stop: self.lab.sweep(control, on_update=update, stop=stop, **arguments))
        return self.wait() if wait else None

    def stop(self) -> None:
        """End the run at its next block; the partial result is kept. Also ends the run of another panel, shown or not."""
        with _guard:
            panel = _measuring
        if panel is None:
            self._say("Nothing is running.")
            return
        panel._stop.set()
        panel._say("Stopping after this block ...", "busy")
        if panel is not self:
            self._say("Stopping the other panel's run.")

    def wait(self, timeout: float | None = None) -> Comparison | list[Comparison] | None:
        """Wait for the run's end; its result, or what it raised. TimeoutError after ``timeout`` seconds; an interrupt stops it."""
        if self._thread is not None:
            try:
                self._thread.join(timeout)
            except KeyboardInterrupt:
                self._stop.set()
                self._thread.join()
                raise
            if self._thread.is_alive():
                raise TimeoutError(f"the panel is still measuring after {timeout} s")
        if self._error is not None:
            raise self._error
        return self.result

    def close(self) -> None:
        """Stop and take the widgets off the page."""
        self._stop.set()
        for widget in (*self._widgets(self.widget), self.widget):
            widget.close()

    # The worker ---------------------------------------------------------------------------------------------------------

    def _start(self, job: Callable[[threading.Event], Any]) -> None:
        global _measuring
        with _guard:
            if _measuring is self:
                raise RuntimeError("This panel is measuring already: Stop ends it. Changed settings apply to the next run.")
            if _measuring is not None:
                raise RuntimeError("Another panel is measuring, and two at once would disturb each other. Wait for it, or press Stop here or there.")
            self._stop, self._error = threading.Event(), None
            self._thread = threading.Thread(target=self._work, args=(job, self._stop), name="labkit-panel", daemon=True)
            self._bands: list[tuple[float, float, float]] = []
            self.live.state = {"running": True, "progress": 0.0}
            self._say("Building and warming up both arms ...", "busy")
            self._thread.start()
            _measuring = self

    def _work(self, job: Callable[[threading.Event], Any], stop: threading.Event) -> None:
        global _measuring
        try:
            self._finish(job(stop))
        except BaseException as error:  # SystemExit too: nobody sees what ends a thread; wait() raises it again
            self._error = error
            reason = (str(error).strip() or "no message").splitlines()[0]
            self._say(f"{type(error).__name__}: {reason} (panel.wait() shows where)", "bad")
        finally:
            with _guard:
                _measuring = None
                self.live.state = self.live.state | {"running": False}

    def _update(self, partial: Comparison, progress: float, budget: float) -> None:
        if not self._stop.is_set() and "ing up" in self.live.status:
            self._say("Measuring ...", "busy")
        self._bands.append((len(partial.ratios), *partial.interval))
        left = f" · {max(0.0, budget - partial.seconds):.0f} s left"
        self.live.state = _state(partial, self._bands) | {"running": True, "progress": min(1.0, progress), "left": left}

    def _finish(self, result: Comparison | list[Comparison]) -> None:
        runs = result if isinstance(result, list) else [result]
        runs = [run for run in runs if run.ratios or run.baseline.error or run.candidate.error]
        self.result = result
        if not runs:
            self._say("Stopped before there was anything to compare.")
            return
        self.history += runs
        last = runs[-1]
        self._bands.append((len(last.ratios), *last.interval))
        self.live.state = _state(last, self._bands) | {"running": True, "progress": 1.0}
        self.table.value = _history(self.history)
        self._publish(result if isinstance(result, list) else last)
        ended = "Stopped" if last.stopped else "Done"
        self._say(f"{ended}: {_summary(last)}" if len(runs) == 1 else f"{ended}: {len(runs)} comparisons, see the figure below.", "good")

    def _publish(self, result: Comparison | list[Comparison]) -> None:
        """Figure and table as ordinary outputs, where the cell showed the panel."""
        from labkit import plots

        dark = self.live.dark
        if isinstance(result, list):
            figure, text = plots.sweep_figure(result, self._swept, dark=dark), "\n\n".join(map(str, result))
        else:
            figure, text = plots.comparison_figure(result, dark=dark), str(result)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        png = buffer.getvalue()
        if self._shown:
            from IPython.display import update_display

            update_display({"image/png": png, "text/plain": "Figure of the run; its numbers stand below."}, display_id=f"{self._name}-figure", raw=True)
            update_display({"text/plain": text}, display_id=f"{self._name}-table", raw=True)
        if self._page == "reloaded":
            picture = base64.b64encode(png).decode()
            self.copy.value = (
                f'<img alt="figure of the run" src="data:image/png;base64,{picture}"><pre>{html.escape(text)}</pre>'
                "<p>Shown here because the page was reloaded; run the cell again to have results in the saved notebook.</p>"
            )

    # What the page shows ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"LabPanel: its widgets need JupyterLab and a running kernel. Without them:\n    {self._code()}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._shown, self._page, self.copy.value = True, None, ""
        display(self.widget._repr_mimebundle_() | {"text/plain": repr(self)}, raw=True)
        for part in ("figure", "table"):
            display({"text/plain": ""}, raw=True, display_id=f"{self._name}-{part}")

    def _page_shown(self, _: Any, content: dict[str, str], __: Any) -> None:
        """A view came up. After a reload the page no longer knows where a run's outputs belong: show them in the panel."""
        self._page = content["page"] if self._page in (None, content["page"]) else "reloaded"

    def _say(self, text: str, tone: str = "") -> None:
        self.live.tone, self.live.status = tone, text

    def _pressed(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except RuntimeError as error:  # refused: the page is the only place where the reader sees it
            self._say(str(error), "bad" if _measuring is not self else "busy")

    def _same_settings(self) -> None:
        for control in self.controls.values():
            control.candidate.value = control.baseline.value

    def _code(self) -> str:
        return self.lab.code(baseline=self.settings("baseline"), seconds=self.budget.value, **self.settings())

    def _show_code(self, _: Any = None) -> None:
        self.code.value = f"<pre>{html.escape(self._code())}</pre>" if self.code_button.value else ""

    def _available(self, name: str) -> tuple[Any, ...]:
        return tuple(value for value in self.lab.controls[name] if self.lab.why_not(name, value) is None) or self.lab.controls[name][:1]

    def _arm_widgets(self) -> list[Any]:
        return [widget for control in self.controls.values() for widget in (control.baseline, control.candidate)]

    def _widgets(self, parent: Any) -> list[Any]:
        children = list(getattr(parent, "children", ()))
        return children + [below for child in children for below in self._widgets(child)]

    def _arrange(self) -> Any:
        """The tree of boxes; every look is in ``static/panel.css``."""
        labels = {"labkit-budget": "time budget", "labkit-swept": "control to sweep", "labkit-follow": "sweep both arms"}
        cells = [W.HTML(text) for text in ("Setting", "Baseline", "Candidate")]
        for name, control in self.controls.items():
            reasons = self.lab.unavailable.get(name, {})
            lines = [reasons] if isinstance(reasons, str) else [f"{value}: {reason}" for value, reason in reasons.items()]
            text = f"<b>{html.escape(name)}</b>" + "".join(f"<small>{html.escape(line)}</small>" for line in lines)
            cells.append(W.HTML(text))
            for arm in ("baseline", "candidate"):
                widget = getattr(control, arm)
                css = f"labkit-{name}-{arm}"
                for extra in ("labkit-named", f"labkit-{arm}", css):
                    widget.add_class(extra)
                labels[css] = f"{name}, {arm}"
                cells.append(widget)
        self.live.labels = labels
        for widget, css in (
            (self.run_button, "run"),
            (self.stop_button, "stop"),
            (self.same_button, "same"),
            (self.sweep_button, "sweep"),
            (self.sweep_choice, "swept"),
            (self.follow, "follow"),
            (self.budget, "budget"),
            (self.code_button, "code"),
            (self.code, "source"),
            (self.table, "history"),
            (self.copy, "copy"),
        ):
            widget.add_class(f"labkit-{css}").add_class("labkit-named")
        run = W.HBox([self.run_button, self.stop_button, W.HTML("Time budget"), self.budget]).add_class("labkit-row")
        more = W.HBox([self.sweep_button, self.sweep_choice, self.follow, self.same_button, self.code_button]).add_class("labkit-row")
        grid = W.GridBox(cells).add_class("labkit-grid")
        return W.VBox([grid, run, more, self.code, self.live, self.table, self.copy]).add_class("labkit-panel")


def _choice(all_values: tuple[Any, ...], values: tuple[Any, ...], value: Any) -> Any:
    """A widget for one arm of one control, as ``ipywidgets.interact`` would choose it."""
    disabled = len(values) < 2
    if set(map(type, all_values)) == {bool}:
        widget = W.Checkbox(value, indent=False, disabled=disabled, description="on" if value else "off")
        widget.observe(lambda change: setattr(widget, "description", "on" if change["new"] else "off"), "value")
        kind = "toggle"
    else:
        numeric = all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in values)
        options = [(f"{item:g}" if isinstance(item, float) else str(item), item) for item in values]
        kind = "slider" if numeric and not disabled else "dropdown"
        widget = (W.SelectionSlider if kind == "slider" else W.Dropdown)(options=options, value=value, disabled=disabled)
    widget.add_class(f"labkit-{kind}")
    return widget.add_class("labkit-disabled") if disabled else widget


def _state(run: Comparison, bands: list[tuple[float, float, float]]) -> dict[str, Any]:
    """What the page draws, in a message of at most 2 KiB: texts, and the points thinned to what a canvas can show."""
    low, high = run.interval
    thin = slice(None, None, max(1, math.ceil(len(run.ratios) / _MOST_POINTS)))
    steps = slice(None, None, -max(1, math.ceil(len(bands) / 40)))  # from the newest backwards
    floor = run.noise_floor if math.isfinite(run.noise_floor) else 0.0
    known = bool(run.ratios)
    heads = ["", "Step (median)", "IQR", "Throughput", "First step", "Peak memory"]
    return {
        "speedup": f"{run.speedup:.2f}×" if known else "–",
        "verdict": run.verdict,
        "badge": run.verdict,
        "detail": f"95 % interval {low:.3f} – {high:.3f}\nnoise floor ± {floor:.1%}, {len(run.ratios)} pairs" if known else "",
        "pairs": len(run.ratios),
        "floor": floor,
        "ends": [low, high] if known else [],
        "points": np.asarray(run.ratios[thin], np.float32).tobytes(),
        "bands": np.asarray(bands[steps][::-1], np.float32).tobytes(),
        "arms": [heads, _arm_row("Baseline", run.baseline), _arm_row("Candidate", run.candidate)],
    }


def _arm_row(name: str, arm: Measurement) -> list[str]:
    times = [format_seconds(arm.median), format_seconds(arm.iqr), format_rate(arm.throughput, arm.unit)]
    return [f"{name}: {arm.error}" if arm.error else name, *times, format_seconds(arm.cold), format_bytes(arm.peak_bytes)]


def _summary(run: Comparison) -> str:
    low, high = run.interval
    errors = [f"{arm.label} ended by: {arm.error}" for arm in (run.baseline, run.candidate) if arm.error]
    return "; ".join(errors) or f"{run.verdict}, {run.speedup:.2f}× [{low:.2f}, {high:.2f}]"


def _history(runs: list[Comparison]) -> str:
    """All runs as an HTML table, the newest first."""
    rows = []
    for number, run in reversed(list(enumerate(runs, 1))):
        a, b = run.baseline, run.candidate
        low, high = run.interval
        shared = {name: value for name, value in b.settings.items() if a.settings.get(name) == value}
        changed = [f"{name}: {a.settings.get(name)} → {value}" for name, value in b.settings.items() if name not in shared]
        settings = f"<b>{html.escape(', '.join(changed) or 'same settings')}</b> {html.escape(format_settings(shared))}"
        times = [format_seconds(a.median), format_seconds(b.median), f"{run.speedup:.2f}×", f"{low:.2f} – {high:.2f}"]
        verdict = f'<span class="labkit-badge" data-verdict="{run.verdict}">{run.verdict}</span>'
        cells = [str(number), settings, *times, verdict, f"{format_bytes(a.peak_bytes)} → {format_bytes(b.peak_bytes)}"]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ("#", "Settings", "Baseline", "Candidate", "Speed-up", "95 % interval", "Verdict", "Peak memory")
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f"<table><caption>Runs</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
