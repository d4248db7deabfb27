"""Families of models for the zoo that torchvision does not have, small enough for a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Gpt(nn.Module):
    """A decoder whose head is its embedding: with a large vocabulary both gradients weigh."""

    def __init__(self, vocabulary: int, dim: int, depth: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Parameter(torch.randn(length, dim) / 8)
        self.blocks = nn.ModuleList(DecoderBlock(dim, 4) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class DecoderBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp(x)


class EncoderDecoder(nn.Module):
    """torch's own layers: the encoder's result enters every layer of the decoder."""

    def __init__(self, dim: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(16, dim), nn.Linear(16, dim)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 4 * dim, 0.1, batch_first=True) for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(dim, 4, 4 * dim, 0.1, batch_first=True) for _ in range(depth)
        )
        self.head = nn.Linear(dim, 10)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, x = self.source(source), self.target(target)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(x).flatten(0, 1)


class LstmModel(nn.Module):
    """nn.LSTM layer by layer, over embedded tokens."""

    def __init__(self, layers: int = 4, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(x).flatten(0, 1)


class GruModel(nn.Module):
    """One deep nn.GRU, both ways, and a classifier of the last state."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Linear(24, width)
        self.first = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.second = nn.GRU(2 * width, width, batch_first=True, bidirectional=True)
        self.third = nn.GRU(2 * width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.first(self.embed(x).relu())
        x, _ = self.second(x)
        x, _ = self.third(x)
        return self.head(x[:, -1])


class CellLoop(nn.Module):
    """An LSTMCell step by step; all its states are read at the end."""

    def __init__(self, steps: int = 32, width: int = 64) -> None:
        super().__init__()
        self.steps, self.width = steps, width
        self.cell = nn.LSTMCell(16, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.width)
        c = x.new_zeros(x.shape[0], self.width)
        states = []
        for step in range(self.steps):
            h, c = self.cell(x[:, step], (h, c))
            states.append(h)
        return self.head(torch.stack(states, 1).mean(1))


class ConvUnit(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, conv: type[nn.Module], norm: type) -> None:
        super().__init__(
            conv(inputs, outputs, 3, padding=1, bias=False),
            norm(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Skips by concatenation, in two or three dimensions."""

    def __init__(self, width: int = 16, depth: int = 4, dims: int = 2, inputs: int = 3) -> None:
        super().__init__()
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        up = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[dims]
        norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dims]
        self.pool = {2: nn.MaxPool2d, 3: nn.MaxPool3d}[dims](2)
        sizes = [width * 2**level for level in range(depth + 1)]
        self.down, self.up, self.merge = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for before, size in zip([inputs, *sizes], sizes, strict=False):
            first = ConvUnit(before, size, conv, norm)
            self.down.append(nn.Sequential(first, ConvUnit(size, size, conv, norm)))
        for small, large in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
            self.up.append(up(large, small, 2, 2))
            first = ConvUnit(2 * small, small, conv, norm)
            self.merge.append(nn.Sequential(first, ConvUnit(small, small, conv, norm)))
        self.head = conv(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, unit in enumerate(self.down):
            if level:
                x = self.pool(x)
            x = unit(x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


class Experts(nn.Module):
    """A mixture: every token goes to its two best experts."""

    def __init__(self, dim: int, count: int) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(dim), nn.Linear(dim, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = self.norm(x).flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        mixed = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            if rows.numel():
                part = expert(flat[rows]) * weight[rows, place, None]
                mixed = mixed.index_add(0, rows, part)
        return x + mixed.view_as(x)


class MixtureOfExperts(nn.Module):
    def __init__(self, dim: int = 48, depth: int = 4, experts: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.layers = nn.ModuleList(Experts(dim, experts) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).flatten(0, 1)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across = nn.Sequential(nn.Linear(tokens, 64), nn.GELU(), nn.Linear(64, tokens))
        self.along = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.after(x))


class Mixer(nn.Module):
    def __init__(self, dim: int = 64, depth: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.blocks = nn.ModuleList(MixerBlock(64, dim) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class TemporalBlock(nn.Module):
    """Dilated convolutions over time, with a shortcut."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.padding = 2 * dilation
        self.first = nn.Conv1d(width, width, 3, dilation=dilation)
        self.second = nn.Conv1d(width, width, 3, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(F.pad(x, (self.padding, 0))).relu()
        h = self.second(F.pad(h, (self.padding, 0))).relu()
        return (x + F.dropout(h, 0.1, self.training)).relu()


class Temporal(nn.Module):
    def __init__(self, width: int = 32, depth: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv1d(8, width, 1)
        self.blocks = nn.ModuleList(TemporalBlock(width, 2**level) for level in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, :, -1])


class Twins(nn.Module):
    """One network for two inputs, compared at the end."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        gap = self.body(one) - self.body(two)
        return gap.square().mean((1, 2, 3))


class HiddenLayer(nn.Module):
    """As in libraries of transformers: more arguments, and a tuple that the model adds up."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.block = DecoderBlock(dim, 4)
        self.scale = nn.Linear(dim, dim)

    def forward(
        self, hidden: Tensor, mask: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden = self.block(hidden + positions) * mask[..., None]
        return hidden, self.scale(hidden).square().mean()


class TupleLayers(nn.Module):
    """Layers that take a mask and return a tuple, in a model that looks at its data."""

    def __init__(self, dim: int = 48, depth: int = 6) -> None:
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.positions = nn.Parameter(torch.randn(32, dim) / 8)
        self.layers = nn.ModuleList(HiddenLayer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        if mask.sum() == 0:
            raise ValueError("nothing to attend to")
        x = self.embed(x)
        penalty = x.new_zeros(())
        for layer in self.layers:
            x, extra = layer(x, mask, positions=self.positions)
            penalty = penalty + extra
        return {"logits": self.head(x).flatten(0, 1), "penalty": penalty}
