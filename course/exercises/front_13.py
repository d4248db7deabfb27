"""The exercise of the front notebook 13: an epoch with accumulated gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit.memory import saved_bytes
from labkit.restore import preserve_rng

Pair = tuple[Tensor, Tensor]
PADDING, LONGEST, WORDS = -100, 6, 11
DECAY = 0.01
# Of what the largest micro-batch keeps for backward.
KEPT = 1.5


@dataclass(frozen=True)
class Case:
    """An epoch: how many micro-batches make an update, and the tokens of each one's sentences."""

    accumulate: int
    lengths: Sequence[Sequence[int]]

    @property
    def groups(self) -> list[list[int]]:
        """The numbers of the micro-batches of each update; padding alone makes none."""
        numbers = list(range(len(self.lengths)))
        groups = [numbers[i : i + self.accumulate] for i in numbers[:: self.accumulate]]
        return [group for group in groups if any(sum(self.lengths[i]) for i in group)]

    def __str__(self) -> str:
        tokens = ", ".join(str(sum(each)) for each in self.lengths)
        return f"accumulate={self.accumulate}, micro-batches of {tokens} tokens"


CASES = (
    # Equal ones, in full groups: the loop itself.
    Case(2, [[4, 4], [4, 4], [4, 4], [4, 4]]),
    # A shorter group at the end, of equal micro-batches.
    Case(3, [[3, 3]] * 7),
    # Sentences of different lengths.
    Case(2, [[6, 6], [1, 2], [3, 1], [5, 6]]),
    # Padding: a part of a group, then a whole one.
    Case(2, [[5, 4], [0, 0], [0, 0], [0, 0], [2, 6], [1, 3], [6, 5]]),
    # Fewer than one group.
    Case(8, [[6, 1], [2, 2], [3, 5]]),
)


@check("every token counts the same, in each update, and none is left over", judged="inside")
def check_13_epoch(answer: Callable[..., Any]) -> None:
    """`answer(model, optimizer, micro_batches, accumulate, evaluate)` trains a language model for
    one epoch.

    ``micro_batches`` yields pairs of inputs (N, T) and targets (N, T), -100 where nothing is to be
    learned. Each update is the mean over the tokens of ``accumulate`` micro-batches, the last one
    of what is left; padding alone makes none. ``evaluate(model)`` is called after every second
    update, when no gradient is there.
    """
    for case in CASES:
        _Epoch(case).judge(answer)


class _SGD(torch.optim.SGD):
    """Notes the weights after each step; with lr=1 they move by the very gradient."""

    def __init__(self, model: nn.Module, drawn: list[int]) -> None:
        # With decay, a step without a gradient moves the weights, too.
        super().__init__(model.parameters(), lr=1.0, weight_decay=DECAY)
        self.moved, self.after, self.drawn = model, [_vector(model)], drawn
        # Micro-batches drawn before each step.
        self.at: list[int] = []

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        self.after.append(_vector(self.moved))
        self.at.append(len(self.drawn))
        return result


