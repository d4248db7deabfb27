"""Checkpoints that send what they hold to the CPU, on a rehearsed card. ``python -m
tests.rehearsal.offload_checks``.

Prints a JSON object: name of the model -> what was found, in bytes and words. Its own numbers say
nothing about a real card's link.
"""

from __future__ import annotations

import copy
import gc
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sublinear
from sublinear.blocks import Blocks, split
from sublinear.chain import Chain, Link
from sublinear.nodes import Checkpoint, Keep, kept
from sublinear.plan import Plan
from sublinear.profiling import profile
from tests.rehearsal import places
from tests.rehearsal.install import _plain as plain

MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {}
STEPS = 2


def model(make: Callable[[], tuple[nn.Module, Tensor]]) -> Callable[[], tuple[nn.Module, Tensor]]:
    """Add a model under its name in words."""
    MODELS[make.__name__.replace("_", " ")] = make
    return make


@dataclass(frozen=True)
class Found:
    """A step of a plan: peaks as predicted and as counted, bytes sent, and those that arrived.

    ``seconds``: predicted. ``same``: whether a few steps left the same weights and gradients of
    inputs, bit for bit; ``left``: bytes on the card when all is over.
    """

    plan: str
    seconds: float
    predicted: int
    counted: int
    sent: int
    arrived: int
    same: bool
    left: int


@model
def layers_in_a_row() -> tuple[nn.Module, Tensor]:
    """Tanh saves its own output, so that sending that would free nothing behind a kept one."""
    layers: list[nn.Module] = []
    for _ in range(12):
        layers += [nn.Linear(256, 256), nn.Tanh()]
    return nn.Sequential(*layers), torch.randn(4096, 256)


