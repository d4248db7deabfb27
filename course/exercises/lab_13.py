"""The exercise of notebook 13."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit.memory import saved_bytes
from labkit.restore import preserve_rng

MicroBatches = list[tuple[Tensor, Tensor]]
# a norm at which nothing is clipped
NO_LIMIT = 1e6


class _SGD(torch.optim.SGD):
    """Counts its steps; with lr=1 the weights move by the very gradient."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return super().step(closure)


@check("one update, the mean over all tokens, and the memory of one micro-batch", judged="both")
def check_13_one_update(answer: Callable[..., Any]) -> None:
    """`answer(model, optimizer, micro_batches, max_norm)` makes one update of a language model
    from micro-batches ``(inputs, targets)`` with different numbers of tokens: the mean loss over
    all tokens, its gradient clipped.

    It is tried twice in a row each on uneven micro-batches, on one that is padding only, and
    with a gradient that has to be clipped; it may hold what one micro-batch keeps for backward,
    not what all keep.
    """
    for lengths, max_norm, where in (
        ([[9, 9], [1, 2], [3, 1]], NO_LIMIT, "micro-batches of 18, 3 and 4 tokens"),
        ([[5, 4], [0, 0], [2, 6]], NO_LIMIT, "micro-batches of 9, 0 and 8 tokens"),
        ([[9, 9], [1, 2], [3, 1]], 0.1, "a gradient to be clipped to 0.1"),
    ):
        if problem := _problem(answer, lengths, max_norm):
            raise NotYet(f"{where}: {problem}")


def _problem(answer: Callable[..., Any], lengths: list[list[int]], max_norm: float) -> str | None:
    """What is wrong with two updates in a row, or None."""
    with preserve_rng():
        torch.manual_seed(13)
        model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 11))
        parts = [_micro_batch(each) for each in lengths]
    optimizer = _SGD(model.parameters(), lr=1.0)
    largest = max(saved_bytes(partial(_loss, model, part)) for part in parts)
    for call in ("first", "second"):
        # before the model moves
        wrong = _guesses(model, parts)
        wanted, before, optimizer.steps = wrong.pop("right"), _vector(model), 0
        wanted = wanted * min(1.0, max_norm / (wanted.norm().item() + 1e-6))
        given = [(inputs.clone(), targets.clone()) for inputs, targets in parts]
        held = saved_bytes(partial(attempt, answer, model, optimizer, given, max_norm))
        moved = before - _vector(model)
        if optimizer.steps == 0:
            return "the optimizer made no step"
        if optimizer.steps > 1:
            return f"the optimizer made {optimizer.steps} steps, not one"
        if not torch.allclose(moved, wanted, rtol=1e-4, atol=1e-6):
            hint = next(
                (
                    why
                    for why, guess in wrong.items()
                    if torch.allclose(moved, guess, rtol=1e-4, atol=1e-6)
                ),
                "",
            )
            if call == "second":
                hint = "the first update was right, this one found old gradients"
            elif max_norm < NO_LIMIT:
                hint = "clip once, behind the last backward()"
            norms = (
                f"the {call} update is {moved.norm():.4g} long and should be {wanted.norm():.4g}"
            )
            return norms + (f"; {hint}" if hint else "")
        if held > 1.5 * largest:
            return (
                f"the right update, but {held / largest:.1f} times the memory of the largest "
                "of them; call backward() for each before the next one's forward pass"
            )
    return None


def _micro_batch(lengths: list[int], longest: int = 9) -> tuple[Tensor, Tensor]:
    """Random inputs (N, T) and targets (N, T), of which the first `lengths` count."""
    inputs, targets = torch.randint(11, (2, len(lengths), longest))
    return inputs, targets.masked_fill(
        torch.arange(longest) >= torch.tensor(lengths)[:, None], -100
    )


def _loss(model: nn.Module, part: tuple[Tensor, Tensor]) -> Tensor:
    """The sum over the tokens of one micro-batch."""
    return F.cross_entropy(model(part[0]).flatten(0, 1), part[1].flatten(), reduction="sum")


def _vector(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def _guesses(model: nn.Module, parts: MicroBatches) -> dict[str, Tensor]:
    """The right gradient, and by their hints those of the usual mistakes, without clipping."""
    parameters = list(model.parameters())
    sums = [
        torch.cat([g.flatten() for g in torch.autograd.grad(_loss(model, part), parameters)])
        for part in parts
    ]
    counts = [int((targets != -100).sum()) for _, targets in parts]
    means = torch.stack(
        [gradient / max(number, 1) for gradient, number in zip(sums, counts, strict=True)]
    )
    places = sum(targets.numel() for _, targets in parts)
    total = torch.stack(sums).sum(0)
    return {
        "right": total / sum(counts),
        "this is the mean of the means: divide each sum by the tokens of all": means.mean(0),
        "these are means that were only added up: divide each sum by the tokens of all": means.sum(
            0
        ),
        "this is the sum: divide it by the tokens of all": total,
        "padding was counted: only targets other than -100 are tokens": total / places,
        "this is the gradient of the last micro-batch alone": means[-1],
    }
