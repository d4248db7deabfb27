"""The exercise of notebook 21."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng


@check("plain averages of all batches, and nothing else has changed")
def check_21_recalibrate(answer: Callable[..., Any]) -> None:
    """`answer(net, batches)` makes running averages plain averages over the batches, and changes
    nothing else.
    """
    with preserve_rng(), torch.no_grad():
        torch.manual_seed(21)
        blocks = [
            (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.1)),
            (nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5, momentum=0.3)),
        ]
        net = nn.Sequential(*blocks[0], nn.Dropout(0.5), nn.ReLU(), *blocks[1])
        batches = [torch.randn(8, 3, 8, 8) * (1 + size) + size for size in range(5)]
        for batch in batches[:3]:
            # as if it had been trained
            net(batch)
    for training in (True, False):
        mine = copy.deepcopy(net).train(training)
        weights = [parameter.detach().clone() for parameter in mine.parameters()]
        wanted, old = _averages(net, batches), _averages(net, [])
        with preserve_rng():
            attempt(answer, mine, [batch.clone() for batch in batches])
        norms = [module for module in mine.modules() if isinstance(module, nn.BatchNorm2d)]
        means = [norm.running_mean for norm in norms]
        if _agree(means, [mean for mean, _ in old]):
            raise NotYet("the running averages are still the old ones")
        for number, norm in enumerate(norms):
            if norm.momentum != (0.1, 0.3)[number]:
                raise NotYet(
                    f"momentum was {(0.1, 0.3)[number]} and is {norm.momentum}: give it back"
                )
        modes = {
            type(module).__name__ for module in mine.modules() if module.training is not training
        }
        if modes:
            raise NotYet(
                f"training={training} before, but afterwards not in {', '.join(sorted(modes))}"
            )
        if not _agree(list(mine.parameters()), weights):
            raise NotYet("weights have changed: only the running averages may")
        if not _agree(means[:1], [wanted[0][0]]):
            hint = "the first norm's mean is not the plain average over the batches"
            raise NotYet(
                hint + ": are the old averages still in it, or do later batches weigh more?"
            )
        if not _agree(
            [norm.running_var for norm in norms] + means,
            [var for _, var in wanted] + [m for m, _ in wanted],
        ):
            raise NotYet(
                "the first norm is right, a later one is not: "
                "was dropout on, or did a norm use running averages?"
            )


def _averages(
    net: nn.Module, batches: list[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Mean and variance of each norm, averaged over the batches.

    Without batches those that it has.
    """
    net = copy.deepcopy(net).eval()
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    seen: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {
        number: [] for number in range(len(norms))
    }
    for number, norm in enumerate(norms):
        norm.train()

        def note(_: nn.Module, inputs: tuple[torch.Tensor], number: int = number) -> None:
            over = (0, 2, 3)
            seen[number].append((inputs[0].mean(over), inputs[0].var(over)))

        norm.register_forward_pre_hook(note)
    with torch.no_grad():
        for batch in batches:
            net(batch)
    if not batches:
        return [(norm.running_mean, norm.running_var) for norm in norms]  # type: ignore[misc]
    return [
        (torch.stack([m for m, _ in s]).mean(0), torch.stack([v for _, v in s]).mean(0))
        for s in seen.values()
    ]


def _agree(found: list[Any], wanted: list[Any]) -> bool:
    return all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True)
    )
