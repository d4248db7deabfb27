"""14, distributed data parallel: what shows that it acts, and answers to the exercise."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course import exercises
from tests.labs import nothing

CHECK = exercises.check_14_average
Reduce = Callable[[Tensor], None]


def alive(names: dict[str, Any]) -> None:
    """Who exchanges what: seen by the profiler, in the first process."""
    lab, of = names["lab"], names["exchanges"].of
    try:
        calls = {}
        for exchange in ("DDP", "by hand", "none"):
            result = lab.run(processes=2, exchange=exchange, model="mlp", seconds=0.05)
            assert result.candidate.samples == result.baseline.samples
            assert of(result.baseline.settings).exchange == ()
            noted = of(result.candidate.settings)
            calls[exchange] = len(noted.exchange)
            assert noted.backward and noted.forward > 0
        parameters = len(list(names["NETWORKS"]["mlp"]().parameters()))
        assert 1 <= calls["DDP"] < calls["by hand"] == parameters
        assert calls["none"] == 0
    finally:
        lab.runs_in.close()


def average(
    parameters: Sequence[nn.Parameter], all_reduce: Reduce, world: int, bucket_bytes: int
) -> None:
    bucket: list[nn.Parameter] = []
    for parameter in reversed(parameters):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if bucket and sum(each.grad.nbytes for each in [*bucket, parameter]) > bucket_bytes:
            exchange(bucket, all_reduce, world)
            bucket = []
        bucket.append(parameter)
    exchange(bucket, all_reduce, world)


def exchange(bucket: list[nn.Parameter], all_reduce: Reduce, divisor: float) -> None:
    flat = torch.cat([parameter.grad.flatten() for parameter in bucket])
    all_reduce(flat)
    parts = flat.split([parameter.numel() for parameter in bucket])
    for parameter, part in zip(bucket, parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter) / divisor)


def in_buckets(
    parameters: Sequence[nn.Parameter],
    all_reduce: Reduce,
    divisor: float,
    limit: int,
    *,
    last: bool = True,
    late: bool = False,
) -> None:
    """The same, with faults: without the last bucket, or sent once it is too large."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        new = 0 if late else parameter.grad.nbytes
        if bucket and sum(each.grad.nbytes for each in bucket) + new > limit:
            exchange(bucket, all_reduce, divisor)
            bucket = []
        bucket.append(parameter)
    if last:
        exchange(bucket, all_reduce, divisor)


def not_divided(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters[::-1], all_reduce, 1, bucket_bytes)


def divided_twice(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters[::-1], all_reduce, world**2, bucket_bytes)


def not_copied_back(parameters, all_reduce, world, bucket_bytes):
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    for copy, parameter in zip(copies, parameters, strict=True):
        copy.grad = None if parameter.grad is None else parameter.grad.clone()
    average(copies, all_reduce, world, bucket_bytes)


def last_bucket_lost(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters[::-1], all_reduce, world, bucket_bytes, last=False)


def skips_none(parameters, all_reduce, world, bucket_bytes):
    there = [parameter for parameter in parameters if parameter.grad is not None]
    average(there, all_reduce, world, bucket_bytes)


def zeros_in_a_message_of_their_own(parameters, all_reduce, world, bucket_bytes):
    """Those without a gradient come last."""
    there = [parameter for parameter in parameters if parameter.grad is not None]
    missing = [parameter for parameter in parameters if parameter.grad is None]
    average([*missing, *there], all_reduce, world, bucket_bytes)


def one_by_one(parameters, all_reduce, world, bucket_bytes):
    for parameter in reversed(parameters):
        exchange([parameter], all_reduce, world)


def first_to_last(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters, all_reduce, world, bucket_bytes)


def too_late(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters[::-1], all_reduce, world, bucket_bytes, late=True)


def one_bucket(parameters, all_reduce, world, bucket_bytes):
    in_buckets(parameters[::-1], all_reduce, world, 10**9)


def not_flat(parameters, all_reduce, world, bucket_bytes):
    for parameter in reversed(parameters):
        all_reduce(parameter.grad)
        parameter.grad /= world


def alone(parameters, all_reduce, world, bucket_bytes):
    for parameter in parameters:
        parameter.grad = parameter.grad / world


FIRST = "gradients of [3, 4, 5, 4, 2] numbers, buckets of 8: "
CALLS = FIRST + "your calls have {} numbers; full buckets have [6, 5, 7]"
RIGHT = average
WRONG = (
    (not_divided, FIRST + "gradient 0 of rank 0 is 2 times the mean: divide by world"),
    (divided_twice, FIRST + "gradient 0 of rank 0 is 0.5 times the mean: divide only once"),
    (not_copied_back, FIRST + "gradient 0 of rank 0 is as before: torch.cat makes a copy"),
    (last_bucket_lost, CALLS.format([6, 5]) + ". The last bucket never leaves"),
    (
        skips_none,
        "all_reduce is called 2 times on rank 0, 1 times on rank 1: one waits. "
        "Parameter 0 of rank 1 has no gradient (None); it must take part, with zeros",
    ),
    (
        zeros_in_a_message_of_their_own,
        "call 2: rank 0 brings 5 numbers and rank 1 7; a parameter without a gradient adds zeros",
    ),
    (one_by_one, CALLS.format([2, 4, 5, 4, 3]) + ". One call per gradient"),
    (first_to_last, CALLS.format([7, 5, 6]) + ". The last parameter's gradient is ready first"),
    (too_late, CALLS.format([11, 7]) + ". 11 is more than a bucket takes"),
    (one_bucket, CALLS.format([18]) + ". 18 is more than a bucket takes"),
    (not_flat, "all_reduce takes a flat tensor, of one dimension; it was given [2, 2]"),
    (alone, FIRST + "all_reduce was never called"),
    (nothing, FIRST + "all_reduce was never called"),
)
