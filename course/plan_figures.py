"""Plans in pictures: what happens to each block of a network, and what is alive when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from labkit.text import format_bytes
from sublinear.chain import Chain
from sublinear.events import RUNS, events
from sublinear.nodes import Checkpoint, Keep, Node, span
from sublinear.plan import Plan, keep_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2**20


class Held(NamedTuple):
    """What a block leaves alive, from event ``begin`` to event ``end`` of a plan's timeline.

    ``everything``: all that it saves; else only its output, the end of a checkpoint.
    """

    block: int
    begin: int
    end: int
    everything: bool


def plan_figure(plan: Plan, *, dark: bool = False) -> Figure:
    """What ``plan`` does to each block of its chain; the title says what it costs.

    Bars are the bytes that a block saves in plain training, full where they stay; brackets below
    are checkpoints.
    """
    from labkit.plots import BLUE, GREEN, GREY, ORANGE, PALETTE, legend, new_figure

    chain = plan.known_chain
    figure, (axis,) = new_figure(width=10, height=3.4, dark=dark)
    saved = [block.options[0].saved_bytes / MIB for block in chain.blocks]
    bars = axis.bar(range(len(chain)), saved, 0.8, facecolor="none", edgecolor=GREY, lw=0.8)
    bars.set_label("saved in plain training")
    kept, chosen, ends = _what_stays(chain, plan)
    _bars(axis, kept, BLUE, "stays until its backward")
    _bars(axis, ends, ORANGE, "output of a checkpoint, stays")
    _bars(axis, chosen, GREEN, "chosen operators only")
    step = max(saved) * 0.07
    for depth, blocks in _brackets(plan.nodes):
        edges, height = [blocks[0] - 0.4, blocks[-1] + 0.4], -step * (1 + depth)
        axis.plot(edges, [height, height], lw=3, color=PALETTE[depth % 6])
    axis.set(title=_title(plan), xlabel="block", ylabel="MiB")
    axis.set_xlim(-1, len(chain))
    axis.set_ylim(-step * (1.5 + plan.depth), None)
    # What lies below 0 are brackets, not bytes.
    top = axis.get_ylim()[1]
    axis.set_yticks([tick for tick in axis.get_yticks() if 0 <= tick <= top])
    legend(axis)
    return figure


def _title(plan: Plan) -> str:
    costs, plain = plan.costs, keep_all(plan.known_chain).costs
    memory, seconds = costs.peak_bytes / plain.peak_bytes, costs.seconds / plain.seconds
    return (
        f"{plan.method}: peak {format_bytes(costs.peak_bytes)}, {memory:.0%} of plain; "
        f"time {seconds:.2f}x (predicted)"
    )


Bars = dict[int, float]


def _what_stays(chain: Chain, plan: Plan) -> tuple[Bars, Bars, Bars]:
    """MiB by block: kept whole, kept in part, and kept of a checkpoint's last block.

    Blocks in checkpoints save nothing until they run again, whatever their option.
    """
    kept: Bars = {}
    chosen: Bars = {}
    ends: Bars = {}
    for node in plan.nodes:
        blocks = span(node)
        if isinstance(node, Checkpoint):
            ends[blocks[-1]] = chain.held(blocks[0], blocks[-1]) / MIB
        else:
            option = chain.blocks[node.block].options[node.option]
            bars = chosen if node.option else kept
            bars[node.block] = option.saved_bytes / MIB
    return kept, chosen, ends


def _bars(axis: Axes, bars: Bars, color: str, label: str) -> None:
    if bars:
        axis.bar(list(bars), list(bars.values()), 0.8, color=color, label=label)


def alive_figure(plans: Mapping[str, Plan], *, dark: bool = False) -> Figure:
    """For each plan by name the blocks that run, and how long what they save stays alive.

    One event stands after the other; at the right is the memory at each event.
    """
    from labkit.plots import PALETTE, legend, new_figure

    width = 3.1 * (len(plans) + 1)
    figure, axes = new_figure(len(plans) + 1, width=width, height=3.6, dark=dark)
    for axis, (name, plan), color in zip(axes, plans.items(), PALETTE, strict=False):
        _draw_held(axis, plan)
        axis.set(title=f"{name}: {plan.costs.run_again} run again", xlabel="event")
        peaks = [moment.peak_bytes / MIB for moment in plan.costs.timeline]
        axes[-1].plot(peaks, color=color, lw=1.2, label=name)
    axes[0].set_ylabel("block")
    axes[-1].set(title="Memory", xlabel="event", ylabel="MiB", ylim=(0, None))
    legend(axes[-1])
    return figure


def _draw_held(axis: Axes, plan: Plan) -> None:
    from labkit.plots import BLUE, GREY, ORANGE, RED

    for block, begin, end, everything in held(plan):
        color, width = (BLUE, 3) if everything else (ORANGE, 1)
        axis.plot([begin, end], [block, block], color=color, lw=width)
    for event, color in (("forward", BLUE), ("bare", GREY), ("backward", RED)):
        places, blocks = [], []
        for place, moment in enumerate(plan.costs.timeline):
            if moment.event == event:
                places.append(place)
                blocks.append(moment.block)
        if places:
            axis.plot(places, blocks, ".", color=color, ms=4)


def held(plan: Plan) -> Iterator[Held]:
    """What stays alive in a step of a plan, and from which event of its timeline to which."""
    since: dict[int, int] = {}
    clock = 0
    for event in events(plan.nodes):
        if event.kind == "drop":
            yield Held(event.block, since.pop(event.block), clock, everything=False)
        elif event.kind == "backward":
            yield Held(event.block, since.pop(event.block), clock, everything=True)
        elif event.kind in RUNS:
            since[event.block] = clock
        clock += event.kind in RUNS


def _brackets(nodes: Sequence[Node], depth: int = 0) -> Iterator[tuple[int, range]]:
    """Depth and blocks of every checkpoint."""
    for node in nodes:
        if isinstance(node, Keep):
            continue
        yield depth, span(node)
        yield from _brackets(node.inside, depth + 1)
