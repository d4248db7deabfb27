"""Small random chains of whole numbers, and all plans there are for them.

On such chains dynamic programs are exact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

from hypothesis import settings
from hypothesis import strategies as st

from sublinear.chain import NOBODY, Around, Block, Chain, Option, Rerun
from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan

few, sizes = st.integers(0, 3), st.integers(0, 7)
reruns = st.builds(Rerun, sizes, st.integers(-7, 7))
thorough = settings(max_examples=250, deadline=None, derandomize=True, database=None)


@st.composite
def options(draw):
    saved = draw(sizes)
    return Option("", saved, float(draw(few)), float(draw(few)), saved + draw(few), draw(sizes))


@st.composite
def chains(draw, max_blocks=5, menu=1, parts=False):
    """A chain whose bytes and seconds are small whole numbers; blocks of up to ``menu`` options.

    ``parts``: some outputs wait for the next block only, and some blocks run again in part.
    """

    count = draw(st.integers(1, max_blocks))
    # Skips: tensors that cross several cuts; cut 0 is the input, cut i is behind block i - 1.
    skips = draw(
        st.lists(st.tuples(st.integers(0, count), st.integers(0, count), sizes), max_size=2)
    )
    cuts = [[(cut, draw(sizes))] for cut in range(count + 1)]
    for number, (begin, end, size) in enumerate(skips):
        for cut in range(begin, end + 1):
            cuts[cut].append((100 + number, size))

    def block(number):
        crossing = tuple(cuts[number + 1])
        output = sum(size for _, size in crossing)
        menus = tuple(draw(st.lists(options(), min_size=1, max_size=menu)))
        own, size = cuts[number + 1][0]
        released = ()
        if parts and skips and draw(st.booleans()) and number + 1 < count:
            # Saved is what leaves the block, and more.
            menus = tuple(
                replace(o, saved_bytes=o.saved_bytes + size, forward_peak=o.forward_peak + size)
                for o in menus
            )
            released = ((own, NOBODY),)
        return Block(
            f"b{number}",
            output,
            menus,
            draw(few),
            draw(sizes),
            float(draw(few)),
            crossing if skips else (),
            released=released,
            rerun=draw(st.none() | reruns) if parts else None,
        )

    blocks = tuple(block(number) for number in range(count))
    entered = tuple(cuts[0]) if skips else ()
    before, after = Around(draw(sizes), draw(few)), Around(draw(sizes), draw(few))
    return Chain(
        blocks,
        draw(few),
        draw(few),
        4,
        "cpu",
        "estimated",
        float(draw(few)),
        entered,
        before,
        after,
    )


@cache
def all_plans(options: tuple[int, ...], depth: int = 99) -> list[Plan]:
    """Every plan for blocks with so many options each, checkpoints nested up to ``depth`` deep."""
    return [Plan(nodes, "one of all") for nodes in forests(0, len(options), options, depth)]


@cache
def forests(
    first: int, end: int, options: tuple[int, ...], depth: int = 99
) -> list[tuple[Node, ...]]:
    """Every plan for blocks first..end-1, checkpoints nested up to ``depth`` deep.

    ``options[i]``: how many block i has.

    A checkpoint that holds nothing but one checkpoint is left out: it repeats the forwards of the
    latter for nothing.
    """
    if first == end:
        return [()]
    return [
        (node, *rest)
        for middle in range(first + 1, end + 1)
        for node, rest in product(
            _nodes(first, middle, options, depth), forests(middle, end, options, depth)
        )
    ]


def _nodes(first: int, end: int, options: tuple[int, ...], depth: int) -> list[Node]:
    kept: list[Node] = (
        [Keep(first, option) for option in range(options[first])] if end == first + 1 else []
    )
    if depth == 0:
        return kept
    if end == first + 1:
        return [*kept, Checkpoint((Keep(first),))]
    # Inside a checkpoint blocks save everything.
    plain = (1,) * len(options)
    split = [  # at least two nodes inside
        (node, *rest)
        for middle in range(first + 1, end)
        for node, rest in product(
            _nodes(first, middle, plain, depth - 1), forests(middle, end, plain, depth - 1)
        )
    ]
    return kept + [Checkpoint(inside) for inside in split]


def random_chain(count: int, seed: int, menu: int = 1) -> Chain:
    """A chain of real sizes, for searches that need many blocks."""
    import random

    rng = random.Random(seed)
    blocks = []
    for number in range(count):
        output = int(rng.uniform(1e6, 2e7))
        saved, seconds = int(output * rng.uniform(1, 5)), rng.uniform(0.5e-3, 3e-3)
        choices = [Option("all", saved, seconds, 2 * seconds, saved + output // 3, saved // 2)]
        for part in range(1, menu):
            share = 1 - part / (2 * menu)
            less = max(output, int(saved * share))
            choices.append(
                Option(
                    f"part {part}", less, seconds, (3 - share) * seconds, saved + output // 3, saved
                )
            )
        blocks.append(
            Block(
                f"b{number}",
                output,
                tuple(choices),
                rng.randrange(10**6),
                2 * output,
                0.9 * seconds,
            )
        )
    return Chain(tuple(blocks), 5 * 10**6, 10**8, 32, "a made-up device", "estimated", 1e-3)
