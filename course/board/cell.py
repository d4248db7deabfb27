"""The board of a reader's speedrun: measure a switch, look at the waterfall, keep it or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from course.board import recorded, store
from course.board.advice import KEEP, LEAVE, advised, after_keeping
from course.board.measure import NoFigure, machine_name, measure, promised
from course.board.store import BoardError, Choice, Choices, Figure
from course.board.waterfall import Waterfall, waterfall
from course.switches import checked
from labkit.device import test_size

# Short lines: an output breaks long ones within a word.
INTRODUCTION = """\
Your speedrun is one training script, to which each notebook
adds a switch. The slow script has none switched on. What you
keep stays on for all that you measure later.
"""


def board(switch: str | None = None, *, seconds: float | None = None, whole: bool = False) -> Board:
    """Measure ``switch`` on top of those that the reader kept, and ask whether to keep it.

    Without a switch nothing is measured. ``seconds`` is the budget for the measuring proper, 10 by
    default; a race takes one seed at least. ``whole`` races to the target of the task on five
    seeds: minutes to an hour. An interrupt shows what there is by then. ValueError for an unknown
    switch.
    """
    if switch is not None:
        checked([switch])
    print(INTRODUCTION)
    found = Board()
    if switch is not None:
        found.measure(switch, seconds, whole)
    return found


class Board:
    """The reader's choices on this machine, and the latest figure.

    Shown in a notebook it has two buttons, which call `keep` and `leave`. Whatever is wrong with
    the reader's file stands in ``said``; figures and choices then stay in this object, and the next
    `keep` or `leave` tries to save them again.
    """

    def __init__(self) -> None:
        self.machine = machine_name()
        self.path = None if _for_tests() else store.board_path()
        self.choices, self.said = Choices(), ""
        self.latest: Figure | None = None
        self._unsaved: list[Choice] = []
        self._shown: str | None = None
        if self.path is not None:
            try:
                self.choices = store.read(self.path, self.machine)
            except BoardError as error:
                self.said = str(error)

    def measure(self, switch: str, seconds: float | None = None, whole: bool = False) -> None:
        """Measure a switch on top of those that were kept; nothing is saved before a choice."""
        self.latest = None
        print(f"Training without and with {switch}, in turn.")
        print(promised(switch, seconds, whole))
        bounded = seconds is None and not whole
        try:
            self.latest = measure(switch, self.choices.switches, seconds, whole, bounded)
        except KeyboardInterrupt:
            self.said = f"{switch} was interrupted before there was a figure; nothing has changed."
        except NoFigure as error:
            self.said = f"{switch} was not measured: {error}. Nothing has changed."

    def keep(self) -> None:
        """Keep the latest switch: later ones are measured on top of it. ValueError without one."""
        self._choose(kept=True)

    def leave(self) -> None:
        """Do not keep it; the figure is kept all the same."""
        self._choose(kept=False)

    def _choose(self, kept: bool) -> None:
        if self.latest is None:
            raise ValueError("no switch was measured: board('data_loading') measures one")
        choice = Choice(self.latest, kept)
        self._unsaved = [
            each for each in self._unsaved if each.figure.switch != choice.figure.switch
        ]
        self._unsaved.append(choice)
        self.choices, self.said = self.choices.with_choice(choice), ""
        word = "Kept" if kept else "Not kept"
        if self.path is None:
            self.said = f"{word}. In the test size nothing is saved."
        else:
            self._save(word)
        if kept:
            self.said = f"{self.said} {after_keeping(choice.figure)}".strip()
        self._show_again()

    def _save(self, word: str) -> None:
        assert self.path is not None
        try:
            self.choices, notice = store.change(self.path, self.machine, self._add_unsaved)
        except BoardError as error:
            self.said = f"{word} in this cell, but not saved. {error}"
            return
        self._unsaved.clear()
        self.said = f"{word}, in {store.shown(self.path)}. {notice}".strip()

    @property
    def unsaved(self) -> bool:
        """Whether a choice could not be written to the reader's file."""
        return self.path is not None and bool(self._unsaved)

    def _add_unsaved(self, choices: Choices) -> Choices:
        for choice in self._unsaved:
            choices = choices.with_choice(choice)
        return choices

    @property
    def waterfall(self) -> Waterfall:
        """The bars as they are now."""
        latest, beside = self.latest, ""
        if latest is not None:
            beside = recorded.beside(latest.switch)
            decided = self.choices.made.get(latest.switch)
            if decided is not None and decided.figure == latest:
                latest = None
        images = recorded.images_to_target()
        return waterfall(self.choices, latest, images, beside, self.said)

    def __str__(self) -> str:
        return str(self.waterfall)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.waterfall._repr_html_()

    def _bundle(self) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": str(self)}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._shown = uuid4().hex
        display(self._bundle(), raw=True, display_id=self._shown)
        if self.latest is not None:
            display(_buttons(self.keep, self.leave, advised(self.latest)))

    def _show_again(self) -> None:
        if self._shown is None:
            return
        from IPython.display import update_display

        update_display(self._bundle(), raw=True, display_id=self._shown)


def _buttons(keep: Callable[[], None], leave: Callable[[], None], primary: str) -> Any:
    import ipywidgets as W

    buttons = []
    for name, text, call in (
        (KEEP, "Keep it", keep),
        (LEAVE, "Do not keep it", leave),
    ):
        style = "primary" if name == primary else ""
        button = W.Button(description=text, button_style=style)
        button.on_click(lambda _, call=call: call())
        buttons.append(button)
    return W.HBox(buttons)


def _for_tests() -> bool:
    """In the test size no file of the reader's is touched, unless one is named."""
    return test_size() and not os.environ.get("LABKIT_BOARD")
