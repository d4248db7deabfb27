"""Deeper 10, answers to the exercise: the mean loss of an epoch with one read."""

import torch

from course import exercises
from tests.labs import nothing


def right(step, batches):
    total = 0.0
    for batch in batches:
        total += step(batch).detach()
    return (total / len(batches)).item()


def on_a_list(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).mean().item()


def reads_every_step(step, batches):
    return sum(step(batch).item() for batch in batches) / len(batches)


def keeps_the_graphs(step, batches):
    total = 0.0
    for batch in batches:
        total += step(batch)
    return (total / len(batches)).item()


def returns_a_tensor(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).mean()


def returns_the_sum(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).sum().item()


def returns_the_last(step, batches):
    for batch in batches:
        loss = step(batch).detach()
    return loss.item()


def steps_twice(step, batches):
    return torch.stack([step(batch).detach() for batch in batches for _ in range(2)]).mean().item()


@torch.no_grad()
def without_gradients(step, batches):
    return right(step, batches)


def around_the_counter(step, batches):
    return float(sum(step(batch).detach().numpy() for batch in batches) / len(batches))


CHECK = exercises.check_10_one_read
RIGHT = right
ALSO_RIGHT = [on_a_list]
WRONG = [
    (nothing, "write it, then run this cell again"),
    (reads_every_step, "…4 reads were counted, 1 is wanted"),
    (keeps_the_graphs, "…you held the graphs of 4 steps"),
    (returns_a_tensor, "…return a float, yours is a Tensor"),
    (returns_the_sum, "…have the mean 3.5, yours says 14"),
    (returns_the_last, "…have the mean 3.5, yours says 8"),
    (steps_twice, "…8 steps were done, not 4"),
    (without_gradients, "…leave gradients on"),
    (around_the_counter, "…0 reads were counted"),
]
