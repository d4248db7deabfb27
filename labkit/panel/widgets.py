"""The widgets of a panel: its controls, its buttons, its bet, and where each of them stands.

At first only what a reader needs is seen: scenarios, the technique's controls, the bet, Run. All
else is behind "More". Looks are in ``static/panel.css``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ipywidgets as W

from labkit import show
from labkit.controls import is_number, sides_of
from labkit.lab import Lab
from labkit.panel import guess
from labkit.panel.guess import Answer, Bet
from labkit.panel.run import Run, Settings
from labkit.show import Markup
from labkit.text import format_settings

# Whatever a lab's control lists.
Value = Any
AnyWidget = TypeVar("AnyWidget", bound=W.Widget)

# Seconds.
BUDGETS = (1, 2, 5, 10, 20, 30, 60)
# Of a bet's power of two, which is 0 in the middle: an arrow key moves by it, 9 %; Page Up by five.
STEP = 0.125
# Powers of two of the baseline's memory: from 1.6 % to twice as much.
SHARES = -6.0, 1.0


def marked(widget: AnyWidget, *names: str) -> AnyWidget:
    """The widget with CSS classes of ours."""
    for name in names:
        widget.add_class(f"labkit-{name}")
    return widget


def mark_where(widget: W.Widget, name: str, true: bool) -> None:
    """Give a widget a CSS class of ours, or take it away."""
    if true:
        widget.add_class(f"labkit-{name}")
    else:
        widget.remove_class(f"labkit-{name}")


def tree(widget: W.Widget) -> Iterator[W.Widget]:
    """A widget and all below it, children first."""
    for child in getattr(widget, "children", ()):
        yield from tree(child)
    yield widget


def parts(widget: W.Widget) -> Iterator[W.Widget]:
    """The tree with the layout and the style of each of its widgets, which come before it."""
    for each in tree(widget):
        for name in ("layout", "style"):
            if isinstance(part := getattr(each, name, None), W.Widget):
                yield part
        yield each


def row(*children: W.Widget, kind: str = "row") -> W.HBox:
    """Widgets beside each other."""
    return marked(W.HBox(children), "row", *([kind] if kind != "row" else []))


class Control:
    """The widgets of one control, and the ``values`` that this machine offers.

    One value alone leaves nothing to set. A ``shared`` control has one widget for both sides.
    """

    def __init__(self, lab: Lab, name: str, candidate: Value, *, shared: bool) -> None:
        self.name, self.shared = name, shared
        self.values = offered(lab, name)
        self.label = marked(W.Label(_heading(lab, name)), "name")
        self.candidate = self._choice(lab, candidate, "candidate")
        self.baseline = self.candidate
        if not shared:
            self.baseline = self._choice(lab, self.values[0], "baseline")

    def _choice(self, lab: Lab, value: Value, side: str) -> W.ValueWidget:
        """A widget for one side, as ``ipywidgets.interact`` would choose it."""
        if all(isinstance(item, bool) for item in lab.controls[self.name]):
            widget, kind = _toggle(value), "toggle"
        elif self.settable and all(map(is_number, self.values)):
            # It passes over several values, and each change begins a run.
            widget = W.SelectionSlider(options=self._pairs, value=value, continuous_update=False)
            kind = "slider"
        else:
            widget, kind = W.Dropdown(options=self._pairs, value=value), "dropdown"
        self._enable(widget)
        mark_where(widget, "shared", self.shared)
        return marked(widget, kind, side, f"{self.name}-{side}")

    def _enable(self, widget: W.ValueWidget) -> None:
        widget.disabled = not self.settable
        mark_where(widget, "disabled", not self.settable)

    def allow(self, lab: Lab) -> None:
        """Offer what the lab can show by now."""
        self.values = offered(lab, self.name)
        self.label.value = _heading(lab, self.name)
        for widget in (self.baseline, self.candidate):
            self._enable(widget)
            if not isinstance(widget, W.Checkbox):
                kept = widget.value
                widget.options = self._pairs
                widget.value = kept

    @property
    def _pairs(self) -> list[tuple[str, Value]]:
        """Texts and values; numbers run upwards."""
        values = sorted(self.values) if all(map(is_number, self.values)) else self.values
        return [(f"{each:g}" if isinstance(each, float) else str(each), each) for each in values]

    @property
    def settable(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.values) > 1

    def of(self, side: str) -> W.ValueWidget:
        """The widget of the "baseline" or the "candidate"."""
        return {"baseline": self.baseline, "candidate": self.candidate}[side]


def make_controls(lab: Lab) -> dict[str, Control]:
    """The controls of a lab.

    At first the sides differ in the first one of the technique that can be set.
    """
    made: dict[str, Control] = {}
    differ = False
    for name in lab.controls:
        first, *others = offered(lab, name)
        if others and not differ and name in lab.technique:
            first, differ = others[0], True
        made[name] = Control(lab, name, first, shared=name in lab.situation)
    return made


def offered(lab: Lab, name: str) -> tuple[Value, ...]:
    """The values of a control that this machine can show, its first one at least."""
    listed = lab.controls[name]
    return tuple(value for value in listed if not lab.why_not(name, value)) or listed[:1]


def _heading(lab: Lab, name: str) -> str:
    """The name of a control, and below it what this machine cannot show and why."""
    reasons = lab.unavailable.get(name, {})
    if isinstance(reasons, str):
        return f"{name}\n{reasons}"
    lines = [name]
    for value, why in reasons.items():
        lines.append(f"{value}: {why}")
    return "\n".join(lines)


def _toggle(value: Value) -> W.Checkbox:
    words = {True: "on", False: "off"}
    widget = W.Checkbox(value=value, indent=False, description=words[bool(value)])
    widget.observe(
        lambda change: setattr(widget, "description", words[change["new"]]), names="value"
    )
    return widget


class Buttons:
    """What starts, stops and says more."""

    def __init__(self, seconds: float, swept: Sequence[str], *, quick: bool) -> None:
        budgets = [(f"{value:g} s", value) for value in sorted({*BUDGETS, seconds})]
        self.budget = marked(W.SelectionSlider(options=budgets, value=seconds), "budget")
        self.run = _button("run", "Run", "Compare both sides", icon="play")
        # In Run's place while it runs.
        self.stop = _button("stop", "Stop", "Keep what there is", icon="stop")
        self.more = marked(W.ToggleButton(description="More"), "more")
        self.follow_changes = marked(
            W.Checkbox(value=quick, description="Run on change", indent=False), "quick"
        )
        self.sweep = _button("sweep", "Sweep", "Try each value of a control")
        self.swept = marked(W.Dropdown(options=swept), "swept")
        self.follow = marked(W.Checkbox(description="on both sides", indent=False), "follow")
        self.same = _button("same", "Same settings (A/A)", "Only noise is left")
        self.code = marked(W.ToggleButton(description="Show the code", icon="code"), "code")

    def rows(self) -> list[W.Widget]:
        """The lines behind "More"."""
        return [
            row(W.Label("Time budget"), self.budget, self.follow_changes),
            row(self.sweep, self.swept, self.follow),
            row(self.same, self.code),
        ]


def scenario_buttons(lab: Lab) -> dict[str, W.Button]:
    """A button for each scenario; one that this machine cannot show is grey and says why."""
    made = {}
    for name, settings in lab.scenarios.items():
        button = _button("scenario", name, format_settings(settings) or "the first values")
        own, candidate = sides_of(settings)
        for control, value in (*own.items(), *candidate.items()):
            if reason := lab.why_not(control, value):
                button.disabled = True
                button.tooltip = f"{control}={value!r}: {reason}"
                button.description = f"{name} ({reason})"
        made[name] = button
    return made


def mode_buttons(modes: Sequence[str], mode: str) -> W.ToggleButtons:
    """One button for each mode; a single mode needs none."""
    made = marked(W.ToggleButtons(options=modes, value=mode), "modes")
    if len(modes) < 2:
        made.layout.display = "none"
    return made


def _button(name: str, text: str, tooltip: str, icon: str = "") -> W.Button:
    return marked(W.Button(description=text, tooltip=tooltip, icon=icon), name)


@dataclass
class _Placed:
    """A bet: the reader's answer, or None, and the settings that a run has locked it for."""

    answer: Answer | None = None
    locked_for: object = None


