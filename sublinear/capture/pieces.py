"""The graph of a compiler as blocks: pieces of it, each run from what crosses into it.

Weights, buffers and other inputs of the graph do not cross from piece to piece: they lie in a
`Frame`, one for each call, where each run of a piece finds them, also the one in the backward pass.
So other parameters, as those of `torch.func.functional_call`, are no matter. Inputs that the graph
changes in place are changed once: a piece that runs again is given copies of what they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn

from sublinear.blocks import Blocks, Program, State
from sublinear.capture.cutting import RECURRENT, counters_first, crossing, cuts, is_heavy
from sublinear.capture.watching import Unplannable, ended_modes, name_of, switches, watch


@dataclass(frozen=True)
class Piece:
    """``takes``: the numbers of the graph's inputs that it uses, the first arguments of ``run``.

    ``last``: it makes the graph's output. ``recurrent``: it runs a recurrent layer. ``switches``:
    the device whose autocast it may switch.
    """

    name: str
    run: Callable[..., State]
    takes: tuple[int, ...]
    last: bool
    recurrent: bool
    switches: str = ""


@dataclass(frozen=True)
class Pieces:
    """All of one graph, and the numbers of some of its inputs.

    ``crossing``: those that cross as what pieces make does, since they need a gradient and are no
    parameters. ``statistics``: those that norms write and nobody reads. ``changed``: those that it
    changes otherwise.
    """

    rows: tuple[Piece, ...]
    crossing: tuple[int, ...]
    statistics: frozenset[int]
    changed: frozenset[int]


def pieces_of(gm: fx.GraphModule, parameters: Sequence[bool]) -> Pieces:
    """Cut a graph. ``parameters``: which of its inputs are. Raises `Unplannable`."""
    seen = watch(gm)
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    not_computed = ("placeholder", "get_attr", "output")
    nodes = [node for node in gm.graph.nodes if node.op not in not_computed]
    nodes = counters_first(nodes, seen)
    if not nodes:
        raise Unplannable("it computes nothing")
    numbers = {node: i for i, node in enumerate(inputs)}
    changed = frozenset[int]().union(*seen.changed.values())
    crosses = []
    for node, is_parameter in zip(inputs, parameters, strict=True):
        fake = node.meta["example_value"]
        if torch.is_tensor(fake) and fake.requires_grad and not is_parameter:
            crosses.append(node)
    if any(seen.storages[node] & changed for node in crosses):
        raise Unplannable("it changes in place an input that needs a gradient")
    statistics, others = set(), set()
    for node in inputs:
        if node in seen.statistics:
            statistics.add(numbers[node])
        elif seen.storages[node] & changed:
            others.add(numbers[node])
    rows = []
    start, here = 0, crosses
    across = crossing(nodes, crosses)
    for end in [*cuts(nodes, across, seen), len(nodes)]:
        last = end == len(nodes)
        after = [] if last else across[end]
        leaving = gm.graph.output_node().args[0] if last else tuple(after)
        rows.append(_piece(gm, nodes[start:end], here, leaving, numbers, last))
        start, here = end, after
    crossing_numbers = tuple(numbers[node] for node in crosses)
    return Pieces(tuple(rows), crossing_numbers, frozenset(statistics), frozenset(others))


def _piece(
    gm: fx.GraphModule,
    nodes: list[fx.Node],
    here: list[fx.Node],
    leaving: Any,
    numbers: dict[fx.Node, int],
    last: bool,
) -> Piece:
    """Code from the inputs that it uses, and what crosses into it, to what leaves it."""
    used: dict[fx.Node, None] = {}
    for node in nodes:
        used |= dict.fromkeys(node.all_input_nodes)
    fx.map_arg(leaving, lambda node: used.setdefault(node))
    own = [node for node in used if node in numbers and node not in here]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in [*own, *here]:
        copies[node] = graph.placeholder(node.name)
    for node in [*(node for node in used if node.op == "get_attr"), *nodes]:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        # What the compiler has noted there holds tensors.
        copies[node].meta = {}
    graph.output(fx.map_arg(leaving, copies.__getitem__))
    takes = tuple(numbers[node] for node in own)
    recurrent = any(name_of(node) in RECURRENT for node in nodes)
    run = fx.GraphModule(gm, graph)
    return Piece(_name(nodes), run, takes, last, recurrent, switches(nodes))


def _name(nodes: list[fx.Node]) -> str:
    """The module in whose forward the first real work of a piece was, or that operator."""
    first = next(filter(is_heavy, nodes), nodes[0])
    stack = list((first.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return first.name
    # Without the argument that the model came in by.
    path = re.sub(r"^L\['\w+'\](\[\d+\])?", "", stack[-1][0])
    path = re.sub(r"(\._modules)?\['?(\w+)'?\]", r".\2", path)
    return path.lstrip(".").removeprefix("_orig_mod.") or first.name


class Frame:
    """The inputs of a graph in one call of it: what each run of a piece is given.

    The first run of each is the one that counts: the others get spare statistics, and copies of
    inputs that are changed, as they were before. With ``spare``, all runs do.
    """

    def __init__(self, graph: CapturedBlocks, values: list[Any], *, spare: bool = False) -> None:
        self.graph, self.values, self.spare = graph, list(values), spare
        self.runs = [0] * len(graph.pieces.rows)
        for number in graph.pieces.crossing:
            # It crosses, and may be gone before the call ends.
            self.values[number] = None
        self.before: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for number in graph.pieces.changed:
                self.before[number] = values[number].detach().clone()
            # Now: a selective checkpoint minds what is made while it runs again.
            for i, piece in enumerate(graph.pieces.rows):
                for number in graph.pieces.statistics.intersection(piece.takes):
                    graph.spare_statistics(i, number, values[number])

    def __call__(self, i: int) -> list[Any]:
        """What piece ``i`` is given, of the inputs that it takes."""
        pieces = self.graph.pieces
        again = self.spare or self.runs[i] > 0
        if not self.spare:
            self.runs[i] += 1
        found = []
        for number in pieces.rows[i].takes:
            value = self.values[number]
            if again and number in pieces.statistics:
                value = self.graph.spare_statistics(i, number, value)
            elif number in pieces.changed:
                # No leaf, which could not be changed where it needs a gradient. Made in each run:
                # a selective checkpoint wants the same calls again.
                before = self.before[number].detach().requires_grad_(value.requires_grad)
                copy = before.clone()
                value = copy if again else value
            found.append(value)
        return found


class Graph(nn.Module):
    """What stands in for a model: the parameters of one graph, and what it computes."""

    blocks: CapturedBlocks

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.own = nn.ParameterList(parameters)

    def forward(self, *state: Any) -> Any:
        """The graph's output, from a frame and what crosses into its first piece."""
        return self.blocks.run_all(*state)[0]


