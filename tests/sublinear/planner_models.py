"""Small models of every kind that the planner must read, and plans that use every kind of node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sublinear.nodes import Checkpoint, Keep, Node
from sublinear.plan import Plan


def kept(start: int, end: int, option: int = 0) -> tuple[Keep, ...]:
    return tuple(Keep(i, option) for i in range(start, end))


def halved(start: int, end: int) -> tuple[Node, ...]:
    """Checkpoints in checkpoints, down to single blocks."""
    if end - start <= 1:
        return kept(start, end)
    middle = (start + end) // 2
    return (Checkpoint(halved(start, middle)), Checkpoint(halved(middle, end)))


def plans(count: int) -> Iterator[Plan]:
    """Plans for ``count`` blocks.

    Plain, flat, nested three deep, selective, and selective beside a checkpoint.
    """
    third = max(1, count // 3)
    yield Plan(kept(0, count), "none")
    yield Plan(tuple(Checkpoint((keep,)) for keep in kept(0, count)), "every")
    yield Plan(halved(0, count), "halved")
    yield Plan((Checkpoint(halved(0, count)),), "all in one")
    yield Plan(kept(0, count, 1), "option 1")
    if count > third + 2:
        segment = Checkpoint((*kept(1, 2), Checkpoint(kept(2, third + 2))))
        nodes = (*kept(0, 1, 1), segment, *kept(third + 2, count, 1))
        yield Plan(nodes, "selective, beside a checkpoint")


class Tied(nn.Module):
    """Two layers with one weight, and all run twice."""

    def __init__(self, width: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = norm(width)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.norm(self.second(self.first(x).relu()))
        return x


class ConvUnit(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Skips around everything below them: several tensors cross every cut in the middle."""

    def __init__(self, width: int = 4, depth: int = 2) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(ConvUnit(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(sizes[i + 1], sizes[i], 2, 2) for i in reversed(range(depth))
        )
        self.merge = nn.ModuleList(ConvUnit(2 * sizes[i], sizes[i]) for i in reversed(range(depth)))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, unit in enumerate(self.down):
            x = unit(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


class Attention(nn.Module):
    """Self-attention written out, or by torch's fused function; with dropout."""

    def __init__(self, dim: int, heads: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.fused = heads, dropout, fused
        self.norm, self.to_qkv, self.out = (
            nn.LayerNorm(dim),
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.to_qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
            mixed = F.dropout(scores.softmax(-1), self.dropout, self.training) @ v
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(-2)), self.dropout, self.training)
        return x + self.mlp(x)


class Encoder(nn.Module):
    """Tokens to logits, with a parameter of its own that its code reads.

    The embedding is tied to the head.
    """

    def __init__(
        self, dim: int = 16, depth: int = 3, dropout: float = 0.1, fused: bool = False
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, dim)
        self.positions = nn.Parameter(torch.randn(8, dim) / 4)
        self.register_buffer("scale", torch.tensor(0.5))
        self.blocks = nn.ModuleList(Attention(dim, 2, dropout, fused) for _ in range(depth))
        self.head = nn.Linear(dim, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tokens(tokens) * self.scale + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x if mask is None else x * mask)


class Recurrent(nn.Module):
    """A GRU over time: one block that torch.fx keeps whole."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.GRU(6, 6, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(F.dropout(x, 0.2, self.training))


class Norms(nn.Module):
    """Running statistics of each kind, one layer used twice, and a cumulative average."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.shared = nn.BatchNorm2d(4)
        self.slow = nn.BatchNorm2d(4, momentum=None)
        self.instance = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.third = nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.shared(self.first(x)))
        x = self.slow(self.shared(self.second(x)))
        return self.third(self.instance(x))


class Looks(nn.Module):
    """Its own forward looks at its data, which torch.fx cannot follow.

    Its layers can be wrapped.
    """

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 8)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Dropout(0.1))
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if x.mean() > 100:
            x = -x
        for layer in self.layers:
            x = layer(x)
        return x.square()


def images(count: int = 2, size: int = 8) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def tokens(count: int = 3) -> Tensor:
    return torch.randint(0, 11, (count, 8), generator=torch.Generator().manual_seed(1))
