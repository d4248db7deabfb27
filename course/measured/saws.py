"""11: the memory of a measured step as the saw of the moving picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LINE, WIDTH
from labkit.memory_timeline import BACKWARD, FORWARD, OPTIMIZER, MemoryComparison, Timeline
from labkit.show import Markup
from labkit.text import format_bytes

AGAIN = "forward again"
TORCH = "torch's checkpoint"
# The moving picture's colours, by the classes of labkit's pictures.
HUES = {FORWARD: "arm3", AGAIN: "arm5", BACKWARD: "faster"}
LEFT, TOP, HEIGHT = 108.0, 24.0, 270.0
# A rise is a tooth from this part of the highest one on, and of what the step adds.
TOOTH, LEAST = 0.5, 0.1
# Columns of a drawing.
COLUMNS = 240


class Saws:
    """A function for `LabPanel(picture=...)`: plain, torch's checkpoint, and the reader's own.

    It remembers torch's saws, to draw them behind the reader's in the same setting; where torch's
    is the baseline, it is the only line. ``control``
    is the control that says whose checkpoint ran, ``own`` its value for the reader's. For anything
    but a comparison of memory it returns "".
    """

    def __init__(self, control: str = "by", own: str = "yours") -> None:
        self._control, self._own = control, own
        self._before: dict[str, Timeline] = {}

    def __call__(self, result: object) -> str:
        if not isinstance(result, MemoryComparison) or result.why_no_factor:
            return ""
        plain, side = result.baseline, result.candidate
        if not plain.alive or not side.alive:
            return ""
        setting = self._setting(side)
        if side.settings.get(self._control) != self._own:
            self._before[setting] = side
            return picture(plain, side, "checkpoints")
        if self._setting(plain) == setting:
            return picture(plain, side, "your checkpoints", line=TORCH)
        return picture(plain, side, "your checkpoints", self._before.get(setting))

    def _setting(self, side: Timeline) -> str:
        rest = {name: value for name, value in side.settings.items() if name != self._control}
        return repr(sorted(rest.items()))


def picture(
    plain: Timeline,
    side: Timeline,
    name: str,
    torchs: Timeline | None = None,
    line: str = "without checkpoints",
) -> Markup:
    """The plain step as a line, the other one as a saw under it, both up to the optimizer.

    ``line`` says what the plain step is. ``torchs`` is a third, a line whose parts are as long as
    the saw's. What was there before the step is grey.
    """
    every = [plain, side, *([torchs] if torchs else [])]
    most = 1.12 * max(max(each.alive) for each in every)
    box = Box(
        LEFT, TOP, WIDTH - EDGE, TOP + HEIGHT, (0, max(worked(plain), worked(side))), (0, most)
    )
    ground = box.y(side.before)
    parts = [field(box), svg.text(LEFT, TOP - 8, "memory, over the operators of one step", "small")]
    for size in (0.0, most / 2.24, most / 1.12):
        words = format_bytes(round(size)) if size else "0"
        parts.append(svg.text(LEFT - 6, box.y(size) + 5, words, "small", "end"))
    for begin, end, kind in stretches(side):
        parts.append(svg.path(_area(side, begin, end, box), f"fill {HUES[kind]}"))
    parts.append(svg.rect(box.left, ground, box.right - box.left, box.bottom - ground, "floor"))
    parts.append(svg.text(LEFT + 6, box.bottom - 6, "there before the step", "small"))
    # Torch's step has more operators: each of its parts is drawn over that of the saw.
    beside = _over(plain, side, box) if line == TORCH else _corners(plain, 0, worked(plain), box)
    parts.append(svg.path(beside, "line baseline"))
    lines = [(line, plain, "line baseline")]
    if torchs:
        parts.append(svg.path(_over(torchs, side, box), "whisker"))
        lines.append((TORCH, torchs, "whisker"))
    parts += _peak(side, box)
    foot = box.bottom + LINE
    parts += _legend(foot, lines)
    said = f"{name}: {side.peak_text} instead of {plain.peak_text}, {teeth(side)}"
    return svg.picture(foot + LINE * (len(lines) + 0.5), said, parts)


def worked(side: Timeline) -> int:
    """The operators before the optimizer's; all of them where there is none."""
    return next((begin for begin, name in side.parts if name == OPTIMIZER), len(side.alive))


def teeth(side: Timeline) -> str:
    """``8 teeth``: how many times forward runs again within the backward part of the step."""
    count = sum(kind == AGAIN for _, _, kind in stretches(side))
    return f"{count or 'no'} {'tooth' if count == 1 else 'teeth'}"


