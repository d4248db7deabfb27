"""Programs of other kinds than `tests.whyslow.programs`, written and committed before the
diagnosis had seen them. Then it named the planted cause first in 12 of 16, and a larger batch in
the other four. Since then what changes what is learned is tried only where nothing else is found,
and one of the 16 left with its check: of programs that it has not seen, `later_programs` tells.

``make(mended)`` builds a program, as there. Sequences, tables, pairs, codes and spectra, where the
others have images and rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from labkit.busy import cores
from tests.whyslow.parts import LAST, Program, full, lower
from tests.whyslow.programs import Planted, planted, tuned

FRESH: dict[str, Planted] = {}
FRESH_TUNED: dict[str, Callable[[], Program]] = {}

planted_here = partial(planted, into=FRESH)
tuned_here = partial(tuned, into=FRESH_TUNED)


def adam(model: nn.Module, **keywords: Any) -> torch.optim.Optimizer:
    """AdamW over the whole model, fused unless told otherwise."""
    return torch.optim.AdamW(model.parameters(), lr=3e-4, **({"fused": True} | keywords))


# -------------------------------------------------------------------------- texts, through an LSTM


class Reviews(Dataset):
    """Texts as lists of word numbers, of 20 to 120 words, and whether they are friendly."""

    def __init__(self, count: int = 2048, words: int = 5000) -> None:
        lengths = torch.randint(20, 121, (count,)).tolist()
        self.texts = [torch.randint(1, words, (length,)) for length in lengths]
        self.friendly = torch.randint(2, (count,))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.texts[index], self.friendly[index]


class Reader(nn.Module):
    """Word numbers (N, T) -> logits (N, 2), by an LSTM."""

    def __init__(self, words: int = 5000, size: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(words, size, padding_idx=0)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, 2)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        _, (last, _) = self.lstm(self.words(texts))
        return self.head(last[-1])


def padded_in_python(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Number by number, with zeros up to the longest."""
    longest = max(len(text) for text, _ in samples)
    rows = []
    for text, _ in samples:
        row = []
        for place in range(longest):
            row.append(int(text[place]) if place < len(text) else 0)
        rows.append(row)
    return torch.tensor(rows), torch.tensor([int(each) for _, each in samples])


def padded(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """By torch's function for it."""
    texts, friendly = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.stack(friendly)


@planted_here("waits for data")
def texts_padded_in_python(mended: bool) -> Program:
    """The longest text decides, and every word is looked at by itself."""
    model = Reader()
    updates = adam(model)

    def step(batch: Any) -> torch.Tensor:
        texts, friendly = batch
        loss = F.cross_entropy(model(texts), friendly)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    join = padded if mended else padded_in_python
    loader = DataLoader(Reviews(), batch_size=32, shuffle=True, collate_fn=join)
    return Program(step, loader, 32)


# --------------------------------------------------------------------------------- tables of prices

COLUMNS = 24


class Prices(Dataset):
    """Lines of a table as text; ``ready`` keeps them as numbers instead."""

    def __init__(self, ready: bool, count: int = 8192) -> None:
        table = torch.rand(count, COLUMNS + 1)
        self.mean, self.spread = table.mean(0), table.std(0)
        self.rows = (table - self.mean) / self.spread if ready else None
        self.lines = [",".join(f"{each:.6f}" for each in row) for row in table.tolist()]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.rows is not None:
            return self.rows[index, :-1], self.rows[index, -1]
        values = [float(each) for each in self.lines[index].split(",")]
        for column in range(len(values)):
            values[column] = (values[column] - float(self.mean[column])) / float(
                self.spread[column]
            )
        return torch.tensor(values[:-1]), torch.tensor(values[-1])


def price_net(width: int = 256) -> nn.Sequential:
    """Columns (N, 24) -> price (N, 1)."""
    return nn.Sequential(
        nn.Linear(COLUMNS, width),
        nn.SiLU(),
        nn.LayerNorm(width),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, 1),
    )


