"""Deeper 22, answers to the exercise: clipping a vector without a branch, in one graph."""

import torch

from course import exercises
from tests.labs import nothing


def right(x, limit):
    return x * (limit / x.norm()).clamp(max=1)


def chosen(x, limit):
    norm = x.norm()
    return torch.where(norm > limit, x * (limit / norm), x)


def branches(x, limit):
    norm = x.norm()
    if norm > limit:
        x = x * (limit / norm)
    return x


def reads(x, limit):
    return x * min(1.0, limit / max(x.norm().item(), 1e-9))


def prints(x, limit):
    norm = x.norm()
    print(end="")
    return x * (limit / norm).clamp(max=1)


def prints_first(x, limit):
    print(end="")
    return right(x, limit)


def breaks(x, limit):
    norm = x.norm()
    torch._dynamo.graph_break()
    return x * (limit / norm).clamp(max=1)


def always(x, limit):
    return x * (limit / x.norm())


def by_value(x, limit):
    return x.clamp(max=limit)


def kept_away(x, limit):
    return torch.compiler.disable(right)(x, limit)


CHECK = exercises.check_22_one_graph
RIGHT = right
ALSO_RIGHT = [chosen]
WRONG = [
    (nothing, "write it, then run this cell again"),
    (always, "[0.3, 0.4] with the limit 1"),
    (by_value, "[3.0, 4.0] with the limit 1"),
    (lambda x, limit: 1.0, "…yours 1.0"),
    (lambda x, limit: x.norm(), "…with the limit 1"),
    (branches, "…host reads: 1"),
    (reads, "…host reads: 1"),
    (breaks, "…makes 2 graphs"),
    (prints, "…makes 2 graphs"),
    (prints_first, "…with a graph break"),
    (kept_away, "…makes 0 graphs"),
]
