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
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from labkit.device import test_size
from labkit.lab import Lab
from labkit.results import Comparison, Measurement
from labkit.text import format_bytes, format_rate, format_seconds

try:
    import anywidget
    import ipywidgets as W
except ImportError as error:
    raise ImportError(
        "LabPanel needs ipywidgets and anywidget; lab.run(...) measures the same without them"
    ) from error

STATIC = Path(__file__).with_name("static")
Result = Comparison | list[Comparison] | None
BUDGETS = (1, 2, 5, 10, 20, 30, 60)  # seconds
MOST_POINTS, MOST_BANDS = 200, 40  # on the canvas: keeps an update under 2 KiB

_guard = threading.Lock()
_measuring: LabPanel | None = (
    None  # the panel whose thread is running: two at once would time each other
)


class _Live(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """What changes while a run goes on; drawn by ``static/panel.js``."""

    _esm = (STATIC / "panel.js").read_text(encoding="utf-8")
    _css = (STATIC / "panel.css").read_text(encoding="utf-8")
    state = traitlets.Dict().tag(sync=True)  # numbers and points of the latest run
    status = traitlets.Tuple(("Ready: choose the settings of both arms, then Run.", "")).tag(
        sync=True
    )  # text, tone
    history: Any = traitlets.List().tag(sync=True)  # one row of texts a run
    code = traitlets.Unicode().tag(sync=True)
    results = traitlets.Dict().tag(sync=True)  # figure and table for a page that was reloaded
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
    ``recorded`` holds recorded runs of other machines, drawn beside the reader's (``machines``, ``refused``,
    ``on(*machines)``, ``matching(result)``, ``beside(result)``); a menu picks the machine.
    """

    def __init__(self, lab: Lab, *, seconds: float | None = None, recorded: Any = None) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(
                f"LabPanel({lab!r}): it takes a Lab, as in LabPanel(Lab(make_workload, amp=[False, True]))"
            )
        self.lab = lab
        self.recorded = recorded
        self.result: Result = None
        self.history: list[Comparison] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._runs, self._shown = 0, False
        self._page: str | None = None  # the page that holds our outputs
        self._id = uuid.uuid4().hex

        offered = {
            name: tuple(v for v in values if not lab.why_not(name, v))
            for name, values in lab.controls.items()
        }
        settable = [name for name, values in offered.items() if len(values) > 1]
        self.controls = {}
        for name, values in offered.items():
            values = values or lab.controls[name][:1]
            second = values[
                1 if name in settable[:1] else 0
            ]  # at first the arms differ in one control
            choose = partial(_choice, lab, name, values)
            self.controls[name] = Control(
                choose(values[0], "baseline"), choose(second, "candidate"), values
            )
        seconds = seconds or (1 if test_size() else 10)
        budgets = [(f"{value:g} s", value) for value in sorted({*BUDGETS, seconds})]
        self.budget = _marked(W.SelectionSlider(options=budgets, value=seconds), "budget")
        self.run_button = _marked(
            W.Button(description="Run", icon="play", tooltip="Compare both arms"), "run"
        )
        self.stop_button = _marked(
            W.Button(description="Stop", icon="stop", tooltip="Keep what there is"), "stop"
        )
        self.sweep_button = _marked(
            W.Button(description="Sweep", tooltip="Try each value of a control"), "sweep"
        )
        self.sweep_choice = _marked(W.Dropdown(options=settable), "swept")
        self.follow = _marked(W.Checkbox(description="in both arms", indent=False), "follow")
        self.same_button = _marked(
            W.Button(description="Same settings (A/A)", tooltip="Only noise is left"), "same"
        )
        self.code_button = _marked(W.ToggleButton(description="Show the code", icon="code"), "code")
        machines = self.recorded.machines if self.recorded else ()
        beside = [("no other machine", ()), *((name, (name,)) for name in machines)]
        beside += [("all of them", machines)] if len(machines) > 1 else []
        self.beside = _marked(W.Dropdown(options=beside, value=machines[:1]), "beside")
        self.live = _Live()
        self.widget = self._arrange()

        self.run_button.on_click(lambda _: self._pressed(self.run))
        self.stop_button.on_click(lambda _: self.stop())
        self.sweep_button.on_click(lambda _: self._pressed(self.sweep))
        self.same_button.on_click(self._same_settings)
        self.live.on_msg(self._page_shown)
        for widget in _tree(self.widget):
            if widget.has_trait("value"):
                widget.observe(self._show_code, "value")

    def settings(self, arm: str = "candidate") -> dict[str, Any]:
        """What is chosen for "baseline" or "candidate"; controls with nothing to choose are left out."""
        return {
            name: getattr(control, arm).value
            for name, control in self.controls.items()
            if len(control.values) > 1
        }

    def run(self, wait: bool = False) -> Result:
        """Start a run with the settings shown; with ``wait`` the result. RuntimeError while a panel is measuring."""
        self._start(self.lab.run, self.settings())
        return self.wait() if wait else None

    def sweep(self, wait: bool = False) -> Result:
        """Compare each value of the chosen control in turn. RuntimeError while a panel is measuring."""
        control, settings = self.sweep_choice.value, self.settings()
        if control is None:
            raise RuntimeError(
                "No control of this lab has two values to sweep over on this machine."
            )
        del settings[control]
        self._start(partial(self.lab.sweep, control, follow=self.follow.value), settings, control)
        return self.wait() if wait else None

    def stop(self) -> None:
        """End the run at its next block and keep what it has. Ends another panel's run too: it may be out of sight."""
        with _guard:
            if _measuring is not None:
                _measuring._stop.set()
                _measuring._say("Stopping after this block ...")
            if _measuring is not self:
                self._say(
                    "Stopping the other panel's run." if _measuring else "Nothing is running."
                )

    def wait(self, timeout: float | None = None) -> Result:
        """The result of the run once it has ended, or what it raised. TimeoutError after ``timeout`` seconds."""
        if self._thread is not None:
            try:
                self._thread.join(timeout)
            except KeyboardInterrupt:  # the kernel's interrupt reaches this thread only
                self._stop.set()
                self._thread.join(10)
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

    def _start(
        self, job: Callable[..., Any], settings: dict[str, Any], swept: str | None = None
    ) -> None:
        global _measuring
        job = partial(
            job, baseline=self.settings("baseline"), seconds=self.budget.value, **settings
        )
        with _guard:
            if _measuring is self:
                raise RuntimeError(
                    "This panel is measuring already. What you change applies to the next run."
                )
            if _measuring is not None:
                raise RuntimeError(
                    "Another panel is measuring; two at once disturb each other. Wait, or press Stop."
                )
            self._runs += 1
            self._stop, self._error, self._swept = threading.Event(), None, swept
            self._budget: float = self.budget.value
            self._drawn: dict[str, Any] | None = (
                None  # the settings that the points on the canvas belong to
            )
            enter, work = (
                self.live.context.copy().run,
                (self._work, job, self._stop),
            )  # it prints to the panel's cell
            self._thread = threading.Thread(
                target=enter, args=work, name="labkit-panel", daemon=True
            )
            self.live.state = {"run": self._runs, "running": True}
            self._say("Building and warming up both arms ...")
            self._thread.start()
            _measuring = self

    def _work(self, job: Callable[..., Any], stop: threading.Event) -> None:
        global _measuring
        try:
            said = self._finish(job(on_update=self._update, stop=stop)), "good"
        except (
            BaseException
        ) as error:  # SystemExit too: nobody sees what ends a thread; wait() raises it again
            traceback.clear_frames(
                error.__traceback__
            )  # else it keeps the failed arm's model and data alive
            self._error = error
            reason = (str(error).strip() or "no message").splitlines()[0]
            said = f"{type(error).__name__}: {reason} (panel.wait() shows where)", "bad"
        with _guard:
            _measuring = None
            self._say(*said)
            self.live.state = self.live.state | {"running": False}

    def _update(self, so_far: Comparison) -> None:
        """Partial results: called between blocks, at most five times a second."""
        values = self.controls[self._swept].values if self._swept else ()
        done = values.index(so_far.candidate.settings[self._swept]) if self._swept else 0
        if (
            so_far.candidate.settings != self._drawn and not self._stop.is_set()
        ):  # once, or it would hide a refusal
            self._say(
                f"Sweeping {self._swept}: {values[done]}, {done + 1} of {len(values)}"
                if values
                else "Measuring"
            )
        self._draw(so_far, (done + min(1.0, so_far.seconds / self._budget)) / max(1, len(values)))

    def _draw(self, run: Comparison, progress: float) -> None:
        if run.candidate.settings != self._drawn:  # a sweep has come to its next value
            self._drawn, self._bands = run.candidate.settings, []
            self._lines = [
                [label, other.speedup] for label, other in self._references(run) if other.ratios
            ]
            self._note = (
                ""
                if self._lines or not self.beside.value
                else "these settings were not recorded there"
            )
        self._bands.append((len(run.ratios), *run.interval))
        left = f"{max(0.0, self._budget - run.seconds):.0f} s left" if progress < 1 else ""
        now = {"run": self._runs, "running": True, "progress": progress, "left": left}
        now |= {"recorded": self._lines, "unrecorded": self._note}
        self.live.state = _state(run, self._bands) | now

    def _finish(self, result: Comparison | list[Comparison]) -> str:
        """Show and publish the result; what the status line says."""
        self.result = result
        every = result if isinstance(result, list) else [result]
        runs = [run for run in every if run.ratios or any(arm.error for arm in run.arms)]
        if not runs:
            return "Stopped before there was anything to compare."
        self.history += runs
        self._draw(runs[-1], 1.0)
        self.live.history = [_row(number, run) for number, run in enumerate(self.history, 1)]
        if self._shown:
            self._publish(runs)
        return f"{'Stopped' if runs[-1].stopped else 'Done'}: {_summary(runs)}"

    def _publish(self, runs: list[Comparison]) -> None:
        """Figure and table as ordinary outputs of the cell that showed the panel."""
        from IPython.display import update_display

        from labkit import plots

        swept, dark = self._swept, self.live.dark
        text = "\n\n".join(map(str, runs))
        if self.recorded and self.beside.value:
            beside = self.recorded.on(*self.beside.value).beside(runs if swept else runs[0])
            figure, text = beside.figure(dark=dark), f"{text}\n\n{beside}"
        else:
            draw = (
                partial(plots.sweep_figure, runs, swept)
                if swept
                else partial(plots.comparison_figure, runs[0])
            )
            figure = draw(dark=dark)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=100)
        picture = buffer.getvalue()
        shown = {
            "image/png": picture,
            "text/plain": "The run as a figure; the table below has its numbers.",
        }
        update_display(shown, raw=True, display_id=f"{self._id}-figure")
        update_display({"text/plain": text}, raw=True, display_id=f"{self._id}-table")
        if self._page == "reloaded":
            self.live.results = {"png": picture, "text": text}

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
        except (
            RuntimeError
        ) as error:  # refused: the page is the only place where the reader sees it
            self._say(str(error), "bad")

    def _same_settings(self, _: Any) -> None:
        for control in self.controls.values():
            control.candidate.value = control.baseline.value

    def _code(self) -> str:
        return self.lab.code(
            baseline=self.settings("baseline"), seconds=self.budget.value, **self.settings()
        )

    def _unrecorded(self) -> list[str]:
        """Why there is less to pick from than one might expect."""
        assert self.recorded is not None
        if self.recorded.machines:
            return []
        return list(self.recorded.refused) or ["not recorded yet"]

    def _references(self, own: Comparison) -> list[tuple[str, Any]]:
        """What the picked machines recorded for the same question."""
        named = replace(own, lab=self.lab.name)  # a partial result does not know its lab
        return self.recorded.on(*self.beside.value).matching(named) if self.recorded else []

    def _show_code(self, _: Any) -> None:
        arms = {
            "baseline": self.settings("baseline"),
            "seconds": self.budget.value,
            **self.settings(),
        }
        sweep = self.lab.code(sweep=self.sweep_choice.value, follow=self.follow.value, **arms)
        lines = dict.fromkeys(
            (self._code(), sweep)
        )  # one and the same when there is nothing to sweep over
        self.live.code = "\n".join(lines) if self.code_button.value else ""

    def _arrange(self) -> Any:
        """The tree of boxes; all looks are in ``static/panel.css``."""
        cells = [W.Label(text) for text in ("Setting", "Baseline", "Candidate")]
        for name, control in self.controls.items():
            reasons = self.lab.unavailable.get(name, {})
            lines = (
                [reasons]
                if isinstance(reasons, str)
                else [f"{value}: {why}" for value, why in reasons.items()]
            )
            cells += [W.Label("\n".join([name, *lines])), control.baseline, control.candidate]
        run = W.HBox([self.run_button, self.stop_button, W.Label("Time budget"), self.budget])
        more = W.HBox(
            [self.sweep_button, self.sweep_choice, self.follow, self.same_button, self.code_button]
        )
        rows = [_marked(run, "row"), _marked(more, "row")]
        if self.recorded is not None:
            texts = [W.Label("Recorded runs of"), self.beside, *map(W.Label, self._unrecorded())]
            rows.append(_marked(W.HBox(texts), "row"))
        boxes = [_marked(W.GridBox(cells), "grid"), *rows, self.live]
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
        widget, kind = (
            W.Checkbox(indent=False, description="on" if value else "off", **options),
            "toggle",
        )
        widget.observe(
            lambda change: setattr(widget, "description", "on" if change["new"] else "off"), "value"
        )
    else:
        numeric = all(
            isinstance(item, int | float) and not isinstance(item, bool) for item in values
        )
        kind = "slider" if numeric and len(values) > 1 else "dropdown"
        texts = [f"{item:g}" if isinstance(item, float) else str(item) for item in values]
        pairs = list(zip(texts, values, strict=True))
        options["options"] = sorted(pairs, key=lambda pair: pair[1]) if kind == "slider" else pairs
        widget = W.SelectionSlider(**options) if kind == "slider" else W.Dropdown(**options)
    return _marked(widget, kind, arm, f"{name}-{arm}", *(["disabled"] if len(values) < 2 else []))


