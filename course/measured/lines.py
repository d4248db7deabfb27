"""09: the lines of the moving picture, from the reader's own tensors, and the layers' layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from course.measured.layouts import FIRST, LAST, Laid, Layouts
from course.measured.sides import legend
from labkit.charts import svg
from labkit.charts.plot import Box
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

TIME = "fill arm5"
LETTERS = "c convolution, n norm, r ReLU"
HUES = {FIRST: "fill baseline", LAST: "fill candidate"}
LEGEND = [(HUES[FIRST], FIRST), (HUES[LAST], LAST), ("fill arm3", "lines fetched")]
STRIP, CELL, BAR, GAP = 13.0, 22.0, 13.0, 6.0


def of(layouts: Layouts) -> Callable[[object], str]:
    """For a panel's ``picture``: what each side's window fetches, its layers, its time.

    "" for what is no comparison, and where a side was not noted.
    """

    def picture(result: object) -> str:
        if not isinstance(result, Comparison) or result.error:
            return ""
        sides = []
        for role, side in zip(result.roles, result.arms, strict=True):
            if (laid := layouts.of(side.settings)) is None:
                return ""
            sides.append((role, laid, side.median))
        return draw(sides)

    return picture


def draw(sides: list[tuple[str, Laid, float]]) -> Markup:
    """Role, layers and seconds per step of each side."""
    longest = max(seconds for _, _, seconds in sides)
    parts, top = [], 0.0
    for role, laid, seconds in sides:
        box = Box(EDGE, top, WIDTH - EDGE, top, (0.0, longest))
        parts += svg.named(top + 0.75 * LINE, role, f"{format_seconds(seconds)} per step")
        parts.append(svg.rect(EDGE, top + LINE, box.x(seconds) - EDGE, BAR, TIME))
        parts += _lines(laid, top + LINE + BAR)
        parts += _layers(laid, top + 2 * LINE + BAR + STRIP + GAP)
        top += 3 * LINE + BAR + STRIP + CELL + 2 * GAP
    parts += legend(LEGEND, EDGE, top + 0.6 * LINE)
    parts.append(svg.text(EDGE, top + 1.5 * LINE, f"layers: {LETTERS}", "small"))
    words = "; ".join(f"{role}: {_window(laid)}, {_changes(laid)}" for role, laid, _ in sides)
    return svg.picture(top + 1.9 * LINE, words, parts)


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
