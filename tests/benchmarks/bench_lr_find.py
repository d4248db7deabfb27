"""What lr_find costs over the bare loop of as many steps.

By hand, on an idle machine: ``uv run python tests/benchmarks/bench_lr_find.py``. Each line: the
median of time(lr_find) / time(bare loop) over paired runs in the order A B B A, with its
95 % interval, and the goal. The range is narrow enough that lr_find does not stop early.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from labkit import pick_device
from labkit.comparing import measuring
from labkit.device import synchronize
from labkit.lr_finder import lr_find
from labkit.results import median_interval

STEPS, PAIRS = 100, 40


def seconds(work: Callable[[], object]) -> float:
    synchronize()
    begin = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - begin


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 10))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-9, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-9)


def report(
    name: str, model: nn.Module, optimizer_of: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    torch.manual_seed(0)
    device = pick_device()
    model = model.to(device)
    optimizer = optimizer_of(model)
    inputs = torch.randn(64, 1, 28, 28, device=device)
    targets = torch.randint(10, (64,), device=device)

    def step() -> torch.Tensor:
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def bare() -> None:
        losses = []
        for _ in range(STEPS):
            losses.append(step().detach())

    def search() -> None:
        result = lr_find(step, model, optimizer, min_lr=1e-9, max_lr=1e-6, steps=STEPS)
        assert len(result.losses) == STEPS

    # To warm up.
    bare()
    search()
    ratios, times = [], []
    for number in range(PAIRS):
        order = (search, bare) if number % 2 else (bare, search)
        taken = {work: seconds(work) for work in order}
        ratios.append(taken[search] / taken[bare])
        times.append(taken[bare] / STEPS)
    low, high = median_interval(tuple(ratios))
    print(
        f"lr_find / bare loop, {name}, {device.type}, {np.median(times) * 1e3:.2f} ms a step: "
        f"{np.median(ratios):.4f} [{low:.4f}, {high:.4f}]  n={PAIRS}  goal <= 1.05",
        flush=True,
    )


if __name__ == "__main__":
    with measuring(1):
        report("MLP + SGD", mlp(), sgd)
        report("CNN + SGD", cnn(), sgd)
        report("CNN + Adam", cnn(), adam)
