"""09: the lines of the moving picture, from the reader's own tensors, and the layers' layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import ceil

from course.measured.layouts import FIRST, LAST, Laid, Layouts
from course.measured.sides import legend
from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds, number_of

TIME = "fill arm5"
LETTERS = "c convolution, n norm, r ReLU"
HUES = {FIRST: "fill baseline", LAST: "fill candidate"}
LEGEND = [
    (TIME, "time"),
    (HUES[FIRST], FIRST),
    (HUES[LAST], LAST),
    ("fill arm3", "lines fetched"),
]
STRIP, CELL, BAR, GAP = 13.0, 22.0, 13.0, 6.0


def of(layouts: Layouts) -> Callable[[object], str]:
    """For a panel's ``picture``: what each side's window fetches, its layers, its time.

    "" for what is no comparison, and where a side was not noted.
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.error:
            return ""
        sides = []
        each = zip(result.roles, result.arms, result.step_times, strict=True)
        for role, side, seconds in each:
            if (laid := layouts.of(side.settings)) is None:
                return ""
            sides.append((role, laid, seconds))
        return draw(sides, decided=result.tone != "unclear")

    return picture


def draw(sides: list[tuple[str, Laid, float]], *, decided: bool = True) -> Markup:
    """Role, layers and seconds per step of each side; ``decided``: the run tells them apart, or
    finds them the same.
    """
    longest = max(seconds for _, _, seconds in sides)
    others = [seconds for _, _, seconds in reversed(sides)]
    parts, top = [], 0.0
    for (role, laid, seconds), other in zip(sides, others, strict=True):
        box = Box(EDGE, top, WIDTH - EDGE, top, (0.0, longest))
        parts += svg.named(top + 0.75 * LINE, role, f"{format_seconds(seconds)} per step")
        parts.append(svg.rect(EDGE, top + LINE, box.x(seconds) - EDGE, BAR, TIME))
        parts += _lines(laid, top + LINE + BAR)
        parts += _layers(laid, top + 2 * LINE + BAR + STRIP + GAP)
        top += 3 * LINE + BAR + STRIP + CELL + 2 * GAP
        for words in search(laid, seconds, other if decided else None):
            parts.append(svg.text(EDGE, top + 0.5 * LINE, words))
            top += 0.9 * LINE
    parts += legend(LEGEND, EDGE, top + 0.6 * LINE)
    parts.append(svg.text(EDGE, top + 1.5 * LINE, f"layers: {LETTERS}", "small"))
    words = "; ".join(f"{role}: {_window(laid)}, {_changes(laid)}" for role, laid, _ in sides)
    return svg.picture(top + 1.9 * LINE, words, parts)


def search(laid: Laid, seconds: float, other: float | None) -> list[str]:
    """In words: what the reader's search kept, what it cost, and after how many steps it has paid,
    where a step takes ``seconds`` and one of the other side ``other``, None where that is unclear;
    [] where none searched.
    """
    if not laid.kept:
        return []
    cost = f"your search took {format_seconds(laid.searched)} for this size of image, and kept"
    kept = ", ".join(f"{count} × {name}" for name, count in Counter(laid.kept).most_common())
    pays = "it does not pay: no step is shorter"
    if other is None:
        pays = "this run does not tell whether it pays"
    elif seconds < other:
        pays = f"it pays after {number_of(ceil(laid.searched / (other - seconds)), 'step')}"
    return [cost, kept, pays]


def _window(laid: Laid) -> str:
    return f"{laid.reads}: {len(laid.lines)} lines, {100 * laid.used:.0f} % used"


def _changes(laid: Laid) -> str:
    times = "once" if laid.changes == 1 else f"{laid.changes} times"
    return f"the layout changes {times}" if laid.changes else "one layout for all layers"


def _lines(laid: Laid, top: float) -> Iterator[Markup]:
    """The memory of an image end to end, and the lines of it that a window fetches."""
    yield svg.text(EDGE, top + 0.75 * LINE, _window(laid), "small")
    box = Box(EDGE, top + LINE, WIDTH - EDGE, top + LINE + STRIP, (0.0, laid.count))
    yield svg.rect(EDGE, box.top, box.right - EDGE, STRIP, "field")
    for line in laid.lines:
        wide = max(1.0, box.x(line + 1) - box.x(line))
        yield svg.rect(box.x(line), box.top, wide, STRIP, "fill arm3")


def _layers(laid: Laid, top: float) -> Iterator[Markup]:
    """A cell for each layer, in the colour of its result's layout."""
    yield svg.text(EDGE, top + 0.75 * LINE, f"layers: {_changes(laid)}", "small")
    wide = (WIDTH - 2 * EDGE) / len(laid.layers)
    for number, (letter, name) in enumerate(laid.layers):
        left = EDGE + wide * number
        yield svg.rect(left, top + LINE, wide - 3, CELL, HUES.get(name, "field"))
        middle = left + (wide - 3) / 2
        yield svg.text(middle, top + LINE + 0.75 * CELL, letter, "small", "middle")
