"""The live panel of a lab: widgets in the notebook, the measuring in a background thread.

A thread that the Run button starts is the only pattern in which Stop and the sliders answer on every kernel. While it
times, nothing is drawn with matplotlib: a few numbers and points go to a small canvas. When it ends, one figure and one
text table become ordinary outputs of the cell, so that the saved notebook holds them.
"""

from __future__ import annotations

import contextvars
import io
import math
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from labkit.device import test_size
from labkit.lab import Lab
from labkit.results import Comparison, Measurement
from labkit.units import format_bytes, format_rate, format_seconds

try:
    import anywidget
    import ipywidgets as W
except ImportError as error:
    raise ImportError("LabPanel needs ipywidgets and anywidget; lab.run(...) measures the same without them") from error

STATIC = Path(__file__).with_name("static")
BUDGETS = (1, 2, 5, 10, 20, 30, 60)  # seconds
MOST_POINTS, MOST_BANDS = 200, 40  # on the canvas: keeps an update under 2 KiB

_guard = threading.Lock()
_measuring: LabPanel | None = None  # the panel whose thread is running: two at once would time each other


class _Live(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """What changes while a run goes on; drawn by ``static/panel.js``."""

    _esm = (STATIC / "panel.js").read_text(encoding="utf-8")
    _css = (STATIC / "panel.css").read_text(encoding="utf-8")
    state = traitlets.Dict().tag(sync=True)  # numbers and points of the latest run
    status = traitlets.Tuple(("Ready: choose the settings of both arms, then Run.", "")).tag(sync=True)  # text, tone
    history: Any = traitlets.List().tag(sync=True)  # one row of texts a run
    code = traitlets.Unicode().tag(sync=True)
    results = traitlets.Dict().tag(
        sync=True
    )  # figure and table, when the page cannot be given ordinary outputs any more
    dark = traitlets.Bool().tag(sync=True)  # the page's theme, set by the page

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        super().__init__()

    def _send(self, *arguments: Any, **options: Any) -> None:
        """Send in the name of the cell, whichever thread this is.

        A kernel with subshells takes what a page sends to a widget to the subshell that the widget last answered to.
        That one is gone after a reload of the page; a cell's own, the main shell, is not.
        """
        self.context.copy().run(super()._send, *arguments, **options)


@dataclass(frozen=True)
class Control:
    """The two widgets of one control, and the values that this machine offers: one alone leaves nothing to set."""

    baseline: Any
    candidate: Any
    values: tuple[Any, ...]


class LabPanel:
    """Widgets for a `Lab`: choose the settings of both arms, Run, watch the estimate settle, Stop.

    ``controls[name].baseline`` and ``.candidate`` are the widgets; ``result`` is what the latest run returned (a
    Comparison, or a list of them after a sweep), ``history`` all comparisons; ``seconds`` presets the time budget.
    """

    def __init__(self, lab: Lab, *, seconds: float | None = None) -> None:
        self.lab = lab
        self.result: Comparison | list[Comparison] | None = None
        self.history: list[Comparison] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._runs = 0
        self._shown = False
        self._page: str | None = None  # the page that holds our outputs
        self._id = uuid.uuid4().hex

        offered = {name: tuple(v for v in values if not lab.why_not(name, v)) for name, values in lab.controls.items()}
        settable = [name for name, values in offered.items() if len(values) > 1]
        self.controls = {}
        for name, values in offered.items():
            values = values or lab.controls[name][:1]
            second = values[1 if name in settable[:1] else 0]  # at first the arms differ in one control
            self.controls[name] = Control(
                _choice(lab, name, values, values[0], "baseline"),
                _choice(lab, name, values, second, "candidate"),
                values,
            )
        seconds = seconds or (1 if test_size() else 10)
        budgets = [(f"{value:g} s", value) for value in sorted({*BUDGETS, seconds})]
        self.budget = _marked(W.SelectionSlider(options=budgets, value=seconds), "budget")
        self.run_button = _marked(W.Button(description="Run", icon="play", tooltip="Compare both arms"), "run")
        self.stop_button = _marked(W.Button(description="Stop", icon="stop", tooltip="Keep what there is"), "stop")
        self.sweep_button = _marked(W.Button(description="Sweep", tooltip="Try each value of a control"), "sweep")
        self.sweep_choice = _marked(W.Dropdown(options=settable), "swept")
        self.follow = _marked(W.Checkbox(description="in both arms", indent=False), "follow")
        self.same_button = _marked(W.Button(description="Same settings (A/A)", tooltip="Only noise is left"), "same")
        self.code_button = _marked(W.ToggleButton(description="Show the code", icon="code"), "code")
        self.live = _Live()
        self.widget = self._arrange()

        self.run_button.on_click(lambda _: self._pressed(self.run))
        self.stop_button.on_click(lambda _: self.stop())
        self.sweep_button.on_click(lambda _: self._pressed(self.sweep))
        self.same_button.on_click(lambda _: self._same_settings())
        self.live.on_msg(self._page_shown)
        for widget in _tree(self.widget):
            if widget.has_trait("value"):
                widget.observe(self._show_code, "value")

    def settings(self, arm: str = "candidate") -> dict[str, Any]:
        """What is chosen for "baseline" or "candidate"; controls with nothing to choose are left out."""
        return {name: getattr(control, arm).value for name, control in self.controls.items() if len(control.values) > 1}

    def run(self, wait: bool = False) -> Comparison | list[Comparison] | None:
        """Start a run with the settings shown; with ``wait`` the result. RuntimeError while a panel is measuring."""
        arguments = {"baseline": self.settings("baseline"), "seconds": self.budget.value} | self.settings()
        self._start(lambda **live: self.lab.run(**live, **arguments))
        return self.wait() if wait else None

    def sweep(self, wait: bool = False) -> Comparison | list[Comparison] | None:
        """Compare each value of the chosen control in turn. RuntimeError while a panel is measuring."""
        control = self.sweep_choice.value
        if control is None:
            raise RuntimeError("No control of this lab has two values to sweep over on this machine.")
        arguments = {"baseline": self.settings("baseline"), "seconds": self.budget.value} | self.settings()
        del arguments[control]
        follow = self.follow.value
        self._start(lambda **live: self.lab.sweep(control, follow=follow, **live, **arguments), control)
        return self.wait() if wait else None

    def stop(self) -> None:
        """End the run at its next block and keep what it has. Ends another panel's run too: it may be out of sight."""
        with _guard:
            panel = _measuring
        if panel is not None:
            panel._stop.set()
            panel._say("Stopping after this block ...")
        if panel is not self:
            self._say("Stopping the other panel's run." if panel else "Nothing is running.")

    def wait(self, timeout: float | None = None) -> Comparison | list[Comparison] | None:
        """The result of the run once it has ended, or what it raised. TimeoutError after ``timeout`` seconds."""
        if self._thread is not None:
            try:
                self._thread.join(timeout)
            except KeyboardInterrupt:  # the kernel's interrupt reaches this thread only
                self._stop.set()
                raise
            if self._thread.is_alive():
                raise TimeoutError(f"the panel is still measuring after {timeout} s")
        if self._error is not None:
            raise self._error
        return self.result

    def close(self) -> None:
        """Stop, and take the widgets off the page."""
        self._stop.set()
        for widget in _tree(self.widget):
            widget.close()

    # ------------------------------------------------------------------------------------------------------ the worker

    def _start(self, job: Callable[..., Any], swept: str | None = None) -> None:
        global _measuring
        with _guard:
            if _measuring is self:
                raise RuntimeError("This panel is measuring already. What you change applies to the next run.")
            if _measuring is not None:
                raise RuntimeError("Another panel is measuring; two at once disturb each other. Wait, or press Stop.")
            self._runs += 1
            self._stop, self._error, self._swept = threading.Event(), None, swept
            self._budget: float = self.budget.value
            self._bands: list[tuple[float, float, float]] = []
            work = (
                self.live.context.copy().run,
                self._work,
                job,
                self._stop,
            )  # what it prints belongs to the panel's cell
            self._thread = threading.Thread(target=work[0], args=work[1:], name="labkit-panel", daemon=True)
            self.live.state = {"run": self._runs, "running": True}
            self._say("Building and warming up both arms ...")
            self._thread.start()
            _measuring = self

    def _work(self, job: Callable[..., Any], stop: threading.Event) -> None:
        global _measuring
        try:
            self._finish(job(on_update=self._update, stop=stop))
        except BaseException as error:  # SystemExit too: nobody sees what ends a thread; wait() raises it again
            self._error = error
            reason = (str(error).strip() or "no message").splitlines()[0]
            self._say(f"{type(error).__name__}: {reason} (panel.wait() shows where)", "bad")
        finally:
            with _guard:
                _measuring = None
                self.live.state = self.live.state | {"running": False}

    def _update(self, partial: Comparison) -> None:
        """Partial results: called between blocks, at most five times a second."""
        values = self.controls[self._swept].values if self._swept else ()
        done = values.index(partial.candidate.settings[self._swept]) if self._swept else 0
        if not self._stop.is_set():
            self._say(f"Sweeping {self._swept}: {values[done]}, {done + 1} of {len(values)}" if values else "Measuring")
        self._draw(partial, (done + min(1.0, partial.seconds / self._budget)) / max(1, len(values)))

    def _draw(self, run: Comparison, progress: float) -> None:
        if self._bands and self._bands[-1][0] > len(run.ratios):
            self._bands.clear()  # a sweep has come to its next value
        self._bands.append((len(run.ratios), *run.interval))
        left = max(0.0, self._budget - run.seconds) if progress < 1 else 0.0
        self.live.state = _state(run, self._bands) | {
            "run": self._runs,
            "running": True,
            "progress": progress,
            "left": f"{left:.0f} s left" if left else "",
        }

    def _finish(self, result: Comparison | list[Comparison]) -> None:
        self.result = result
        runs = result if isinstance(result, list) else [result]
        runs = [run for run in runs if run.ratios or any(arm.error for arm in run.arms)]
        if not runs:
            self._say("Stopped before there was anything to compare.")
            return
        self.history += runs
        self._draw(runs[-1], 1.0)
        self.live.history = [_row(number, run) for number, run in enumerate(self.history, 1)]
        self._publish(runs)
        summary = _summary(runs[0]) if len(runs) == 1 else f"{len(runs)} comparisons; the figure below shows them all"
        self._say(f"{'Stopped' if runs[-1].stopped else 'Done'}: {summary}", "good")

    def _publish(self, runs: list[Comparison]) -> None:
        """Figure and table as ordinary outputs of the cell that showed the panel."""
        from labkit import plots

        dark = self.live.dark
        figure = (
            plots.sweep_figure(runs, self._swept, dark=dark)
            if self._swept
            else plots.comparison_figure(runs[0], dark=dark)
        )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        picture, text = buffer.getvalue(), "\n\n".join(map(str, runs))
        if self._shown:
            from IPython.display import update_display

            shown = {"image/png": picture, "text/plain": "The run as a figure; the table below has its numbers."}
            update_display(shown, raw=True, display_id=f"{self._id}-figure")
            update_display({"text/plain": text}, raw=True, display_id=f"{self._id}-table")
        if self._page == "reloaded":
            self.live.results = {"png": picture, "text": text}

    # -------------------------------------------------------------------------------------------------------- the page

    def __repr__(self) -> str:
        return f"LabPanel: its widgets need JupyterLab and a running kernel. Without them:\n    {self._code()}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._shown, self._page, self.live.results = True, None, {}
        self.live.context = contextvars.copy_context()
        display(self.widget._repr_mimebundle_() | {"text/plain": repr(self)}, raw=True)
        for part in ("figure", "table"):
            display({"text/plain": ""}, raw=True, display_id=f"{self._id}-{part}")

    def _page_shown(self, _: Any, content: dict[str, str], __: Any) -> None:
        """A view came up. A reloaded page has lost our outputs' display ids: results go into the panel then."""
        if self._page in (None, content["page"]):
            self._page = content["page"]
            return
        self._page = "reloaded"
        for widget in _tree(self.widget):
            self.live.context.copy().run(widget.send_state)  # see _Live._send

    def _say(self, text: str, tone: str = "") -> None:
        self.live.status = (text, tone)

    def _pressed(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except RuntimeError as error:  # refused: the page is the only place where the reader sees it
            self._say(str(error), "bad")

    def _same_settings(self) -> None:
        for control in self.controls.values():
            control.candidate.value = control.baseline.value

    def _code(self) -> str:
        return self.lab.code(baseline=self.settings("baseline"), seconds=self.budget.value, **self.settings())

    def _show_code(self, _: Any) -> None:
        self.live.code = self._code() if self.code_button.value else ""

    def _arrange(self) -> Any:
        """The tree of boxes; all looks are in ``static/panel.css``."""
        cells = [W.Label(text) for text in ("Setting", "Baseline", "Candidate")]
        for name, control in self.controls.items():
            reasons = self.lab.unavailable.get(name, {})
            lines = [reasons] if isinstance(reasons, str) else [f"{value}: {why}" for value, why in reasons.items()]
            cells += [W.Label("\n".join([name, *lines])), control.baseline, control.candidate]
        rows = [
            [self.run_button, self.stop_button, W.Label("Time budget"), self.budget],
            [self.sweep_button, self.sweep_choice, self.follow, self.same_button, self.code_button],
        ]
        boxes = [_marked(W.GridBox(cells), "grid"), *(_marked(W.HBox(row), "row") for row in rows), self.live]
        return _marked(W.VBox(boxes), "panel")


def _marked(widget: Any, *names: str) -> Any:
    for name in names:
        widget.add_class(f"labkit-{name}")
    return widget


def _tree(widget: Any) -> Iterator[Any]:
    for child in getattr(widget, "children", ()):
        yield from _tree(child)
    yield widget


def _choice(lab: Lab, name: str, values: tuple[Any, ...], value: Any, arm: str) -> Any:
    """A widget for one arm of one control, as ``ipywidgets.interact`` would choose it."""
    options: dict[str, Any] = {"value": value, "disabled": len(values) < 2}
    if all(isinstance(item, bool) for item in lab.controls[name]):
        widget, kind = W.Checkbox(indent=False, description="on" if value else "off", **options), "toggle"
        widget.observe(lambda change: setattr(widget, "description", "on" if change["new"] else "off"), "value")
    else:
        numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in values)
        kind = "slider" if numeric and len(values) > 1 else "dropdown"
        texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in values]
        options["options"] = list(zip(texts, values, strict=True))
        widget = W.SelectionSlider(**options) if kind == "slider" else W.Dropdown(**options)
    return _marked(widget, kind, arm, f"{name}-{arm}", *(["disabled"] if len(values) < 2 else []))


