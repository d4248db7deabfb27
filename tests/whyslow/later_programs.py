"""Programs of other kinds again, written and committed after findings were ranked by whether their
remedy changes what is learned, and before the diagnosis had seen them. It has not been changed for
any of them.

In four of them the batch is what is wrong, and nothing else; in two more it is small as well, but
something else can be mended first. ``make(mended)`` builds a program, as in
`tests.whyslow.programs`. Molecules, series, clouds of points, fields, and agents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.whyslow.fresh_programs import adam
from tests.whyslow.parts import LAST, Program, full, lower
from tests.whyslow.programs import Planted, planted, tuned

LATER: dict[str, Planted] = {}
LATER_TUNED: dict[str, Callable[[], Program]] = {}

planted_here = partial(planted, into=LATER)
tuned_here = partial(tuned, into=LATER_TUNED)


def learner(
    model: nn.Module,
    updates: torch.optim.Optimizer,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    precision: Callable[[], Any] = lower,
) -> Callable[[Any], torch.Tensor]:
    """A tuned step on inputs and targets."""

    def step(batch: Any) -> torch.Tensor:
        *inputs, targets = batch
        with precision():
            outputs = model(*inputs)
        loss = loss_of(outputs.float(), targets)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return step


# ----------------------------------------------------------------- molecules, by passing messages


class Molecules(nn.Module):
    """Atoms (N, A, 16) and bonds (N, A, A) -> energies (N,), by passing messages along bonds."""

    def __init__(self, size: int = 64, rounds: int = 4) -> None:
        super().__init__()
        self.begin = nn.Linear(16, size)
        self.rounds = nn.ModuleList(nn.Linear(2 * size, size) for _ in range(rounds))
        self.end = nn.Linear(size, 1)

    def forward(self, atoms: torch.Tensor, bonds: torch.Tensor) -> torch.Tensor:
        hidden = self.begin(atoms)
        for layer in self.rounds:
            heard = bonds.to(hidden.dtype) @ hidden
            hidden = hidden + F.silu(layer(torch.cat([hidden, heard], 2)))
        return self.end(hidden).sum((1, 2))


def molecules(samples: int, atoms: int = 12, count: int = 8) -> list[Any]:
    """Atoms, bonds and energies."""
    return [
        (
            torch.randn(samples, atoms, 16),
            (torch.rand(samples, atoms, atoms) < 0.2).float(),
            torch.randn(samples),
        )
        for _ in range(count)
    ]


@planted_here("batch too small for the fixed costs of a step")
def molecules_in_pairs(mended: bool) -> Program:
    """Two molecules a step."""
    samples = 16 if mended else 2
    model = Molecules()
    return Program(learner(model, adam(model), F.mse_loss), molecules(samples), samples)


@planted_here("anomaly mode left on")
def molecules_under_anomaly_mode(mended: bool) -> Program:
    """Few molecules a step, and a search for nan that was found long ago."""
    torch.autograd.set_detect_anomaly(not mended)
    model = Molecules(48, 6)
    off = lambda: torch.autograd.set_detect_anomaly(False)  # noqa: E731
    return Program(learner(model, adam(model), F.mse_loss), molecules(8), 8, off)


@tuned_here
def tuned_molecules() -> Program:
    """A thousand molecules a step."""
    model = Molecules(128, 3)
    return Program(learner(model, adam(model), F.mse_loss), molecules(1024, count=3), 1024)


# --------------------------------------------------------------------------- series, through a GRU


class Forecast(nn.Module):
    """Values (N, T, 8) -> the next ones (N, 8)."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.gru = nn.GRU(8, size, batch_first=True)
        self.head = nn.Linear(size, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(values)[1][-1])


@planted_here("batch too small for the fixed costs of a step")
def series_one_by_one(mended: bool) -> Program:
    """A single series a step, as in an example for beginners."""
    samples = 8 if mended else 1
    model = Forecast()
    batches = [(torch.randn(samples, 24, 8), torch.randn(samples, 8)) for _ in range(8)]
    return Program(learner(model, adam(model), F.l1_loss, full), batches, samples)


class Windows(Dataset):
    """Windows (T, 8) of a long series, and the values that follow; ``slow`` smooths by hand."""

    def __init__(self, slow: bool, count: int = 4096, length: int = 24) -> None:
        self.values = torch.randn(count + length + 1, 8)
        self.count, self.length, self.slow = count, length, slow

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self.values[index : index + self.length]
        if self.slow:
            before, smooth = window[0], []
            for values in window:
                before = 0.9 * before + 0.1 * values
                smooth.append(before)
            window = torch.stack(smooth)
        return window, self.values[index + self.length]


@planted_here("waits for data")
def series_smoothed_one_by_one(mended: bool) -> Program:
    """Each window is smoothed when it is asked for, value by value."""
    model = Forecast()
    loader = DataLoader(Windows(not mended), batch_size=64, shuffle=True)
    return Program(learner(model, adam(model), F.l1_loss, full), loader, 64)


# ------------------------------------------------------------------------------- clouds of points


