"""Plans in pictures: what happens to each block of a network, and what is alive when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from labkit.text import format_bytes
from sublinear.chain import Chain
from sublinear.cost import Prediction, simulate
from sublinear.plan import Checkpoint, Keep, Node, Plan, keeps, span
from sublinear.searches.simple import keep_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Held = tuple[
    int, int, int, bool
]  # block; from which event to which; whether all that it saves, or its output only


def plan_figure(chain: Chain, plan: Plan, *, dark: bool = False) -> Figure:
    """What ``plan`` does to each block of ``chain``: bars are the bytes that it saves in plain training, full where
    they stay; brackets below are checkpoints. The title says what it costs, next to plain training."""
    from labkit.plots import BLUE, GREEN, GREY, ORANGE, PALETTE, legend, new_figure

    costs, plain = simulate(chain, plan), simulate(chain, keep_all(chain))
    figure, (axis,) = new_figure(width=10, height=3.4, dark=dark)
    saved = [block.options[0].saved_bytes / 2**20 for block in chain.blocks]
    stays, ends = [0.0] * len(chain), [0.0] * len(chain)
    top = {
        keep.block: chain.blocks[keep.block].options[keep.option]
        for keep in plan.nodes
        if isinstance(keep, Keep)
    }
    for block, option in top.items():
        stays[block] = option.saved_bytes / 2**20
    for node in plan.nodes:
        if isinstance(node, Checkpoint):
            blocks = span(node)
            ends[blocks[-1]] = chain.held(blocks[0], blocks[-1]) / 2**20
    places = range(len(chain))
    selective = [keep.block for keep in keeps(plan.nodes) if keep.option]
    axis.bar(
        places,
        saved,
        0.8,
        facecolor="none",
        edgecolor=GREY,
        lw=0.8,
        label="saved in plain training",
    )
    axis.bar(places, stays, 0.8, color=BLUE, label="stays until its backward")
    axis.bar(places, ends, 0.8, color=ORANGE, label="output of a checkpoint, stays")
    if selective:
        axis.bar(
            selective,
            [stays[i] for i in selective],
            0.8,
            color=GREEN,
            label="chosen operators only",
        )
    step = max(saved) * 0.07
    for depth, blocks in _brackets(plan.nodes):
        axis.plot(
            [blocks[0] - 0.4, blocks[-1] + 0.4],
            [-step * (1 + depth)] * 2,
            lw=3,
            color=PALETTE[depth % 6],
        )
    memory, seconds = costs.peak_bytes / plain.peak_bytes, costs.seconds / plain.seconds
    title = f"{plan.method}: peak {format_bytes(costs.peak_bytes)}, {memory:.0%} of plain; time {seconds:.2f}x"
    axis.set(
        title=f"{title} (predicted)",
        xlabel="block",
        ylabel="MiB",
        ylim=(-step * (1.5 + plan.depth), None),
    )
    ticks = [tick for tick in axis.get_yticks() if 0 <= tick <= axis.get_ylim()[1]]
    axis.set_yticks(ticks)  # what lies below are brackets, not bytes
    axis.set_xlim(-1, len(chain))
    legend(axis)
    return figure


def alive_figure(chain: Chain, plans: Mapping[str, Plan], *, dark: bool = False) -> Figure:
    """For each plan by name, the blocks that run, one event after the other, and how long what they save stays alive;
    at the right the memory at each event."""
    from labkit.plots import PALETTE, legend, new_figure

    figure, axes = new_figure(len(plans) + 1, width=3.1 * (len(plans) + 1), height=3.6, dark=dark)
    for axis, (name, plan), hue in zip(axes, plans.items(), PALETTE, strict=False):
        costs = simulate(chain, plan)
        _draw_held(axis, costs, list(_held(plan.nodes)), name)
        peaks = [moment.peak_bytes / 2**20 for moment in costs.timeline]
        axes[-1].plot(peaks, color=hue, lw=1.2, label=name)
    axes[0].set_ylabel("block")
    axes[-1].set(title="Memory", xlabel="event", ylabel="MiB", ylim=(0, None))
    legend(axes[-1])
    return figure


def _draw_held(axis: Axes, costs: Prediction, held: Sequence[Held], name: str) -> None:
    from labkit.plots import BLUE, GREY, ORANGE, RED

    for block, begin, end, everything in held:
        axis.plot(
            [begin, end],
            [block, block],
            color=BLUE if everything else ORANGE,
            lw=3 if everything else 1,
        )
    for event, hue in (("forward", BLUE), ("bare", GREY), ("backward", RED)):
        here = [
            (n, moment.block) for n, moment in enumerate(costs.timeline) if moment.event == event
        ]
        if here:
            axis.plot(*zip(*here, strict=True), ".", color=hue, ms=4)
    again = sum(costs.block_forwards) - len(costs.block_forwards)
    axis.set(title=f"{name}: {again} run again", xlabel="event")


def _held(nodes: Sequence[Node]) -> Iterator[Held]:
    """What stays alive in a step of a plan, in the order and with the events of `simulate`."""
    clock = 0
    since: dict[
        int, int
    ] = {}  # block: the event after which what it saves, or its output, is there
    found: list[Held] = []

    def forward(nodes: Sequence[Node], inside: bool) -> None:
        nonlocal clock
        for node in nodes:
            if isinstance(node, Keep):
                since[node.block] = clock
                clock += 1
            elif not (inside and node is nodes[-1]):
                clock += len(span(node))
                since[span(node)[-1]] = clock - 1

    def backward(nodes: Sequence[Node], inside: bool) -> None:
        nonlocal clock
        for node in reversed(nodes):
            last = span(node)[-1]
            if isinstance(node, Keep):
                found.append((last, since.pop(last), clock, True))
                clock += 1
            else:
                if not (inside and node is nodes[-1]):
                    found.append((last, since.pop(last), clock, False))
                forward(node.inside, True)
                backward(node.inside, True)

    forward(nodes, False)
    backward(nodes, False)
    yield from found


def _brackets(nodes: Sequence[Node], depth: int = 0) -> Iterator[tuple[int, range]]:
    """Depth and blocks of every checkpoint."""
    for node in nodes:
        if isinstance(node, Checkpoint):
            yield depth, span(node)
            yield from _brackets(node.inside, depth + 1)