def _state(run: Comparison, bands: list[tuple[float, float, float]]) -> dict[str, Any]:
    """What the page draws: texts, and the points thinned to what a canvas can show."""
    low, high = run.interval
    floor = run.noise_floor if math.isfinite(run.noise_floor) else 0.0
    every = math.ceil(len(run.ratios) / MOST_POINTS) or 1
    newest = bands[:: -math.ceil(len(bands) / MOST_BANDS)][::-1]
    heads = ["", "Step (median)", "IQR", "Throughput", "First step", "Peak memory"]
    detail = f"95 % interval {low:.3f} – {high:.3f}\nnoise floor ± {100 * floor:.1f} %, {len(run.ratios)} pairs"
    return {
        "speedup": f"{run.speedup:.2f}×" if run.ratios else "–",
        "verdict": run.verdict,
        "detail": detail if run.ratios else "",
        "pairs": len(run.ratios),
        "floor": floor,
        "ends": [low, high] if run.ratios else [],
        "points": np.asarray(run.ratios[::every], np.float32).tobytes(),
        "bands": np.asarray(newest, np.float32).tobytes(),
        "arms": [heads, *(_arm(*pair) for pair in zip(("Baseline", "Candidate"), run.arms, strict=True))],
    }


def _arm(name: str, arm: Measurement) -> list[str]:
    times = [format_seconds(arm.median), format_seconds(arm.iqr), format_rate(arm.throughput, arm.unit)]
    name = f"{name}: {arm.error}" if arm.error else name
    return [name, *times, format_seconds(arm.cold), format_bytes(arm.peak_bytes)]


def _summary(run: Comparison) -> str:
    low, high = run.interval
    errors = [f"{arm.label} ended by {arm.error}" for arm in run.arms if arm.error]
    return "; ".join(errors) or f"{run.verdict}, {run.speedup:.2f}× [{low:.2f}, {high:.2f}]"


def _row(number: int, run: Comparison) -> list[str]:
    """The run in the history: number, what differed, what was shared, and its figures."""
    one, other = (arm.settings for arm in run.arms)
    differ = [f"{name}: {one[name]} → {value}" for name, value in other.items() if one[name] != value]
    shared = [f"{name} {value}" for name, value in other.items() if one[name] == value]
    low, high = run.interval
    speed = [f"{run.speedup:.2f}×", f"{low:.2f} – {high:.2f}"] if run.ratios else ["–", "–"]
    steps = [format_seconds(arm.median) for arm in run.arms]
    memory = " → ".join(format_bytes(arm.peak_bytes) for arm in run.arms)
    return [str(number), ", ".join(differ) or "same settings", ", ".join(shared), *steps, *speed, run.verdict, memory]
