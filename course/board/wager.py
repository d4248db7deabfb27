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


RULE = (
    "No difference is right where it is surely below 10 %, and nothing shows which way it goes. "
    "What is not clear decides no bet."
)
RULE_OF_MEMORY = "Its bytes are counted first, exactly. No less: above 95 % is left."


class Wager:
    """Three answers to choose from while it is ``open``: until a figure decides."""

    def __init__(self, switch: str) -> None:
        self.switch = switch
        self.open = True
        self._left_open = False
        self.memory = SWITCHES[switch].saves == "memory"
        asked = "how much of the memory is left" if self.memory else "faster or slower"
        self.question = f"{label(switch)}, in your speedrun: {asked}?"
        # What the answers mean, in a sentence.
        self.rule = RULE_OF_MEMORY if self.memory else RULE
        self.choices = W.ToggleButtons(
            options=list((SHARES if self.memory else ANSWERS).values()),
            value=None,
            description="Memory left, you bet:" if self.memory else "You bet:",
            tooltips=[self.rule] * 3,
            style=W.ToggleButtonsStyle(button_width="auto", description_width="auto"),
            layout=W.Layout(width="auto"),
        )

    @property
    def waits(self) -> bool:
        """Whether a bet was placed that no figure has decided yet."""
        return self.open and self.choices.value is not None

    def lock(self, running: bool) -> None:
        """Nobody bets on what is being watched, nor again on what was left open."""
        self.choices.disabled = running or self._left_open

    def give_up(self) -> str:
        """A choice is made before a figure decides; what is said of the bet."""
        self.open = False
        return f"Your bet on {label(self.switch)}, {self.choices.value}, was not decided."

    def decide(self, figure: Figure) -> str:
        """Count the bet, and say whether it was right; empty where none was placed."""
        bet = self.choices.value
        if bet is None:
            self.open = False
            return ""
        key, found = ("board", self.switch), self._found(figure)
        # What is left open may be decided by a later figure; as it was placed.
        self.open = self._left_open = found is None
        self.lock(running=False)
        if found is None:
            guess.SCORE.leave_open(key, self.question, bet, measured=False)
            return f"Your bet, {bet}, stays open."
        right = bet == found
        # A board alone finishes no notebook.
        guess.SCORE.count(key, Decided(self.question, bet, found, right), measured=False)
        return f"✓ You bet on {bet}: right." if right else f"✗ You bet on {bet}: it is {found}."

    def _found(self, figure: Figure) -> str | None:
        """The answer that is right; None where that is open."""
        if not self.memory:
            return ANSWERS.get(figure.direction)
        # Of a share that nobody knows none is the least.
        return next((name for most, name in SHARES.items() if figure.memory <= most), None)
