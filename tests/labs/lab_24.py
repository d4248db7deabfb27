"""24, attention: what shows that the technique acts, and answers to the exercise."""

from typing import Any

import torch
import torch.nn.functional as F

from course import exercises
from course.measured.backends import KERNELS, TABLE
from labkit import MemoryMeter, seed_all
from tests.labs import nothing

CHECK = exercises.check_24_attention
# Of tokens, in the test size.
LENGTHS = (32, 64)


def alive(names: dict[str, Any]) -> None:
    """SDPA's memory grows with the length, the table's with its square; the results agree."""
    grown = {}
    for attention in ("naive", "SDPA"):
        peaks = [peak(names, attention=attention, length=length) for length in LENGTHS]
        grown[attention] = peaks[1] / peaks[0]
    assert grown["naive"] > 2.5 > 2.1 > grown["SDPA"]
    kernels = [kernel(names, attention) for attention in ("naive", "SDPA")]
    assert kernels[0] == TABLE
    # On a GPU of any kind, too, none of torch's kernels stores it.
    assert kernels[1] in KERNELS.values()
    q, k, v = (torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(1)) for _ in "qkv")
    for mask, causal in ((None, True), (torch.ones(16, 16, dtype=torch.bool).tril(), False)):
        wanted = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        found = names["naive"](q, k, v, mask, is_causal=causal)
        torch.testing.assert_close(found, wanted)


def kernel(names: dict[str, Any], attention: str) -> str:
    """What the picture says of the kernel that ran, after a build."""
    settings = names["lab"].settings({"attention": attention})
    names["lab"].make_workload(**settings)
    return names["tables"].kernel(settings)


def peak(names: dict[str, Any], **settings: Any) -> int:
    """Bytes of a step's tensors at most."""
    seed_all(0)
    step = names["make_workload"](**names["lab"].settings(settings)).step
    step()
    with MemoryMeter(saved=False) as memory:
        step()
    assert memory.peak is not None
    return memory.peak


def attention(q, k, v, tile, bias=None, *, mistake=""):
    lowest = -torch.inf if mistake == "-inf" else torch.finfo(q.dtype).min
    top = q.new_full((*q.shape[:-1], 1), lowest)
    total, output = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for first in range(0, k.shape[-2], tile):
        part = slice(first, first + tile)
        if mistake == "last" and first + tile > k.shape[-2]:
            break
        scores = q @ k[..., part, :].mT
        if mistake != "scale":
            scores = scores / q.shape[-1] ** 0.5
        if bias is not None and mistake != "bias":
            scores = scores + bias[..., part]
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        if mistake == "maximum":
            new = torch.zeros_like(new)
        weights, shrink = (scores - new).exp(), (top - new).exp()
        if mistake == "maximum":
            shrink = torch.ones_like(shrink)
        total = total * (1 if mistake == "sum" else shrink) + weights.sum(-1, keepdim=True)
        output = output * (1 if mistake == "output" else shrink) + weights @ v[..., part, :]
        top = new
    return output if mistake == "division" else output / total


def wrong(mistake):
    def answer(q, k, v, tile, bias=None):
        return attention(q, k, v, tile, bias, mistake=mistake)

    answer.__name__ = f"mistake_{mistake.strip('-')}"
    return answer


def whole_table(q, k, v, tile, bias=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if bias is None else scores + bias).softmax(-1) @ v


def half_the_table(q, k, v, tile, bias=None):
    """Tiles of its own width."""
    return attention(q, k, v, max(tile, k.shape[-2] // 2), bias)


def torchs(q, k, v, tile, bias=None):
    return F.scaled_dot_product_attention(q, k, v, bias)


def in_place(q, k, v, tile, bias=None):
    q /= q.shape[-1] ** 0.5
    return attention(q, k, v, tile, bias)


def of_queries(q, k, v, tile, bias=None):
    """As long as q: wrong where k is longer."""
    keys = q.shape[-2]
    return attention(q, k[..., :keys, :], v[..., :keys, :], tile, bias)


def without_batch(q, k, v, tile, bias=None):
    return attention(q, k, v, tile, bias)[0]


FIRST, TABLE_MADE = "8 tokens in tiles of 4: ", "right; but a tensor of "
RIGHT = attention
WRONG = (
    (nothing, FIRST + "return a tensor; returned was None"),
    (wrong("scale"), FIRST + "the scores are not divided by √d"),
    (wrong("sum"), FIRST + "the sum collected so far does not shrink"),
    (wrong("output"), FIRST + "the output collected so far does not shrink"),
    (wrong("division"), FIRST + "the output is not divided by the sum"),
    (wrong("last"), "10 keys in tiles of 4: the last tile"),
    (wrong("bias"), "a causal bias: the bias is not added"),
    (wrong("maximum"), "scores of 10^4: the result has nan or inf; e^10000 is inf"),
    (wrong("-inf"), "a first tile of -inf: the result has nan or inf; where all scores"),
    (of_queries, "5 queries, 12 keys, tiles of 5: the result is off by"),
    (whole_table, TABLE_MADE + "9,216 numbers was made for 96 tokens: that is the whole table"),
    (half_the_table, TABLE_MADE + "4,608 numbers was made, and a tile of 8 keys has 768 scores"),
    (torchs, "right; but this is torch's own attention"),
    (in_place, FIRST + "q, k or v was changed in place"),
    (without_batch, FIRST + "the result has shape"),
)
