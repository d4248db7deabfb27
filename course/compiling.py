"""What notebook 22 needs to run a step compiled, or as a CUDA graph; and whether it can here."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from course.probe import abilities
from labkit.compiler import trouble_with_compiling
from labkit.device import test_size


@cache
def trouble() -> str | None:
    """Why `torch.compile` cannot be used here, in words; None if it can.

    It compiles one operator, which prepares what all later code needs. Code is compiled by one
    process, so that on two cores nothing runs beside the measurements that follow.
    """
    if not abilities().compiler:
        return "no C++ compiler here"
    if not abilities().gpu:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if test_size():
        # Plain instructions are enough there, and nothing has to be tried.
        os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
    said = trouble_with_compiling()
    return f"torch.compile does not work here: {said}" if said else None


def withheld() -> dict[str, str]:
    """The ways to run a step that this machine does not have, each with its reason."""
    no_gpu = None if abilities().gpu else "needs a GPU"
    reasons = {
        "compile": trouble(),
        "CUDA graph": no_gpu,
        "compile + CUDA graph": no_gpu or trouble(),
    }
    return {way: why for way, why in reasons.items() if why}


def graphs_made() -> int:
    """The graphs that Dynamo has made in this process."""
    from torch._dynamo.utils import counters  # takes a second, which only those who compile pay

    return int(counters["stats"]["unique_graphs"])


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A step as a CUDA graph, which its first call captures.

    It runs three times before, on a stream of its own, so that whatever happens only once has
    happened.
    """
    graph = torch.cuda.CUDAGraph()
    kept: list[Tensor] = []

    def replay() -> Tensor:
        if not kept:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                kept.append(step())
        graph.replay()
        return kept[0]

    return replay
