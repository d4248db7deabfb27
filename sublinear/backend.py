"""A memory plan as the compiler's own word: ``torch.compile(model, backend=sublinear.backend())``.

A graph that torch's compiler captures, as `sublinear.capture.graphs` says, is profiled on the
inputs of its first call, planned, and run piece by piece under the checkpoints of its plan. Pieces
are compiled only where that is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from labkit.comparing import measuring
from labkit.compiler import trouble_with_compiling
from labkit.restore import preserve_rng
from sublinear import together
from sublinear.apply import Runner, View, view_of
from sublinear.budget import Budget, request
from sublinear.capture.graphs import Graph, Graphs, compiled_forward
from sublinear.capture.pieces import CapturedBlocks
from sublinear.chain import Chain
from sublinear.plan import Plan
from sublinear.profiling.profiler import profiled
from sublinear.profiling.tensors import bytes_of, leaves, pull_on
from sublinear.profiling.training import Training


def backend(
    budget: float | str | None = None,
    *,
    max_overhead: float | None = None,
    method: str = "menu",
    repeats: int = 3,
    compile: bool = False,
) -> Backend:
    """A backend for `torch.compile` that plans the memory of each graph that it is given.

    ``budget`` and ``max_overhead``: as in `fit`, for weights, gradients and activations of the
    planned graphs; the optimizer, and a loss outside the model, are not seen. A budget that is a
    share holds for the graphs found so far; where no plan is that small, it is the lowest peak. A
    byte budget counts a graph that runs several times in a step once. A graph is profiled when it
    first runs, ``repeats`` times: that step takes more time and memory. Graphs that cannot be
    planned, and what the compiler does not capture, run as they are; ``print`` of the backend says
    which.

    Pieces run as they are: the values are those of the model without a compiler. With ``compile``
    Inductor compiles each, for the shapes of each call: they round otherwise, but draw the same
    random numbers. They are planned by what they cost uncompiled, and kept whole.

    Not guarded, and so not noticed, are files and clocks that a model's code reads, and variables
    of the environment and attributes of Python modules that come only later. The compiler draws
    NumPy's random numbers from torch's generator, unless
    ``torch._dynamo.config.use_numpy_random_stream`` is set. Raises ValueError for a budget that
    cannot be read; when a graph runs, also for one that no plan keeps, and where nothing can be
    compiled.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    >>> planned = torch.compile(model, backend=backend("80 %"))
    >>> planned(torch.ones(2, 8)).sum().backward()
    """
    asked, max_overhead = request(budget, max_overhead, method)
    return Backend(asked, max_overhead, method, repeats, compile=compile)


class Backend(Graphs):
    """What `backend` makes.

    ``limit``: bytes that the graphs of a step may need; None: the budget says so, or the overhead.
    """

    def __init__(
        self,
        budget: Budget,
        max_overhead: float | None,
        method: str,
        repeats: int,
        *,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.budget, self.max_overhead = budget, max_overhead
        self.method, self.repeats, self.compile = method, repeats, compile
        self.limit: float | None = None
        # What is known of a whole step, its loss and optimizer, where that was measured.
        self.step: Chain | None = None
        self._in_a_step: dict[Hashable, Graph] = {}
        self._runners: dict[Graph, Runner] = {}

    def by_plan(self, graph: Graph, values: list[Any]) -> Any:
        if graph.plan is None or bytes_of(values) > graph.size:
            self._found(graph, values)
        runner = self._runners.get(graph)
        if runner is None:
            return graph.as_it_is(*values)
        assert graph.blocks is not None
        runner.prepare()
        return runner.outermost(*graph.blocks.frame(values))[0]

    @property
    def planned(self) -> list[Graph]:
        """The graphs that run by a plan."""
        return [graph for graph in self.graphs if graph.plan is not None]

    def know(self, graph: Graph, chain: Chain) -> None:
        """Note what the only graph of a step costs, and all that the step needs besides."""
        self.step = chain
        self._note(graph, chain)

    def _note(self, graph: Graph, chain: Chain) -> None:
        graph.chain = chain
        if self.compile and graph.blocks is not None:
            graph.blocks = graph.blocks.compiled()
        # What was captured before of the same code does not run in the same step.
        self._in_a_step[graph.code] = graph

    def _found(self, graph: Graph, values: list[Any]) -> None:
        """Profile a graph on the inputs of a call, and plan anew with it.

        Raises ValueError where no plan keeps to the budget, or nothing can be compiled.
        """
        if self.compile and not self.planned:
            check_compiler(graph.device)
        chain = self._profile(graph, values)
        if chain is None:
            return
        self._note(graph, chain)
        chains = self.chains()
        limit = self.limit
        if self.budget.given:
            held = max(chain.fixed_bytes for chain in chains)
            limit = self.budget.limit(together.plain(chains).peak_bytes, graph.device, held)
        try:
            self.plan(limit)
        except ValueError:
            # So that the next call says so again.
            graph.plan = None
            raise

    def _profile(self, graph: Graph, values: list[Any]) -> Chain | None:
        """What its pieces cost; None where they cannot be planned."""
        graph.size = bytes_of(values)
        if not graph.may_be_cut(values):
            return None
        assert graph.pieces is not None
        pieces, blocks = graph.pieces, CapturedBlocks.of(graph.pieces, values)
        task = Training(leaves(blocks.frame(values, spare=True)), {}, _pull)
        try:
            # Inside compiled code no operator can be chosen to be kept.
            options = not self.compile
            with measuring(None), preserve_rng():
                chain = profiled(blocks.model, task, blocks, self.repeats, options)
        except ValueError as error:
            graph.pieces, graph.note = None, str(error)
            warnings.warn(f"a graph is not planned: {error}", UserWarning, stacklevel=2)
            return None
        graph.blocks = blocks
        spare = sum(values[number].nbytes for number in pieces.statistics)
        chain = replace(chain, spare_bytes=spare)
        if self.step is None:
            # Inputs of the graph that cross are counted where they do.
            others = [value for i, value in enumerate(values) if i not in pieces.crossing]
            return replace(chain, fixed_bytes=bytes_of(others))
        step, known = self.step, ("fixed_bytes", "before", "after", "step_bytes")
        return replace(chain, **{name: getattr(step, name) for name in known})

    def chains(self) -> list[Chain]:
        """Of the graphs of a step that can be planned, in order."""
        return [graph.chain for graph in self._in_a_step.values() if graph.chain is not None]

    def plan(self, limit: float | None) -> together.Together:
        """Plan the graphs of a step, within ``limit`` bytes or within the overhead.

        Raises ValueError where no plan keeps to the limit.
        """
        chains = self.chains()
        if limit is not None:
            share = self.budget.share is not None
            found = together.by_budget(chains, limit, self.method, nearest=share)
        else:
            found = together.by_overhead(chains, self.max_overhead, self.method)
        for graph, plan in zip(self._in_a_step.values(), found.plans, strict=True):
            self.follow(graph, plan)
        return found

    def follow(self, graph: Graph, plan: Plan) -> None:
        """Run a graph by a plan from the next call on."""
        assert graph.blocks is not None
        graph.plan = plan
        self._runners[graph] = Runner(plan, graph.blocks.model, graph.blocks)

    @property
    def main_plan(self) -> Plan:
        """That of the graph that keeps most without one."""
        plans = (graph.plan for graph in self.graphs if graph.plan is not None)
        return max(plans, key=lambda plan: plan.known_chain.saved_bytes)

    def __str__(self) -> str:
        lines = []
        for number, graph in enumerate(self.graphs):
            lines.append(f"graph {number}: {graph}")
        return "\n".join(lines) or "no graph was captured yet: call the compiled model"

    __repr__ = __str__


def check_compiler(device: torch.device) -> None:
    """ValueError, with what PyTorch says, where it cannot compile for a device."""
    if trouble := trouble_with_compiling(device):
        raise ValueError(
            f"compile=True: PyTorch cannot compile for {device} here ({trouble}): install the "
            "compiler that it asks for, or leave out compile=True"
        )


def captured(model: nn.Module, by_plan: Backend) -> nn.Module:
    """``model`` as it trains by the plans of a backend, which come with its first forward.

    Another view of the same object; in evaluation and without gradients it runs plain.
    """
    own = type(model).forward
    compiled = compiled_forward(model, by_plan)

    @torch.compiler.disable(reason="it is compiled for a backend of its own")
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return own(model, *args, **kwargs)
        return compiled(*args, **kwargs)

    return view_of(model, forward, View, runs_by=by_plan)


def _pull(output: Any) -> torch.Tensor:
    """A loss whose backward makes a gradient of all that a graph returns."""
    loss = pull_on(output)
    if loss is None:
        raise ValueError("nothing that it returns needs a gradient")
    return loss