class Cloud(nn.Module):
    """Points (N, P, 3) -> logits (N, 10): each point alone, then the largest of all."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = [3, width, width, 2 * width]
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
        self.points = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(self.points(points).amax(1))


def clouds(samples: int, points: int, count: int = 8) -> list[Any]:
    """Points and classes."""
    return [(torch.randn(samples, points, 3), torch.randint(10, (samples,))) for _ in range(count)]


@planted_here("batch too small for the fixed costs of a step")
def clouds_of_few_points(mended: bool) -> Program:
    """Two clouds of 16 points a step."""
    samples = 16 if mended else 2
    model = Cloud()
    return Program(learner(model, adam(model), F.cross_entropy), clouds(samples, 16), samples)


@planted_here("validation with gradients")
def clouds_validated_with_gradients(mended: bool) -> Program:
    """Held-out clouds after each update, with everything recorded for a backward pass."""
    model = Cloud(96)
    train = learner(model, adam(model), F.cross_entropy, full)
    held_out = clouds(64, 64, 6)

    def step(batch: Any) -> float:
        train(batch)
        model.eval()
        with torch.set_grad_enabled(not mended):
            wrong = sum((model(points).argmax(1) != kind).sum().item() for points, kind in held_out)
        model.train()
        return wrong

    return Program(step, clouds(64, 64, 4), 64)


# --------------------------------------------------------------- a picture as a field of its places


class Field(nn.Module):
    """Places (N, 2) -> colours (N, 3), by sines."""

    def __init__(self, width: int = 256, depth: int = 4) -> None:
        super().__init__()
        sizes = [2, *[width] * depth]
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))
        self.colour = nn.Linear(width, 3)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            places = torch.sin(3 * layer(places))
        return self.colour(places)


def places(samples: int, count: int = 4) -> list[Any]:
    """Places and colours."""
    return [(torch.rand(samples, 2), torch.rand(samples, 3)) for _ in range(count)]


@planted_here("memory grows with every step")
def colours_kept(mended: bool) -> Program:
    """Every prediction is kept for a film of the training, with its graph."""
    model = Field()
    updates = adam(model)
    film: list[torch.Tensor] = []

    def step(batch: Any) -> torch.Tensor:
        where, colours = batch
        guess = model(where)
        loss = F.mse_loss(guess, colours)
        loss.backward()
        updates.step()
        updates.zero_grad()
        film.append(guess.detach()[:1].clone() if mended else guess)
        return loss.detach()

    return Program(step, places(2048), 2048)


@planted_here("work beside forward, backward and update")
def weights_averaged_by_names(mended: bool) -> Program:
    """A running mean of all weights, entry by entry of two state_dicts, after each update."""
    model, mean = Field(64, 12), Field(64, 12)
    train = learner(model, adam(model), F.mse_loss)
    weights, means = list(model.parameters()), list(mean.parameters())

    def step(batch: Any) -> torch.Tensor:
        loss = train(batch)
        with torch.no_grad():
            if mended:
                torch._foreach_lerp_(means, weights, 0.01)
            else:
                for name in model.state_dict():
                    old, new = mean.state_dict()[name], model.state_dict()[name]
                    mean.load_state_dict({name: 0.99 * old + 0.01 * new}, strict=False)
        return loss

    return Program(step, places(1024), 1024)


@tuned_here
def tuned_field() -> Program:
    """All places of a picture at once."""
    model = Field(384, 4)
    return Program(learner(model, adam(model), F.mse_loss), places(8192, 2), 8192)


# -------------------------------------------------------------------------------- agents, and masks


@planted_here("optimizer loops over parameters")
def agent_with_loop_adam(mended: bool) -> Program:
    """Sixteen layers, few games a step, and Adam from a script of 2019."""
    body: list[nn.Module] = [nn.Linear(24, 128)]
    for _ in range(14):
        body += [nn.Tanh(), nn.Linear(128, 128)]
    agent = nn.Sequential(*body, nn.Linear(128, 4))
    updates = adam(agent, fused=mended, foreach=False)
    batches = [(torch.randn(32, 24), torch.randint(4, (32,))) for _ in range(4)]
    return Program(learner(agent, updates, F.cross_entropy), batches, 32)


@planted_here("batch too small for the fixed costs of a step")
def agent_that_learns_from_each_move(mended: bool) -> Program:
    """One move a step, as it is played."""
    samples = 8 if mended else 1
    agent = nn.Sequential(
        nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
    )
    moves = [(torch.randn(samples, 24), torch.randint(4, (samples,))) for _ in range(8)]
    return Program(learner(agent, adam(agent), F.cross_entropy), moves, samples)


class Masks(nn.Module):
    """Images (N, 3, 64, 64) -> masks (N, 1, 64, 64): down, up, and across."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = F.relu(self.first(images))
        deep = F.relu(self.middle(F.relu(self.down(first))))
        return self.last(torch.cat([first, F.relu(self.up(deep))], 1))


@planted_here("fp32 where 16 bits are faster")
def masks_in_fp32(mended: bool) -> Program:
    """A small U-net, all in fp32."""
    model = Masks().to(memory_format=LAST)
    train = learner(
        model, adam(model), F.binary_cross_entropy_with_logits, lower if mended else full
    )
    images = torch.randn(16, 3, 64, 64).contiguous(memory_format=LAST)
    return Program(train, [(images, torch.randint(2, (16, 1, 64, 64)).float())] * 4, 16)
