"""The memory planner against its goals. Run by hand on a quiet machine.

    python tests/benchmarks/bench_checkpointing.py
    python tests/benchmarks/bench_checkpointing.py --card 16

Ratios are against the same plain model. On a CPU, chains are measured at a small batch and scaled
to the goal's batch by `Chain.at_batch` (these rows say "predicted"); plans for the small batch
itself are then run and measured, peaks exactly by `StorageTracker`. With CUDA, or --full,
everything is measured at the goal's batch. ``--card``: only the largest batches on an emulated card
of so many GiB.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

import course.searches  # noqa: F401  # adds its methods to the planner's
from course.small_gpu import SmallGpu, Trial, search_batch, try_batch
from labkit.comparing import compare
from labkit.device import pick_device
from labkit.memory import MemoryMeter, StorageTracker
from labkit.results import Workload
from sublinear.apply import apply
from sublinear.chain import Chain
from sublinear.fitted import Fitted
from sublinear.plan import Plan, keep_all
from sublinear.planner import largest_batch, plan
from sublinear.profiling import Roofline, profile, training
from sublinear.split import split

T4_LIKE = Roofline("a card of a T4's class", flops=5e12, bandwidth=240e9)
A100_LIKE = Roofline("a card of an A100's class, bfloat16", flops=150e12, bandwidth=1.3e12)


class Layer(nn.Module):
    """An encoder layer with its attention written out, as BERT's, or by torch's fused function."""

    def __init__(
        self, fused: bool, attention_dropout: float, dim: int = 768, heads: int = 12
    ) -> None:
        super().__init__()
        self.fused, self.heads = fused, heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.drop = nn.ModuleList(nn.Dropout(rate) for rate in (attention_dropout, 0.1, 0.1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=self.drop[0].p)
        else:
            mixed = self.drop[0]((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)) @ v
        x = self.norm1(x + self.drop[1](self.out(mixed.transpose(1, 2).flatten(-2))))
        return self.norm2(x + self.drop[2](self.down(nn.functional.gelu(self.up(x)))))


class Encoder(nn.Module):
    """The size of BERT-base: 12 layers of 768, 12 heads, 110 million parameters."""

    def __init__(
        self, layers: int = 12, fused: bool = False, attention_dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(30522, 768),
            nn.Parameter(torch.randn(512, 768) / 50),
        )
        self.norm, self.layers = (
            nn.LayerNorm(768),
            nn.ModuleList(Layer(fused, attention_dropout) for _ in range(layers)),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x[:, 0]


@dataclass(frozen=True)
class Case:
    """A model, the batch for a CPU and that of the goals, and the goals.

    ``goals``: memory at most, time at most, both of plain training.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    small: int
    batch: int
    goals: tuple[tuple[float, float], ...]


CASES = (
    Case(
        "ResNet-18, 224x224",
        lambda: torchvision.models.resnet18(),
        lambda n: torch.randn(n, 3, 224, 224),
        8,
        64,
        ((0.68, 1.10),),
    ),
    Case(
        "ResNet-50, 224x224",
        lambda: torchvision.models.resnet50(),
        lambda n: torch.randn(n, 3, 224, 224),
        4,
        64,
        ((0.60, 1.15), (0.42, 1.25), (0.37, 1.30)),
    ),
    Case(
        "BERT-base size, 512 tokens, eager attention",
        Encoder,
        lambda n: torch.randint(0, 30522, (n, 512)),
        1,
        16,
        ((0.25, 1.30),),
    ),
)


def ratios(chain: Chain, found: Plan) -> tuple[float, float]:
    """Memory and time of a plan to those of plain training of ``chain``."""
    plain, planned = keep_all(chain).costs, found.costs
    return planned.peak_bytes / plain.peak_bytes, planned.seconds / plain.seconds


def activations(chain: Chain, found: Plan) -> float:
    """Ratio of the peaks without parameters and their gradients, which no plan changes."""
    fixed = chain.fixed_bytes
    plain, planned = keep_all(chain).costs, found.costs
    return (planned.peak_bytes - fixed) / (plain.peak_bytes - fixed)


def predicted(chain: Chain, case: Case, label: str) -> None:
    for memory, seconds in case.goals:
        begin = time.perf_counter()
        found = plan(chain, max_overhead=seconds - 1)
        spent = time.perf_counter() - begin
        have = ratios(chain, found)
        met = "met" if have[0] <= memory else "MISSED"
        print(
            f"  {label:<38} batch {chain.batch_size}: memory {have[0]:.3f} (goal {memory:.2f}, "
            f"{met}) at time "
            f"{have[1]:.3f} (goal {seconds:.2f}); activations {activations(chain, found):.3f}; "
            f"planned in {spent:.1f} s"
        )


