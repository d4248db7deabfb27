"""05: what shows that its technique acts, and answers to its exercise."""

from typing import Any

import torch

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    one_by_one, at_once = counters(names), counters(names, rows=names["rows_in_all"])
    assert at_once.launches < one_by_one.launches / 10
    assert at_once.flops == one_by_one.flops


def stub(model, inputs, rows): ...


def in_blocks(model, inputs, rows):
    return torch.cat([model(block) for block in inputs.split(rows)])


def one_by_one(model, inputs, rows):
    return torch.cat([model(block) for block in inputs.split(1)])


def without_the_rest(model, inputs, rows):
    whole = inputs[: len(inputs) // rows * rows]
    return torch.cat([model(block) for block in (*whole.split(rows), inputs[:0])])


def the_last_only(model, inputs, rows):
    return [model(block) for block in inputs.split(rows)][-1]


CHECK = exercises.check_05_batch_size
RIGHT = in_blocks
WRONG = (
    (stub, "return a tensor"),
    (one_by_one, "8 rows in blocks of 4 are blocks of [4, 4], not [1, 1"),
    (without_the_rest, "8 rows in blocks of 4 are blocks of [4, 4], not [4, 4, 0]"),
    (the_last_only, "the outputs of all blocks"),
)
