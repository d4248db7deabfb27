"""Processes that train together, each with a share of every batch: for notebook 14.

A notebook is one process, a *rank* another one: `start` runs `worker.py` as ranks, as ``torchrun``
would. There `group`, `share` and `backward` are what a step is made of. With two GPUs each rank
takes one; otherwise all compute on the CPU.
"""

from __future__ import annotations

import copy
import os
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from course import data
from course.probe import abilities
from labkit.remote import Workers

SCRIPT = Path(__file__).with_name("worker.py")
RANKS = 2
# How one process uses two cores: not at all, in each operator, by Python threads with a copy each.
ONE, OPERATORS, COPIES = "1", "2 per operator", "2 in Python"
THREADS = (ONE, OPERATORS, COPIES)


def gpus() -> int:
    """GPUs for the ranks: all of them where each rank has one, else none."""
    found = torch.cuda.device_count()
    return found if found >= RANKS else 0


def start() -> Workers:
    """Two ranks, which begin with the first run; each has a minute for an answer."""
    return Workers(SCRIPT, processes=RANKS, seconds=60)


def in_words() -> str:
    """What the ranks run on here, and what that means."""
    if gpus():
        return "Two processes, a GPU each."
    cores = abilities().cores
    if cores < RANKS:
        return (
            "This machine has one core for two processes: they take turns, and cannot be faster.\n"
            "Bet on what the exchange costs."
        )
    one = "One GPU has no partner: " if torch.cuda.is_available() else ""
    return f"{one}{'two' if one else 'Two'} processes on the CPU, which has {cores} cores for them."


# ------------------------------------------------------------------------------- within a rank


@dataclass(frozen=True)
class Rank:
    """This process among the others; ``groups`` by their number of ranks."""

    number: int
    device: torch.device
    groups: dict[int, Any]


@cache
def here() -> Rank:
    """Meet the other ranks; once per process."""
    own = torch.device("cpu")
    if gpus():
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        # Before the group: nccl talks by the current device.
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if gpus() else "gloo")
    # Each rank makes all groups, also those that it is not in.
    groups = {size: dist.new_group(list(range(size))) for size in range(1, RANKS + 1)}
    return Rank(dist.get_rank(), own, groups)


def group(processes: int, threads: str) -> Any:
    """The group of the first so many ranks, each of which uses its cores as ``threads`` says.

    ValueError for other threads than `THREADS`.
    """
    if threads not in THREADS:
        raise ValueError(f"threads={threads!r}: use {', '.join(map(repr, THREADS))}")
    torch.set_num_threads(2 if threads == OPERATORS else 1)
    return here().groups[processes]


def share(batch: int, processes: int) -> tuple[Tensor, Tensor]:
    """This rank's images and labels of a batch, dealt like cards to so many ranks.

    ValueError for a batch that cannot be dealt evenly.
    """
    if batch % processes:
        raise ValueError(f"batch={batch}: use a multiple of {processes}, so that shares are equal")
    images, labels = data.cifar10(size=batch)
    own = slice(here().number, batch, processes)
    inputs = (images[own].float() / 255 - 0.47) / 0.25
    return inputs.to(here().device), labels[own].to(here().device)


def backward(net: nn.Module, inputs: Tensor, targets: Tensor, threads: str) -> None:
    """Forward and backward on this share; `COPIES` does it in two Python threads."""
    if threads != COPIES:
        F.cross_entropy(net(inputs), targets).backward()
        return
    parts = list(zip(inputs.chunk(2), targets.chunk(2), strict=True))
    # As DataParallel: a copy of the weights in every step.
    copies = [net, copy.deepcopy(net)]
    running = [
        threading.Thread(target=_learn, args=(each, *part, len(targets)))
        for each, part in zip(copies, parts, strict=True)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for parameter, other in zip(net.parameters(), copies[1].parameters(), strict=True):
        assert parameter.grad is not None and other.grad is not None
        parameter.grad += other.grad


def _learn(net: nn.Module, inputs: Tensor, targets: Tensor, batch: int) -> None:
    """One thread's share of the gradient of the mean over the batch."""
    (F.cross_entropy(net(inputs), targets, reduction="sum") / batch).backward()