def _state(run: Comparison, bands: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """What the page draws: texts, and the points thinned to what a canvas can show."""
    low, high = (_factor(bound, 3) for bound in run.interval)
    floor = run.noise_floor if math.isfinite(run.noise_floor) else 0.0
    every = math.ceil(len(run.ratios) / MOST_POINTS) or 1
    newest = bands[:: -math.ceil(len(bands) / MOST_BANDS)][::-1]
    return {
        "speedup": f"{_factor(run.speedup)}×",
        "verdict": run.verdict,
        "detail": f"95 % interval {low} – {high}\nnoise floor ± {100 * floor:.1f} %"
        if run.ratios
        else "",
        "pairs": len(run.ratios),
        "floor": floor,
        "points": np.asarray(run.ratios[::every], np.float32).tobytes(),
        "bands": np.asarray(newest, np.float32).tobytes(),
        "arms": [_arm("Baseline", run.baseline), _arm("Candidate", run.candidate)],
    }


def _factor(ratio: float, digits: int = 2) -> str:
    """``1.234`` -> ``'1.23'``, ``0.01234`` -> ``'0.012'``, ``1234.5`` -> ``'1,234'``."""
    if math.isnan(ratio):
        return "–"
    return (
        f"{ratio:.{digits}g}"
        if ratio < 0.1
        else f"{ratio:.{digits}f}"
        if ratio < 100
        else f"{ratio:,.0f}"
    )


def _arm(name: str, arm: Measurement) -> list[str]:
    head = f"{name}: {arm.error}" if arm.error else name
    times = [
        format_seconds(arm.median),
        format_seconds(arm.iqr),
        format_rate(arm.throughput, arm.unit),
    ]
    return [head, *times, format_seconds(arm.cold), format_bytes(arm.peak_bytes)]


def _row(number: int, run: Comparison) -> list[str]:
    """The run in the history: number, what differed, what was shared, and its figures."""
    differ = [f"{name}: {before} → {after}" for name, (before, after) in run.changed.items()]
    shared = [f"{name} {value}" for name, value in run.shared.items()]
    speed = [f"{_factor(run.speedup)}×", " – ".join(map(_factor, run.interval))]
    steps = [format_seconds(arm.median) for arm in run.arms]
    memory = " → ".join(format_bytes(arm.peak_bytes) for arm in run.arms)
    return [
        str(number),
        ", ".join(differ) or "same settings",
        ", ".join(shared),
        *steps,
        *speed,
        run.verdict,
        memory,
    ]


def _summary(runs: list[Comparison]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} comparisons; the figure below shows them all"
    errors = [f"{arm.label} ended by {arm.error}" for arm in runs[0].arms if arm.error]
    interval = ", ".join(map(_factor, runs[0].interval))
    return (
        "; ".join(errors)
        or f"{runs[0].verdict}, {_factor(runs[0].speedup)}× [{interval}]; {runs[0].taken}"
    )
