"""A batch so small that fixed costs dominate: launches on a GPU, Python and the update anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from whyslow.experiment import ALL, Experiment
from whyslow.memory import room_for
from whyslow.observe import mapped
from whyslow.remedies import BATCH
from whyslow.subject import Subject

# A larger batch changes what is learned: it has to be worth it.
LEAST = 0.15
# Larger batches than that many times the present one are another question.
TIMES = (8, 2)


def larger_batch(subject: Subject) -> Iterator[Experiment]:
    """The same samples several times in one batch, as long as the memory lasts."""
    size = batch_size(subject.batches)
    times = next((each for each in TIMES if room_for(subject, each)), None)
    if size is None or times is None:
        return

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor] * times)

    yield Experiment(
        BATCH,
        f"{times} times the batch, time per sample",
        step=subject.serve([mapped(each, repeated) for each in subject.batches]),
        part=ALL,
        words={"larger": times * size, "size": size},
        samples=times,
        least=LEAST,
    )


def batch_size(batches: list[Any]) -> int | None:
    """The first dimension that all tensors of all batches have in common; None without one."""
    sizes = set()
    for each in tree_leaves(batches):
        if not isinstance(each, torch.Tensor) or each.dim() == 0:
            return None
        sizes.add(each.shape[0])
    return sizes.pop() if len(sizes) == 1 else None
