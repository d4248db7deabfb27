"""What a model must not do if parts of it are to run twice, and how to try parts of it without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from labkit.preserve import preserve_rng, rng_state, set_rng_state

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = ("_parameters", "_buffers", "_modules")
_WRAPPERS = {
    "CheckpointWrapper": "it checkpoints already: unwrap it, the plan decides what is checkpointed",
    "OptimizedModule": "it is compiled: plan the model first, then compile what apply() returns",
    "DistributedDataParallel": "plan the module inside, then wrap what apply() returns",
    "DataParallel": "plan the module inside, then wrap what apply() returns",
}


def refuse(model: nn.Module) -> None:
    """Raise ValueError, by name, for what a planned model could not keep doing as before."""
    for name, module in model.named_modules():
        here = name or "the model itself"
        if hasattr(type(module), "runs_by"):
            raise ValueError(
                f"{here}: a plan is applied to it already: plan the model that was given to apply()"
            )
        if reason := _WRAPPERS.get(type(module).__name__):
            raise ValueError(f"{here} is a {type(module).__name__}: {reason}")
        if any(map(is_lazy, [*module._parameters.values(), *module._buffers.values()])):
            raise ValueError(
                f"{here} has parameters without a shape yet: run the model once on an example"
            )
        if hooks := [
            kind.strip("_").replace("_", " ") for kind in _HOOKS if getattr(module, kind, None)
        ]:
            raise ValueError(
                f"{here} has {' and '.join(hooks)}, which would run again whenever a block is computed again: remove "
                "them, or call that code from forward"
            )


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Give back each module's attributes, modes, children, and the identity of its parameters and buffers."""
    before = [
        (module, dict(module.__dict__), {name: dict(module.__dict__[name]) for name in _CONTAINERS})
        for module in model.modules()
    ]
    try:
        yield
    finally:
        for module, plain, containers in before:
            module.__dict__.clear()
            module.__dict__.update(plain)
            for name, content in containers.items():
                module.__dict__[name].clear()
                module.__dict__[name].update(content)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Give back buffers, gradients, attributes and random generators, whatever the block does or raises.

    Inside, gradients are empty. Parameters are not copied: do not step an optimizer inside.
    """
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    values = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with preserve_rng(), untouched(model):
            for parameter, _ in grads:
                parameter.grad = None
            yield
    finally:
        with torch.no_grad():
            for buffer, value in values:
                buffer.copy_(value)
        for parameter, grad in grads:
            parameter.grad = grad


def norms(modules: Iterable[nn.Module]) -> tuple[_NormBase, ...]:
    """The layers that update running statistics in training: batch and instance norm."""
    return tuple(
        m
        for m in modules
        if isinstance(m, _NormBase) and m.track_running_stats and m.running_mean is not None
    )


class SpareStatistics:
    """Somewhere to write for layers that must leave their running statistics alone.

    In training those are only written. Not ``track_running_stats=False``, under which other tensors would be saved.
    """

    def __init__(self, layers: tuple[_NormBase, ...]) -> None:
        self.layers = layers
        self._spare: list[dict[str, Any]] = [{} for _ in layers]

    def prepare(self) -> None:
        """Make the spare buffers, outside of any pass: selective checkpoints count operators."""
        for layer, spare in zip(self.layers, self._spare, strict=True):
            for name, buffer in layer._buffers.items():
                if buffer is not None and (
                    name not in spare or spare[name].device != buffer.device
                ):
                    spare[name] = torch.zeros_like(buffer)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Within the block, layers in training write to the spare buffers."""
        before = [(layer, dict(layer._buffers)) for layer in self.layers]
        try:
            for layer, spare in zip(self.layers, self._spare, strict=True):
                if layer.training:  # in evaluation they are read
                    layer._buffers.update(spare)
            yield
        finally:
            for layer, buffers in before:
                layer._buffers.update(buffers)


@contextmanager
def frozen_statistics(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Normalise by the batch, as in training, but leave the running statistics of ``modules`` as they are."""
    spare = SpareStatistics(norms(modules))
    spare.prepare()
    with spare.swapped_in():
        yield


Attributes = list[tuple[nn.Module, dict[str, Any]]]


def attributes(modules: Iterable[nn.Module]) -> Attributes:
    """The plain attributes of modules as they are now."""
    return [(module, dict(module.__dict__)) for module in modules]


def changes(before: Attributes) -> list[str]:
    """The attributes that modules have set since, as ``Module.attribute``."""
    return [
        f"{type(module).__name__}.{key}"
        for module, old in before
        for key, value in module.__dict__.items()
        if key not in _CONTAINERS and (key not in old or old[key] is not value)
    ]


def impure(where: str, changed: list[str]) -> str:
    """The message for them."""
    return f"{where} changes {changed[0]} in forward: computing it again would do so again"


def check_repeatable(
    name: str,
    run: Callable[[], Any],
    model: nn.Module,
    modules: tuple[nn.Module, ...],
    state: tuple[Any, ...],
) -> Any:
    """Run a block twice from the same state; its output. Raises ValueError if it did not do the same both times.

    Bitwise, except on CUDA without deterministic algorithms, where its kernels may add in any order.
    """
    layers = norms(modules)
    own_norms = {id(b) for layer in layers for b in layer.buffers()}
    versions = [tensor._version for tensor in tree_leaves(state) if torch.is_tensor(tensor)]
    buffers = [(n, b, b.clone()) for n, b in model.named_buffers() if id(b) not in own_norms]
    plain = attributes(modules)
    begin = rng_state()
    with frozen_statistics(modules):
        first = run()
        if versions != [
            tensor._version for tensor in tree_leaves(state) if torch.is_tensor(tensor)
        ]:
            raise ValueError(
                f"block {name} overwrites its input in place, which a checkpoint could not compute from again: use "
                "inplace=False, or let the block before do it"
            )
        set_rng_state(begin)
        second = run()
    for label, buffer, value in buffers:
        if not same(buffer, value):
            raise ValueError(
                f"block {name} changes the buffer {label} in forward: computing it again would do so again"
            )
    if changed := changes(plain):
        raise ValueError(impure(f"block {name}", changed))
    for one, two in zip(tree_leaves(first), tree_leaves(second), strict=True):
        if torch.is_tensor(one) and not same(one, two):
            raise ValueError(
                f"block {name} does not compute the same twice from the same input and random state: it cannot be "
                "checkpointed; look for randomness outside torch, NumPy and Python's random, or for "
                "non-deterministic operators"
            )
    return second


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are equal bit by bit; on CUDA without deterministic algorithms, up to the order of sums."""
    if one.is_meta:
        return one.shape == two.shape
    if one.is_cuda and one.is_floating_point() and not torch.are_deterministic_algorithms_enabled():
        return torch.allclose(one, two, rtol=1e-2, atol=1e-3, equal_nan=True)
    return one.shape == two.shape and bool(
        torch.equal(one.nan_to_num(), two.nan_to_num())
        if one.is_floating_point()
        else torch.equal(one, two)
    )
