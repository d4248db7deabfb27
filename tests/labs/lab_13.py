"""13, gradient accumulation: what shows that the technique acts, and answers to the exercise."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course import exercises
from labkit import MemoryMeter
from tests.labs import counters

CHECK = exercises.check_13_epoch
Pair = tuple[Tensor, Tensor]
Groups = Iterable[list[Pair]]
Loss = Callable[[nn.Module, Pair, list[Pair], int], Tensor]
Epoch = Callable[..., None]


def alive(names: dict[str, Any]) -> None:
    """The same arithmetic and far less that is kept; with few images a higher peak."""
    whole, eight = (counters(names, accumulate=k) for k in (1, 8))
    assert whole.flops == eight.flops
    # An eighth, beside the images, of which the micro-batches are views.
    images = 32 * names["images"][0].nbytes
    assert (eight.saved_bytes - images) / (whole.saved_bytes - images) < 0.13
    assert eight.launches > whole.launches
    assert peak(names, accumulate=8) < 0.6 * peak(names, accumulate=1)
    few = {"network": "MLP", "optimizer": "SGD", "batch": 16}
    assert peak(names, accumulate=4, **few) > peak(names, accumulate=1, **few)


def peak(names: dict[str, Any], **settings: Any) -> int:
    """Bytes of a step's peak."""
    step = names["make_workload"](**names["lab"].settings(settings)).step
    step()
    with MemoryMeter(saved=False) as memory:
        step()
    return memory.peak


# ------------------------------------------------------------------------- answers to the exercise


def summed(model: nn.Module, part: Pair) -> Tensor:
    logits = model(part[0]).flatten(0, 1)
    return F.cross_entropy(logits, part[1].flatten(), reduction="sum")


def tokens(group: Iterable[Pair]) -> int:
    return sum(int((targets != -100).sum()) for _, targets in group)


def groups(stream: Iterable[Pair], accumulate: int) -> Iterator[list[Pair]]:
    parts = iter(stream)
    while group := list(islice(parts, accumulate)):
        yield group


def finish(
    model: nn.Module, optimizer: torch.optim.Optimizer, updates: int, evaluate: Callable[..., Any]
) -> None:
    optimizer.step()
    optimizer.zero_grad()
    if updates % 2 == 0:
        evaluate(model)


def in_groups(loss_of: Loss, cut: Callable[..., Groups] = groups) -> Epoch:
    """An epoch with ``loss_of(model, part, group, accumulate)`` as the loss of each part."""

    def epoch(model, optimizer, stream, accumulate, evaluate):
        updates = 0
        for group in cut(stream, accumulate):
            if not tokens(group):
                continue
            for part in group:
                loss_of(model, part, group, accumulate).backward()
            updates += 1
            finish(model, optimizer, updates, evaluate)

    epoch.__name__ = loss_of.__name__
    return epoch


def right(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part) / tokens(group)


def mean_of_means(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part) / max(1, tokens([part])) / len(group)


def by_accumulate(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part) / max(1, tokens([part])) / accumulate


def not_divided(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part) / max(1, tokens([part]))


def sums(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part)


def padding_counts(model: nn.Module, part: Pair, group: list[Pair], accumulate: int) -> Tensor:
    return summed(model, part) / sum(targets.numel() for _, targets in group)


def draws_all(model, optimizer, stream, accumulate, evaluate):
    RIGHT(model, optimizer, list(stream), accumulate, evaluate)


def drops_the_last(model, optimizer, stream, accumulate, evaluate):
    def full(parts: Iterable[Pair], size: int) -> Groups:
        return (group for group in groups(parts, size) if len(group) == size)

    in_groups(right, full)(model, optimizer, stream, accumulate, evaluate)


def modulo(model, optimizer, stream, accumulate, evaluate):
    """The code of the source."""
    updates = 0
    for i, part in enumerate(stream):
        (summed(model, part) / max(1, tokens([part])) / accumulate).backward()
        if (i + 1) % accumulate == 0:
            updates += 1
            finish(model, optimizer, updates, evaluate)


