"""The reader's guess: set before the first Run, locked by it, held against what was measured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import ipywidgets as W

from labkit.panel.controls import marked
from labkit.panel.modes import MEMORY, RACE, TIME
from labkit.text import format_factor

# Powers of two: from an eighth to 128 times. An arrow key moves by an eighth of a power, 9 %;
# Page Up by five of them.
LEAST, MOST, STEP = -3, 7, 0.125
QUESTIONS = {
    TIME: "Your guess: the candidate will be",
    MEMORY: "Your guess: the candidate will need",
    RACE: "Your guess: the candidate will reach the target",
}
# A guess this near, as a factor, is right whatever the interval; one within the interval is right
# when it is at most so far.
NEAR, FAR = 1.05, 1.2


class Guess:
    """A slider for the factor that the reader expects, in each mode its own.

    The first Run locks it; ``again`` is the button that unlocks it. A slider that was never moved
    is no guess: it is neither drawn nor held against what was measured.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._values = dict.fromkeys(QUESTIONS, 1.0)
        self._locked: set[str] = set()
        self._made: set[str] = set()
        # In each mode: the settings that the guess was locked for, and those of the present run.
        self._meant: dict[str, object] = {}
        self._running: dict[str, object] = {}
        self.question = marked(W.Label(), "question")
        self.slider = marked(
            W.FloatLogSlider(base=2, min=LEAST, max=MOST, step=STEP, value=1.0, readout=False),
            "guess",
        )
        self.text = marked(W.Label(), "guessed")
        self.again = marked(
            W.Button(description="Guess again", tooltip="Unlock the guess"), "again"
        )
        self.slider.observe(self._moved, "value")
        self.again.on_click(lambda _: self.unlock())
        self.show(mode)

    @property
    def value(self) -> float:
        """The factor that was guessed."""
        return self._values[self.mode]

    @property
    def made(self) -> bool:
        """Whether the reader has guessed in this mode."""
        return self.mode in self._made

    @property
    def drawn(self) -> float:
        """The factor that a chart shows; 0 without a guess."""
        return self.value if self.made and self._is_meant else 0.0

    @property
    def _is_meant(self) -> bool:
        """Whether the present settings are those for which the reader guessed."""
        return self._meant.get(self.mode) == self._running.get(self.mode)

    @property
    def locked(self) -> bool:
        return self.mode in self._locked

    def row(self) -> W.HBox:
        """The line in which it stands."""
        return marked(
            W.HBox([self.question, self.slider, self.text, self.again]), "row", "guessing"
        )

    def show(self, mode: str) -> None:
        """Ask the question of this mode."""
        self.mode = mode
        self.question.value = QUESTIONS[mode]
        self.slider.value = self._values[mode]
        self._refresh()

    @contextlib.contextmanager
    def locking(self, settings: object) -> Iterator[None]:
        """Begin a run with these settings inside: from now on it stands, for them and no others.

        All is as before where that raises.
        """
        before = self._meant.copy(), self._running.copy(), self._locked.copy()
        if not self.locked:
            self._meant[self.mode] = settings
        self._running[self.mode] = settings
        self._locked.add(self.mode)
        try:
            yield
        except BaseException:
            self._meant, self._running, self._locked = before
            raise
        finally:
            self._refresh()

    def unlock(self) -> None:
        """Let it be set anew."""
        self._locked.discard(self.mode)
        self._refresh()

    def told(self, measured: float, interval: tuple[float, float], why_none: str = "") -> str:
        """How far the guess was from what was measured, in words; "" without the one or other.

        ``why_none`` says why nothing was measured that a guess could be held against.
        """
        if not self.made or not self._is_meant:
            return ""
        if why_none:
            return f"You guessed {_short(self.value)}×: no factor is right, since {why_none}."
        return distance(self.value, measured, interval)

    def _moved(self, _: object) -> None:
        # Another mode has set the slider to its own value: nobody has moved it.
        if self.slider.value == self._values[self.mode]:
            return
        self._values[self.mode] = self.slider.value
        self._made.add(self.mode)
        self._refresh()

    def _refresh(self) -> None:
        self.slider.disabled = self.locked
        self.again.layout.visibility = "visible" if self.locked else "hidden"
        if self.made:
            self.text.value = in_words(self.mode, self.value)
        else:
            self.text.value = "no guess" if self.locked else "move the slider"


def in_words(mode: str, factor: float) -> str:
    """``2.0, Time`` -> ``2.0× as fast``."""
    number = f"{_short(factor)}×"
    if mode == MEMORY:
        if math.isclose(factor, 1):
            return f"{number} the memory (no difference)"
        return f"{number} the memory"
    if math.isclose(factor, 1):
        return f"{number} as fast (no difference)"
    return f"{number} as fast"


def distance(guess: float, measured: float, interval: tuple[float, float]) -> str:
    """How far a guess was off, in words; "" where nothing was measured."""
    if not 0 < measured < math.inf:
        return ""
    begin = f"You guessed {_short(guess)}×, measured {format_factor(measured)}×"
    low, high = interval
    off = max(guess / measured, measured / guess)
    within = low <= guess <= high
    if within and off < FAR:
        return f"{begin}: right, it lies within the interval."
    if off < NEAR:
        return f"{begin}: right, within {NEAR - 1:.0%}."
    if within:
        return f"{begin}: still possible, the interval is wide."
    if guess > measured:
        return f"{begin}: {_short(off)} times too high."
    return f"{begin}: {_short(off)} times too low."


def _short(factor: float) -> str:
    if factor < 0.95:
        return f"{factor:.2f}"
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:.0f}"
