"""12: a planned network as the moving picture has it, with the measured peaks of both sides.

A bar for each block, the cuts between them, and below the memory block by block, as the plan's
table has it. Gradients, and what an operator takes for a moment, are in no block's column: by so
much the measured peak is above the highest piece, which is drawn on top of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from labkit.charts import svg
from labkit.charts.plot import Box, field
from labkit.charts.svg import EDGE, LETTER, LINE, WIDTH
from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.show import Markup
from labkit.text import format_bytes
from sublinear import Checkpoint, Keep, Plan

LEFT, BARS, BAR, GAP, HEIGHT = 108.0, 30.0, 84.0, 52.0, 200.0
SAVED, OUTPUT, HIGHEST = "fill candidate", "fill arm3", "fill slower"
BESIDE = "band slower"
LEGEND = ((SAVED, "saved"), (OUTPUT, "outputs"), (HIGHEST, "highest piece"), ("floor", "weights"))
# Blocks up to which each has its number.
FEW = 24


class Stand(NamedTuple):
    """The memory when a block has run for its backward, in bytes: of what was kept before it the
    outputs of checkpoints and what was saved, and what it saves. ``piece``: its checkpoint's
    number.
    """

    outputs: int
    before: int
    saves: int
    piece: int

    @property
    def top(self) -> int:
        return self.outputs + self.before + self.saves


def stands(plan: Plan) -> list[Stand]:
    """A `Stand` for each block. ValueError for a plan without its chain."""
    if plan.chain is None:
        raise ValueError("this plan has no chain; use one that sublinear.plan(chain) made")
    found: list[Stand] = []
    pieces = iter(range(len(plan)))

    def walk(nodes: Sequence[Keep | Checkpoint], outputs: int, before: int) -> None:
        blocks = plan.chain.blocks if plan.chain else ()
        piece = None
        for node in nodes:
            if isinstance(node, Checkpoint):
                walk(node.inside, outputs, before)
                outputs += blocks[len(found) - 1].output_bytes
                piece = None
                continue
            piece = next(pieces) if piece is None else piece
            saves = blocks[node.block].options[node.option].saved_bytes
            found.append(Stand(outputs, before, saves, piece))
            before += saves

    walk(plan.nodes, 0, 0)
    return found


class Cuts:
    """A function for `LabPanel(picture=...)` that remembers the plan of each setting.

    >>> cuts = Cuts()
    >>> cuts("no comparison of memory")
    ''
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def note(self, plan: Plan, *settings: Any) -> Plan:
        """The plan, remembered as that of these settings, in the order of the lab's controls."""
        self._plans[settings] = plan
        return plan

    def __call__(self, result: object) -> str:
        if not isinstance(result, MemoryComparison) or result.why_no_factor:
            return ""
        plans = [self._plans.get(tuple(side.settings.values())) for side in result.arms]
        if plans[0] is None or plans[1] is None:
            return ""
        return picture(plans[0], plans[1], result.baseline, result.candidate)


def picture(before: Plan, plan: Plan, baseline: Timeline, candidate: Timeline) -> Markup:
    """The candidate's plan, the baseline as a grey line, both with their measured peaks."""
    chain = plan.chain
    if chain is None or before.chain is None:
        raise ValueError("these plans have no chain; use those that sublinear.plan(chain) made")
    heights, others = stands(plan), stands(before)
    ground = chain.fixed_bytes
    peaks = [side.peak or 0 for side in (baseline, candidate)]
    top = BARS + BAR + GAP
    box = Box(LEFT, top, WIDTH - EDGE, top + HEIGHT, (0, len(heights)), (0, 1.12 * max(peaks)))
    red = max(heights, key=lambda each: each.top).piece
    parts = [*_bars(plan, heights, box, red), field(box)]
    parts.append(svg.text(LEFT, top - 8, "memory, block by block", "small"))
    for size in (0.0, max(peaks) / 2, float(max(peaks))):
        words = format_bytes(round(size)) if size else "0"
        parts.append(svg.text(LEFT - 6, box.y(size) + 5, words, "small", "end"))
    for place, each in enumerate(heights):
        low = ground + each.outputs
        look = HIGHEST if each.piece == red else SAVED
        parts.append(_column(box, place, ground, low, OUTPUT))
        parts.append(_column(box, place, low, ground + each.top, look))
    parts.append(_column(box, 0, 0, ground, "floor", len(heights)))
    most = max(each.top for each in heights)
    place = [each.top for each in heights].index(most)
    parts.append(_column(box, place, ground + most, max(ground + most, peaks[1]), BESIDE))
    corners = []
    for place, each in enumerate(others):
        y = box.y(before.chain.fixed_bytes + each.top)
        corners += [(box.x(place), y), (box.x(place + 1), y)]
    parts.append(svg.path(corners, "line baseline"))
    y = box.y(peaks[1])
    parts.append(svg.path([(box.left, y), (box.right, y)], "line thin slower", "5 4"))
    cuts = sum(1 for _ in _boundaries(plan))
    words = f"measured peak {candidate.peak_text}"
    parts.append(svg.text(box.left + 6, y - 8, words, "bold"))
    share = sum(each.saves for each in others) / max(1, peaks[0])
    parts += _legend(box.bottom + LINE, baseline, share)
    said = f"{cuts} cuts: peak {candidate.peak_text} instead of {baseline.peak_text}"
    return svg.picture(box.bottom + 3.6 * LINE, said, parts)