def evaluates_early(model, optimizer, stream, accumulate, evaluate):
    """Between two backward passes."""
    updates = 0
    for group in groups(stream, accumulate):
        if not tokens(group):
            continue
        updates += 1
        for number, part in enumerate(group):
            right(model, part, group, accumulate).backward()
            if number == 0 and updates % 2 == 0:
                evaluate(model)
        optimizer.step()
        optimizer.zero_grad()


def evaluates_always(model, optimizer, stream, accumulate, evaluate):
    for group in groups(stream, accumulate):
        if not tokens(group):
            continue
        for part in group:
            right(model, part, group, accumulate).backward()
        finish(model, optimizer, 2, evaluate)


def one_backward(model, optimizer, stream, accumulate, evaluate):
    updates = 0
    for group in groups(stream, accumulate):
        if not tokens(group):
            continue
        (sum(summed(model, part) for part in group) / tokens(group)).backward()
        updates += 1
        finish(model, optimizer, updates, evaluate)


def no_zero_grad(model, optimizer, stream, accumulate, evaluate):
    for group in groups(stream, accumulate):
        for part in group:
            right(model, part, group, accumulate).backward()
        optimizer.step()


def zero_grad_first(model, optimizer, stream, accumulate, evaluate):
    """Gradients are left at the end."""
    updates = 0
    for group in groups(stream, accumulate):
        if not tokens(group):
            continue
        optimizer.zero_grad()
        for part in group:
            right(model, part, group, accumulate).backward()
        optimizer.step()
        updates += 1
        if updates % 2 == 0:
            optimizer.zero_grad()
            evaluate(model)


def divides_gradients(model, optimizer, stream, accumulate, evaluate):
    """Right, but for a group of padding: its gradient of 0 is divided by 0."""
    for updates, group in enumerate(groups(stream, accumulate), 1):
        for part in group:
            summed(model, part).backward()
        for weight in model.parameters():
            weight.grad /= tokens(group)
        finish(model, optimizer, updates, evaluate)


def updates_without_a_token(model, optimizer, stream, accumulate, evaluate):
    for updates, group in enumerate(groups(stream, accumulate), 1):
        for part in group:
            (summed(model, part) / max(1, tokens(group))).backward()
        finish(model, optimizer, updates, evaluate)


def empty(*_: Any) -> None: ...


FOUR = "accumulate=2, micro-batches of 8, 8, 8, 8 tokens: "
SEVEN = "accumulate=3, micro-batches of 6, 6, 6, 6, 6, 6, 6 tokens: "
UNEVEN = "accumulate=2, micro-batches of 12, 3, 4, 11 tokens: "
PADDED = "accumulate=2, micro-batches of 9, 0, 0, 0, 8, 4, 11 tokens: "

RIGHT = in_groups(right)
WRONG = (
    (empty, f"{FOUR}the optimizer made no step"),
    (in_groups(mean_of_means), f"{UNEVEN}update 1: it is the mean of the means"),
    (in_groups(by_accumulate), f"{SEVEN}update 3: it was divided by accumulate, 3"),
    (in_groups(not_divided), f"{FOUR}update 1: the means were only added up"),
    (in_groups(sums), f"{FOUR}update 1: the sums were only added up"),
    (in_groups(padding_counts), f"{FOUR}update 1: padding was counted"),
    (modulo, f"{SEVEN}2 updates were made instead of 3. The last, shorter group made none"),
    (drops_the_last, f"{SEVEN}2 updates were made instead of 3: the last, shorter group"),
    (draws_all, f"{FOUR}4 micro-batches were drawn before the first update"),
    (evaluates_early, f"{FOUR}evaluate was called while gradients were accumulated"),
    (evaluates_always, f"{FOUR}evaluate was called after the updates [1, 2], and belongs"),
    (one_backward, f"{FOUR}the right updates, but at one time 1.9 times what"),
    (no_zero_grad, f"{FOUR}update 2: does it find old gradients?"),
    (zero_grad_first, f"{SEVEN}gradients are left at the end"),
    (divides_gradients, f"{PADDED}update 2 makes weights nan"),
    (updates_without_a_token, f"{PADDED}update 2: a group without a token makes no update"),
)