class BetRow:
    """The bet of the mode and scenario that are shown: a slider for a factor, choices else.

    A run locks it; ``again`` unlocks it. What was never moved is no bet; ``even`` bets on 1. Nobody
    bets on what is being watched: while a run goes on its question is closed.
    ``modes``: of the panel, the opening one first.
    """

    def __init__(self, bets: Mapping[str, Bet], lab: str, modes: Sequence[str]) -> None:
        self._bets, self._lab, self.modes = dict(bets), lab, modes
        self._placed: dict[tuple[str, str | None], _Placed] = {}
        self._key: tuple[str, str | None] = guess.TIME, None
        self._setting = False
        # The mode and the scenario of the run that goes on.
        self._watched: tuple[str, str | None] | None = None
        self.question = marked(W.Label(), "question")
        # One for each scale: a browser that is given new ends sends the last question's answer.
        self._sliders = {most: _powers(-math.log2(most), math.log2(most)) for most in guess.REACHES}
        self._sliders[max(guess.REACHES)].add_class("labkit-far")
        self._shares = marked(_powers(*SHARES), "share")
        self.sliders = *self._sliders.values(), self._shares
        self.even = _button("even", "no difference", "Bet on 1×")
        choices = W.ToggleButtons(options=guess.DEFAULTS[guess.RACE].choices)
        self.choices = marked(choices, "choices")
        self.text = marked(W.Label(), "guessed")
        self.again = _button("again", "Bet again", "Unlock the bet")
        self.score = marked(W.Label(), "score")
        for widget in (*self.sliders, self.choices):
            widget.observe(self._answered, "value")
        self.even.on_click(lambda _: self._bet_even())
        self.again.on_click(lambda _: self._lock_for(None))
        self.ask(*self._key)

    def add(self, scenario: str, bet: Bet | None) -> None:
        """Another question of a scenario, or the mode's own; the bet on it is open again."""
        self._bets.pop(scenario, None)
        if bet is not None:
            self._bets[scenario] = bet
        for mode in self.modes:
            self._placed.pop((mode, scenario), None)

    def names(self, scenario: str | None) -> tuple[str, str] | None:
        """What the bet of a scenario calls the baseline and the candidate; None without names."""
        bet = self._bets.get(scenario or "")
        return bet.names if bet is not None else None

    def row(self) -> W.HBox:
        """The line in which it stands."""
        answers = (*self.sliders, self.choices, self.even, self.text)
        return row(self.question, *answers, self.again, self.score, kind="betting")

    @property
    def bet(self) -> Bet:
        """The question that is shown."""
        return guess.asked(self._bets, *self._key, self.modes)

    @property
    def slider(self) -> W.FloatLogSlider:
        """That of the question which is shown: of factors, or of shares of memory."""
        return self._shares if self.bet.kind == guess.BYTES else self._sliders[self.bet.most]

    @property
    def placed(self) -> bool:
        """Whether there is any bet."""
        return any(each.answer is not None for each in self._placed.values())

    @property
    def answer(self) -> Answer | None:
        """The reader's answer to it."""
        return self._now.answer

    @property
    def locked(self) -> bool:
        """Whether a run was started with it."""
        return self._now.locked_for is not None

    @property
    def _closed(self) -> bool:
        """Whether it cannot be set: locked, or of the run that goes on."""
        return self.locked or self._key == self._watched

    @property
    def _now(self) -> _Placed:
        return self._placed.setdefault(self._key, _Placed())

    def ask(self, mode: str, scenario: str | None) -> None:
        """Show the question of this mode and scenario, with the answer that it has."""
        self._key = mode, scenario
        bet, answer = self.bet, self.answer
        self.question.value, self.question.tooltip = bet.question, guess.RULES[bet.kind]
        self._setting = True
        try:
            if bet.choices:
                self.choices.options = bet.choices
                self.choices.value = answer
            else:
                self.slider.value = 1.0 if answer is None else answer
        finally:
            self._setting = False
        for slider in self.sliders:
            slider.layout.display = "" if slider is self.slider and not bet.choices else "none"
        self.choices.layout.display = "" if bet.choices else "none"
        self._refresh()

    def lock(self, sides: object) -> None:
        """A run has begun with these settings: the bet is for them and no others."""
        if not self.locked:
            self._lock_for(sides)

    def _lock_for(self, sides: object) -> None:
        self._now.locked_for = sides
        self._refresh()

    def watch(self, run: Run | None) -> None:
        """A run begins, or None: it is over."""
        self._watched = (run.mode, run.scenario) if run is not None else None
        self._refresh()

    def placed_on(self, run: Run) -> Answer | None:
        """The answer to what this run measures; None without one."""
        placed = self._placed.get((run.mode, run.scenario), _Placed())
        meant = placed.locked_for is None or placed.locked_for == run.sides
        return placed.answer if meant and run.swept is None else None

    def reveal(self, run: Run, result: object, *, disturbed: bool = False) -> Markup:
        """Whether a run proves its bet right, and the rule; empty without one. It counts once."""
        answer = self.placed_on(run)
        if answer is None:
            return Markup()
        bet = guess.asked(self._bets, run.mode, run.scenario, self.modes)
        judgement = guess.judge(bet, answer, result, disturbed=disturbed)
        if judgement is None:
            return Markup()
        question = bet.asked_in(run.scenario)
        key = self._lab, run.mode, run.scenario
        if judgement.right is None:
            ended = not run.stop.is_set()
            placed = guess.shown(bet.kind, answer)
            guess.SCORE.leave_open(key, question, placed, measured=ended)
        else:
            found = judgement.bet, judgement.measured, judgement.right
            guess.SCORE.count(key, guess.Decided(question, *found))
        self._refresh()
        right = {True: "yes", False: "no", None: "open"}[judgement.right]
        told = show.element("p", judgement.words, kind="told", data_right=right)
        return show.join([told, show.element("p", guess.RULES[bet.kind], kind="rule")])

    def _answered(self, change: Settings) -> None:
        # Another question has set the widget to its own answer: nobody has moved it.
        if self._setting or self._closed or change["new"] is None:
            return
        # The browser tells late of a widget that is not shown any more.
        if change["owner"] is not (self.choices if self.bet.choices else self.slider):
            return
        self._now.answer = change["new"]
        self._refresh()

    def _bet_even(self) -> None:
        if not self._closed:
            self._now.answer = 1.0
            self.ask(*self._key)

    def _refresh(self) -> None:
        for widget in (*self.sliders, self.choices):
            widget.disabled = self._closed
        self.even.layout.display = "none" if self.bet.choices else ""
        # Its place is kept: nothing jumps.
        self.even.layout.visibility = "hidden" if self._closed else "visible"
        self.again.layout.visibility = "visible" if self.locked else "hidden"
        self.text.value = self._in_words()
        self.score.value = str(guess.SCORE)

    def _in_words(self) -> str:
        answer = self.answer
        if answer is None:
            idle = "choose" if self.bet.choices else "move the slider"
            return "no bet" if self._closed else idle
        return "" if isinstance(answer, str) else in_words(self.bet.kind, answer)


