"""The graphs that torch's compiler makes of a model, and a run in which another does their work.

torch's compiler calls a backend for each graph that it captures, with guards: where anything
changes that a graph depends on, it captures anew and calls it again. `Graphs` is such a backend: it
cuts each graph into pieces, and runs it as it is, unless somebody stands in for its `main` one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn

from labkit.memory import saved_bytes
from sublinear.blocks.blocks import State
from sublinear.capture.pieces import CapturedBlocks, Pieces, not_cut, pieces_of
from sublinear.capture.watching import Unplannable

# Does what all pieces do, from what crosses into the first one.
Work = Callable[..., State]

# NumPy's random numbers stay NumPy's; recurrent layers are captured, too, and hooks that come later
# are noticed.
SETTINGS = {
    "use_numpy_random_stream": True,
    "allow_rnn": True,
    "skip_nnmodule_hook_guards": False,
}


class Graphs:
    """A backend that notes graphs. ``graphs``: those that train, in the order of their capture."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        # Whether a run only shows which graphs there are, and what each saves for backward.
        self.listening = False
        self._main: Graph | None = None
        self._work: Work | None = None
        self._spare = False

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = self.graph(gm, example_inputs)
        if graph.trains:
            self.graphs.append(graph)
        return graph

    def graph(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Graph:
        """A graph of this backend's kind."""
        return Graph(self, gm, example_inputs)

    @property
    def cut(self) -> list[Graph]:
        """Those that ran so far and are cut into pieces."""
        return [graph for graph in self.graphs if graph.blocks is not None]

    @contextmanager
    def standing_in(self, main: Graph, work: Work, *, spare: bool) -> Iterator[None]:
        """Let ``work`` do what ``main`` does; ``spare``: no run of it is the one that counts."""
        before = self._main, self._work, self._spare
        try:
            self._main, self._work, self._spare = main, work, spare
            yield
        finally:
            self._main, self._work, self._spare = before

    @property
    def stood_in(self) -> bool:
        """Whether somebody stands in for a graph."""
        return self._work is not None

    def by_another(self, graph: Graph, values: list[Any]) -> Any:
        """The result of a graph while somebody stands in for one; others run as they are."""
        assert self._work is not None and self._main is not None
        if not graph.like(self._main):
            return graph.as_it_is(*values)
        blocks = graph.blocks_for(values)
        return self._work(*blocks.frame(values, spare=self._spare))[0]


class Graph:
    """One graph of the compiler: runs as it is, unless its backend knows better.

    ``pieces``: None where it cannot be cut, ``note`` says why. ``trains``: whether it was captured
    with gradients on, for inputs of which one needs one. ``saves``: bytes that it keeps for the
    backward pass, once it ran while its backend listened.
    """

    def __init__(self, owner: Graphs, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self.backend, self.as_it_is = owner, gm.forward
        self.pieces: Pieces | None = None
        self.blocks: CapturedBlocks | None = None
        self.note, self.saves = "", 0
        self.code = _code()
        self.device = torch.device("cpu")
        wanting = [value for value in example_inputs if _wants_gradient(value)]
        self.trains = torch.is_grad_enabled() and bool(wanting)
        if not self.trains:
            return
        self.device = wanting[0].device
        try:
            are_parameters = [isinstance(value, nn.Parameter) for value in example_inputs]
            self.pieces = pieces_of(gm, are_parameters)
        except Unplannable as error:
            self.note = str(error)
            return
        if len(self.pieces.rows) < 2:
            self.pieces, self.note = None, "it is a single piece"

    def __call__(self, *values: Any) -> Any:
        if self.pieces is not None and self.backend.stood_in:
            return self.backend.by_another(self, list(values))
        if self.pieces is not None and self.backend.listening:
            return self._heard(values)
        return self.as_it_is(*values)

    def blocks_for(self, values: list[Any]) -> CapturedBlocks:
        """Its pieces as blocks."""
        assert self.pieces is not None
        if self.blocks is None:
            self.blocks = CapturedBlocks.of(self.pieces, values)
        return self.blocks

    def like(self, other: Graph) -> bool:
        """Whether it is of the same code, cut into as many pieces."""
        if self.pieces is None or other.pieces is None:
            return False
        return self.code == other.code and len(self.pieces.rows) == len(other.pieces.rows)

    def may_be_cut(self, values: Sequence[Any]) -> bool:
        """Whether the inputs of a call allow that, too."""
        assert self.pieces is not None
        if reason := not_cut(self.pieces, values):
            self.pieces, self.note = None, reason
        return not reason

    def _heard(self, values: Sequence[Any]) -> Any:
        """Run it as it is, and count what it saves."""
        if not self.may_be_cut(values):
            return self.as_it_is(*values)
        self.blocks_for(list(values))
        result: list[Any] = []
        self.saves = saved_bytes(lambda: result.append(self.as_it_is(*values)))
        return result[0]


def compiled_forward(model: nn.Module, graphs: Graphs) -> Callable[..., Any]:
    """The forward of a model, compiled for a backend."""
    # Code of its own: the compiler keeps what it has captured, and how often, with the code.
    compiled = torch.compile(_copied(type(model).forward), backend=graphs)

    @torch.compiler.disable(reason="it is compiled for a backend of its own")
    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(SETTINGS):
            return compiled(model, *args, **kwargs)

    return forward


def _copied(function: Any) -> Any:
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace()
    space, closure = function.__globals__, function.__closure__
    copy = FunctionType(code, space, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _code() -> Hashable:
    """Equal for what the compiler captures of the same code, under other guards."""
    compiling = torch._guards.CompileContext.current_compile_id()
    return None if compiling is None else compiling.frame_id


def _wants_gradient(value: Any) -> bool:
    return torch.is_tensor(value) and value.requires_grad