def largest(chain: Chain, overhead: float) -> None:
    """The largest batch at the memory that the plain model needs for the goal's batch."""
    budget = keep_all(chain).costs.peak_bytes
    best = largest_batch(chain, budget, max_overhead=overhead)
    print(
        f"  largest batch within the plain model's memory: {best / chain.batch_size:.2f}x at "
        f"time <= {1 + overhead:.2f}"
    )


def measured(model: nn.Module, x: Tensor, chain: Chain, overhead: float, seconds: float) -> None:
    found = plan(chain, max_overhead=overhead)
    planned = apply(model, found)
    plain = keep_all(chain).costs
    fitted = Fitted(planned, found, model, training(x))
    result = fitted.measure(seconds)
    peak = result.comparison.baseline.peak_bytes or 0
    print(
        f"  measured at batch {len(x)}: {result}; error of the plain peak "
        f"{plain.peak_bytes / peak - 1:+.1%}"
    )


def depth(layers: int = 128) -> None:
    """A chain of equal convolutions with batch norm, halved again and again; run, too."""
    units = (
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        for _ in range(layers)
    )
    model, x = nn.Sequential(*units), torch.randn(16, 8, 32, 32)
    chain = profile(model, x, options=False, repeats=1)
    plain = keep_all(chain).costs
    for method in ("recursive", "optimal"):
        found = (
            plan(chain, method="recursive")
            if method == "recursive"
            else plan(chain, max_overhead=1.2, method=method)
        )
        have = found.costs
        planned: Any = apply(model, found)
        with StorageTracker("cpu") as tracker:
            planned(x).mean().backward()
        runs = sum(planned.runs_by.calls) / layers
        print(
            f"depth {layers}, {method}: peak {have.peak_bytes / plain.peak_bytes:.1%} of plain "
            "(error "
            f"{have.peak_bytes / tracker.peak - 1:+.1%}) at {runs:.2f}x forwards, as predicted: "
            f"{sum(have.block_forwards) / layers:.2f}x"
        )
        model.zero_grad()


def as_fast_as_eager(with_eager: Chain, with_fused: Chain) -> Plan:
    """The plan for SDPA that is no slower than eager attention without one."""
    target, plain = keep_all(with_eager).costs, keep_all(with_fused).costs
    return plan(with_fused, max_overhead=max(0.0, target.seconds / plain.seconds - 1))


def fused_estimated(layers: int, tokens: int, batch: int) -> None:
    """SDPA and a plan against eager attention without one, from rooflines.

    As BERT does, with and without dropout.
    """
    print(
        f"encoder of {layers} layers, {tokens} tokens, SDPA and a plan against eager plain, "
        f"batch {batch}"
    )
    for card, dtype in ((T4_LIKE, torch.float32), (A100_LIKE, torch.bfloat16)):
        for dropout in (0.0, 0.1):
            x = torch.randint(0, 30522, (batch, tokens))
            eager, fused = (
                profile(Encoder(layers, fused, dropout).to(dtype), x, options=fused, device=card)
                for fused in (False, True)
            )
            memory, seconds = ratios(eager, as_fast_as_eager(eager, fused))
            print(
                f"  estimated for {card}, attention dropout {dropout}: memory {memory:.3f} (goal "
                "0.15) at time "
                f"{seconds:.3f} (goal 1.00)"
            )


