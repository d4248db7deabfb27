"""What a model must not do if parts of it are to run twice, and how to try parts of it without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from labkit.device import preserve_rng, rng_state, set_rng_state

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
        if hasattr(type(module), "plan") and hasattr(type(module), "blocks"):
            raise ValueError(f"{here}: a plan is applied to it already: plan the model that was given to apply()")
        if reason := _WRAPPERS.get(type(module).__name__):
            raise ValueError(f"{here} is a {type(module).__name__}: {reason}")
        if hooks := [kind.strip("_").replace("_", " ") for kind in _HOOKS if getattr(module, kind, None)]:
            raise ValueError(
                f"{here} has {' and '.join(hooks)}, which would run again whenever a block is computed again: remove "
                "them, or call that code from forward"
            )
        if any(map(is_lazy, [*module._parameters.values(), *module._buffers.values()])):
            raise ValueError(f"{here} has parameters without a shape yet: run the model once on an example")


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


def norms(modules: Iterator[nn.Module]) -> tuple[_NormBase, ...]:
    """The layers that update running statistics in training: batch and instance norm."""
    return tuple(
        m for m in modules if isinstance(m, _NormBase) and m.track_running_stats and m.running_mean is not None
    )


@contextmanager
def frozen_statistics(layers: tuple[_NormBase, ...]) -> Iterator[None]:
    """Normalise by the batch, as in training, but leave running statistics and counters as they are.

    Batch norm at momentum 0 writes back what it reads. Instance norm averages copies of it, which rounds: it gets
    clones to write to. Not ``track_running_stats=False``, under which other tensors would be saved.
    """
    before = [(layer, layer.momentum, dict(layer._buffers)) for layer in layers]
    try:
        for layer in layers:
            layer.momentum, layer.num_batches_tracked = 0.0, None
            if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
                for name in ("running_mean", "running_var"):
                    layer._buffers[name] = layer.get_buffer(name).clone()
        yield
    finally:
        for layer, momentum, buffers in before:
            layer.momentum = momentum
            layer._buffers.update(buffers)


def check_repeatable(name: str, run: Callable[[], Any], modules: tuple[nn.Module, ...], state: tuple[Any, ...]) -> Any:
    """Run a block twice from the same state; its output. Raises ValueError if it did not do the same both times.

    Bitwise, except on CUDA without deterministic algorithms, where its kernels may add in any order.
    """
    layers = norms(iter(modules))
    own = [(n, b) for m in modules for n, b in m.named_buffers(recurse=False)]
    own_norms = {id(b) for layer in layers for b in layer.buffers()}
    versions = [tensor._version for tensor in tree_leaves(state) if torch.is_tensor(tensor)]
    buffers = [(n, b, b.clone()) for n, b in own if id(b) not in own_norms]
    plain = [(module, dict(module.__dict__)) for module in modules]
    begin = rng_state()
    with frozen_statistics(layers):
        first = run()
        if versions != [tensor._version for tensor in tree_leaves(state) if torch.is_tensor(tensor)]:
            raise ValueError(
                f"block {name} overwrites its input in place, which a checkpoint could not compute from again: use "
                "inplace=False, or let the block before do it"
            )
        set_rng_state(begin)
        second = run()
    for label, buffer, value in buffers:
        if not torch.equal(buffer, value):
            raise ValueError(
                f"block {name} changes its buffer {label} in forward: computing it again would do so again"
            )
    for module, attributes in plain:
        now = module.__dict__
        changed = [key for key in now if key not in attributes or now[key] is not attributes[key]]
        if changed := [key for key in changed if key not in ("momentum", *_CONTAINERS)]:
            raise ValueError(
                f"block {name} changes {type(module).__name__}.{changed[0]} in forward: computing it again would do so "
                "again"
            )
    for one, two in zip(tree_leaves(first), tree_leaves(second), strict=True):
        if torch.is_tensor(one) and not _same(one, two):
            raise ValueError(
                f"block {name} does not compute the same twice from the same input and random state: it cannot be "
                "checkpointed; look for randomness outside torch, NumPy and Python's random, or for "
                "non-deterministic operators"
            )
    return second


def _same(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.is_meta:
        return one.shape == two.shape
    if one.is_cuda and one.is_floating_point() and not torch.are_deterministic_algorithms_enabled():
        return torch.allclose(one, two, rtol=1e-2, atol=1e-3, equal_nan=True)
    return one.shape == two.shape and bool(
        torch.equal(one.nan_to_num(), two.nan_to_num()) if one.is_floating_point() else torch.equal(one, two)
    )
