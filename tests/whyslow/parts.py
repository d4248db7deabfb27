"""What the programs are made of: tuned networks and steps, on data that are ready."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from whyslow.subject import Subject, observe

LAST = torch.channels_last


@dataclass
class Program:
    """A training program: ``step(batch)`` with ``batches``, or ``step()``.

    ``samples`` is what one step works on. ``close`` switches off what was switched on.
    """

    step: Callable[..., object]
    batches: Any = None
    samples: int = 1
    close: Callable[[], object] = lambda: None


def lower() -> Any:
    """What tuned programs run their forward pass in."""
    return torch.autocast("cpu", torch.bfloat16)


def conv_net(width: int = 32, blocks: int = 3, bias: bool = False) -> nn.Sequential:
    """A small network on images (N, 3, 32, 32)."""
    layers: list[nn.Module] = []
    channels = 3
    for number in range(blocks):
        size = width * 2 ** min(number, 2)
        layers += [
            nn.Conv2d(channels, size, 3, padding=1, bias=bias),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1, stride=2, bias=bias),
            nn.BatchNorm2d(size),
            nn.ReLU(),
        ]
        channels = size
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers).to(memory_format=LAST)


def mlp(width: int = 512, depth: int = 4, inputs: int = 256) -> nn.Sequential:
    """Linear layers on rows (N, inputs)."""
    layers: list[nn.Module] = []
    size = inputs
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, 10))


def image_batches(samples: int = 128, count: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (N, 3, 32, 32) in channels-last order, and classes (N,)."""
    return [
        (
            torch.randn(samples, 3, 32, 32).contiguous(memory_format=LAST),
            torch.randint(10, (samples,)),
        )
        for _ in range(count)
    ]


def row_batches(
    samples: int = 512, inputs: int = 256, count: int = 8
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (N, inputs), and classes (N,)."""
    return [(torch.randn(samples, inputs), torch.randint(10, (samples,))) for _ in range(count)]


def fused_sgd(model: nn.Module, rate: float = 0.01) -> torch.optim.Optimizer:
    """The optimizer of most programs."""
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=True)


def trainer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    precision: Callable[[], Any] = lower,
) -> Callable[[Any], object]:
    """A tuned step."""
    updates = optimizer or fused_sgd(model)

    def step(batch: Any) -> torch.Tensor:
        inputs, targets = batch
        with precision():
            loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return step


def full() -> Any:
    """fp32: no context at all."""
    return contextlib.nullcontext()


def looked_at(program: Program) -> Subject:
    """The subject that the diagnosis makes of a program, before its first experiment."""
    subject = Subject(program.step, program.batches)
    if program.batches is not None:
        subject.keep()
    step = subject.serve()
    step()
    subject.seen = observe(step, lambda item: None)
    # Room for a larger batch: what a step really takes is not asked here.
    subject.peak = 1
    return subject