def _powers(low: float, high: float) -> W.FloatLogSlider:
    """A slider of bets between two powers of two."""
    slider = W.FloatLogSlider(base=2, min=low, max=high, step=STEP, value=1.0, readout=False)
    return marked(slider, "guess")


def in_words(kind: str, factor: float) -> str:
    """``2.0, "factor"`` -> ``2.0× as fast``; ``0.5, "bytes"`` -> ``50 % of the memory``."""
    if math.isclose(factor, 1):
        return "no difference"
    if kind == guess.BYTES:
        return f"{guess.shown(kind, factor)} of the memory"
    return f"{guess.shown(kind, factor)} as fast"


def page(
    lab: Lab,
    controls: Mapping[str, Control],
    top: Sequence[W.Widget],
    summary: W.Label,
    bet: BetRow,
    buttons: Buttons,
    place: W.Widget,
    machines: Sequence[W.Widget],
) -> W.VBox:
    """The tree of boxes."""
    technique = []
    for name in lab.technique:
        control = controls[name]
        technique.append(marked(W.VBox([control.label, control.candidate]), "setting"))
    extra = [_grid(lab, controls), *buttons.rows()]
    if machines:
        extra.append(row(W.Label("Recorded runs of"), *machines))
    rows = [
        marked(W.HBox(top), "top"),
        marked(W.HBox(technique), "technique"),
        summary,
        bet.row(),
        row(buttons.run, buttons.stop, buttons.more, kind="main"),
        marked(W.VBox(extra), "extra"),
        place,
    ]
    return marked(W.VBox(rows), "panel")


def _grid(lab: Lab, controls: Mapping[str, Control]) -> W.GridBox:
    """The baseline's settings, and the situation."""
    cells: list[W.Widget] = [marked(W.Label("Baseline"), "group")]
    for name in lab.technique:
        cells += [W.Label(name), controls[name].baseline]
    if lab.situation:
        cells.append(marked(W.Label("Same on both sides"), "group"))
    for name in lab.situation:
        cells += [controls[name].label, controls[name].candidate]
    return marked(W.GridBox(cells), "grid")