@dataclass(frozen=True, kw_only=True)
class CapturedBlocks(Blocks):
    """The pieces of one graph; what crosses is a frame, and what earlier pieces have made."""

    pieces: Pieces
    # What norms write to when their pieces run again.
    spare: dict[tuple[int, int], torch.Tensor]

    kind = "captured"

    @classmethod
    def of(cls, pieces: Pieces, values: list[Any]) -> CapturedBlocks:
        """Blocks for the inputs of a call."""
        parameters: dict[nn.Parameter, None] = {}
        for value in values:
            if isinstance(value, nn.Parameter):
                parameters[value] = None
        graph = Graph(list(parameters))
        rows = pieces.rows
        names = tuple(piece.name for piece in rows)
        programs = tuple(map(_program, range(len(rows))))
        blocks = cls(graph, names, ((),) * len(rows), programs, pieces=pieces, spare={})
        graph.__dict__["blocks"] = blocks
        return blocks

    def compiled(self) -> CapturedBlocks:
        """The same, of pieces that Inductor compiles: what runs again is fused as well."""
        rows = [replace(piece, run=_compiled(piece.run)) for piece in self.pieces.rows]
        return replace(self, pieces=replace(self.pieces, rows=tuple(rows)))

    def frame(self, values: list[Any], *, spare: bool = False) -> State:
        """What crosses into the first piece."""
        crosses = [values[number] for number in self.pieces.crossing]
        return Frame(self, values, spare=spare), *crosses

    def overwrites(self, i: int) -> bool:
        return self.pieces.rows[i].recurrent

    def swapped(self) -> bool:
        return False

    def check_unchanged(self) -> None:
        """The compiler's guards see to that."""

    def spare_statistics(self, i: int, number: int, like: torch.Tensor) -> torch.Tensor:
        """Somewhere to write for the norm of piece ``i``; never the same for two.

        Autograd notes what a norm was given.
        """
        known = self.spare.get((i, number))
        if known is None or known.device != like.device or known.shape != like.shape:
            with torch.no_grad():
                known = self.spare[i, number] = torch.full_like(like, torch.nan)
        return known


def _program(i: int) -> Program:
    @torch.compiler.disable(reason="a part of what was compiled already, run as it is")
    def program(frame: Frame, *state: Any) -> State:
        piece = frame.graph.pieces.rows[i]
        with ended_modes(piece.switches) if piece.switches else nullcontext():
            leaving = piece.run(*frame(i), *state)
        return (leaving,) if piece.last else (frame, *leaving)

    return program


def _compiled(piece: Callable[..., Any]) -> Callable[..., Any]:
    """The code of a piece, compiled at its first call, for the shapes of each call.

    It draws random numbers as the code itself does, so that those of the plain model stay.
    """
    # Code that is written while the compiler captures is marked for it to skip: this is not.
    assert isinstance(piece, fx.GraphModule)
    fresh = fx.GraphModule(piece, piece.graph)
    assert fresh.code
    return torch.compile(
        fresh.forward, dynamic=False, fullgraph=True, options={"fallback_random": True}
    )
