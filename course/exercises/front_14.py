"""The exercise of the front notebook 14: gradients become their mean, bucket by bucket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check

RANKS = 2
# Seconds until a rank that waits for the other one is told so.
PATIENCE = 2.0
BYTES = 4
# Numbers of each parameter, the first layer first, and bytes of a bucket.
CASES = (
    ([(3,), (2, 2), (5,), (4,), (2,)], 32),
    ([(2,), (6,), (1,), (12,), (3,)], 40),
    ([(4,)], 1024),
)
# The same, and which parameter has no gradient on rank 1: alone in its bucket, or among others.
WITHOUT = (([(8,), (4,), (2, 2)], 32, 0), ([(3,), (2, 2), (5,), (4,), (2,)], 32, 2))


@check(
    "every gradient is the mean, in full buckets, from the last parameter to the first",
    judged="inside",
)
def check_14_average(answer: Callable[..., Any]) -> None:
    """``answer(parameters, all_reduce, world, bucket_bytes)`` makes each parameter's gradient the
    mean over all ranks.

    ``all_reduce(flat)`` sums a flat tensor over the ranks, in place. Gradients leave from the last
    parameter to the first, in buckets of at most ``bucket_bytes``, or of one gradient that is
    larger. A rank without a gradient adds zeros. Two ranks call the answer, as threads.
    """
    for shapes, limit in CASES:
        _judge(answer, shapes, limit, without={})
    for shapes, limit, number in WITHOUT:
        _judge(answer, shapes, limit, without={1: number})


def _judge(
    answer: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    limit: int,
    without: dict[int, int],
) -> None:
    """``without``: rank -> number of the parameter that has no gradient there."""
    ranks = [_parameters(shapes, rank, without.get(rank)) for rank in range(RANKS)]
    before = [[_gradient(each) for each in own] for own in ranks]
    meeting = _Meeting()
    _call_both(answer, ranks, meeting, limit, without)
    sizes = [parameter.numel() for parameter in ranks[0]]
    case = f"gradients of {sizes} numbers, buckets of {limit // BYTES}"
    _check_calls(meeting, sizes, limit // BYTES, case)
    for number in range(len(shapes)):
        mean = torch.stack([own[number] for own in before]).sum(dim=0) / RANKS
        for rank, own in enumerate(ranks):
            _check_gradient(own[number].grad, before[rank][number], mean, number, rank, case)


def _parameters(
    shapes: Sequence[tuple[int, ...]], rank: int, without: int | None
) -> list[nn.Parameter]:
    """Parameters with the gradients of one rank, the same in every run."""
    numbers = torch.Generator().manual_seed(rank)
    found = []
    for number, shape in enumerate(shapes):
        parameter = nn.Parameter(torch.zeros(shape))
        # Whole numbers: sums and halves of them are exact.
        gradient = torch.randint(1, 50, shape, generator=numbers).float()
        parameter.grad = None if number == without else gradient
        found.append(parameter)
    return found


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.clone()


class _Meeting:
    """Where two threads sum their tensors; ``calls`` are the numbers of each call, by rank."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = [[] for _ in range(RANKS)]
        self.alone: int | None = None
        self._barrier = threading.Barrier(RANKS)
        self._brought: list[Tensor] = [torch.empty(0)] * RANKS

    def leave(self) -> None:
        """A rank has ended: nobody may wait for it any more."""
        self._barrier.abort()

    def all_reduce(self, rank: int, flat: object) -> None:
        """Sum in place what all ranks bring. NotYet for what cannot be summed."""
        if not isinstance(flat, Tensor) or flat.dim() != 1:
            shape = list(flat.shape) if isinstance(flat, Tensor) else type(flat).__name__
            raise NotYet(f"all_reduce takes a flat tensor, of one dimension; it was given {shape}")
        self.calls[rank].append(flat.numel())
        self._brought[rank] = flat
        self._wait(rank)
        lengths = [each.numel() for each in self._brought]
        if len(set(lengths)) > 1:
            raise NotYet(
                f"call {len(self.calls[rank])}: rank 0 brings {lengths[0]} numbers and rank 1 "
                f"{lengths[1]}; a parameter without a gradient adds zeros"
            )
        total = torch.stack([each.detach() for each in self._brought]).sum(dim=0)
        self._wait(rank)
        with torch.no_grad():
            flat.copy_(total)
        self._wait(rank)

    def _wait(self, rank: int) -> None:
        try:
            self._barrier.wait(PATIENCE)
        except threading.BrokenBarrierError:
            self.alone = rank
            raise _Alone from None


