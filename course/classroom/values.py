"""What may pass from a student's process to the one that judges: values, never code.

Python's pickle may run anything where it is read, so only this way's opposite uses it: what the
judge sends is its own. What comes back is JSON: numbers, texts, lists, and tensors as bytes.
Anything else arrives as an `Other`, which equals nothing.

A function may also change what it was given. `parts` lists every object among its arguments that
can be changed, in the same order on both sides; `state` tells what became of one, and `change`
does the same to the judge's own.
"""

from __future__ import annotations

import base64
import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

KINDS = (
    Tensor,
    np.ndarray,
    list,
    nn.Module,
    torch.optim.Optimizer,
    torch.amp.GradScaler,
)
# of a subclass arrives the one of these that it is
COLLECTIONS: tuple[type[Any], ...] = (list, tuple, set, frozenset)
LIST_ITERATOR: Any = type(iter([]))
DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
Known = dict[int, int]


class Other:
    """A value of a type that does not pass."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


# ------------------------------------------------------------------------- from judge to student


class _Pickler(pickle.Pickler):
    """Sends a loss, too: as its value and the gradients that it gives, exact where it is linear."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.grad_fn is None:
            return NotImplemented
        leaves = _leaves(value.grad_fn)
        gradients = torch.autograd.grad(value, leaves, retain_graph=True)
        return _linear, (value.detach(), leaves, gradients)


def _leaves(node: Any) -> list[Tensor]:
    """The leaves of a graph, each once."""
    if hasattr(node, "variable"):
        return [node.variable]
    found: list[Tensor] = []
    for below, _ in node.next_functions:
        for leaf in _leaves(below) if below is not None else ():
            if not any(leaf is each for each in found):
                found.append(leaf)
    return found


def _linear(value: Tensor, leaves: list[Tensor], gradients: tuple[Tensor, ...]) -> Tensor:
    for leaf, gradient in zip(leaves, gradients, strict=True):
        value = value + ((leaf - leaf.detach()) * gradient).sum()
    return value


def send(arguments: tuple[Any, ...]) -> bytes:
    """Arguments of a call, with the gradients that a pickled tensor would lose."""
    tensors = [each for each in parts(arguments) if isinstance(each, Tensor)]
    gradients = [(each, each.grad) for each in tensors if each.is_leaf and each.grad is not None]
    file = io.BytesIO()
    _Pickler(file).dump((arguments, gradients))
    return file.getvalue()


def receive(data: bytes) -> tuple[Any, ...]:
    """What `send` made of the arguments."""
    arguments, gradients = pickle.loads(data)
    for tensor, gradient in gradients:
        tensor.grad = gradient
    return tuple(arguments)


# ------------------------------------------------------------------------- from student to judge


def encode(value: object, known: Known) -> Any:
    """A value for JSON; one of the arguments, or a part of one, by its number."""
    if id(value) in known:
        return {"part": known[id(value)]}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    for kind in COLLECTIONS:
        if isinstance(value, kind):
            return {kind.__name__: [encode(each, known) for each in value]}
    if isinstance(value, Tensor) and value.layout == torch.strided:
        return _tensor(value)
    return {"other": type(value).__name__[:80]}


def _tensor(value: Tensor) -> dict[str, Any]:
    whole = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    data = whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    text = base64.b64encode(data).decode()
    return {"tensor": str(value.dtype), "shape": list(value.shape), "data": text}


def decode(given: Any, known: list[Any]) -> Any:
    """The value of what `encode` made. ValueError for what it never makes."""
    if not isinstance(given, dict):
        if isinstance(given, list):
            raise ValueError("a bare list")
        return given
    if "part" in given:
        return known[given["part"]]
    for kind in COLLECTIONS:
        if kind.__name__ in given:
            return kind(decode(each, known) for each in given[kind.__name__])
    if "tensor" in given:
        dtype, data = DTYPES[given["tensor"]], bytearray(base64.b64decode(given["data"]))
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(given["shape"])
    return Other(str(given["other"]))


# ----------------------------------------------------------------------------- what was changed


def parts(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Every object that a function could change, each once: the same order in each process."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    if isinstance(value, LIST_ITERATOR):
        # a copy: going through the iterator would use it up
        yield from parts(tuple(copy.copy(value)), seen)
    elif isinstance(value, tuple):
        for each in value:
            yield from parts(each, seen)
    elif isinstance(value, KINDS):
        seen.add(id(value))
        yield value
        for each in _inside(value):
            yield from parts(each, seen)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, nn.Module):
        return [*value._parameters.values(), *value._buffers.values(), *value.children()]
    if isinstance(value, torch.optim.Optimizer):
        return [each for group in value.param_groups for each in group["params"]]
    return value if isinstance(value, list) else []


def _plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def state(part: Any, known: Known, gradient: Tensor | None) -> Any:
    """What a part is now; ``gradient`` is the one that it had before."""
    if isinstance(part, Tensor):
        if part.grad_fn is not None:
            return None
        grad = part.grad
        return {
            "value": _tensor(part),
            "grad": None if grad is None else _tensor(grad),
            "same": grad is gradient,
        }
    if isinstance(part, np.ndarray):
        # no exercise changes one: only that it is the same is told
        return None
    if isinstance(part, list):
        return [encode(each, known) for each in part]
    if isinstance(part, torch.amp.GradScaler):
        return part.state_dict()
    tensors = {}
    if isinstance(part, nn.Module):
        own = part._parameters | part._buffers
        tensors = {name: encode(each, known) for name, each in own.items()}
    plain = {
        name: encode(each, {})
        for name, each in vars(part).items()
        if not name.startswith("_") and _plain(each)
    }
    return {"tensors": tensors, "plain": plain}


@torch.no_grad()
def change(part: Any, told: Any, known: list[Any]) -> None:
    """Make the judge's own part what the student's has become."""
    if isinstance(part, Tensor):
        if part.grad_fn is None:
            _change_tensor(part, told)
    elif isinstance(part, np.ndarray):
        return
    elif isinstance(part, list):
        part[:] = [decode(each, known) for each in told]
    elif isinstance(part, torch.amp.GradScaler):
        part.load_state_dict({name: decode(told[name], []) for name in part.state_dict()})
    else:
        for name in {**vars(part).get("_parameters", {}), **vars(part).get("_buffers", {})}:
            tensor = decode(told["tensors"].get(name), known)
            if name in part._parameters and tensor is not None:
                tensor = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)
            setattr(part, name, tensor)
        for name, each in vars(part).copy().items():
            if name in told["plain"] and not name.startswith("_") and _plain(each):
                setattr(part, name, decode(told["plain"][name], []))


def _change_tensor(part: Tensor, told: dict[str, Any]) -> None:
    value = decode(told["value"], [])
    if value.shape == part.shape and value.dtype == part.dtype:
        part.copy_(value)
    else:
        part.data = value
    gradient = None if told["grad"] is None else decode(told["grad"], [])
    if told["same"] and part.grad is not None and gradient is not None:
        part.grad.copy_(gradient)
    else:
        part.grad = gradient