def fused_against_eager(layers: int, small: int, tokens: int, batch: int, seconds: float) -> None:
    """The encoder with SDPA and a plan that is no slower, against eager attention without a plan.

    Neither drops attention weights: on a CPU, SDPA with dropout is not fused.
    """
    eager, fused = (
        Encoder(layers, fused, attention_dropout=0.0).to(pick_device()) for fused in (False, True)
    )
    fused.load_state_dict(eager.state_dict())
    x = torch.randint(0, 30522, (small, tokens), device=pick_device())
    with_eager, with_fused = profile(eager, x, options=False), profile(fused, x)

    goal_eager, goal_fused = with_eager.at_batch(batch), with_fused.at_batch(batch)
    memory, time_ = ratios(goal_eager, as_fast_as_eager(goal_eager, goal_fused))
    print(
        f"encoder of {layers} layers, {tokens} tokens, SDPA and a plan against eager plain\n"
        f"  predicted at batch {batch}: memory {memory:.3f} (goal 0.15) at time {time_:.3f} "
        "(goal 1.00)"
    )
    found = as_fast_as_eager(with_eager, with_fused)
    memory, time_ = ratios(with_eager, found)
    expected = found.costs.peak_bytes
    steps, peaks = [], []
    for model in (eager, apply(fused, found)):

        def step(model: nn.Module = model) -> None:
            model(x).mean().backward()
            model.zero_grad(set_to_none=True)

        step()
        with MemoryMeter(x.device, saved=False) as meter:
            step()
        peaks.append(meter.peak)
        steps.append(Workload(step, small))
    time_ratio = 1 / compare(*steps, seconds=seconds).speedup
    print(
        f"  measured at batch {small}: memory {peaks[1] / peaks[0]:.3f} (predicted "
        f"{memory:.3f}), time "
        f"{time_ratio:.3f} (predicted {time_:.3f}); error of the peak "
        f"{expected / peaks[1] - 1:+.1%}"
    )


def train(case: Case, chain: Chain | None, overhead: float, batch: int) -> Workload:
    """A step with SGD and momentum at a batch size.

    Plain without a chain, else by the plan for that batch.
    """
    torch.manual_seed(0)
    model: nn.Module = case.make().to(pick_device())
    if chain is not None:
        model = apply(model, plan(chain, batch_size=batch, max_overhead=overhead))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = case.inputs(batch).to(pick_device())

    def step() -> Tensor:
        loss: Tensor = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Workload(step, batch)


def try_on_card(make: Callable[[int], Workload], card: SmallGpu, batch: int) -> Trial:
    return try_batch(make, batch, card)


def on_card(case: Case, gib: float, overhead: float) -> None:
    """The largest batch on a smaller card, plain and planned.

    Measured with CUDA, predicted without.
    """
    card, device = SmallGpu(gib), pick_device()
    model = case.make().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    chain = profile(model, case.inputs(case.small).to(device), optimizer=optimizer)
    del model, optimizer
    print(f"{case.name} on {card}; planned for at most {overhead:.0%} more time")
    for label, arm in (("plain", None), ("planned", chain)):
        if device.type == "cuda":
            make = partial(train, case, arm, overhead)
            found = search_batch(partial(try_on_card, make, card), start=8)
            print(f"  {label}: {found}")
        elif arm is None:
            print(
                f"  {label}: batch {largest_batch(chain, card.limit_bytes, method='none')} "
                "(predicted)"
            )
        else:
            print(
                f"  {label}: batch "
                f"{largest_batch(chain, card.limit_bytes, max_overhead=overhead)} (predicted)"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="measure at the goals' batch sizes")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each measured comparison")
    parser.add_argument("--only", default="", help="part of a case's name, or sdpa")
    parser.add_argument(
        "--layers", type=int, default=12, help="of the encoder that is compared with SDPA"
    )
    parser.add_argument("--tokens", type=int, default=512, help="of its inputs")
    parser.add_argument(
        "--card", type=float, metavar="GIB", help="only the largest batches on a card of this size"
    )
    options = parser.parse_args()
    device = pick_device()
    full = options.full or device.type == "cuda"
    if options.card:
        for case in CASES:
            if options.only.lower() in case.name.lower():
                on_card(case, options.card, 0.25)
        return
    if not options.only:
        depth()
    if options.only in ("", "sdpa"):
        fused_estimated(options.layers, options.tokens, 16)
        fused_against_eager(options.layers, 16 if full else 1, options.tokens, 16, options.seconds)
    for case in CASES:
        if options.only.lower() not in case.name.lower():
            continue
        torch.manual_seed(0)
        model = case.make().to(device)
        x = case.inputs(case.batch if full else case.small).to(device)
        print(f"{case.name}: {len(split(model, x))} blocks")
        begin = time.perf_counter()
        chain = profile(model, x)
        print(
            f"  profiled at batch {len(x)} on {chain.device} in {time.perf_counter() - begin:.0f} s"
        )
        predicted(chain.at_batch(case.batch), case, f"predicted from {chain.device}")
        estimate = profile(model, x, device=T4_LIKE).at_batch(case.batch)
        predicted(estimate, case, f"estimated for {T4_LIKE.name}")
        if "50" in case.name:
            largest(chain.at_batch(case.batch), 0.25)
            largest(estimate, 0.25)
        for _, seconds in case.goals:
            measured(model, x, chain, seconds - 1, options.seconds)


if __name__ == "__main__":
    main()