def regression(model: nn.Module, updates: torch.optim.Optimizer) -> Callable[[Any], torch.Tensor]:
    """A step on columns and prices, in bf16."""

    def step(batch: Any) -> torch.Tensor:
        columns, prices = batch
        with lower():
            guess = model(columns)
        loss = F.smooth_l1_loss(guess.float().squeeze(1), prices)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return step


@planted_here("waits for data")
def table_parsed_in_each_epoch(mended: bool) -> Program:
    """Every line is split, read and scaled when it is asked for."""
    model = price_net()
    loader = DataLoader(Prices(mended), batch_size=64, shuffle=True)
    return Program(regression(model, adam(model)), loader, 64)


@planted_here("memory grows with every step")
def running_loss_with_graph(mended: bool) -> Program:
    """The mean of an epoch's losses is kept as a tensor that can still go backward."""
    model = price_net()
    updates = adam(model)
    seen: dict[str, Any] = {"total": 0.0}
    table = torch.randn(8, 512, COLUMNS + 1)

    def step(batch: torch.Tensor) -> torch.Tensor:
        guess = model(batch[:, :-1]).squeeze(1)
        loss = F.mse_loss(guess, batch[:, -1])
        loss.backward(retain_graph=not mended)
        updates.step()
        updates.zero_grad()
        seen["total"] = seen["total"] + (loss.detach() if mended else loss)
        return loss.detach()

    return Program(step, list(table), 512)


# ------------------------------------------------------------------------ letters, by a transformer