def stretches(side: Timeline) -> list[tuple[int, int, str]]:
    """Operators from and to, and what they do, up to the optimizer.

    Within backward, memory rises where forward runs again.
    """
    ends = [begin for begin, _ in side.parts[1:]] + [len(side.alive)]
    found = []
    for (begin, name), end in zip(side.parts, ends, strict=True):
        if name == OPTIMIZER:
            break
        last = begin
        for low, high in _rises(side, begin, end) if name == BACKWARD else ():
            found += [(last, low, BACKWARD), (low, high, AGAIN)]
            last = high
        found.append((last, end, name))
    return [each for each in found if each[0] < each[1]]


def _rises(side: Timeline, begin: int, end: int) -> list[tuple[int, int]]:
    """Where memory rises to a tooth: from its lowest operator to behind its highest."""
    alive = side.alive[begin:end]
    least = LEAST * (max(side.alive) - side.before)
    if least <= 0:
        return []
    rough = _swings(alive, least)
    highest = max((alive[high] - alive[low] for low, high in rough), default=0)
    fine = _swings(alive, max(least, TOOTH * highest))
    return [(begin + low, begin + high + 1) for low, high in fine]


def _swings(alive: Sequence[int], least: float) -> Iterator[tuple[int, int]]:
    """Rises by at least so much, each ended by a fall of as much."""
    low = high = 0
    for place, size in enumerate(alive):
        rising = alive[high] - alive[low] >= least
        if size > alive[high]:
            high = place
        if rising and alive[high] - size >= least:
            yield low, high
            low = high = place
        elif not rising and size <= alive[low]:
            low = high = place


# ------------------------------------------------------------------------------------------ drawn


def _corners(side: Timeline, begin: int, end: int, box: Box) -> list[tuple[float, float]]:
    """The steps of a line, of neighbours the highest."""
    every = max(1, round((box.across[1] - box.across[0]) / COLUMNS))
    corners: list[tuple[float, float]] = []
    for place in range(begin, end, every):
        y = box.y(max(side.alive[place : min(end, place + every)]))
        corners += [(box.x(place), y), (box.x(min(end, place + every)), y)]
    return corners


def _area(side: Timeline, begin: int, end: int, box: Box) -> list[tuple[float, float]]:
    """Down to what was there before."""
    corners, ground = _corners(side, begin, end, box), box.y(side.before)
    return [(corners[0][0], ground), *corners, (corners[-1][0], ground)]


def _over(other: Timeline, side: Timeline, box: Box) -> list[tuple[float, float]]:
    """The line of another step, each of whose parts begins and ends where those of ``side`` do."""
    ends = [_ends(each) for each in (other, side)]
    if len(ends[0]) != len(ends[1]):
        ends = [[0, worked(each)] for each in (other, side)]
    corners = []
    for (low, high), (begin, end) in zip(*map(pairwise, ends), strict=True):
        part = box._replace(left=box.x(begin), right=box.x(end), across=(low, high))
        corners += _corners(other, low, high, part)
    return corners


def _ends(side: Timeline) -> list[int]:
    """Where the parts before the optimizer's begin, and where the last of them ends."""
    return [*(begin for begin, name in side.parts if name != OPTIMIZER), worked(side)]


def _peak(side: Timeline, box: Box) -> list[Markup]:
    """A line at the highest place, a dot on it; at the right edge where the optimizer has it."""
    highest = max(side.alive)
    y = box.y(highest)
    place = ", later, in optimizer.step()" if side.peak_part == OPTIMIZER else ""
    words = f"peak {side.peak_text}{place} · {teeth(side)}"
    return [
        svg.path([(box.left, y), (box.right, y)], "line thin arm3", "5 4"),
        svg.dots([(box.x(side.alive.index(highest) + 0.5), y)], "end arm3"),
        svg.text(box.right - 4, y - 9, words, "bold", "end"),
    ]


def _legend(y: float, lines: Sequence[tuple[str, Timeline, str]]) -> list[Markup]:
    parts, x = [], LEFT
    for kind, hue in HUES.items():
        parts.append(svg.rect(x, y - 11, 12, 12, f"fill {hue}"))
        parts.append(svg.text(x + 18, y, kind, "small"))
        x += 34 + svg.LETTER * len(kind)
    for number, (words, side, look) in enumerate(lines, 1):
        below = y + LINE * number
        parts.append(svg.path([(LEFT, below - 5), (LEFT + 24, below - 5)], look))
        parts.append(svg.text(LEFT + 32, below, f"{words}: {side.peak_text}", "small"))
    return parts
