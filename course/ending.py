"""The end of a front notebook: bets beside measurements, the way so far, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass

from IPython.display import display

from course import progress
from course.board import Board
from course.board.stars import FULL
from course.board.waterfall import decided_in_words
from course.claims import gains
from course.claims.gains import Gains
from course.exercises import own
from course.notebook_files import about, notebook_path, place
from course.progress import PATH, Progress, next_after
from course.switches import SWITCHES, labelled
from course.way import rows, way, way_in_text, way_in_words
from labkit import show
from labkit.panel import guess
from labkit.panel.guess import Decided
from labkit.show import Markup, element
from labkit.text import aligned

HEAD = ["question", "you bet", "you measured", ""]
NO_BETS = (
    "No run of the panel has decided a bet here, so this notebook is not counted as finished. "
    "Place one in the panel, and press Run."
)


@dataclass(frozen=True)
class Ending:
    """How a notebook ended for its reader: `print` it, or end a cell in it."""

    notebook: str
    progress: Progress
    recorded: Gains
    undecided: tuple[tuple[str, str], ...] = ()
    others: tuple[Decided, ...] = ()

    @property
    def bets(self) -> tuple[Decided, ...]:
        """The reader's bets in this notebook, in this session and earlier ones.

        While it is not finished with those of pictures and of the board, the ``others``.
        """
        known = self.progress.bets_in(self.notebook)
        asked = {bet.question for bet in known}
        return (*known, *(bet for bet in self.others if bet.question not in asked))

    @property
    def done(self) -> bool:
        """Whether the notebook counts as finished."""
        return self.notebook in self.progress.finished

    @property
    def rows(self) -> list[list[str]]:
        """The bets as texts, below their head; empty without any."""
        if not self.bets and not self.undecided:
            return []
        texts = [HEAD]
        for bet in self.bets:
            texts.append([bet.question, bet.bet, bet.measured, "✓" if bet.right else "✗"])
        for question, answer in self.undecided:
            texts.append([question, answer, "not decided", "–"])
        return texts

    @property
    def way(self) -> str:
        """``●★○○○○ 2 of 6 notebooks finished, 1 exercise solved (★), 7 of 11 bets right``."""
        return f"{way_in_text(self.progress)} {way_in_words(self.progress)}"

    @property
    def speedrun(self) -> str:
        """``Your speedrun: 188 s → 150 s. clipping: 1.25x faster. Kept.``; empty at its start."""
        board = Board()
        if not board.choices.made:
            return ""
        # Until something is measured the headline is another machine's.
        now = "nothing is kept yet" if board.waterfall.fresh else board.waterfall.headline()
        stars = FULL * board.waterfall.stars.won
        words = [f"Your speedrun: {now} {stars}".rstrip() + "."]
        for switch, choice in board.choices.made.items():
            if switch in SWITCHES and f"{SWITCHES[switch].notebook:02}" == self.notebook[:2]:
                words.append(labelled(decided_in_words(choice)))
        return " ".join(words)

    @property
    def goes_on(self) -> tuple[str, str]:
        """What comes next in words, and the notebook's path."""
        name = next_after(self.notebook, self.progress.finished)
        path = notebook_path(name)
        words = f"{name[:2]} {about(path).title}"
        return ("the map of the course" if name == PATH[0] else words), f"{place(path)}.ipynb"

    def __str__(self) -> str:
        words, target = self.goes_on
        table = aligned(self.rows) if self.rows else ""
        lines = [
            table,
            "" if self.done else NO_BETS,
            self.way,
            self.speedrun,
            f"Next: {words}, {target}",
            self.progress.said,
        ]
        return "\n".join(filter(None, lines))

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        """Shows it, and renews it in its place with each bet and each exercise that is solved."""
        shown = display(self._as_shown(), raw=True, display_id=True)
        guess.SCORE.watch(lambda: shown.update(ending(self.notebook)._as_shown(), raw=True))

    def _as_shown(self) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        words, target = self.goes_on
        link = element("a", f"{words} →", href=target)
        folded = Markup()
        if self.recorded.found:
            folded = show.details(
                Markup(self.recorded._repr_html_()), summary="What other machines gained"
            )
        table = rows(self.rows) if self.rows else Markup()
        if not self.done:
            table = show.join([table, show.note(NO_BETS)])
        return show.result(
            table,
            way(self.progress, self.notebook),
            show.sentence(way_in_words(self.progress)),
            show.sentence(self.speedrun) if self.speedrun else "",
            show.sentence("Next: ", element("b", link)),
            show.note(self.progress.said) if self.progress.said else "",
            folded,
        )


def ending(notebook: str) -> Ending:
    """Finish a notebook: its bets, the next one, and behind a fold what other machines gained.

    Notes in the reader's file that it is finished, if a run decided a bet or the exercise is
    solved; what a picture decided alone does not count for that.
    ValueError for a notebook without claims.
    """
    recorded = gains(notebook)
    solved, undecided = own.solved(notebook[:2]), guess.SCORE.undecided
    if not guess.SCORE.measured and not solved:
        return Ending(notebook, progress.read(), recorded, undecided, guess.SCORE.decided)
    found = progress.finish(notebook, guess.SCORE.decided, solved=solved)
    return Ending(notebook, found, recorded, undecided)
