"""The graphs that torch's compiler makes of a model, and the pieces of the largest as its blocks.

torch's compiler calls a backend for each graph that it captures, with guards: where anything
changes that a graph depends on, it captures anew and calls it again. `Graphs` is such a backend: it
cuts each graph into pieces, and runs it as it is, unless somebody stands in for its `main` one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.exc import TorchDynamoException

from labkit.memory import saved_bytes
from labkit.restore import restoring
from labkit.restore.attributes import exchanged, patched
from labkit.restore.memory import bytes_of
from labkit.text import format_bytes
from sublinear.blocks import Keywords, Program, State
from sublinear.capture.pieces import CapturedBlocks, Pieces, pieces_of
from sublinear.capture.watching import Unplannable
from sublinear.chain import Chain
from sublinear.picture import picture
from sublinear.plan import Plan, keep_all

_INSTALLED = ("site-packages", "dist-packages")

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
        self.graphs: list[Graph] = []
        # Whether a run only shows which graphs there are, and what each saves for backward.
        self.listening = False
        # A graph, what does its work instead, and whether no run of that is the one that counts.
        self.instead: tuple[Graph, Program, bool] | None = None

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = Graph(self, gm, example_inputs)
        if graph.trains:
            self.graphs.append(graph)
        return graph

    @property
    def cut(self) -> list[Graph]:
        """Those that ran so far and are cut into pieces."""
        return [graph for graph in self.graphs if graph.blocks is not None]

    def run(self, graph: Graph, values: list[Any]) -> Any:
        """What a graph that can be cut computes in a call."""
        if self.instead is not None:
            main, work, spare = self.instead
            if not graph.like(main):
                return graph.as_it_is(*values)
            return work(*graph.blocks_for(values).frame(values, spare=spare))[0]
        if self.listening:
            return graph.heard(values)
        return self.by_plan(graph, values)

    def by_plan(self, graph: Graph, values: list[Any]) -> Any:
        """The same where nobody stands in for a graph, or listens; without a plan as it is."""
        return graph.as_it_is(*values)


class Graph:
    """One graph of the compiler: runs as it is, unless its backend knows better.

    ``pieces``: None where it cannot be cut, ``note`` says why. ``trains``: whether an input needs
    a gradient. ``saves``: bytes that it keeps for the backward pass, once that was heard.
    ``chain``: what its pieces cost on inputs of ``size`` bytes; ``plan``: what it runs by.
    """

    def __init__(self, owner: Graphs, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self.backend, self.as_it_is = owner, gm.forward
        self.pieces: Pieces | None = None
        self.blocks: CapturedBlocks | None = None
        self.note, self.saves, self.size = "", 0, -1
        self.chain: Chain | None = None
        self.plan: Plan | None = None
        # Equal for what the compiler captures of the same code, under other guards.
        compiling = torch._guards.CompileContext.current_compile_id()
        self.code: Hashable = None if compiling is None else compiling.frame_id
        self.device = torch.device("cpu")
        tensors = filter(torch.is_tensor, example_inputs)
        wanting = [tensor for tensor in tensors if tensor.requires_grad]
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
        if self.pieces is None:
            return self.as_it_is(*values)
        return self.backend.run(self, list(values))

    def blocks_for(self, values: list[Any]) -> CapturedBlocks:
        """Its pieces as blocks."""
        assert self.pieces is not None
        if self.blocks is None:
            self.blocks = CapturedBlocks.of(self.pieces, values)
            self.size = sum(map(bytes_of, filter(torch.is_tensor, values)))
        return self.blocks

    def like(self, other: Graph) -> bool:
        """Whether it is of the same code, cut into as many pieces."""
        if self.pieces is None or other.pieces is None:
            return False
        return self.code == other.code and len(self.pieces.rows) == len(other.pieces.rows)

    def may_be_cut(self, values: Sequence[Any]) -> bool:
        """Whether the inputs of a call allow that, too."""
        assert self.pieces is not None
        places: dict[int, int] = {}
        for i, value in enumerate(values):
            if not torch.is_tensor(value) or value.layout is not torch.strided:
                continue
            other = places.setdefault(value.untyped_storage()._cdata, i)
            if other != i and {i, other} & (self.pieces.changed | self.pieces.statistics):
                self.note = "it changes in place one of two inputs that share memory"
                self.pieces = None
                return False
        return True

    def heard(self, values: list[Any]) -> Any:
        """Run it as it is, and count what it saves."""
        if not self.may_be_cut(values):
            return self.as_it_is(*values)
        self.blocks_for(values)
        result: list[Any] = []
        self.saves = saved_bytes(lambda: result.append(self.as_it_is(*values)))
        return result[0]

    def __str__(self) -> str:
        if self.plan is None:
            return f"runs as it is: {self.note or 'it did not run yet'}"
        without, costs = keep_all(self.plan.known_chain).costs, self.plan.costs
        return (
            f"{len(self.plan)} pieces, {format_bytes(costs.peak_bytes)} of "
            f"{format_bytes(without.peak_bytes)}, {costs.seconds / without.seconds:.2f} times the "
            f"seconds: {self.plan}\n{picture(self.plan)}"
        )


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


# ---------------------------------------------------------------------------- the blocks of a model


@dataclass(frozen=True, kw_only=True)
class InsideBlocks(CapturedBlocks):
    """The pieces of ``main``, a graph of ``model`` whose ``forward`` is captured.

    Other graphs, and what the compiler does not capture, run around them as the model's own code.
    """

    main: Graph
    forward: Callable[..., Any]

    partial = True

    @classmethod
    def of_graph(cls, model: nn.Module, main: Graph, forward: Callable[..., Any]) -> InsideBlocks:
        """Those of a graph that has run once."""
        own = main.blocks
        assert own is not None
        rows, pieces = (own.names, own.inside, own.programs), own.pieces
        return cls(model, *rows, pieces=pieces, spare={}, main=main, forward=forward)

    def around(
        self, work: Program, original: Callable[..., Any], args: State, kwargs: Keywords
    ) -> Any:
        with patched(self.main.backend, "instead", (self.main, work, False)):
            return self.forward(*args, **kwargs)

    def standing_in(self, work: Program) -> AbstractContextManager[None]:
        """Let ``work`` do what the graph does, in a run of the model that leaves no trace."""
        instead = (self.main.backend, "instead", (self.main, work, True))
        return exchanged([instead, (self.model, "forward", self.forward)])


def captured_blocks(model: nn.Module, args: State, kwargs: Keywords) -> InsideBlocks:
    """Run the model once, as torch's compiler captures it. Everything is put back.

    Raises ValueError where nothing that is captured can be cut into blocks.
    """
    graphs = Graphs()
    forward = compiled_forward(model, graphs)
    with restoring(also=(model,)):
        main = heard(graphs, lambda: forward(*args, **kwargs))
    return InsideBlocks.of_graph(model, main, forward)


@contextmanager
def without_memory() -> Iterator[None]:
    """Raise ValueError for functions that remember their results, which are captured anew.

    Those of installed libraries ask what machine this is, and the like.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    for each in told:
        words = str(each.message)
        if "lru_cache" in words and not any(folder in words for folder in _INSTALLED):
            raise ValueError(
                "it calls a function that remembers its results (functools.lru_cache), which "
                "torch's compiler would run anew"
            )
    for each in told:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def heard(graphs: Graphs, run: Callable[[], object]) -> Graph:
    """The graph of a run that saves most for backward, of those that can be cut.

    Raises ValueError where there is none.
    """
    try:
        with torch.enable_grad(), without_memory(), patched(graphs, "listening", True):
            run()
    # The compiler asserts what it holds for impossible of itself.
    except (TorchDynamoException, AssertionError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise ValueError(f"torch's compiler fails ({type(error).__name__}: {line})") from error
    if not graphs.cut:
        notes = "; ".join(dict.fromkeys(filter(None, (each.note for each in graphs.graphs))))
        raise ValueError(
            "of what torch's compiler captures nothing can be planned: "
            f"{notes or 'no graph of two layers or more'}"
        )
    return max(graphs.cut, key=lambda graph: graph.saves)
