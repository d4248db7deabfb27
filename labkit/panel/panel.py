"""`LabPanel`: the widgets of a lab, its runs, and where they are shown."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ipywidgets as W

from labkit.controls import is_number, sides_of
from labkit.device import test_size
from labkit.lab import Lab
from labkit.panel import guess
from labkit.panel.call import call_of
from labkit.panel.guess import MEMORY, RACE, TIME, Bet
from labkit.panel.outputs import SHOWN_IN, current_cell
from labkit.panel.run import (
    CELLS,
    Job,
    OtherMeasures,
    Result,
    Run,
    Runs,
    Settings,
    State,
    measuring,
)
from labkit.panel.view import Picture, Place, Recorded, View
from labkit.panel.widgets import (
    BetRow,
    Buttons,
    make_controls,
    mark_where,
    marked,
    mode_buttons,
    page,
    parts,
    scenario_buttons,
    tree,
)
from labkit.remote import Workers
from labkit.text import format_settings

# The method of a lab that each mode calls.
METHODS = {TIME: "run", MEMORY: "timeline", RACE: "race"}


class LabPanel:
    """Widgets for a `Lab`: bet, Run, watch the estimate settle, change something, see it again.

    ``controls[name].baseline`` and ``.candidate`` are the widgets, ``scenarios`` and ``buttons``
    the buttons, ``modes`` says what is measured: "Time", "Memory" or "Race", ``bet`` is the bet.
    ``seconds`` presets the time budget, ``opens`` the mode. ``bets`` has questions for scenarios,
    ``{"large": Bet("How many times as fast?")}``. ``picture`` takes a Comparison, RaceResult or
    MemoryComparison, also one that was stopped, and returns SVG or HTML that is shown in place of
    the panel's own picture once a run has ended. ``recorded`` holds recorded runs of other
    machines, drawn beside the reader's. It opens on the first scenario. A run sets random numbers
    and switches of torch for all of the process, and puts them back at its end; a cell that begins
    meanwhile ends it. TypeError or ValueError for an option that is none.

    >>> from labkit import Lab, Workload
    >>> lab = Lab(lambda rows: Workload(lambda: None), rows=[1, 2])
    >>> LabPanel(lab, seconds=2).settings()
    {'rows': 2}
    """

    def __init__(
        self,
        lab: Lab,
        *,
        seconds: float | None = None,
        recorded: Recorded | None = None,
        opens: str | None = None,
        bets: Mapping[str, Bet] | None = None,
        picture: Picture | None = None,
    ) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(
                f"LabPanel({lab!r}): it takes a Lab, "
                "as in LabPanel(Lab(make_workload, amp=[False, True]))"
            )
        mode = opening_mode(lab, opens)
        if seconds is None:
            seconds = 0.25 if test_size() else 10
        self.lab = lab
        self.controls = make_controls(lab)
        self.scenarios = scenario_buttons(lab)
        self._scenario_row = marked(W.HBox(), "scenarios")
        self._fill_scenarios()
        self.modes = mode_buttons(modes_of(lab), mode)
        modes = (mode, *modes_of(lab))
        self.bet = BetRow(guess.checked(bets, lab.scenarios), lab.name, modes)
        self.view = View(lab, self.bet, recorded, picture)
        # Processes take seconds to come up: there nothing starts by itself unless asked.
        self.buttons = Buttons(seconds, self._settable(), quick=lab.runs_in == "kernel")
        self.runs = Runs(self.view, self._run_of_now)
        CELLS.add(self.runs)
        # While a scenario is set, its single changes start nothing.
        self._choosing = False
        self._chosen = ""
        # Offered and not run yet, with the mode that decides its bet.
        self._offered: dict[str, str] = {}
        # The run of a cell that has offered one.
        self._offering: tuple[str, str] | None = None
        # What the candidate had before it was set to the baseline's settings.
        self._differed: Settings = {}
        self.summary = marked(W.Label(), "summary")
        self.widget = page(
            lab,
            self.controls,
            [self.modes, self._scenario_row],
            self.summary,
            self.bet,
            self.buttons,
            self.view.place,
            self.view.machines,
        )
        self.view.show_mode(mode)
        self._settings_changed()
        self._connect()
        for name, button in self.scenarios.items():
            if not button.disabled:
                self.choose(name)
                break

    @property
    def latest(self) -> Run | None:
        """The newest run."""
        return self.runs.latest

    @property
    def result(self) -> Result:
        """What the latest run returned: a Comparison, a Sweep, a MemoryComparison, a RaceResult."""
        return self.view.result

    @property
    def history(self) -> list[Any]:
        """All results, the oldest first."""
        return self.view.history

    @property
    def scenario(self) -> str | None:
        """The scenario that is shown: the chosen one, else the first that says the most."""
        shown = [name for name in self.lab.scenarios if self._shows(self.lab.scenarios[name])]
        if self._chosen in shown:
            return self._chosen
        return max(shown, key=lambda name: len(self.lab.scenarios[name]), default=None)

    def _shows(self, scenario: Settings) -> bool:
        """Whether both sides have its situation, and the candidate what it names besides."""
        baseline, candidate = self._sides()
        own, rest = sides_of(scenario)
        wanted = {name: value for name, value in rest.items() if name in candidate}
        wanted |= self._situation_of(scenario)
        return all(candidate[name] == value for name, value in wanted.items()) and all(
            baseline.get(name, value) == value for name, value in own.items()
        )

    def settings(self, side: str = "candidate") -> Settings:
        """What is chosen for "baseline" or "candidate".

        Controls with nothing to choose are left out.
        """
        chosen = {}
        for name, control in self.controls.items():
            if control.settable:
                chosen[name] = control.of(side).value
        return chosen

    def _sides(self) -> tuple[Settings, Settings]:
        return self.settings("baseline"), self.settings()

    def run(self, wait: bool = False) -> Result:
        """Start a run with the settings shown, in the mode shown; with ``wait`` the result.

        RuntimeError while a panel is measuring.
        """
        run = self._run_of_now()
        self.runs.press(run)
        self.bet.lock(run.sides)
        # From now on the mode is the reader's.
        self._offered.pop(self.scenario or "", None)
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
        self.modes.value = TIME
        self.runs.press(self._run_of_now(control))
        return self.wait() if wait else None

    def choose(self, scenario: str) -> None:
        """Set everything as a scenario has it, and show what it found when it ran last.

        Nothing begins by itself; a run of other settings ends. Controls of the situation that it
        does not name go back to their first values; those of the technique stay, unless it names
        one.
        """
        before, after = self._wanted(scenario)
        self.modes.value = self._offered.get(scenario, self.modes.value)
        self._chosen, self._choosing = scenario, True
        try:
            for name, value in (self._differed | after).items():
                self.controls[name].candidate.value = value
            for name, value in before.items():
                self.controls[name].baseline.value = value
            self._differed = {}
        finally:
            self._choosing = False
        if self.latest is None or self.latest.sides != self._sides():
            self._end_run()
        self._recall()
        self._settings_changed()

    def _wanted(self, scenario: str) -> tuple[Settings, Settings]:
        """What a scenario sets on both sides; first values stand for what it does not name.

        Of the technique all or, where it names nothing of it, nothing.
        """
        own, named = sides_of(self.lab.scenarios[scenario])
        first = self.lab.defaults
        situation = self._situation_of(named)
        technique = self.lab.technique
        if not {*own, *named} & set(technique):
            technique = ()
        baseline = {name: own.get(name, first[name]) for name in technique}
        candidate = {name: named.get(name, first[name]) for name in technique}
        return situation | baseline, situation | candidate

    def _names(self) -> tuple[str, str] | None:
        """What the bet calls the sides, where these are as its scenario has them."""
        if self.scenario is None:
            return None
        before, after = self._wanted(self.scenario)
        named = set(after) & set(self.lab.technique)
        for name in named:
            control = self.controls[name]
            if (control.baseline.value, control.candidate.value) != (before[name], after[name]):
                return None
        return self.bet.names(self.scenario) if named else None

    def offer(self, scenario: str, bet: Bet | None = None, /, **settings: Any) -> LabPanel:
        """Add a scenario with its bet, or replace it, and choose it; as a cell's end: show it.

        Of several that one cell offers the first is chosen. While all cells are run it is only
        added, unless the reader has bet or run something before.
        Values that the lab withheld, each with a reason of its own, are available from now on.
        TypeError or ValueError as for ``scenarios`` and ``bets``; nothing has changed then.
        """
        if bet is not None:
            guess.checked({scenario: bet}, [scenario])
        mode = self._mode_for(bet)
        self.lab.offer(scenario, **settings)
        self.bet.add(scenario, bet)
        self.view.forget(scenario)
        for button in self.scenarios.values():
            button.close()
        self.scenarios = scenario_buttons(self.lab)
        self._fill_scenarios()
        self._choosing = True
        try:
            own, candidate = sides_of(settings)
            for name in {**own, **candidate}:
                self.controls[name].allow(self.lab)
        finally:
            self._choosing = False
        self.buttons.swept.options = self._settable()
        self._offered[scenario] = mode
        before, self._offering = self._offering, current_cell()
        another = before is not None and before == self._offering
        if another or (CELLS.queued and self.latest is None and not self.bet.placed):
            self._settings_changed()
        else:
            self.choose(scenario)
        return self

    def _mode_for(self, bet: Bet | None) -> str:
        """The mode of the bet, that of now without one."""
        if bet is None:
            return self.modes.value
        if mode := guess.home(bet, self.bet.modes):
            return mode
        known = ", ".join(modes_of(self.lab))
        raise ValueError(f"{bet}: no mode of this lab decides that ({known})")

    def stop(self) -> None:
        """End the run at its next block and keep what it has.

        Ends another panel's run too: it may be out of sight.
        """
        other = measuring()
        if other is not None and other is not self.runs:
            other.stop()
            self.view.live.busy = False
            self.view.say("Stopping the other panel's run.")
        elif self.runs.state is State.IDLE and self.latest is None:
            self.view.say("Nothing is running.")
        self.runs.stop()

    def wait(self, timeout: float | None = None) -> Result:
        """The result of the run once it has ended, or what it raised.

        A run that a change is about to start is waited for. TimeoutError after ``timeout`` seconds.
        """
        try:
            done = self.runs.wait(timeout)
        # The kernel's interrupt reaches this thread only.
        except KeyboardInterrupt:
            self.runs.stop()
            self.runs.wait(10)
            raise
        if not done:
            raise TimeoutError(f"the panel is still measuring after {timeout} s")
        if self.latest is not None and self.latest.error is not None:
            raise self.latest.error
        return self.result

    def close(self) -> None:
        """Stop, and take the widgets off the page."""
        self.runs.stop()
        for widget in parts(self.widget):
            widget.close()

    def __repr__(self) -> str:
        return (
            "LabPanel: its widgets need JupyterLab and a running kernel. "
            f"Without them:\n    {self._code()}"
        )

    def _ipython_display_(self) -> None:
        self.view.live.context = contextvars.copy_context()
        if cell := current_cell():
            SHOWN_IN.show(self, *cell)
        self.view.outputs.show(self.widget._repr_mimebundle_() | {"text/plain": repr(self)})

    # ------------------------------------------------------------------------------------- a run

    def _run_of_now(self, swept: str | None = None) -> Run:
        """A run of what the page shows; of each value of ``swept`` in turn, where it is given."""
        mode, seconds, sides = self.modes.value, self.buttons.budget.value, self._sides()
        job = self._sweeping(swept, seconds) if swept else self._job(mode, seconds)
        names = None if swept else self._names()
        return Run(job, mode, seconds, sides, self.scenario, swept, names)

    def _job(self, mode: str, seconds: float) -> Job:
        """What a run does: a mode is a method of the lab."""
        baseline, settings = self._sides()
        if mode == MEMORY:
            timeline = partial(self.lab.timeline, baseline=baseline, **settings)
            return lambda tell, stop: timeline(on_stage=tell, stop=stop)
        if mode == RACE:
            race = partial(self.lab.race, settings, baseline=baseline)
            return lambda tell, stop: race(on_update=tell, on_point=tell, on_stage=tell, stop=stop)
        run = partial(self.lab.run, baseline=baseline, seconds=seconds, **settings)
        return lambda tell, stop: run(on_update=tell, on_rough=tell, on_stage=tell, stop=stop)

    def _sweeping(self, control: str, seconds: float) -> Job:
        baseline, others = self._sides()
        del others[control]
        sweep = partial(
            self.lab.sweep,
            control,
            follow=self._follows(),
            baseline=baseline,
            seconds=seconds,
            **others,
        )
        return lambda tell, stop: sweep(on_update=tell, on_stage=tell, stop=stop)

    def _changed(self, _: object) -> None:
        """A control was moved: after the first Run the next one begins by itself.

        A scenario whose bet is open waits for Run, which reveals.
        """
        if self._choosing:
            return
        self._settings_changed()
        if not self.buttons.follow_changes.value or self.view.shown(self.modes.value) is None:
            return
        if self.scenario is not None and not self.bet.locked:
            self.runs.stop()
            return
        self.runs.change()

    # ---------------------------------------------------------------------------------- the page

    def _fill_scenarios(self) -> None:
        """A button for each; without any the row is not there."""
        self._scenario_row.children = tuple(self.scenarios.values())
        self._scenario_row.layout.display = "" if self.scenarios else "none"
        for name, button in self.scenarios.items():
            button.on_click(lambda _, name=name: self.choose(name))

    def _connect(self) -> None:
        """Let the buttons act."""
        self.buttons.run.on_click(lambda _: self._pressed(self.run))
        self.buttons.sweep.on_click(lambda _: self._pressed(self.sweep))
        self.buttons.stop.on_click(lambda _: self.stop())
        self.buttons.same.on_click(lambda _: self._same_settings())
        for control in self.controls.values():
            for widget in (control.baseline, control.candidate):
                widget.observe(self._changed, "value")
        self.modes.observe(self._mode_changed, "value")
        self.buttons.more.observe(self._show_more, "value")
        self.view.place.on_msg(self._page_shown)
        for widget in tree(self.widget):
            if widget.has_trait("value"):
                widget.observe(self._show_code, "value")

    def _show_more(self, change: dict[str, Any]) -> None:
        self.buttons.more.description = "Less" if change["new"] else "More"
        mark_where(self.widget, "opened", change["new"])

    def _mode_changed(self, _: object) -> None:
        """Another mode has its own bet and its own last result; a run of the former ends."""
        self._end_run()
        self.view.show_mode(self.modes.value)
        self._recall()
        self._settings_changed()

    def _end_run(self) -> None:
        """End what goes on, since what it measures is not what is shown any more."""
        if self.runs.state is not State.IDLE:
            self.runs.stop()

    def _recall(self) -> None:
        """Show what the scenario found in this mode when it ran last with these settings."""
        self.view.recall(self.modes.value, self.scenario, self._sides())

    def _settings_changed(self) -> None:
        """Light the scenario that is shown, ask its question, and sum up what is compared."""
        shown = self.scenario
        for name, button in self.scenarios.items():
            mark_where(button, "active", name == shown)
        self.bet.ask(self.modes.value, shown)
        self.summary.value = self._in_words()
        self._mark_stale()

    def _in_words(self) -> str:
        """What both sides have, as far as the page does not show it."""
        chosen = self.settings("baseline")
        own = {name: value for name, value in chosen.items() if name in self.lab.technique}
        shared = {name: value for name, value in chosen.items() if name in self.lab.situation}
        found = [f"Baseline: {format_settings(own)}"] if own else []
        if shared:
            found.append(f"both sides: {format_settings(shared)}")
        return " · ".join(found)

    def _mark_stale(self) -> None:
        """Pale a result that is of other settings than those that are chosen."""
        live, run = self.view.live, self.view.shown(self.modes.value)
        stale = run is not None and run.swept is None and run.sides != self._sides()
        by_itself = self.buttons.follow_changes.value and self.bet.locked
        if stale and not live.stale and not by_itself and self.runs.state is State.IDLE:
            self.view.say("The settings have changed: Run measures them.")
        live.stale = stale

    def _settable(self) -> list[str]:
        """The controls that have something to choose, those of numbers first."""
        found = [name for name, control in self.controls.items() if control.settable]
        return sorted(found, key=lambda name: not all(map(is_number, self.controls[name].values)))

    def _situation_of(self, settings: Settings) -> Settings:
        """The situation that a scenario means, with the first values of what it does not name."""
        found = {}
        for name in self.lab.situation:
            control = self.controls[name]
            if control.settable:
                found[name] = settings.get(name, control.values[0])
        return found

    def _pressed(self, action: Callable[[], Result]) -> None:
        try:
            action()
        # Refused: the page is the only place where the reader sees it.
        except RuntimeError as error:
            self.view.say(str(error), "bad")
            self.view.live.busy = self.view.live.busy or isinstance(error, OtherMeasures)

    def _same_settings(self) -> None:
        """The candidate as the baseline, until a scenario is chosen."""
        before = self.settings()
        if not self._differed:
            self._differed = before
        self._choosing = True
        try:
            for control in self.controls.values():
                control.candidate.value = control.baseline.value
        finally:
            self._choosing = False
        if self.settings() != before:
            self._changed(None)

    def _page_shown(self, _: Place, content: dict[str, str], __: object) -> None:
        """A view came up. One of a page that was reloaded asks for the state of all widgets."""
        if self.view.outputs.page_opened(content["page"]):
            for widget in tree(self.widget):
                # In the name of the cell: see Live.
                self.view.context().run(widget.send_state)

    def _follows(self) -> bool:
        """Whether the swept control is swept on both sides."""
        return self.buttons.follow.value or self.buttons.swept.value in self.lab.situation

    def _code(self, sweep: str | None = None) -> str:
        """The call without widgets; that of a sweep of a control, where it is given."""
        return call_of(
            self.lab,
            METHODS[self.modes.value],
            *self._sides(),
            seconds=self.buttons.budget.value,
            sweep=sweep,
            follow=sweep is not None and self._follows(),
        )

    def _show_code(self, _: object) -> None:
        if not self.buttons.code.value:
            self.view.live.code = ""
            return
        # One and the same when there is nothing to sweep over.
        lines = dict.fromkeys((self._code(), self._code(self.buttons.swept.value)))
        self.view.live.code = "\n".join(lines)


def modes_of(lab: Lab) -> tuple[str, ...]:
    """The modes that a lab offers."""
    modes = [TIME]
    if lab.memory and not isinstance(lab.runs_in, Workers):
        modes.append(MEMORY)
    if lab.race_options:
        modes.append(RACE)
    return tuple(modes)


def opening_mode(lab: Lab, opens: str | None) -> str:
    """The mode that a panel opens in: ``opens="race"``. ValueError for one that the lab lacks."""
    modes = modes_of(lab)
    for mode in modes:
        if opens in (None, mode, mode.lower()):
            return mode
    raise ValueError(f"opens={opens!r}: use {', '.join(repr(mode.lower()) for mode in modes)}")
