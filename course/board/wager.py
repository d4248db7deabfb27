"""A bet on what a switch does to the reader's training, before it is measured."""

from __future__ import annotations

import math

import ipywidgets as W

from course.board.advice import SAVED
from course.board.store import Figure
from course.switches import SWITCHES, label
from labkit.panel import guess
from labkit.panel.guess import Decided

# By the direction of a figure.
ANSWERS = {"faster": "faster", "same": "no difference", "slower": "slower"}
# Of a switch for memory, by the most of the memory that is left.
SHARES = {0.5: "half or less", SAVED: "more than half", math.inf: "no less"}


class Wager:
    """Three answers to choose from while it is ``open``: until a figure decides."""

    def __init__(self, switch: str) -> None:
        self.switch = switch
        self.open = True
        self.memory = SWITCHES[switch].saves == "memory"
        asked = "how much of the memory is left" if self.memory else "faster or slower"
        self.question = f"{label(switch)}, in your speedrun: {asked}?"
        self.choices = W.ToggleButtons(
            options=list((SHARES if self.memory else ANSWERS).values()),
            value=None,
            description="Memory left, you bet:" if self.memory else "You bet:",
            style=W.ToggleButtonsStyle(button_width="auto", description_width="auto"),
            layout=W.Layout(width="auto"),
        )

    def decide(self, figure: Figure) -> str:
        """Count the bet, and say whether it was right; empty where none was placed."""
        bet = self.choices.value
        if bet is None:
            self.open = False
            return ""
        key, found = ("board", self.switch), self._found(figure)
        # What is left open may be decided by a later figure; as it was placed.
        self.open = self.choices.disabled = found is None
        if found is None:
            guess.SCORE.leave_open(key, self.question, bet)
            return f"Your bet, {bet}, stays open."
        right = bet == found
        guess.SCORE.count(key, Decided(self.question, bet, found, right))
        return f"✓ You bet on {bet}: right." if right else f"✗ You bet on {bet}: it is {found}."

    def _found(self, figure: Figure) -> str | None:
        """The answer that is right; None where that is open."""
        if not self.memory:
            return ANSWERS.get(figure.direction)
        # Of a share that nobody knows none is the least.
        return next((name for most, name in SHARES.items() if figure.memory <= most), None)
