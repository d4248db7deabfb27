"""What a step consists of besides the model, and how to try one without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from labkit.restore import giving_back, preserve_flags, preserve_rng, restoring
from labkit.restore.undo import call_all

# From whatever a model returns to a scalar.
Loss = Callable[[Any], torch.Tensor]

# A tensor, a tuple of a model's arguments, or its keyword arguments.
Inputs = torch.Tensor | tuple[object, ...] | Mapping[str, object]


@dataclass(frozen=True)
class Training:
    """Inputs, a loss of the model's output, and an optimizer, if any."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    loss: Loss
    optimizer: torch.optim.Optimizer | None = None


def training(
    inputs: Inputs,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Training:
    """The parts of a step as readers give them; without a loss the mean of all outputs."""
    args: tuple[object, ...] = inputs if isinstance(inputs, tuple) else (inputs,)
    kwargs: dict[str, object] = {}
    if isinstance(inputs, Mapping):
        args, kwargs = (), dict(inputs)
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer={optimizer!r} is not a torch.optim.Optimizer, nor None")
    if loss is not None and not callable(loss):
        raise TypeError(f"loss={loss!r} is no function from the model's output to a scalar tensor")
    if not any(map(torch.is_tensor, tree_leaves((args, kwargs)))):
        raise TypeError(
            f"inputs={inputs!r}: a tensor is accepted, or a tuple of the model's arguments, or a "
            "dict of its keyword arguments, with a tensor in it"
        )
    return Training(args, kwargs, loss or mean_of_outputs, optimizer)


def mean_of_outputs(output: object) -> torch.Tensor:
    """A scalar of whatever a model returns: the sum of the means of its floating-point tensors."""
    means = []
    for leaf in tree_leaves(output):
        if torch.is_tensor(leaf) and leaf.requires_grad:
            means.append(leaf.float().mean())
    if not means:
        raise ValueError(
            "the model returns no tensor that needs a gradient: there is no backward pass to plan "
            "for"
        )
    return torch.stack(means).sum()


# Of each `restored` under way: the model, the task, and what puts their state back.
_under_way: dict[object, tuple[nn.Module, Training, Callable[[], None]]] = {}


@contextmanager
def restored(model: nn.Module, task: Training) -> Iterator[None]:
    """Put back all that a step may train or change: the model, the optimizer, the loss's own state.

    Of a loss that is what `labkit.restore.restoring` finds, of inputs their gradients. Inside,
    parameters have no gradients. Copies lie in the memory of the CPU. Within another one of the
    same nothing is copied again: what was there when that began is put back.
    """
    for known, of, put_back in list(_under_way.values()):
        if known is model and of.loss is task.loss and of.optimizer is task.optimizer:
            with preserve_rng(), preserve_flags(), giving_back(put_back):
                drop_gradients(parameters(model, task.optimizer))
                yield
            return
    also: list[Any] = [model, *parameters(model, task.optimizer)]
    if task.optimizer is not None:
        also.append(task.optimizer)
    gradients = []
    for leaf in tree_leaves((task.args, task.kwargs)):
        if torch.is_tensor(leaf) and leaf.is_leaf:
            gradients.append((leaf, leaf.grad))

    def put_back_gradients() -> None:
        for leaf, gradient in gradients:
            leaf.grad = gradient

    with restoring(task.loss, also=also) as restoration, giving_back(put_back_gradients):
        drop_gradients(parameters(model, task.optimizer))
        key, back = object(), [restoration.restore, put_back_gradients]
        _under_way[key] = model, task, partial(call_all, back)
        try:
            yield
        finally:
            del _under_way[key]


def parameters(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    """Those of the model, and what else the optimizer steps."""
    found = list[torch.Tensor](model.parameters())
    if optimizer is not None:
        for group in optimizer.param_groups:
            found += group["params"]
    return found


def drop_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """As ``zero_grad`` of a model or an optimizer."""
    for parameter in parameters:
        parameter.grad = None
