"""The exercise of the front notebook 20: a validation that leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng

Answer = Callable[..., Any]
# Rows of the batches, the last one shorter.
ROWS = (8, 8, 2)
NEAR = 1e-5


@check("the right mean, nothing recorded, and every layer in its own mode again", judged="both")
def check_20_validate(answer: Answer) -> None:
    """`answer(net, batches)` is the mean cross-entropy over all samples, measured as a
    validation should be.

    It is tried on a network that trains and on one that does not, each with a frozen layer, and
    with a batch that raises an error.
    """
    for training in (True, False):
        with preserve_rng():
            torch.manual_seed(20)
            _measures(answer, training)
    for training in (True, False):
        with preserve_rng():
            torch.manual_seed(20)
            _fails(answer, training)


class _Witness(nn.Module):
    """Passes its input on, and notes each time in which modes it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((self.training, torch.is_grad_enabled()))
        return x


def _network(witness: nn.Module, *, training: bool) -> nn.Sequential:
    """Its batch norm is frozen: in evaluation mode whatever the rest is in."""
    frozen = nn.BatchNorm1d(3)
    net = nn.Sequential(witness, nn.Linear(4, 3), frozen, nn.Dropout(0.5)).train(training)
    frozen.eval()
    return net


def _batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(rows, 4), torch.randint(3, (rows,))) for rows in ROWS]


def _measures(answer: Answer, training: bool) -> None:
    """The loss, and how the network was called for it."""
    witness, batches = _Witness(), _batches()
    net = _network(witness, training=training)
    right, mean_of_means = _losses(net, batches)
    modes = _modes(net)
    found = attempt(answer, net, batches)
    if found is None:
        raise NotYet("return the mean loss over all samples")
    _called_right(witness.seen)
    if not isinstance(found, float):
        kind = type(found).__name__
        raise NotYet(f"a {kind} came back: return a plain number, as .item() gives it")
    _compare(found, right, mean_of_means)
    _same_modes(modes, _modes(net), "afterwards")


def _fails(answer: Answer, training: bool) -> None:
    """A batch whose targets do not fit raises an error in the midst of it."""
    net, batches = _network(nn.Identity(), training=training), _batches()
    inputs, targets = batches[1]
    batches[1] = (inputs, targets[:3])
    modes = _modes(net)
    try:
        attempt(answer, net, batches)
    except ValueError:
        _same_modes(modes, _modes(net), "after an error in the second batch")
    else:
        told = f"a batch has {len(inputs)} inputs and 3 targets"
        raise NotYet(f"{told}: its error is to reach the caller, and did not")


def _losses(net: nn.Sequential, batches: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """The mean over all samples, and the mean of the batches' means; without the witness."""
    layers = nn.Sequential(net[1], net[2])
    with torch.no_grad():
        losses = [F.cross_entropy(layers(x), y, reduction="none") for x, y in batches]
    means = [each.mean().item() for each in losses]
    return torch.cat(losses).mean().item(), sum(means) / len(means)


def _called_right(seen: list[tuple[bool, bool]]) -> None:
    if not seen:
        raise NotYet("net was never called")
    if any(training for training, _ in seen):
        raise NotYet(
            "net was called in training mode: dropout strikes out, and batch norm learns from "
            "the data"
        )
    if any(recorded for _, recorded in seen):
        raise NotYet("autograd was recording while net was called: each batch made a graph")


def _compare(found: float, right: float, mean_of_means: float) -> None:
    """Raise NotYet unless the mean loss is right, and name the usual mistake."""
    if abs(found - right) <= NEAR:
        return
    hint = f"the mean loss is {right:.5f}, yours {found:.5f}"
    if abs(found - mean_of_means) < NEAR:
        hint += ": a mean of the batches' means gives the two samples of the last batch "
        hint += "too much weight"
    raise NotYet(hint)


def _modes(net: nn.Module) -> dict[str, bool]:
    """Whether each layer is in training mode, by its name; "net" is the whole."""
    names = {name or "net": module for name, module in net.named_modules()}
    return {name: module.training for name, module in names.items()}


def _same_modes(before: dict[str, bool], after: dict[str, bool], when: str) -> None:
    if before["net"] is not after["net"]:
        raise NotYet(
            f"net.training was {before['net']} before and is {after['net']} {when}: "
            "give it back as it was"
        )
    changed = [name for name in before if before[name] is not after[name]]
    if changed:
        name = changed[0]
        raise NotYet(
            f"layer {name} had training={before[name]} before and has {after[name]} {when}: "
            "net.train() sets all layers, also those that were frozen by eval()"
        )
