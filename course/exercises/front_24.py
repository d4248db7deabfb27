"""The exercise of notebook 24: attention in tiles that are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.exercises.tell import NotYet, attempt, check, far

Answer = Callable[..., Any]
# How far a result may be off. Torch's own kernel is as far from the formula.
NEAR = 1e-5
# Mistakes that can be known by their results, and what is missing there.
MISTAKES = {
    "scale": "the scores are not divided by √d, the square root of q.shape[-1]",
    "sum": "the sum collected so far does not shrink when a larger maximum comes: multiply it by "
    "e^(m - new m)",
    "output": "the output collected so far does not shrink when a larger maximum comes: multiply "
    "it by e^(m - new m), as the sum",
    "last": "the last tile, which is shorter than the others, is lost",
    "division": "the output is not divided by the sum at the end",
    "bias": "the bias is not added to the scores",
}


@check("right for every tile, no overflow, no nan, and the table never existed", judged="both")
def check_24_attention(answer: Answer) -> None:
    """`answer(q, k, v, tile, bias=None)` is attention, by tiles of so many keys.

    It is tried on tiles that do not divide the keys, on scores of 10^4 and on a bias of -inf; the
    operators that it calls are counted. Random numbers of torch are left as they are.
    """
    _same(answer, "8 tokens in tiles of 4", _batch(8, 8), 4)
    _same(answer, "10 keys in tiles of 4", _batch(10, 10), 4)
    _same(answer, "5 queries, 12 keys, tiles of 5", _batch(5, 12), 5)
    _same(answer, "7 tokens, one tile of 16", _batch(7, 7), 16)
    _same(answer, "values of 3 numbers", _batch(6, 6, width=3), 2)
    _same(answer, "scores of 10^4", _large(), 4)
    _same(answer, "a causal bias", _batch(8, 8), 4, _causal(8))
    bias = torch.zeros(8, 8)
    bias[:, :4] = -torch.inf
    _same(answer, "a first tile of -inf", _batch(8, 8), 4, bias)
    if not far(answer):
        _no_table(answer)


def _batch(queries: int, keys: int, width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of two texts and three heads, with a late score that is the largest."""
    random = torch.Generator().manual_seed(24)
    q, k = (torch.randn(2, 3, length, 4, generator=random) for length in (queries, keys))
    k[..., -1, :] = 3 * q.mean(-2)
    return q, k, torch.randn(2, 3, keys, width, generator=random)


def _large() -> tuple[Tensor, Tensor, Tensor]:
    """Scores of about 10^4; whole numbers, so that no order of adding rounds them."""
    random = torch.Generator().manual_seed(24)
    q, k = (70.0 * torch.randint(-3, 4, (1, 2, 8, 4), generator=random) for _ in range(2))
    return q, k, torch.randn(1, 2, 8, 4, generator=random)


def _causal(length: int) -> Tensor:
    """-inf where a token would look at a later one, else 0."""
    return torch.full((length, length), -torch.inf).triu(1)


def _same(
    answer: Answer,
    case: str,
    batch: tuple[Tensor, Tensor, Tensor],
    tile: int,
    bias: Tensor | None = None,
) -> None:
    """The same as by the formula, and q, k and v as before."""
    q, k, v = batch
    exact = _formula(q, k, v, bias)
    given = [each.clone() for each in batch]
    found = attempt(answer, *given, tile, *([] if bias is None else [bias.clone()]))
    if not isinstance(found, Tensor):
        raise NotYet(f"{case}: return a tensor; returned was {found!r}")
    if found.shape != exact.shape:
        raise NotYet(f"{case}: the result has shape {tuple(found.shape)}, not {tuple(exact.shape)}")
    if not all(map(torch.equal, given, batch)):
        raise NotYet(f"{case}: q, k or v was changed in place; leave them as they are")
    if not found.isfinite().all():
        raise NotYet(f"{case}: the result has nan or inf; {_why_no_number(case)}")
    if _near(found, exact):
        return
    for mistake, missing in MISTAKES.items():
        if _near(found, _mistaken(q, k, v, tile, bias, mistake)):
            raise NotYet(f"{case}: {missing}")
    off = ((found - exact).norm() / exact.norm()).item()
    raise NotYet(f"{case}: the result is off by {off:.0%}")


def _why_no_number(case: str) -> str:
    if "-inf" in case:
        return (
            "where all scores so far are -inf, so is their maximum, and -inf - -inf is nan: begin "
            "with a maximum that is very low and yet finite"
        )
    if "10^4" in case:
        return "e^10000 is inf: subtract the largest score so far from every score before exp"
    return "is something divided by 0, or a maximum of no scores taken?"


def _near(found: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(found.double(), wanted.double(), rtol=NEAR, atol=NEAR)


def _formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ v


def _mistaken(
    q: Tensor, k: Tensor, v: Tensor, tile: int, bias: Tensor | None, mistake: str
) -> Tensor:
    """What comes out with one of `MISTAKES`."""
    top = q.new_full((*q.shape[:-1], 1), torch.finfo(q.dtype).min)
    total = torch.zeros_like(top)
    output = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for part in _tiles(k.shape[-2], tile, whole=mistake == "last"):
        scores = q @ k[..., part, :].mT
        if mistake != "scale":
            scores = scores / q.shape[-1] ** 0.5
        if bias is not None and mistake != "bias":
            scores = scores + bias[..., part]
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights, shrink = (scores - new).exp(), (top - new).exp()
        total = total * (1 if mistake == "sum" else shrink) + weights.sum(-1, keepdim=True)
        output = output * (1 if mistake == "output" else shrink) + weights @ v[..., part, :]
        top = new
    return output if mistake == "division" else output / total


def _tiles(keys: int, tile: int, *, whole: bool) -> Iterator[slice]:
    """The tiles; ``whole``: without a last one that is shorter."""
    for first in range(0, keys, tile):
        if not whole or first + tile <= keys:
            yield slice(first, first + tile)


# ------------------------------------------------------------------------------------- no table


class _Largest(TorchDispatchMode):
    """Keeps the most numbers that an operator returned, and whether torch's attention ran."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.torchs = 0, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.torchs |= "attention" in str(func)
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor):
                self.numbers = max(self.numbers, leaf.numel())
        return found


def _no_table(answer: Answer) -> None:
    """Of 96 x 96 scores, no tensor has so many numbers."""
    length, tile = 96, 8
    random = torch.Generator().manual_seed(24)
    q, k, v = (torch.randn(1, 1, length, 4, generator=random) for _ in range(3))
    with _Largest() as seen:
        attempt(answer, q, k, v, tile)
    if seen.torchs:
        raise NotYet("right; but this is torch's own attention: build it from products and exp")
    if seen.numbers >= length * length:
        raise NotYet(
            f"right; but a tensor of {seen.numbers:,} numbers was made for {length} tokens: that "
            "is the whole table. Multiply q by one tile of k at a time"
        )
    # A tile's scores, and at most a few of them side by side.
    if seen.numbers > 4 * length * tile:
        raise NotYet(
            f"right; but a tensor of {seen.numbers:,} numbers was made, and a tile of {tile} keys "
            f"has {length * tile:,} scores"
        )