class _Epoch:
    """One call of the answer, what was seen of it, and what should have been."""

    def __init__(self, case: Case) -> None:
        self.case = case
        with preserve_rng():
            torch.manual_seed(13)
            hidden = (nn.Embedding(WORDS, 8), nn.Linear(8, 16), nn.Tanh())
            self.model = nn.Sequential(*hidden, nn.Linear(16, WORDS)).double()
            self.parts = [_micro_batch(each) for each in case.lengths]
        # Micro-batches that were drawn; for each evaluation the updates before it, and whether
        # there was a gradient.
        self.drawn: list[int] = []
        self.seen: list[tuple[int, bool]] = []
        self.optimizer = _SGD(self.model, self.drawn)

    def judge(self, answer: Callable[..., Any]) -> None:
        largest = max(saved_bytes(partial(_loss, self.model, part)) for part in self.parts)
        held = saved_bytes(partial(self._call, answer))
        for problem in (self._updates, self._clean, self._evaluated, self._drawn):
            if told := problem():
                raise NotYet(f"{self.case}: {told}")
        if held > KEPT * largest:
            raise NotYet(
                f"{self.case}: the right updates, but at one time {held / largest:.1f} times what "
                "the largest micro-batch keeps; call backward() before the next forward pass"
            )

    def _call(self, answer: Callable[..., Any]) -> None:
        accumulate = self.case.accumulate
        attempt(answer, self.model, self.optimizer, self._stream(), accumulate, self._evaluate)

    def _stream(self) -> Iterator[Pair]:
        for number, (inputs, targets) in enumerate(self.parts):
            self.drawn.append(number)
            yield inputs.clone(), targets.clone()

    def _evaluate(self, model: nn.Module) -> None:
        left = any(_has_gradient(parameter) for parameter in self.model.parameters())
        self.seen.append((len(self.optimizer.at), left))

    # ------------------------------------------------------------------ what may be wrong

    def _updates(self) -> str:
        """The weights after each update, one after the other."""
        after, groups = self.optimizer.after, self.case.groups
        twin = deepcopy(self.model)
        for number, group in enumerate(groups):
            if len(after) <= number + 1:
                return self._missing(number)
            if not after[number + 1].isfinite().all():
                return (
                    f"update {number + 1} makes weights nan: padding only has no mean, 0/0. A "
                    "group without a token makes no update"
                )
            nn.utils.vector_to_parameters(after[number].clone(), twin.parameters())
            moves = _moves(twin, [self.parts[i] for i in group], self.case.accumulate)
            moved = after[number] - after[number + 1]
            if not _near(moved, moves["right"]):
                return self._wrong(number, moved, moves)
        if len(after) > len(groups) + 1:
            return (
                f"{len(after) - 1} updates were made instead of {len(groups)}: one for each group; "
                "a group of padding only makes none"
            )
        return ""

    def _missing(self, number: int) -> str:
        if number == 0:
            return "the optimizer made no step"
        told = f"{number} updates were made instead of {len(self.case.groups)}"
        if any(_has_gradient(parameter) for parameter in self.model.parameters()):
            return (
                f"{told}. The last, shorter group made none: its gradients are still there, and "
                "would leak into the next epoch"
            )
        return f"{told}: the last, shorter group makes one, too"

    def _wrong(self, number: int, moved: Tensor, moves: dict[str, Tensor]) -> str:
        near = (why for why, move in moves.items() if _near(moved, move))
        why = next(near, "")
        if not why and number:
            why = "does it find old gradients? Call optimizer.zero_grad() after each step"
        lengths = f"{moved.norm():.4g} long and should be {moves['right'].norm():.4g}"
        told = f"update {number + 1}"
        return f"{told}: {why}; it is {lengths}" if why else f"{told} is {lengths}"

    def _clean(self) -> str:
        if any(_has_gradient(parameter) for parameter in self.model.parameters()):
            return "gradients are left at the end, and would leak into the next epoch"
        return ""

    def _evaluated(self) -> str:
        wanted = list(range(2, len(self.case.groups) + 1, 2))
        if any(left for _, left in self.seen):
            return (
                "evaluate was called while gradients were accumulated: call it behind "
                "optimizer.zero_grad()"
            )
        updates = [number for number, _ in self.seen]
        if updates != wanted:
            return (
                f"evaluate was called after the updates {updates or 'none'}, and belongs after "
                f"{wanted or 'none'}: every second one"
            )
        return ""

    def _drawn(self) -> str:
        last = max(self.case.groups[0])
        # One more may be looked at, to know whether there is another group.
        if self.optimizer.at[0] > last + 2:
            return (
                f"{self.optimizer.at[0]} micro-batches were drawn before the first update: a "
                "stream has no end, take a group at a time"
            )
        return ""


# ---------------------------------------------------------------------------------- what is right


def _moves(model: nn.Module, group: Sequence[Pair], accumulate: int) -> dict[str, Tensor]:
    """What the weights move by: the right way, and by their hints the usual mistakes."""
    weights = list(model.parameters())
    losses = [_loss(model, part) for part in group]
    sums = torch.stack([_flat(torch.autograd.grad(loss, weights)) for loss in losses])
    tokens = torch.tensor([int((targets != PADDING).sum()) for _, targets in group])
    means = sums / tokens.clamp(min=1)[:, None]
    places = sum(targets.numel() for _, targets in group)
    by = f"divide each sum of losses by the {int(tokens.sum())} tokens of the group"
    gradients = {
        "right": sums.sum(0) / tokens.sum(),
        f"it is the mean of the means: {by}": means.mean(0),
        f"the means were only added up: {by}": means.sum(0),
        f"the sums were only added up: {by}": sums.sum(0),
        f"padding was counted: {by}": sums.sum(0) / places,
        "it is the gradient of the last micro-batch alone": means[-1],
        "a group without a token makes no update": torch.zeros_like(means[0]),
    }
    if len(group) < accumulate:
        why = f"it was divided by accumulate, {accumulate}, and this group has {len(group)}: {by}"
        gradients[why] = means.sum(0) / accumulate
    decay = DECAY * _vector(model)
    return {why: gradient + decay for why, gradient in gradients.items()}


def _micro_batch(lengths: Sequence[int]) -> Pair:
    """Random inputs (N, T) and targets (N, T), of which the first ones count."""
    inputs, targets = torch.randint(WORDS, (2, len(lengths), LONGEST))
    counted = torch.arange(LONGEST) < torch.tensor(lengths)[:, None]
    return inputs, targets.masked_fill(~counted, PADDING)


def _loss(model: nn.Module, part: Pair) -> Tensor:
    """The sum over the tokens of one micro-batch."""
    inputs, targets = part
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum")


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _vector(model: nn.Module) -> Tensor:
    return _flat([parameter.detach() for parameter in model.parameters()]).clone()


def _near(one: Tensor, other: Tensor) -> bool:
    # By rounding only: sums in another order.
    return torch.allclose(one, other, rtol=1e-9, atol=1e-12)
