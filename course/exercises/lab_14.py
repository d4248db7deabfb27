"""The exercise of notebook 14."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check, far

MicroBatches = list[tuple[Tensor, Tensor]]


@check("the right gradient, exchanged once for any number of micro-batches", judged="both")
def check_14_one_reduction(answer: Callable[[nn.Module, MicroBatches], object]) -> None:
    """``answer(model, micro_batches)`` leaves the gradient of the mean loss of all equally large
    micro-batches in the parameters of a DistributedDataParallel model, and lets the processes
    exchange gradients exactly once.
    """
    for parts in (4, 1):
        inputs, targets = (
            torch.randn(8, 3, generator=torch.Generator().manual_seed(0)),
            torch.arange(8.0)[:, None],
        )
        # graphs, after each forward pass
        alive: list[int] = []
        with _alone() if far(answer) else _model_that_counts() as (model, reductions):
            if not far(answer):
                _count_graphs(model, alive)
            bare = copy.deepcopy(model.module)
            F.mse_loss(bare(inputs), targets).backward()
            wanted = [parameter.grad for parameter in bare.parameters()]
            attempt(
                answer, model, list(zip(inputs.chunk(parts), targets.chunk(parts), strict=True))
            )
            found = [parameter.grad for parameter in model.parameters()]
        what = f"{parts} micro-batch{'es' if parts > 1 else ''}"
        if any(gradient is None for gradient in found):
            raise NotYet(f"after {what} there are no gradients: call backward() for each")
        # in another process nobody counts
        if not far(answer):
            _check_counts(what, max(alive, default=0), len(reductions))
        if (
            all(
                torch.allclose(mine, parts * right)
                for mine, right in zip(found, wanted, strict=True)
            )
            and parts > 1
        ):
            raise NotYet(f"{what}: the gradient is {parts} times too large; divide each loss")
        if not all(
            torch.allclose(mine, right, atol=1e-6)
            for mine, right in zip(found, wanted, strict=True)
        ):
            raise NotYet(f"{what}: this is not the gradient of the mean loss over all of them")


def _check_counts(what: str, graphs: int, reductions: int) -> None:
    if graphs > 1:
        raise NotYet(f"{what}: {graphs} graphs at once; call backward() for each before the next")
    if not reductions:
        raise NotYet(
            f"{what}: the gradients were never exchanged; the last must run without no_sync()"
        )
    if reductions > 1:
        hint = "DDP decides in the forward pass: it must stand inside no_sync() too"
        raise NotYet(f"{what}: {reductions} exchanges, one is enough. {hint}")


class _Alone(nn.Module):
    """A model with the methods of DDP and nobody to exchange gradients with: it can be sent."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Any:
        return self.module(inputs)

    def no_sync(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()


@contextlib.contextmanager
def _alone() -> Iterator[tuple[Any, list[int]]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield _Alone(nn.Linear(3, 1)), []


def _count_graphs(model: nn.Module, alive: list[int]) -> None:
    """Note after each forward pass how many have not been followed by their backward pass."""
    open_graphs: list[Tensor] = []

    def forward(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            open_graphs.append(output)
            alive.append(len(open_graphs))
            output.register_hook(lambda gradient: open_graphs.clear())

    model.register_forward_hook(forward)


@contextlib.contextmanager
def _model_that_counts() -> Iterator[tuple[Any, list[int]]]:
    """A linear model under DDP in a group of this process alone, and the list of its reductions
    so far, in bytes.
    """
    import torch.distributed as dist

    alone = not dist.is_initialized()
    if alone:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        reductions: list[int] = []

        def note(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            reductions.append(bucket.buffer().nbytes)
            done: torch.futures.Future[Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
        model.register_comm_hook(None, lambda state, bucket: note(bucket))
        yield model, reductions
    finally:
        if alone:
            dist.destroy_process_group()
