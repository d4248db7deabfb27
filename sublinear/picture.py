"""A plan in letters: how much each block would save, what stays, and which segments run again."""

from __future__ import annotations

from sublinear.nodes import Checkpoint, Keep, Node, span
from sublinear.plan import Plan

_HEIGHTS = "▁▂▃▄▅▆▇█"
_WIDEST = 96
_DEEPEST = 4


def picture(plan: Plan) -> str:
    """Two rows, and one for each depth of checkpoints; at most 96 letters wide.

    Above, the bytes that each block saves in plain training, as a bar; below, what it keeps until
    its backward: the bar itself, "o" for chosen operators, "·" for nothing. Brackets are
    checkpoints. Several blocks share a letter where there are too many.
    """
    chain = plan.known_chain
    each = -(-len(chain) // _WIDEST)
    columns = range(0, len(chain), each)
    sizes = [block.options[0].saved_bytes for block in chain.blocks]
    sums = [sum(sizes[first : first + each]) for first in columns]
    most = max(1, *sums)
    bars = "".join(_HEIGHTS[min(7, 8 * size // most)] for size in sums)
    kept = {node.block: node.option for node in plan.nodes if isinstance(node, Keep)}
    stays = []
    for column, bar in zip(columns, bars, strict=True):
        options = {kept.get(block) for block in range(column, min(column + each, len(chain)))}
        if None in options:
            stays.append("·")
        else:
            stays.append("o" if any(options) else bar)
    rows = [f"saves  {bars}", f"keeps  {''.join(stays)}"]
    rows += _brackets(plan.nodes, each, len(columns))
    return "\n".join(rows)


def _brackets(nodes: tuple[Node, ...], each: int, width: int) -> list[str]:
    rows: list[str] = []
    level = [node for node in nodes if isinstance(node, Checkpoint)]
    while level and len(rows) < _DEEPEST:
        letters = [" "] * width
        for node in level:
            blocks = span(node)
            first, last = blocks[0] // each, blocks[-1] // each
            letters[first : last + 1] = "─" * (last + 1 - first)
            letters[first] = "╰" if last > first else "─"
            if last > first:
                letters[last] = "╯"
        title = "again  " if not rows else "       "
        rows.append(f"{title}{''.join(letters)}".rstrip())
        level = [inner for node in level for inner in node.inside if isinstance(inner, Checkpoint)]
    return rows