class Letters(nn.Module):
    """Letters (N, T) -> logits of the next ones (N, T, 64), by a small transformer."""

    def __init__(self, size: int = 128, layers: int = 3, length: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(64, size)
        self.places = nn.Parameter(torch.zeros(length, size))
        layer = nn.TransformerEncoderLayer(
            size, 4, 4 * size, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(size, 64)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(letters) + self.places[: letters.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(letters.shape[1])
        return self.head(self.body(hidden, mask=mask, is_causal=True))


def text_batches(samples: int, length: int = 64, count: int = 8) -> list[torch.Tensor]:
    """Letters (N, T + 1)."""
    return [torch.randint(64, (samples, length + 1)) for _ in range(count)]


def next_letter(
    model: nn.Module, updates: torch.optim.Optimizer, precision: Callable[[], Any] = lower
) -> Callable[[Any], torch.Tensor]:
    """A step that guesses each next letter."""

    def step(text: torch.Tensor) -> torch.Tensor:
        with precision():
            logits = model(text[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return step


@planted_here("anomaly mode left on")
def transformer_under_anomaly_mode(mended: bool) -> Program:
    """Left from a search for a nan."""
    torch.autograd.set_detect_anomaly(not mended)
    model = Letters()
    off = lambda: torch.autograd.set_detect_anomaly(False)  # noqa: E731
    return Program(next_letter(model, adam(model)), text_batches(16), 16, off)


@planted_here("optimizer loops over parameters")
def transformer_with_loop_adam(mended: bool) -> Program:
    """``foreach=False``, copied from an old script; a large model on few letters."""
    model = Letters(256, 6)
    updates = adam(model, fused=mended, foreach=False)
    return Program(next_letter(model, updates), text_batches(4, 32), 4)


@planted_here("profiler left on")
def transformer_in_a_profiler(mended: bool) -> Program:
    """A profiler around every step, with stacks, whose result is thrown away."""
    model = Letters(64, 4)
    train = next_letter(model, adam(model))

    def step(text: torch.Tensor) -> torch.Tensor:
        if mended:
            return train(text)
        with torch.profiler.profile(with_stack=True):
            return train(text)

    return Program(step, text_batches(16), 16)


@tuned_here
def tuned_transformer() -> Program:
    """bf16, a fused optimizer, a batch of 64, torch's own clipping."""
    model = Letters(192, 3)
    updates = adam(model)

    def step(text: torch.Tensor) -> torch.Tensor:
        with lower():
            logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return Program(step, text_batches(64, count=4), 64)


# ---------------------------------------------------------------------------------- codes of digits


class Coder(nn.Module):
    """Pixels (N, 784) -> the same, through a code of 32 numbers."""

    def __init__(self, width: int = 1024, again: bool = False) -> None:
        super().__init__()
        sizes = [784, width, width, 32, width, width, 784]
        self.layers = nn.ModuleList(itertools.starmap(nn.Linear, itertools.pairwise(sizes)))
        self.again = again

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            block = partial(self._block, layer, number + 1 < len(self.layers))
            if self.again:
                pixels = checkpoint(block, pixels, use_reentrant=False)
            else:
                pixels = block(pixels)
        return pixels

    def _block(self, layer: nn.Module, bent: bool, pixels: torch.Tensor) -> torch.Tensor:
        return F.gelu(layer(pixels)) if bent else layer(pixels)


def coding(
    model: nn.Module, updates: torch.optim.Optimizer, precision: Callable[[], Any] = lower
) -> Callable[[Any], torch.Tensor]:
    """A step of an autoencoder."""

    def step(pixels: torch.Tensor) -> torch.Tensor:
        with precision():
            loss = F.mse_loss(model(pixels).float(), pixels)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return step


@planted_here("fp32 where 16 bits are faster")
def autoencoder_in_fp32(mended: bool) -> Program:
    """Products of a thousand by a thousand, all in fp32."""
    model = Coder()
    step = coding(model, adam(model), lower if mended else full)
    return Program(step, list(torch.rand(4, 1024, 784)), 1024)


@planted_here("checkpointing that is not needed")
def autoencoder_recomputed(mended: bool) -> Program:
    """Every layer is computed twice."""
    model = Coder(again=not mended)
    return Program(coding(model, adam(model)), list(torch.rand(4, 2048, 784)), 2048)


@planted_here("batch too small for the fixed costs of a step")
def autoencoder_of_two(mended: bool) -> Program:
    """Two digits a step."""
    samples = 16 if mended else 2
    model = Coder(512)
    return Program(coding(model, adam(model)), list(torch.rand(8, samples, 784)), samples)


@tuned_here
def tuned_autoencoder() -> Program:
    """Large batches from memory, the rate on a schedule."""
    model = Coder(768)
    updates = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(updates, lambda step: 1 / math.sqrt(step + 1))
    train = coding(model, updates)

    def step(pixels: torch.Tensor) -> torch.Tensor:
        loss = train(pixels)
        schedule.step()
        return loss

    return Program(step, list(torch.rand(4, 4096, 784)), 4096)


# -------------------------------------------------------------------------- users, films, and pairs


class Taste(nn.Module):
    """Numbers of a user and a film (N, 2) -> stars (N,)."""

    def __init__(self, users: int = 40_000, films: int = 20_000, size: int = 64) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(users, size), nn.Embedding(films, size)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return (self.users(pairs[:, 0]) * self.films(pairs[:, 1])).sum(1)


@planted_here("validation with gradients")
def pairs_validated_with_gradients(mended: bool) -> Program:
    """The tower sees 16 batches of held-out pairs after each update, and records them."""
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()]
    tower = nn.Sequential(*layers)
    updates = adam(tower)
    held_out = torch.randn(16, 2, 64, 64)

    def distance(pair: torch.Tensor) -> torch.Tensor:
        left, right = tower(pair[0]), tower(pair[1])
        return 1 - F.cosine_similarity(left, right).mean()

    def step(pair: torch.Tensor) -> float:
        loss = distance(pair)
        loss.backward()
        updates.step()
        updates.zero_grad()
        tower.eval()
        with torch.set_grad_enabled(not mended):
            score = sum(distance(each).item() for each in held_out)
        tower.train()
        return score

    return Program(step, list(torch.randn(4, 2, 256, 64)), 256)


# ------------------------------------------------------------------------------ sounds, and spectra


def sound_net(width: int = 16) -> nn.Sequential:
    """Waves (N, 1, 512) -> logits (N, 10)."""
    return nn.Sequential(
        nn.Conv1d(1, width, 16, stride=8, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Conv1d(width, 2 * width, 8, stride=4, bias=False),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


@planted_here("work beside forward, backward and update")
def sounds_changed_one_by_one(mended: bool) -> Program:
    """Each wave gets its own shift, loudness and noise, one after the other, in the step."""
    model = sound_net()
    updates = adam(model)
    places = torch.arange(512)

    def step(batch: Any) -> torch.Tensor:
        waves, classes = batch
        shifts, loud = torch.randint(512, (len(waves),)), 0.5 + torch.rand(len(waves))
        if mended:
            turned = (places - shifts[:, None]) % 512
            waves = waves.gather(2, turned[:, None]) * loud[:, None, None]
            waves = (waves + 0.01 * torch.randn_like(waves)).clamp(-3, 3)
        else:
            changed = []
            for number in range(len(waves)):
                wave = torch.roll(waves[number], int(shifts[number]), 1) * loud[number]
                wave = wave + 0.01 * torch.randn_like(wave)
                changed.append(wave.clamp(-3, 3))
            waves = torch.stack(changed)
        loss = F.cross_entropy(model(waves), classes)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return Program(step, [(torch.randn(256, 1, 512), torch.randint(10, (256,)))] * 4, 256)


@planted_here("images not in channels-last order")
def spectra_channels_first(mended: bool) -> Program:
    """Spectrograms (N, 1, 64, 64) through convolutions in torch's usual order."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 35))
    updates = adam(model)
    if mended:
        model = model.to(memory_format=LAST)

    def step(batch: Any) -> torch.Tensor:
        spectra, words = batch
        with lower():
            loss = F.cross_entropy(model(spectra).float(), words)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    return Program(step, [(torch.randn(64, 1, 64, 64), torch.randint(35, (64,)))] * 4, 64)


# -------------------------------------------------------------------------- games, and many layers


@planted_here("work beside forward, backward and update")
def policy_clipped_by_hand(mended: bool) -> Program:
    """A policy of many small layers; each gradient's norm is read, and each is scaled."""
    body: list[nn.Module] = [nn.Linear(32, 96)]
    for _ in range(10):
        body += [nn.Tanh(), nn.Linear(96, 96)]
    policy = nn.Sequential(*body, nn.Linear(96, 6))
    updates = adam(policy)

    def step(batch: Any) -> torch.Tensor:
        states, moves, gains = batch
        with lower():
            logits = policy(states)
        loss = F.cross_entropy(logits.float(), moves, reduction="none").mul(gains).mean()
        loss.backward()
        if mended:
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        else:
            squares = 0.0
            for weight in policy.parameters():
                squares += weight.grad.norm(2).item() ** 2
            factor = 0.5 / (math.sqrt(squares) + 1e-6)
            if factor < 1:
                for weight in policy.parameters():
                    weight.grad.mul_(factor)
        updates.step()
        updates.zero_grad()
        return loss.detach()

    batch = torch.randn(256, 32), torch.randint(6, (256,)), torch.randn(256)
    return Program(step, [batch] * 4, 256)


@planted_here("too many CPU threads")
def policy_on_too_many_threads(mended: bool) -> Program:
    """OMP_NUM_THREADS of another machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores() if mended else 6 * cores())
    reset = lambda: torch.set_num_threads(before)  # noqa: E731
    policy = nn.Sequential(
        nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 6)
    )
    updates = adam(policy)

    def step(batch: Any) -> torch.Tensor:
        states, moves = batch
        with lower():
            loss = F.cross_entropy(policy(states).float(), moves)
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    batch = torch.randn(1024, 64), torch.randint(6, (1024,))
    return Program(step, [batch] * 4, 1024, reset)
