"""`LabPanel`: the widgets of a lab, its runs, and where they are shown."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as W

from labkit.device import test_size
from labkit.lab import Lab
from labkit.panel.controls import Buttons, heading, make_controls, marked, tree
from labkit.panel.live import Live
from labkit.panel.run import Job, PanelRun, Result, running
from labkit.panel.screen import PanelScreen, Recorded
from labkit.results import Comparison

HEADS = ("Setting", "Baseline", "Candidate", "")


class LabPanel:
    """Widgets for a `Lab`: choose the settings of both sides, Run, watch the estimate settle, Stop.

    ``controls[name].baseline`` and ``.candidate`` are the widgets, ``buttons`` the others;
    ``seconds`` presets the time budget. ``recorded`` holds recorded runs of other machines, drawn
    beside the reader's: a menu picks the machine.
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
        self.screen = PanelScreen(lab.name, recorded)
        self.controls = make_controls(lab)
        swept = [name for name, control in self.controls.items() if control.settable]
        self.buttons = Buttons(seconds, swept)
        self.widget = self._arrange()
        self._connect()

    @property
    def result(self) -> Result:
        """What the latest run returned: a Comparison, or a Sweep."""
        return self.screen.result

    @property
    def history(self) -> list[Comparison]:
        """All comparisons, the oldest first."""
        return self.screen.history

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
        """Start a run with the settings shown; with ``wait`` the result.

        RuntimeError while a panel is measuring.
        """
        self._start(partial(self.lab.run, **self.settings()))
        return self.wait() if wait else None

    def sweep(self, wait: bool = False) -> Result:
        """Compare each value of the chosen control in turn.

        RuntimeError while a panel is measuring.
        """
        control = self.buttons.swept.value
        if control is None:
            raise RuntimeError(
                "No control of this lab has two values to sweep over on this machine."
            )
        settings = self.settings()
        del settings[control]
        job = partial(self.lab.sweep, control, follow=self._follows(), **settings)
        self._start(job, control)
        return self.wait() if wait else None

    def stop(self) -> None:
        """End the run at its next block and keep what it has.

        Ends another panel's run too: it may be out of sight.
        """
        measuring = running()
        if measuring is None:
            self.screen.live.say("Nothing is running.")
            return
        measuring.halt()
        if measuring is not self.latest:
            self.screen.live.say("Stopping the other panel's run.")

    def wait(self, timeout: float | None = None) -> Result:
        """The result of the run once it has ended, or what it raised.

        TimeoutError after ``timeout`` seconds.
        """
        latest = self.latest
        if latest is None:
            return self.result
        try:
            latest.join(timeout)
        # The kernel's interrupt reaches this thread only.
        except KeyboardInterrupt:
            latest.halt()
            latest.join(10)
            raise
        if latest.is_alive():
            raise TimeoutError(f"the panel is still measuring after {timeout} s")
        if latest.error is not None:
            raise latest.error
        return self.result

    def close(self) -> None:
        """Stop, and take the widgets off the page."""
        if self.latest is not None:
            self.latest.halt()
        for widget in tree(self.widget):
            widget.close()

    def __repr__(self) -> str:
        return (
            "LabPanel: its widgets need JupyterLab and a running kernel. "
            f"Without them:\n    {self._code()}"
        )

    def _ipython_display_(self) -> None:
        self.screen.live.results = {}
        self.screen.live.context = contextvars.copy_context()
        self.screen.outputs.show(self.widget._repr_mimebundle_() | {"text/plain": repr(self)})

    # ------------------------------------------------------------------------------------- a run

    def _start(self, job: Job, swept: str | None = None) -> None:
        """Begin a run. Settings that change while it goes on are the next one's."""
        latest = self.latest
        if latest is not None and latest.over:
            # It has said its last word, and is about to give its turn back.
            latest.join()
        measuring = running()
        if measuring is not None and measuring is latest:
            raise RuntimeError(
                "This panel is measuring already. What you change applies to the next run."
            )
        if measuring is not None:
            raise RuntimeError(
                "Another panel is measuring; two at once disturb each other. Wait, or press Stop."
            )
        number = 1
        if latest is not None:
            number = latest.number + 1
        seconds = self.buttons.budget.value
        run = PanelRun(
            partial(job, baseline=self.settings("baseline"), seconds=seconds),
            self.screen,
            self.screen.live.context.copy(),
            number=number,
            budget=seconds,
            swept=swept,
        )
        run.start()
        self.latest = run

    # ---------------------------------------------------------------------------------- the page

    def _connect(self) -> None:
        """Let the buttons act."""
        self.buttons.run.on_click(lambda _: self._pressed(self.run))
        self.buttons.sweep.on_click(lambda _: self._pressed(self.sweep))
        self.buttons.stop.on_click(lambda _: self.stop())
        self.buttons.same.on_click(lambda _: self._same_settings())
        self.screen.live.on_msg(self._page_shown)
        for widget in tree(self.widget):
            if widget.has_trait("value"):
                widget.observe(self._show_code, "value")

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

    def _code(self) -> str:
        return self.lab.code(
            baseline=self.settings("baseline"),
            seconds=self.buttons.budget.value,
            **self.settings(),
        )

    def _show_code(self, _: object) -> None:
        if not self.buttons.code.value:
            self.screen.live.code = ""
            return
        sweep = self.lab.code(
            sweep=self.buttons.swept.value,
            follow=self._follows(),
            baseline=self.settings("baseline"),
            seconds=self.buttons.budget.value,
            **self.settings(),
        )
        # One and the same when there is nothing to sweep over.
        lines = dict.fromkeys((self._code(), sweep))
        self.screen.live.code = "\n".join(lines)

    def _arrange(self) -> W.VBox:
        """The tree of boxes; all looks are in ``static/panel.css``."""
        cells: list[W.Widget] = [W.Label(text) for text in HEADS]
        for name, control in self.controls.items():
            cells += control.cells(heading(self.lab, name))
        rows = self.buttons.rows()
        rows += self.screen.machine_row()
        return marked(W.VBox([marked(W.GridBox(cells), "grid"), *rows, self.screen.live]), "panel")
