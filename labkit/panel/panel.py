"""`LabPanel`: the widgets of a lab, its runs, and where they are shown."""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as W

from labkit.device import test_size
from labkit.lab import Lab
from labkit.panel import cells
from labkit.panel.buttons import Buttons, mode_buttons, scenario_buttons
from labkit.panel.call import call_of
from labkit.panel.changes import Debounced
from labkit.panel.controls import make_controls, marked, parts, tree
from labkit.panel.guess import Guess
from labkit.panel.live import Live
from labkit.panel.modes import METHODS, TIME, job_of, modes_of
from labkit.panel.run import Job, PanelRun, Result, running
from labkit.panel.screen import PanelScreen, Recorded

HEADS = ("Setting", "Baseline", "Candidate", "")


class LabPanel:
    """Widgets for a `Lab`: guess, Run, watch the estimate settle, change something, see it again.

    ``controls[name].baseline`` and ``.candidate`` are the widgets, ``scenarios`` and ``buttons``
    the buttons, ``modes`` says what is measured, ``guess.slider`` is the guess. ``seconds`` presets
    the time budget. ``recorded`` holds recorded runs of other machines, drawn beside the reader's:
    a menu picks the machine. A run sets random numbers and switches of torch for all of the
    process, and puts them back at its end. A cell that begins meanwhile is disturbed by that, and
    disturbs the run: both are told.
    """

    def __init__(
        self, lab: Lab, *, seconds: float | None = None, recorded: Recorded | None = None
    ) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(
                f"LabPanel({lab!r}): it takes a Lab, "
                "as in LabPanel(Lab(make_workload, amp=[False, True]))"
            )
        if seconds is None:
            seconds = 1 if test_size() else 10
        self.lab = lab
        self.latest: PanelRun | None = None
        self.controls = make_controls(lab)
        self.scenarios = scenario_buttons(lab)
        self.modes = mode_buttons(modes_of(lab))
        self.guess = Guess(self.modes.value)
        self.screen = PanelScreen(lab, recorded, self.guess)
        self.screen.show_mode(self.modes.value)
        swept = [name for name, control in self.controls.items() if control.settable]
        # Processes take seconds to come up: there nothing starts by itself unless asked.
        self.buttons = Buttons(seconds, swept, quick=lab.runs_in == "kernel")
        # In the name of the cell: see Live.
        self._changes = Debounced(lambda: self.screen.live.context.copy().run(self._run_again))
        self._starting = threading.RLock()
        # The modes in which Run was pressed: there a change starts the next run.
        self._ran: set[str] = set()
        # What both sides were when a mode last ran.
        self._measured: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.widget = self._arrange()
        self._settings_changed(None)
        self._connect()

    @property
    def result(self) -> Result:
        """What the latest run returned: a Comparison, a Sweep, a MemoryComparison, a RaceResult."""
        return self.screen.result

    @property
    def history(self) -> list[Any]:
        """All results, the oldest first."""
        return self.screen.history

    @property
    def scenario(self) -> str | None:
        """The scenario that is shown, if there is one: the first of those that say the most."""
        best, said = None, -1
        for name, settings in self.lab.scenarios.items():
            if len(settings) > said and self._shows(settings):
                best, said = name, len(settings)
        return best

    def _shows(self, scenario: dict[str, Any]) -> bool:
        """Whether both sides have its situation, and the candidate what it names besides."""
        baseline, candidate = self.settings("baseline"), self.settings()
        situation = self._situation_of(scenario)
        wanted = {name: value for name, value in scenario.items() if name in candidate} | situation
        return all(candidate[name] == value for name, value in wanted.items()) and all(
            baseline[name] == value for name, value in situation.items()
        )

    def settings(self, side: str = "candidate") -> dict[str, Any]:
        """What is chosen for "baseline" or "candidate".

        Controls with nothing to choose are left out.
        """
        chosen = {}
        for name, control in self.controls.items():
            if control.settable:
                chosen[name] = control.of(side).value
        return chosen

    def run(self, wait: bool = False) -> Result:
        """Start a run with the settings shown, in the mode shown; with ``wait`` the result.

        RuntimeError while a panel is measuring.
        """
        mode = self.modes.value
        sides = self.settings("baseline"), self.settings()
        self._start(job_of(self.lab, mode, *sides, self.buttons.budget.value), mode)
        self._ran.add(mode)
        self._measured[mode] = sides
        self._mark_stale()
        return self.wait() if wait else None

    def sweep(self, wait: bool = False) -> Result:
        """Compare each value of the chosen control in turn, by time.

        RuntimeError while a panel is measuring.
        """
        control = self.buttons.swept.value
        if control is None:
            raise RuntimeError(
                "No control of this lab has two values to sweep over on this machine."
            )
        settings = self.settings()
        del settings[control]
        job = partial(
            self.lab.sweep,
            control,
            follow=self._follows(),
            baseline=self.settings("baseline"),
            seconds=self.buttons.budget.value,
            **settings,
        )
        self.modes.value = TIME
        self._start(job, TIME, control)
        # What it shows last says itself of which value it is.
        self._measured.pop(TIME, None)
        self._mark_stale()
        return self.wait() if wait else None

    def choose(self, scenario: str) -> None:
        """Set everything as a scenario has it; after the first Run, run.

        Controls of the situation that it does not name go back to their first values; those of the
        technique stay, unless it names one.
        """
        settings = self.lab.scenarios[scenario]
        for name, value in self._situation_of(settings).items():
            self.controls[name].put(baseline=value, candidate=value)
        named = [name for name in self.lab.technique if name in settings]
        for name in self.lab.technique if named else ():
            first = self.lab.defaults[name]
            self.controls[name].put(baseline=first, candidate=settings.get(name, first))
        self._changed(None)

    def stop(self) -> None:
        """End the run at its next block and keep what it has.

        Ends another panel's run too: it may be out of sight.
        """
        self._changes.cancel()
        measuring = running()
        if measuring is None:
            # The last word of a run that ended just before the click stays.
            if self.latest is None:
                self.screen.live.say("Nothing is running.")
            return
        measuring.halt()
        if measuring is not self.latest:
            self.screen.live.say("Stopping the other panel's run.")

    def wait(self, timeout: float | None = None) -> Result:
        """The result of the run once it has ended, or what it raised.

        A run that a change is about to start is waited for. TimeoutError after ``timeout`` seconds.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            latest = self.latest
            self._join(latest, end - time.monotonic())
            if self._changes.waits:
                time.sleep(0.01)
            elif latest is self.latest and (latest is None or not latest.is_alive()):
                break
            if time.monotonic() > end:
                raise TimeoutError(f"the panel is still measuring after {timeout} s")
        if latest is not None and latest.error is not None:
            raise latest.error
        return self.result

    def _join(self, run: PanelRun | None, seconds: float) -> None:
        if run is None:
            return
        try:
            run.join(None if math.isinf(seconds) else max(0.0, seconds))
        # The kernel's interrupt reaches this thread only.
        except KeyboardInterrupt:
            run.halt()
            run.join(10)
            raise

    def close(self) -> None:
        """Stop, and take the widgets off the page. Shown again, the panel is as it was."""
        self._changes.cancel()
        if self.latest is not None:
            self.latest.halt()
        for widget in parts(self.widget):
            widget.close()

    def _open(self) -> None:
        for widget in parts(self.widget):
            # With it ipywidgets keeps a closed widget from being shown.
            vars(widget).pop("_repr_mimebundle_", None)
            widget.open()

    def __repr__(self) -> str:
        return (
            "LabPanel: its widgets need JupyterLab and a running kernel. "
            f"Without them:\n    {self._code()}"
        )

    def _ipython_display_(self) -> None:
        self.screen.live.results = {}
        self.screen.live.context = contextvars.copy_context()
        if cell := cells.current():
            cells.CELLS.show(self, *cell)
        self._open()
        self.screen.outputs.show(self.widget._repr_mimebundle_() | {"text/plain": repr(self)})

    # ------------------------------------------------------------------------------------- a run

    def _start(self, job: Job, mode: str, swept: str | None = None) -> None:
        """Begin a run. Its settings are those of now."""
        with self._starting:
            latest = self.latest
            if latest is not None and (latest.over or latest.replaced):
                # It has said its last word, and is about to give its turn back.
                latest.join()
            measuring = running()
            if measuring is not None and measuring is latest:
                raise RuntimeError(
                    "This panel is measuring already. What you change applies to the next run."
                )
            if measuring is not None:
                raise RuntimeError(
                    "Another panel is measuring; two at once disturb each other. "
                    "Wait, or press Stop."
                )
            run = PanelRun(
                job,
                self.screen,
                self.screen.live.context.copy(),
                number=1 if latest is None else latest.number + 1,
                budget=self.buttons.budget.value,
                mode=mode,
                swept=swept,
            )
            # First, since what is drawn of the guess depends on the run's settings.
            with self.guess.locking([self.settings(side) for side in ("baseline", "candidate")]):
                run.start()
            self.latest = run

    def _changed(self, _: object) -> None:
        """A control was moved: after the first Run the next one begins by itself."""
        if not self.buttons.follow_changes.value or self.modes.value not in self._ran:
            return
        latest = self.latest
        if latest is not None and latest.is_alive():
            if latest.swept is not None:
                return
            latest.replace()
        self._changes.touch()

    def _run_again(self) -> None:
        """Once the run that a change has ended is over, the next one."""
        latest = self.latest
        if latest is not None and running() is latest:
            latest.join()
        self._pressed(self.run)

    # ---------------------------------------------------------------------------------- the page

    def _connect(self) -> None:
        """Let the buttons act."""
        self.buttons.run.on_click(lambda _: self._pressed(self.run))
        self.buttons.sweep.on_click(lambda _: self._pressed(self.sweep))
        self.buttons.stop.on_click(lambda _: self.stop())
        self.buttons.same.on_click(lambda _: self._same_settings())
        self.buttons.details.observe(self._details_changed, "value")
        for name, button in self.scenarios.items():
            button.on_click(lambda _, name=name: self.choose(name))
        for control in self.controls.values():
            for widget in (control.baseline, control.candidate):
                widget.observe(self._settings_changed, "value")
                widget.observe(self._changed, "value")
        self.modes.observe(self._mode_changed, "value")
        self.screen.live.on_msg(self._page_shown)
        for widget in tree(self.widget):
            if widget.has_trait("value"):
                widget.observe(self._show_code, "value")

    def _mode_changed(self, _: object) -> None:
        """Another mode has its own guess and its own last result; a run of the former ends."""
        latest = self.latest
        if latest is not None and latest.is_alive() and latest.mode != self.modes.value:
            latest.halt()
            latest.join()
        self.guess.show(self.modes.value)
        self.screen.show_mode(self.modes.value)
        self._mark_stale()

    def _settings_changed(self, _: object) -> None:
        """Light the scenario that is shown."""
        self._mark_stale()
        shown = self.scenario
        for name, button in self.scenarios.items():
            if name == shown:
                button.add_class("labkit-active")
            else:
                button.remove_class("labkit-active")

    def _mark_stale(self) -> None:
        """Pale a result that is of other settings than those that are chosen."""
        mode, live = self.modes.value, self.screen.live
        chosen = self.settings("baseline"), self.settings()
        stale = self._measured.get(mode, chosen) != chosen
        by_itself = self.buttons.follow_changes.value and mode in self._ran
        if stale and not live.stale and not by_itself and running() is not self.latest:
            live.say("The settings have changed: Run measures them.")
        live.stale = stale

    def _situation_of(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The situation that a scenario means, with the first values of what it does not name."""
        found = {}
        for name in self.lab.situation:
            control = self.controls[name]
            if control.settable:
                found[name] = settings.get(name, control.values[0])
        return found

    def _details_changed(self, _: object) -> None:
        if self.buttons.details.value:
            self.widget.add_class("labkit-detailed")
        else:
            self.widget.remove_class("labkit-detailed")

    def _pressed(self, action: Callable[[], Result]) -> None:
        try:
            action()
        # Refused: the page is the only place where the reader sees it.
        except RuntimeError as error:
            self.screen.live.say(str(error), "bad")

    def _same_settings(self) -> None:
        for control in self.controls.values():
            control.candidate.value = control.baseline.value

    def _page_shown(self, _: Live, content: dict[str, str], __: object) -> None:
        """A view came up. One of a page that was reloaded asks for the state of all widgets."""
        if self.screen.outputs.page_opened(content["page"]):
            for widget in tree(self.widget):
                # In the name of the cell: see Live.
                self.screen.live.context.copy().run(widget.send_state)

    def _follows(self) -> bool:
        """Whether the swept control is swept on both sides."""
        control = self.controls.get(self.buttons.swept.value)
        return self.buttons.follow.value or (control is not None and control.linked)

    def _code(self, sweep: str | None = None) -> str:
        return call_of(
            self.lab,
            METHODS[self.modes.value],
            self.settings("baseline"),
            self.settings(),
            seconds=self.buttons.budget.value,
            sweep=sweep,
            follow=sweep is not None and self._follows(),
        )

    def _show_code(self, _: object) -> None:
        if not self.buttons.code.value:
            self.screen.live.code = ""
            return
        # One and the same when there is nothing to sweep over.
        lines = dict.fromkeys((self._code(), self._code(self.buttons.swept.value)))
        self.screen.live.code = "\n".join(lines)

    def _arrange(self) -> W.VBox:
        """The tree of boxes; all looks are in ``static/panel.css``."""
        top: list[W.Widget] = [self.modes]
        if self.scenarios:
            top.append(marked(W.HBox(list(self.scenarios.values())), "scenarios"))
        cells: list[W.Widget] = [W.Label(text) for text in HEADS]
        for name in self.lab.technique:
            cells += self.controls[name].cells()
        if self.lab.situation:
            cells.append(marked(W.Label("Same on both sides"), "both"))
        for name in self.lab.situation:
            cells += self.controls[name].cells()
        rows = [marked(W.GridBox(cells), "grid"), self.guess.row(), *self.buttons.rows()]
        if self.scenarios or len(self.modes.options) > 1:
            rows.insert(0, marked(W.HBox(top), "top"))
        rows += self.screen.machine_row()
        return marked(W.VBox([*rows, self.screen.live]), "panel")
