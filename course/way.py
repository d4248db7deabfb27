"""The path through the course as a row of steps: what is finished, and what was solved."""

from __future__ import annotations

from collections.abc import Sequence

from course.notebook_files import notebook_path, place
from course.progress import PATH, Progress
from labkit import show
from labkit.panel.guess import score_in_words
from labkit.show import Markup, element

DONE, OPEN, STAR = "●", "○", "★"
STYLE = """
.labkit-way { display: flex; flex-wrap: wrap; gap: 4px 6px; margin: 8px 0 4px; }
.labkit-way a {
  position: relative;
  width: 30px;
  height: 30px;
  border: 1.5px solid var(--labkit-line);
  border-radius: 50%;
  color: inherit;
  font-size: 12px;
  font-weight: 600;
  line-height: 27px;
  text-align: center;
  text-decoration: none;
}
.labkit-way .labkit-done { border-color: #009e73; background: #009e7333; }
.labkit-way .labkit-here { box-shadow: 0 0 0 2px #009e73; }
.labkit-way .labkit-star { position: absolute; top: -9px; right: -7px; font-size: 16px; }
"""
# Cells break between words, so that all columns are seen; names leave the room to what is beside.
BREAKING = """
.labkit-result .labkit-rows .labkit-scroll > table:not(.labkit-source) :is(th, td):nth-child(n) {
  white-space: normal;
}
.labkit-rows tbody th { overflow-wrap: anywhere; }
.labkit-rows .labkit-scroll > table thead th:first-child { min-width: 7em; }
@container (max-width: 520px) {
  .labkit-result .labkit-rows .labkit-scroll > table:not(.labkit-source) :is(th, td):nth-child(n) {
    padding: 3px 4px;
  }
  /* In the map, which has six columns, the name stands above the others. */
  .labkit-rows table:has(th:nth-child(6)),
  .labkit-rows table:has(th:nth-child(6)) :is(thead, tbody) { display: block; }
  .labkit-rows table:has(th:nth-child(6)) tr {
    display: grid;
    grid-template-columns: 26% 12% 15% 20% 27%;
  }
  .labkit-result .labkit-rows .labkit-scroll > table:has(th:nth-child(6)) th:nth-child(1) {
    grid-column: 1 / -1;
    padding-bottom: 0;
    border: 0;
  }
}
"""


def way_in_words(progress: Progress) -> str:
    """``2 of 6 notebooks finished, 1 exercise solved (★), 7 of 11 bets right so far``."""
    done = [name for name in PATH if name in progress.finished]
    stars = [name for name in done if progress.finished[name].solved]
    parts = [f"{len(done)} of {len(PATH)} notebooks finished"]
    if stars:
        parts.append(
            f"{len(stars)} {'exercises' if len(stars) > 1 else 'exercise'} solved ({STAR})"
        )
    if score := score_in_words(progress.bets):
        parts.append(f"{score} so far")
    return ", ".join(parts)


def way_in_text(progress: Progress) -> str:
    """``●★○○○○``: open, finished, and finished with its exercise solved."""
    return "".join(_mark(progress, name) for name in PATH)


def _mark(progress: Progress, name: str) -> str:
    if name not in progress.finished:
        return OPEN
    return STAR if progress.finished[name].solved else DONE


def rows(texts: Sequence[Sequence[str]]) -> Markup:
    """A table of notebooks or questions, below their head."""
    style = element("style", Markup(BREAKING))
    return show.join([style, element("div", show.table(texts), kind="rows")])


def way(progress: Progress, here: str = "") -> Markup:
    """The steps as links; that of the notebook ``here``, which was just finished, moves."""
    steps = [_step(progress, name, name == here) for name in PATH]
    style = element("style", Markup(STYLE))
    return show.join([style, element("div", *steps, kind="way")])


def _step(progress: Progress, name: str, here: bool) -> Markup:
    mark = _mark(progress, name)
    kinds = ["done"] if mark != OPEN else []
    kinds += ["here", "new"] if here else []
    star = element("span", STAR, kind="star") if mark == STAR else ""
    words = {OPEN: "open", DONE: "finished", STAR: "finished, its exercise solved"}[mark]
    target = f"{place(notebook_path(name))}.ipynb"
    return element("a", name[:2], star, href=target, title=words, kind=" ".join(kinds))
