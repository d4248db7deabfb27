"""What a ``torch.fx`` trace would lose without a word, noticed while it is made.

A trace holds operators and calls of modules, nothing else. Found out the hard way:

- ``with torch.no_grad():`` and ``with torch.autocast(...):`` leave no node, as decorators neither;
  nor does a checkpoint, a hook for saved tensors, or parameters that ``functional_call`` swaps.
- A custom ``autograd.Function`` runs its forward with proxies, so that the trace holds that, and
  autograd's own backward of it. A gradient reversal then has the other sign. `Tracer`s keep it as
  one node; only an ``apply`` that was looked up earlier (``reverse = Reverse.apply``) cannot be.
- What is computed from real tensors or drawn at random becomes a constant.
- ``isinstance(x, Tensor)`` is False of a proxy: code that asks takes the other branch.

Each of them raises `Lost` inside the trace, so that the module which does it is kept whole.
"""

from __future__ import annotations

import builtins
import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from labkit.restore.attributes import exchanged


class Lost(Exception):
    """What a trace would not keep, as an end of "the model's forward ..."."""


_GRAD_MODE = "switches gradients on or off"
_AUTOCAST = "uses autocast, or asks for it"
_GENERATORS = "sets, forks or makes a random generator"
_FUNCTION = "calls a custom autograd.Function by an apply that was looked up before"
_MODE = "uses a mode that intercepts torch's operators"

# Who holds the function, its name, and what calling it means. One that this torch does not have is
# left out; `tests/sublinear/test_noticing.py` tries each.
_NOTICED: tuple[tuple[object, str, str], ...] = (
    (torch._C, "_InferenceMode", _GRAD_MODE),
    (torch.autocast, "__enter__", _AUTOCAST),
    (torch, "is_autocast_enabled", _AUTOCAST),
    (torch, "is_autocast_cpu_enabled", _AUTOCAST),
    (torch, "get_autocast_dtype", _AUTOCAST),
    (torch, "get_autocast_cpu_dtype", _AUTOCAST),
    (torch, "get_autocast_gpu_dtype", _AUTOCAST),
    # What torch's own decorator calls, however the name was imported.
    (getattr(checkpoint, "__wrapped__", checkpoint), "__dynamo_disable", "checkpoints by itself"),
    (saved_tensors_hooks, "__enter__", "has hooks for saved tensors"),
    (TorchFunctionMode, "__enter__", _MODE),
    (TorchDispatchMode, "__enter__", _MODE),
    (DeviceContext, "__init__", "sets a default device"),
    (torch.nn.utils.stateless, "_reparametrize_module", "swaps parameters, as functional_call"),
    (torch, "get_rng_state", _GENERATORS),
    (torch, "set_rng_state", _GENERATORS),
    (torch, "manual_seed", _GENERATORS),
    (torch.random, "get_rng_state", _GENERATORS),
    (torch.random, "manual_seed", _GENERATORS),
    (random, "setstate", _GENERATORS),
    (np.random, "set_state", _GENERATORS),
    (np.random, "default_rng", _GENERATORS),
)

# Code of these may ask for the type of a proxy; torch.is_tensor, in torch itself, may not.
_MAY_ASK = ("torch.", "sublinear.blocks.")

# Operators on real tensors that change nothing: marks of the profiler.
_HARMLESS = {"profiler"}


@contextmanager
def noticing(keep_function: Callable[..., Any]) -> Iterator[list[str]]:
    """Raise `Lost` inside for what a trace loses. Gives what was noticed, also if it was caught.

    ``keep_function`` is called instead of ``SomeFunction.apply``, with the class in front. Other
    threads find all as ever.
    """
    noticed: list[str] = []
    thread = threading.get_ident()

    def lose(words: str) -> None:
        if threading.get_ident() != thread:
            return
        noticed.append(words)
        raise Lost(words)

    function = torch.autograd.Function
    plain = inspect.getattr_static(function, "apply")

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            return keep_function(cls, *args, **kwargs)
        return plain.__get__(None, cls)(*args, **kwargs)

    changes: list[tuple[Any, str, Any]] = []
    for owner, name, words in _NOTICED:
        if hasattr(owner, name) or name == "__dynamo_disable":
            # What has not been called yet has no such attribute: then torch calls the owner.
            changes.append((owner, name, _losing(lose, words, getattr(owner, name, owner))))
    changes += [
        (torch._C, "_set_grad_enabled", _same_grad_mode(lose)),
        (builtins, "isinstance", _careful(lose)),
        # A function that runs its forward here was called by an ``apply`` looked up before.
        (type(function), "__getattribute__", _without_forward(lose)),
        (function, "apply", classmethod(apply)),
    ]
    # No ExitStack: of its callbacks, an interrupt may leave some undone.
    with torch.enable_grad(), _RealTensors(lose), exchanged(changes):
        yield noticed


def _losing(lose: Callable[[str], None], words: str, original: Any) -> Callable[..., Any]:
    def lost(*args: Any, **kwargs: Any) -> Any:
        lose(words)
        return original(*args, **kwargs)

    return lost


def _same_grad_mode(lose: Callable[[str], None]) -> Callable[[bool], None]:
    original = torch._C._set_grad_enabled

    def set_grad_enabled(on: bool) -> None:
        if on != torch.is_grad_enabled():
            lose(_GRAD_MODE)
        original(on)

    return set_grad_enabled


def _without_forward(lose: Callable[[str], None]) -> Callable[[type, str], Any]:
    def __getattribute__(function: type, name: str) -> Any:
        if name == "forward":
            lose(_FUNCTION)
        return type.__getattribute__(function, name)

    return __getattribute__


def _careful(lose: Callable[[str], None]) -> Callable[[Any, Any], bool]:
    """``isinstance``, which notices when a model's code asks what a proxy is."""
    original = isinstance

    def careful(value: Any, kinds: Any) -> bool:
        found = original(value, kinds)
        if not found and issubclass(type(value), fx.Proxy):
            asker = sys._getframe(1).f_globals.get("__name__", "")
            if not asker.startswith(_MAY_ASK):
                lose("asks for the type of a value (isinstance, torch.is_tensor)")
        return found

    return careful


class _RealTensors(TorchDispatchMode):
    """Notices operators that really run: their results would be constants of the trace."""

    # Else the first operator would import torch._dynamo, in the middle of the trace.
    _should_skip_dynamo = classmethod(lambda cls: False)

    def __init__(self, lose: Callable[[str], None]) -> None:
        super().__init__()
        self.lose = lose

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace not in _HARMLESS:
            name = func.overloadpacket.__name__
            self.lose(f"computes or draws a constant ({name}), which the trace would freeze")
        return func(*args, **(kwargs or {}))


def draws() -> tuple[object, object]:
    """Where Python's and NumPy's generators are; torch's draw by operators."""
    name, keys, place, *_ = np.random.get_state()
    return random.getstate(), (name, place, np.asarray(keys).tobytes())