def _column(box: Box, place: int, low: float, high: float, kind: str, blocks: int = 1) -> Markup:
    left, right = box.x(place), box.x(place + blocks)
    return svg.rect(left, box.y(high), right - left, box.y(low) - box.y(high), kind)


def _bars(plan: Plan, heights: Sequence[Stand], box: Box, red: int) -> list[Markup]:
    """What each block would save, its output on top, and the cuts."""
    blocks = plan.chain.blocks if plan.chain else ()
    saved = [block.options[0].saved_bytes for block in blocks]
    scale = BAR / max(1, *saved)
    bottom = BARS + BAR
    parts = [svg.text(LEFT, BARS - 10, "what each block saves", "small")]
    for place, (block, size) in enumerate(zip(blocks, saved, strict=True)):
        left, right = box.x(place) + 2, box.x(place + 1) - 2
        look = HIGHEST if heights[place].piece == red else SAVED
        handed = min(size, block.output_bytes) * scale
        rest = size * scale - handed
        parts.append(svg.rect(left, bottom - rest, right - left, rest, look))
        parts.append(svg.rect(left, bottom - size * scale, right - left, handed, OUTPUT))
        if len(blocks) <= FEW:
            parts.append(svg.below((left + right) / 2, bottom + 17, str(place + 1)))
    for place in _boundaries(plan):
        x = box.x(place)
        parts.append(svg.path([(x, BARS - 4), (x, bottom + 3)], "line baseline"))
    return parts


def _boundaries(plan: Plan) -> Iterator[int]:
    """The blocks before which a piece begins or ends."""
    found = {0, len(plan)}

    def walk(nodes: Sequence[Keep | Checkpoint]) -> None:
        for node in nodes:
            if isinstance(node, Checkpoint):
                blocks = list(_blocks(node))
                found.update((blocks[0], blocks[-1] + 1))
                walk(node.inside)

    walk(plan.nodes)
    yield from sorted(found - {0, len(plan)})


def _blocks(node: Keep | Checkpoint) -> Iterator[int]:
    if isinstance(node, Keep):
        yield node.block
        return
    for each in node.inside:
        yield from _blocks(each)


def _legend(y: float, baseline: Timeline, share: float) -> list[Markup]:
    parts, x = [], LEFT
    for look, name in LEGEND:
        parts.append(svg.rect(x, y - 11, 12, 12, look))
        parts.append(svg.text(x + 18, y, name, "small"))
        x += 34 + LETTER * len(name)
    below = y + LINE
    parts.append(svg.path([(LEFT, below - 5), (LEFT + 24, below - 5)], "line baseline"))
    words = f"baseline: {baseline.peak_text}, {share:.0%} of it saved by blocks"
    parts.append(svg.text(LEFT + 32, below, words, "small"))
    lowest = below + LINE
    parts.append(svg.rect(LEFT, lowest - 11, 12, 12, BESIDE))
    parts.append(svg.text(LEFT + 18, lowest, "gradients and what operators need", "small"))
    return parts
