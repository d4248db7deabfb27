"""Blocks of a model that is captured: the pieces of its largest graph.

Other graphs, and what the compiler does not capture, run around them as the model's own code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from labkit.restore.attributes import exchanged, patched
from sublinear.blocks.blocks import Keywords, State
from sublinear.capture.graphs import Graph, Graphs, Work, compiled_forward
from sublinear.capture.pieces import CapturedBlocks
from sublinear.repeatable import unmoved

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, kw_only=True)
class InsideBlocks(CapturedBlocks):
    """The pieces of ``main``, a graph of ``model`` whose ``forward`` is captured."""

    main: Graph
    forward: Callable[..., Any]

    partial = True

    @classmethod
    def of_graph(cls, model: nn.Module, main: Graph, forward: Callable[..., Any]) -> InsideBlocks:
        """Those of a graph that has run once."""
        own = main.blocks
        assert own is not None
        return cls(
            model,
            own.names,
            own.inside,
            own.programs,
            pieces=own.pieces,
            size=own.size,
            spare={},
            main=main,
            forward=forward,
        )

    def around(
        self, work: Work, original: Callable[..., Any], args: State, kwargs: Keywords
    ) -> Any:
        with patched(self.main.backend, "instead", (self.main, work, False)):
            return self.forward(*args, **kwargs)

    def standing_in(self, work: Work) -> AbstractContextManager[None]:
        """Let ``work`` do what the graph does, in a run of the model that leaves no trace."""
        instead = (self.main.backend, "instead", (self.main, work, True))
        return exchanged([instead, (self.model, "forward", self.forward)])


def captured_blocks(model: nn.Module, args: State, kwargs: Keywords) -> InsideBlocks:
    """Run the model once, as torch's compiler captures it. Everything is put back.

    Raises ValueError where nothing that is captured can be cut into blocks.
    """
    graphs = Graphs()
    forward = compiled_forward(model, graphs)
    with unmoved(model):
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
