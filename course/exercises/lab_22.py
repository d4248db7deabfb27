"""The exercise of notebook 22."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check, far
from labkit.counters import count


@check("one graph for long and for short vectors", judged="both")
def check_22_one_graph(answer: Callable[..., Any]) -> None:
    """``answer(x, limit)`` is x, shortened to the length ``limit`` if it is longer: one graph,
    and no host read.
    """
    for values, limit in (
        ([3.0, 4.0], 1.0),
        ([0.3, 0.4], 1.0),
        ([0.0, 0.0], 1.0),
        ([6.0, 8.0], 5.0),
    ):
        x = torch.tensor(values)
        wanted, got = (
            x * min(1.0, limit / max(x.norm().item(), 1e-12)),
            attempt(answer, x.clone(), limit),
        )
        if got is None:
            raise NotYet("write it, then run this cell again")
        if (
            not isinstance(got, torch.Tensor)
            or got.shape != x.shape
            or not torch.allclose(got, wanted)
        ):
            shown = got.tolist() if isinstance(got, torch.Tensor) else got
            raise NotYet(
                f"{values} with the limit {limit:g} has to give {wanted.tolist()}, yours {shown}"
            )

    if far(answer):
        return
    reads = count(lambda: answer(torch.tensor([3.0, 4.0]), 1.0)).host_reads
    if reads:
        raise NotYet(
            f"right, but no CUDA graph can hold it: the CPU waits for a value (host reads: {reads})"
        )
    graphs = _graphs(answer, ([3.0, 4.0], [0.3, 0.4]))
    if graphs != 1:
        raise NotYet(f"right, but torch.compile makes {graphs} graphs of it")
    try:
        torch.compile(answer, backend="eager", fullgraph=True)(torch.tensor([3.0, 4.0]), 1.0)
    except torch._dynamo.exc.TorchDynamoException as error:
        raise NotYet(
            f"right, but with a graph break: {str(error).strip().splitlines()[0]}"
        ) from error


def _graphs(answer: Callable[..., Any], vectors: Any) -> int:
    """How many graphs torch.compile makes of it.

    What this process had compiled before is forgotten.
    """
    made = []

    def counting(graph: Any, inputs: Any) -> Any:
        made.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(answer, backend=counting)
    for values in vectors:
        compiled(torch.tensor(values), 1.0)
    torch.compiler.reset()
    return len(made)
