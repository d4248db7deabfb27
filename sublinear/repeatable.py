"""What a model must not do if parts of it are to run twice, and how to try parts without a trace.

Running statistics are kept once: a block that runs again writes to spare buffers, which are swapped
in for that pass. Not ``track_running_stats=False``, under which other tensors would be saved.
"""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from labkit.restore.contents import CONTAINERS, as_before, contents
from labkit.restore.generators import rng_state, set_rng_state
from sublinear.equal import same

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = ("_parameters", "_buffers", "_modules")
_WRAPPERS = {
    "CheckpointWrapper": "it checkpoints already: unwrap it, the plan decides what is checkpointed",
    "OptimizedModule": "it is compiled: plan the model first, then compile what apply() returns",
    "DistributedDataParallel": "plan the module inside, then wrap what apply() returns",
    "DataParallel": "plan the module inside, then wrap what apply() returns",
}


def refuse(model: nn.Module, *, captured: bool = False) -> None:
    """Raise ValueError, by name, for what a planned model could not keep doing as before.

    ``captured``: torch's compiler is to read it, and with it what forward hooks do. Those that
    come before a forward may be a sharded model's.
    """
    if model._compiled_call_impl is not None:
        raise ValueError(
            "the model itself is compiled in place (model.compile()), which would go on to run "
            "without the plan: plan it first, then compile what apply() returns"
        )
    if "forward" in vars(model):
        raise ValueError(
            "the model itself has a forward of its own, set on the object and not on its class, "
            "which would go on to run without the plan: plan it before that is set"
        )
    for name, module in model.named_modules():
        here = name or "the model itself"
        if hasattr(type(module), "runs_by"):
            raise ValueError(
                f"{here}: a plan is applied to it already: plan the model that was given to apply()"
            )
        kind = type(module).__name__
        if kind in _WRAPPERS:
            raise ValueError(f"{here} is a {kind}: {_WRAPPERS[kind]}")
        if any(map(is_lazy, [*module._parameters.values(), *module._buffers.values()])):
            raise ValueError(
                f"{here} has parameters without a shape yet: run the model once on an example"
            )
        if found := hooks(module, _HOOKS[1:] if captured else _HOOKS):
            raise ValueError(
                f"{here} has {found}, which would run again whenever a block is computed again: "
                "remove them, or call that code from forward"
            )


def hooks(module: nn.Module, kinds: Sequence[str] = _HOOKS) -> str:
    """Which of these kinds of hooks a module has, in words."""
    found = [kind.strip("_") for kind in kinds if getattr(module, kind, None)]
    return " and ".join(found).replace("_", " ")


# ------------------------------------------------------------------------------ running statistics


def norms(modules: Iterable[nn.Module]) -> tuple[_NormBase, ...]:
    """The layers that update running statistics in training: batch and instance norm."""
    layers = (module for module in modules if isinstance(module, _NormBase))
    return tuple(
        layer for layer in layers if layer.track_running_stats and layer.running_mean is not None
    )


class SpareStatistics:
    """Somewhere to write for layers that must leave their running statistics alone.

    In training those are only written, so that they begin as what no layer can compute with. Layers
    share none: autograd notes what a layer was given.
    """

    def __init__(self, layers: tuple[_NormBase, ...]) -> None:
        self.layers = layers
        self._spare: list[dict[str, torch.Tensor]] = [{} for _ in layers]

    def prepare(self) -> None:
        """Make the spare buffers, outside of any pass: selective checkpoints count operators."""
        for layer, spare in zip(self.layers, self._spare, strict=True):
            for name, buffer in layer._buffers.items():
                if buffer is None:
                    continue
                if name not in spare or spare[name].device != buffer.device:
                    # nan spreads to all that is computed from it; a count of 1 is one to `reset`.
                    value = math.nan if buffer.is_floating_point() else 1
                    spare[name] = torch.full_like(buffer, value)

    def reset(self) -> None:
        """Let all spare buffers be 0: a layer that reads them computes something else."""
        for spare in self._spare:
            for buffer in spare.values():
                buffer.zero_()

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Within the block, layers in training write to the spare buffers."""
        before = [(layer, dict(layer._buffers)) for layer in self.layers]
        try:
            for layer, spare in zip(self.layers, self._spare, strict=True):
                # In evaluation they are read.
                if layer.training:
                    layer._buffers.update(spare)
            yield
        finally:
            for layer, buffers in before:
                layer._buffers.update(buffers)


@contextmanager
def frozen_statistics(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Normalise by the batch, as in training, but leave the running statistics as they are."""
    spare = SpareStatistics(norms(modules))
    spare.prepare()
    with spare.swapped_in():
        yield


