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
from course.shortlist import Shortlist, shortlist
from course.switches import SWITCHES, labelled
from course.way import rows, way, way_in_text, way_in_words
from labkit import show
from labkit.panel import guess
from labkit.panel.guess import Decided
from labkit.show import Markup, element
from labkit.text import aligned

HEAD = ["question", "you bet", "you measured", ""]
NO_BETS = (
    "No run with a bet has ended in the panel here, so this notebook is not counted as finished. "
    "Place a bet in the panel, press Run, and let it run to its end."
)
LAST = "You are at the end of the path. This is the map of the course, with your bets:"
ALL = "You have finished the whole path. This is the map of the course, with your bets:"


@dataclass(frozen=True)
class Ending:
    """How a notebook ended for its reader: `print` it, or end a cell in it."""

    notebook: str
    progress: Progress
    recorded: Gains
    undecided: tuple[tuple[str, str], ...] = ()
    map: Shortlist | None = None

    @property
    def bets(self) -> tuple[Decided, ...]:
        """The reader's bets in this notebook, in this session and earlier ones."""
        return self.progress.bets_in(self.notebook)

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
    def goes_on(self) -> list[tuple[str, str]]:
        """What comes next: titles, and the notebooks' paths."""
        names = next_after(self.notebook, self.progress.finished)
        paths = [notebook_path(name) for name in names]
        return [(f"{path.stem[:2]} {about(path).title}", f"{place(path)}.ipynb") for path in paths]

    @property
    def finale(self) -> str:
        """The sentence above the map; empty where it is not shown."""
        if self.map is None:
            return ""
        return ALL if all_finished(self.progress) else LAST

    def __str__(self) -> str:
        table = aligned(self.rows) if self.rows else ""
        lines = [
            table,
            "" if self.done else NO_BETS,
            self.way,
            self.speedrun,
            *(f"Next: {words}, {target}" for words, target in self.goes_on),
            self.progress.said,
            self.finale,
            str(self.map or ""),
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
        links = [element("a", f"{words} →", href=target) for words, target in self.goes_on]
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
            show.sentence("Next: ", element("b", show.join(links, ", "))) if links else "",
            show.note(self.progress.said) if self.progress.said else "",
            show.sentence(element("b", self.finale)) if self.map else "",
            Markup(self.map._repr_html_()) if self.map else "",
            folded,
        )


def ending(notebook: str) -> Ending:
    """Finish a notebook: its bets, the next one, and behind a fold what other machines gained.

    Notes in the reader's file the bets that were decided. It is finished if a run with a bet has
    ended, whether or not it decided the bet, or the exercise is solved; what a picture decided
    alone does not count for that. The last of the path shows the map of the course, and so does
    each where all are finished. ValueError for a notebook without claims.
    """
    recorded = gains(notebook)
    bets, solved = guess.SCORE.decided, own.solved(notebook[:2])
    done = guess.SCORE.measured or solved
    if bets or done:
        found = progress.note(notebook, bets, solved=solved, done=done)
    else:
        found = progress.read()
    # The first notebook shows the map anyway.
    last = notebook == PATH[-1] or (all_finished(found) and notebook != PATH[0])
    return Ending(notebook, found, recorded, guess.SCORE.undecided, shortlist() if last else None)


def all_finished(found: Progress) -> bool:
    """Whether each notebook of the path is finished."""
    return set(PATH) <= set(found.finished)