@model
def images_with_other_strides() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    for number in range(8):
        layers += [nn.Conv2d(16 if number else 3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        layers += [nn.Dropout(0.1)]
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    return network, torch.randn(16, 3, 32, 32).to(memory_format=torch.channels_last)


class Views(nn.Module):
    """Two views of one storage, of which the second crosses what is done with the first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(128), nn.Linear(128, 256)
        self.first, self.second = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.inner(self.norm(x)).chunk(2, -1)
        return self.second(F.gelu(self.first(a)).tanh() + b.sin())


@model
def views_that_cross() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(*(Views() for _ in range(4))), torch.randn(2048, 128)


class Skips(nn.Module):
    """What goes in is added on the way out, from the inside to the outside."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(128, 128) for _ in range(5))
        self.up = nn.ModuleList(nn.Linear(128, 128) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for layer in self.down:
            x = F.gelu(layer(x))
            skips.append(x)
        for layer in self.up:
            x = F.gelu(layer(x)) + skips.pop()
        return x


@model
def skips() -> tuple[nn.Module, Tensor]:
    return Skips(), torch.randn(2048, 128)


class Looks(nn.Module):
    """Code that looks at its data, which is wrapped module by module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(10)
        )

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 100:
            x = -x
        for layer in self.layers:
            x = layer(x)
        return x.square()


@model
def wrapped_modules() -> tuple[nn.Module, Tensor]:
    return Looks(), torch.randn(4096, 256)


def find(make: Callable[[], tuple[nn.Module, Tensor]]) -> dict[str, object]:
    """The plan with the lowest peak without the link, the fastest as small, and some others."""
    torch.manual_seed(0)
    network, x = make()
    network, x = network.to("cuda"), x.to("cuda")
    # A link so fast that it is worth it.
    measured = profile(network, x, repeats=1, blocks=traced(network, x))
    chain = replace(with_seconds(measured), link=Link(1e12, 1e12))
    here = sublinear.plan(replace(chain, link=None))
    found = sublinear.plan(chain, budget=here.costs.peak_bytes)
    others = [every_block(chain), *(any_plan(chain, seed) for seed in range(3))]
    wanted = train(copy.deepcopy(network), x)
    return {
        "here": (here.costs.peak_bytes, here.costs.seconds),
        "found": asdict(tried(found, network, x, wanted)),
        "others": [asdict(tried(other, network, x, wanted)) for other in others],
    }


def with_seconds(chain: Chain) -> Chain:
    """The chain with made-up times: those of a rehearsal are chance, and so would be the plans."""
    blocks = []
    for block in chain.blocks:
        forward = 1e-4 + block.output_bytes / 1e10
        options = []
        for number, option in enumerate(block.options):
            slower = forward * (1 + number / 10)
            options.append(replace(option, forward=slower, backward=2 * slower))
        blocks.append(replace(block, options=tuple(options), forward=forward))
    return replace(chain, blocks=tuple(blocks), checkpoint_seconds=1e-5, extra_seconds=0.0)


def traced(network: nn.Module, x: Tensor) -> Blocks:
    """The blocks. The rehearsal looks at values, as a model may not that is traced."""
    with plain():
        return split(network, x)


def every_block(chain: Chain) -> Plan:
    """Each block is a checkpoint, which sends."""
    nodes = [Checkpoint((Keep(block),), offload=True) for block in range(len(chain))]
    return Plan(tuple(nodes), "every", chain)


def any_plan(chain: Chain, seed: int) -> Plan:
    """Kept blocks, with any option, and checkpoints of all kinds, drawn by ``seed``."""
    rng = random.Random(seed)
    nodes: list[Checkpoint | Keep] = []
    first = 0
    while first < len(chain):
        end = min(len(chain), first + rng.randint(1, 4))
        inside: tuple[Checkpoint | Keep, ...] = kept(first, end)
        kind = rng.choice(["kept", "held", "sent", "nested"])
        if kind == "kept":
            nodes += [Keep(block, rng.randrange(3)) for block in range(first, end)]
        else:
            if kind == "nested" and end - first > 1:
                inside = (Checkpoint(inside[:-1]), inside[-1])
            nodes.append(Checkpoint(inside, offload=kind != "held"))
        first = end
    return Plan(tuple(nodes), "any", chain)


def tried(plan: Plan, network: nn.Module, x: Tensor, wanted: list[Tensor]) -> Found:
    """A few steps by the plan. The network is as before."""
    chain, costs = plan.known_chain, plan.costs
    network = copy.deepcopy(network)
    planned = sublinear.apply(network, plan, x, blocks=traced(network, x))
    same = all(map(torch.equal, wanted, train(planned, x)))
    # What earlier plans have left behind would go meanwhile.
    gc.collect()
    before = torch.cuda.memory_allocated()
    counted, arrived = step(planned, x, chain)
    left = torch.cuda.memory_allocated() - before
    return Found(
        str(plan),
        costs.seconds,
        costs.peak_bytes,
        counted,
        costs.sent_bytes,
        arrived,
        same,
        left,
    )


def train(network: nn.Module, x: Tensor) -> list[Tensor]:
    """The weights and the gradient of the input after a few steps from the same random state."""
    torch.manual_seed(1)
    x = x.detach().requires_grad_()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        network(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert x.grad is not None
    # Of all steps.
    return [*(each.detach().clone() for each in network.parameters()), x.grad]


def step(network: nn.Module, x: Tensor, chain: Chain) -> tuple[int, int]:
    """The peak of a step, as the account has it, and the bytes of copies to the CPU."""
    moved = 0
    pin = places.pin

    def counting(tensor: Tensor) -> None:
        nonlocal moved
        moved += tensor.nbytes
        pin(tensor)

    places.pin = counting
    own = chain.fixed_bytes + chain.spare_bytes + x.nbytes
    others = torch.cuda.memory_allocated() - own
    torch.cuda.reset_peak_memory_stats()
    network(x).mean().backward()
    places.pin = pin
    network.zero_grad()
    return torch.cuda.max_memory_allocated() - others, moved


def fitted() -> dict[str, object]:
    """What `sublinear.fit` makes of the first model, by the link that it measured."""
    torch.manual_seed(0)
    network, x = layers_in_a_row()
    network, x = network.to("cuda"), x.to("cuda")
    here = sublinear.fit(network, x, max_overhead=100.0, repeats=1, offload=False)
    budget = int(1.01 * here.predicted.peak_bytes)
    found = sublinear.fit(network, x, budget=budget, repeats=1)
    return {
        "without": here.plan.offloads,
        "with": found.plan.offloads,
        "proof": found.proof,
        "in budget": found.measured_bytes is not None and found.measured_bytes <= budget,
        "text": str(found),
    }


if __name__ == "__main__":
    outcomes: dict[str, object] = {name: find(make) for name, make in MODELS.items()}
    print(json.dumps(outcomes | {"fit": fitted()}))
