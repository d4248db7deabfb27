"""Deeper 14, answers to the exercise: accumulate gradients with one exchange."""

from contextlib import nullcontext

import torch.nn.functional as F

from course import exercises
from tests.labs import nothing


def solution(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


def every_time(model, micro_batches):
    for inputs, targets in micro_batches:
        (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


def backward_only(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = F.mse_loss(model(inputs), targets) / len(micro_batches)
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            loss.backward()


def never(model, micro_batches):
    with model.no_sync():
        every_time(model, micro_batches)


def sums(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            F.mse_loss(model(inputs), targets).backward()


def all_at_once(model, micro_batches):
    sum(
        F.mse_loss(model(inputs), targets) / len(micro_batches) for inputs, targets in micro_batches
    ).backward()


def first_only(model, micro_batches):
    solution(model, micro_batches[:1])


def not_for_one(model, micro_batches):
    with model.no_sync():
        for inputs, targets in micro_batches[:-1] or micro_batches:
            (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()
    if len(micro_batches) > 1:
        inputs, targets = micro_batches[-1]
        (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


CHECK = exercises.check_14_one_reduction
RIGHT = solution
RAISES = [(lambda model, micro_batches: 1 // 0, ZeroDivisionError, "zero")]
WRONG = [
    (nothing, "after 4 micro-batches there are no gradients: call backward() for each"),
    (every_time, "4 micro-batches: 4 exchanges, one is enough."),
    (
        backward_only,
        "4 micro-batches: 4 exchanges, one is enough. DDP decides in the forward pass",
    ),
    (
        never,
        "4 micro-batches: the gradients were never exchanged; the last must run without no_sync()",
    ),
    (sums, "4 micro-batches: the gradient is 4 times too large; divide each loss"),
    (
        all_at_once,
        "4 micro-batches: 4 graphs at once; call backward() for each before the next",
    ),
    (first_only, "4 micro-batches: this is not the gradient of the mean loss over all of them"),
    (not_for_one, "1 micro-batch: the gradients were never exchanged"),
]