def drawing_alike(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` for one checkpoint: each run again draws what the first one drew.

    From Python's and NumPy's generators, which are afterwards as they were before it. torch's
    checkpoints see to torch's own generators only. Where the first run drew nothing they are left
    alone, which is quicker.
    """
    begin: tuple[Any, bytes] | None = None
    drew = True

    def wrapped(*args: Any) -> Any:
        nonlocal begin, drew
        if not drew:
            return run(*args)
        now = _draws()
        if begin is None:
            begin = now
            result = run(*args)
            drew = _draws() != begin
            return result
        _set_draws(begin)
        try:
            return run(*args)
        finally:
            _set_draws(now)

    return wrapped


def _draws() -> tuple[Any, bytes]:
    """States of Python's and NumPy's generator; pickled, as arrays are not compared as a whole."""
    return random.getstate(), pickle.dumps(np.random.get_state())


def _set_draws(draws: tuple[Any, bytes]) -> None:
    random.setstate(draws[0])
    np.random.set_state(pickle.loads(draws[1]))


# ------------------------------------------------------------------------------- the same twice?


def check_repeatable(
    name: str,
    run: Callable[..., object],
    model: nn.Module,
    modules: tuple[nn.Module, ...],
    state: tuple[Any, ...],
) -> None:
    """Run a block without gradients twice. Raises ValueError if it did not do the same.

    Both begin from the same state. Bitwise, except on an accelerator without deterministic
    algorithms, where kernels may add in any order.
    """

    @torch.no_grad()
    def bare() -> object:
        return run(*state)

    before, held, others = versions(state), _state(model, modules), _others(model, modules)
    begin = rng_state()
    statistics = SpareStatistics(norms(modules))
    statistics.prepare()
    with statistics.swapped_in():
        first = bare()
        if versions(state) != before:
            raise ValueError(
                f"block {name} overwrites its input in place, which a checkpoint could not compute "
                "from again: use inplace=False, or let the block before do it"
            )
        set_rng_state(begin)
        statistics.reset()
        pairs = zip(tree_leaves(first), tree_leaves(bare()), strict=True)
        alike = all(same(one, two) for one, two in pairs if torch.is_tensor(one))
    changed = [key for key, count in _others(model, modules).items() if others[key] != count]
    for key, (value, _) in _state(model, modules).items():
        was, copy = held.get(key, (None, None))
        stays = value is was
        if torch.is_tensor(copy):
            stays = same(value, copy)
        elif copy is not None:
            stays = stays and as_before(value, copy)
        if not stays:
            changed.append(key[1])
    if changed:
        raise ValueError(
            f"block {name} changes {changed[0]} in forward: computing it again would do so again"
        )
    if not alike:
        raise ValueError(
            f"block {name} does not compute the same twice from the same input and random "
            "state: it cannot be checkpointed; look for randomness outside torch, NumPy and "
            "Python's random, for non-deterministic operators, or for a norm that reads its "
            "running statistics in training"
        )


def versions(state: object) -> list[int]:
    """How often each tensor was changed in place."""
    return [leaf._version for leaf in tree_leaves(state) if torch.is_tensor(leaf)]


def _others(model: nn.Module, modules: tuple[nn.Module, ...]) -> dict[str, int]:
    """How often each buffer of other modules was changed in place."""
    own = {id(buffer) for module in modules for buffer in module._buffers.values()}
    return {
        f"the buffer {name}": buffer._version
        for name, buffer in model.named_buffers()
        if id(buffer) not in own and not buffer.is_inference()
    }


def _state(
    model: nn.Module, modules: tuple[nn.Module, ...]
) -> dict[tuple[int, str], tuple[Any, Any]]:
    """Buffers but running statistics, and attributes, of ``modules``; of what may change a copy."""
    statistics = {id(buffer) for layer in norms(modules) for buffer in layer.buffers()}
    found: dict[tuple[int, str], tuple[Any, Any]] = {}
    own = {id(buffer) for module in modules for buffer in module._buffers.values()} - statistics
    for name, buffer in model.named_buffers() if own else ():
        if id(buffer) in own:
            found[-1, f"the buffer {name}"] = buffer, buffer.clone()
    for number, module in enumerate(modules):
        for name, value in vars(module).items():
            if name not in _CONTAINERS:
                copy = contents(value) if isinstance(value, CONTAINERS) else None
                found[number, f"{type(module).__name__}.{name}"] = value, copy
    return found
