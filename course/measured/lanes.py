"""The lanes of one epoch of both sides: the explorable of notebook 04 with the reader's times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course.measured.elsewhere import Elsewhere, in_lines
from course.measured.epochs import TRAINING, Batch, Epoch, Epochs, Loader
from course.measured.sides import both, legend, times
from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LETTER, LINE, WIDTH
from labkit.results import Comparison
from labkit.show import Markup
from labkit.text import format_seconds

LEFT, LANE, GAP = 104.0, 22.0, 4.0
LOADS, TRAINS, WAITS = "fill candidate", "fill faster", "fill slower"
QUEUED = "line thin candidate"
LEGEND = ((LOADS, "loading L"), (TRAINS, "training T"), (WAITS, "waiting"), (QUEUED, "queued"))


def of(epochs: Epochs, recorded: Elsewhere | None = None) -> Callable[[object], str]:
    """For a panel's ``picture``: an epoch of each side that took as long as the median one.

    What the best machine of ``recorded`` gained is written below. "" for what is no comparison,
    and where no epoch was noted.
    """

    def picture(result: object) -> str:
        sides = both(result, epochs.of)
        if not sides or not isinstance(result, Comparison):
            return ""
        return draw(sides, in_lines(recorded.matching(result) if recorded else ()))

    return picture


def draw(sides: Sequence[tuple[str, Epoch]], notes: Sequence[str] = ()) -> Markup:
    """The lanes of each side, on one scale of time; ``notes`` below them."""
    longest = max(epoch.seconds for _, epoch in sides)
    parts, top = [], 0.0
    for role, epoch in sides:
        parts += _heading(role, epoch, top)
        top += 1.7 * LINE
        parts += _lanes(epoch, top, longest)
        top += (1 + len(epoch.loaders)) * (LANE + GAP) + 6
    ground = _box(top, longest)._replace(bottom=top)
    parts += times(ground, longest)
    parts += legend(LEGEND, LEFT, top + 2 * LINE)
    bottom = top + 2.4 * LINE
    for note in notes:
        bottom += 0.75 * LINE
        parts.append(svg.text(EDGE, bottom - 6, note, "small"))
    words = [f"{role}: {_in_words(epoch)}" for role, epoch in sides]
    return svg.picture(bottom, "One epoch. " + ". ".join(words), parts)


def _heading(role: str, epoch: Epoch, top: float) -> list[Markup]:
    """The side and its epoch; below, what a batch takes."""
    found = f"L = {format_seconds(epoch.load)}, T = {format_seconds(epoch.train)}"
    return svg.named(top + 0.9 * LINE, role, f"{format_seconds(epoch.seconds)} per epoch", found)


def _in_words(epoch: Epoch) -> str:
    """What a heading says, for who does not see it."""
    return (
        f"{format_seconds(epoch.seconds)}, of which {epoch.waits / epoch.seconds:.0%} without "
        f"training; loading a batch takes {format_seconds(epoch.load)}, "
        f"training on it {format_seconds(epoch.train)}"
    )


def _box(top: float, longest: float) -> Box:
    return Box(LEFT, top, WIDTH - EDGE, top + LANE, (0.0, longest))


def _lanes(epoch: Epoch, top: float, longest: float) -> list[Markup]:
    """Training, and a lane for each worker, or for the thread that loads in their place."""
    parts, boxes = [], {}
    for number, loader in enumerate((TRAINING, *epoch.loaders)):
        box = boxes[loader] = _box(top + number * (LANE + GAP), longest)
        name = f"{loader.kind} {number}" if number else loader.kind
        kind = "" if number else "bold"
        parts += [field(box), svg.text(LEFT - 8, box.bottom - 5, name, kind, "end")]
    # When each loader begins its next batch.
    following: dict[Loader, float] = {}
    for number, batch in reversed(list(enumerate(epoch.batches, 1))):
        until = min(batch.take, following.get(batch.loader, batch.take))
        following[batch.loader] = batch.begin
        if batch.loader == TRAINING:
            parts += _bar(boxes[TRAINING], batch.begin, batch.end, LOADS, str(number))
        else:
            parts += _loaded(str(number), batch, until, boxes[batch.loader])
            parts += _bar(boxes[TRAINING], batch.want, batch.take, WAITS)
        parts += _bar(boxes[TRAINING], batch.take, batch.done, TRAINS, str(number))
    # Workers that are not kept end before the next epoch begins.
    last = epoch.batches[-1].done
    return [*parts, *_bar(boxes[TRAINING], last, epoch.seconds, WAITS)]


def _loaded(number: str, batch: Batch, until: float, box: Box) -> list[Markup]:
    """A batch in the lane of who loads it, and a line while it is kept in the queue."""
    parts = _bar(box, batch.begin, batch.end, LOADS, number)
    if until > batch.end:
        middle = (box.top + box.bottom) / 2
        kept = [(box.x(batch.end), middle), (box.x(until), middle)]
        parts.append(svg.path(kept, QUEUED))
    return parts


def _bar(box: Box, begin: float, end: float, kind: str, word: str = "") -> list[Markup]:
    """A bar, and its word where there is room for it."""
    left, right = box.x(begin), box.x(end)
    parts = [svg.rect(left + 0.5, box.top, max(0.5, right - left - 1), LANE, kind)]
    if word and right - left > LETTER * len(word) + 4:
        parts.append(svg.text((left + right) / 2, box.bottom - 5, word, "", "middle"))
    return parts