class _Alone(Exception):
    """A rank waits for one that does not come."""


def _call_both(
    answer: Callable[..., Any],
    ranks: Sequence[list[nn.Parameter]],
    meeting: _Meeting,
    limit: int,
    without: dict[int, int],
) -> None:
    """Both ranks at the same time; raises what one of them raised, the reader's own error first."""
    failures: list[Exception] = []

    def call(rank: int) -> None:
        try:
            attempt(answer, ranks[rank], partial(meeting.all_reduce, rank), RANKS, limit)
        except Exception as error:
            failures.append(error)
        finally:
            if len(failures) > 0:
                meeting.leave()

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures.sort(key=lambda error: isinstance(error, _Alone))
    if not failures:
        return
    if isinstance(failures[0], _Alone):
        raise NotYet(_who_waits(meeting, without))
    raise failures[0]


def _who_waits(meeting: _Meeting, without: dict[int, int]) -> str:
    calls = [len(each) for each in meeting.calls]
    told = f"all_reduce is called {calls[0]} times on rank 0, {calls[1]} times on rank 1: one waits"
    if without:
        [(rank, number)] = without.items()
        told += (
            f". Parameter {number} of rank {rank} has no gradient (None); it must take part, with "
            "zeros"
        )
    return told


def _check_calls(meeting: _Meeting, sizes: Sequence[int], limit: int, case: str) -> None:
    calls, wanted = meeting.calls[0], full_buckets(sizes, limit)
    if calls == wanted:
        return
    if not calls:
        raise NotYet(f"{case}: all_reduce was never called: the ranks know nothing of each other")
    told = f"{case}: your calls have {calls} numbers; full buckets have {wanted}"
    if sum(calls) < sum(sizes):
        raise NotYet(f"{told}. The last bucket never leaves: what is left behind the loop?")
    if calls == full_buckets(sizes[::-1], limit):
        raise NotYet(f"{told}. The last parameter's gradient is ready first: begin with it")
    if calls == list(sizes[::-1]) or calls == list(sizes):
        raise NotYet(f"{told}. One call per gradient: each message has its cost, so collect first")
    large = [size for size in calls if size > limit and size not in sizes]
    if large:
        raise NotYet(f"{told}. {large[0]} is more than a bucket takes: send before it overflows")
    raise NotYet(told)


def full_buckets(sizes: Sequence[int], limit: int) -> list[int]:
    """Numbers in each bucket, from the last gradient to the first."""
    buckets: list[int] = []
    for size in reversed(sizes):
        if buckets and buckets[-1] + size <= limit:
            buckets[-1] += size
        else:
            buckets.append(size)
    return buckets


def _check_gradient(
    found: Tensor | None, before: Tensor, mean: Tensor, number: int, rank: int, case: str
) -> None:
    where = f"{case}: gradient {number} of rank {rank}"
    if found is None:
        raise NotYet(f"{where} is None; it must be the mean, of which zeros are its own part")
    if found.shape != mean.shape:
        raise NotYet(f"{where} has the shape {list(found.shape)}; its own is {list(mean.shape)}")
    if torch.equal(found, mean):
        return
    if torch.equal(found, before):
        raise NotYet(
            f"{where} is as before: torch.cat makes a copy, so write the sums back into .grad"
        )
    for factor, hint in ((RANKS, "divide by world"), (1 / RANKS, "divide only once")):
        if torch.equal(found, factor * mean):
            raise NotYet(f"{where} is {factor:g} times the mean: {hint}")
    raise NotYet(f"{where} is {found.flatten().tolist()}; the mean is {mean.flatten().tolist()}")
