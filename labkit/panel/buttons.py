"""The buttons of a panel: modes, scenarios, Run and Stop, and behind "More" what is rarely used."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as W

from labkit.lab import Lab
from labkit.panel.controls import marked
from labkit.text import format_settings

# Seconds.
BUDGETS = (1, 2, 5, 10, 20, 30, 60)


class Buttons:
    """What starts, stops and says more."""

    def __init__(self, seconds: float, swept: Sequence[str], *, quick: bool) -> None:
        budgets = [(f"{value:g} s", value) for value in sorted({*BUDGETS, seconds})]
        self.budget = marked(W.SelectionSlider(options=budgets, value=seconds), "budget")
        self.run = _button("run", "Run", "Compare both sides", icon="play")
        self.stop = _button("stop", "Stop", "Keep what there is", icon="stop")
        self.follow_changes = marked(
            W.Checkbox(value=quick, description="Run on change", indent=False), "quick"
        )
        self.more = marked(W.ToggleButton(description="More"), "more")
        self.sweep = _button("sweep", "Sweep", "Try each value of a control")
        self.same = _button("same", "Same settings (A/A)", "Only noise is left")
        self.swept = marked(W.Dropdown(options=swept), "swept")
        self.follow = marked(W.Checkbox(description="on both sides", indent=False), "follow")
        self.code = marked(W.ToggleButton(description="Show the code", icon="code"), "code")
        self.details = marked(W.ToggleButton(description="Details", icon="table"), "details")
        self._hidden = marked(
            W.VBox(
                [
                    marked(W.HBox([W.Label("Time budget"), self.budget]), "row"),
                    marked(W.HBox([self.sweep, self.swept, self.follow]), "row"),
                    marked(W.HBox([self.same, self.code, self.details]), "row"),
                ]
            ),
            "extra",
        )
        self.more.observe(self._more_changed, "value")
        self._more_changed(None)

    def rows(self) -> list[W.Widget]:
        """The line that is always there, and the lines behind "More"."""
        first = [self.run, self.stop, self.follow_changes, self.more]
        return [marked(W.HBox(first), "row", "main"), self._hidden]

    def _more_changed(self, _: object) -> None:
        shown = self.more.value
        self.more.description = "Less" if shown else "More"
        self._hidden.layout.display = "" if shown else "none"


def scenario_buttons(lab: Lab) -> dict[str, W.Button]:
    """A button for each scenario; one that this machine cannot show is grey and says why."""
    made = {}
    for name, settings in lab.scenarios.items():
        button = _button("scenario", name, format_settings(settings) or "the first values")
        for control, value in settings.items():
            if reason := lab.why_not(control, value):
                button.disabled = True
                button.tooltip = f"{control}={value!r}: {reason}"
                button.description = f"{name} ({reason})"
        made[name] = button
    return made


def mode_buttons(modes: Sequence[str]) -> W.ToggleButtons:
    """One button for each mode; a single mode needs none."""
    made = marked(W.ToggleButtons(options=modes, value=modes[0]), "modes")
    if len(modes) < 2:
        made.layout.display = "none"
    return made


def _button(name: str, text: str, tooltip: str, icon: str = "") -> W.Button:
    return marked(W.Button(description=text, tooltip=tooltip, icon=icon), name)
