"""Planned pieces compiled, beside torch's own compiled graph with its activation_memory_budget.

    uv run python tests/benchmarks/bench_compiled.py          # all models, some ten minutes
    uv run python tests/benchmarks/bench_compiled.py mlp      # one of them

A step is forward and backward on the CPU. Each way has two peaks, weights and inputs included:
``tensors`` by labkit's `MemoryMeter`, which sees what goes through operators, so not what compiled
code makes for itself; ``allocated`` by the events of torch's allocator, which sees all, the work
space of operators as well. ``step``: processor seconds of the fastest of some, on one thread, so
that what else a machine does counts little. ``ready``: until the first two steps are done, with
capture, fit and compiler, which may have compiled the same before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config

import sublinear
from labkit import MemoryMeter
from labkit.text import format_bytes
from sublinear.probe import peak_of_compiled

STEPS = 21
BUDGETS = (0.5, 0.3)
COMPILER_BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.0)


class Layer(nn.Module):
    """A layer of a vision transformer, the norms before what they feed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, width = x.shape
        mixed = self.mix(self.before(x)).view(count, tokens, 3, self.heads, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(count, tokens, width))
        return x + self.feed(self.between(x))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.norm_one(self.one(x)).relu()
        return (x + self.norm_two(self.two(inside))).relu()


class Chained(nn.Module):
    """Layers one after the other, read by the compiler as one forward."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def encoder() -> tuple[nn.Module, Tensor]:
    return Chained(*(Layer(64, 4) for _ in range(6))), torch.randn(8, 64, 64)


def residual() -> tuple[nn.Module, Tensor]:
    stem = nn.Conv2d(3, 32, 3, padding=1)
    return Chained(stem, *(Residual(32) for _ in range(4))), torch.randn(8, 3, 32, 32)


def mlp() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()]
    return Chained(*layers), torch.randn(4096, 128)


MODELS = {"encoder": encoder, "residual": residual, "mlp": mlp}


def step(model: Callable[[Tensor], Tensor], x: Tensor, parameters: list[nn.Parameter]) -> None:
    model(x).square().mean().backward()
    for parameter in parameters:
        parameter.grad = None


def planned(model: nn.Module, x: Tensor, budget: float, compile: bool) -> nn.Module:
    fitted = sublinear.fit(
        model, x, budget=budget, loss=lambda y: y.square().mean(), compile=compile
    )
    return fitted.model


def whole(model: nn.Module, x: Tensor, budget: float) -> Callable[..., Any]:
    """Compiled as one graph, which recomputes by torch's own choice."""
    config.activation_memory_budget = budget
    return torch.compile(model)


def row(name: str, make: Callable[[], tuple[nn.Module, Tensor]], way: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = make()
    model.train()
    begin = time.perf_counter()
    try:
        run = way(model, x)
    except ValueError as error:
        print(f"| {name} | refused: {str(error)[:90]} | | | |", flush=True)
        return
    parameters = list(model.parameters())
    once = partial(step, run, x, parameters)
    for _ in range(2):
        once()
    ready = time.perf_counter() - begin
    config.activation_memory_budget = 1.0
    with MemoryMeter("cpu", saved=False) as memory:
        once()
    allocated = peak_of_compiled(partial(step, model, x, parameters), once)
    times = []
    for _ in range(STEPS):
        begin = time.process_time()
        once()
        times.append(time.process_time() - begin)
    seconds = f"{1e3 * min(times):.1f} ms"
    sizes = f"{format_bytes(memory.peak)} | {format_bytes(allocated)}"
    print(f"| {name} | {sizes} | {seconds} | {ready:.0f} s |", flush=True)


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in sys.argv[1:] or MODELS:
        print(f"\n{name}\n| way | tensors | allocated | step | ready |\n|---|---|---|---|---|")
        make = MODELS[name]
        row("plain", make, lambda model, x: model)
        for compile in (False, True):
            for budget in BUDGETS:
                words = f"fit, budget={budget}" + ", compile=True" * compile
                row(words, make, partial(planned, budget=budget, compile=compile))
        for budget in COMPILER_BUDGETS:
            row(f"torch.compile, {budget}", make, partial(whole, budget=budget))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
