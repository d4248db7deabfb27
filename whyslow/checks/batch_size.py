"""A batch so small that fixed costs dominate: launches on a GPU, Python and the update anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from whyslow.experiment import Experiment
from whyslow.memory import room_for
from whyslow.subject import Subject

# A larger batch changes what is learned: it has to be worth it.
LEAST = 0.15
# Larger batches than that many times the present one are another question.
TIMES = (8, 2)


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The same samples several times in one batch, as long as the memory lasts."""
    size = batch_size(subject.batches)
    if size is None:
        return
    for times in TIMES:
        if not room_for(subject, times):
            continue
        larger = [tree_map(_Repeat(times), batch) for batch in subject.batches]
        yield Experiment(
            "batch too small for the fixed costs of a step",
            f"by experiment: {times} times the batch, time per sample",
            f"A batch of {times * size} instead of {size} samples, with another learning rate;\n"
            "where it must stay small, torch.compile or a CUDA graph saves launches.",
            "05_batch_size",
            step=subject.serve(larger),
            samples=times,
            least=LEAST,
            last=True,
        )
        return


def batch_size(batches: list[Any]) -> int | None:
    """The first dimension that all tensors of all batches have in common; None without one."""
    sizes = set()
    for each in tree_leaves(batches):
        if not isinstance(each, torch.Tensor) or each.dim() == 0:
            return None
        sizes.add(each.shape[0])
    return sizes.pop() if len(sizes) == 1 else None


class _Repeat:
    """Repeats the samples of a tensor."""

    def __init__(self, times: int) -> None:
        self._times = times

    def __call__(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        return torch.cat([item] * self._times)
