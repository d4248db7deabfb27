"""Leave no trace: what a block draws, switches, writes or collects is put back, whatever it raises.

- `giving_back`: whatever else can be put back by a call, also where that is interrupted.
- `preserve_rng`: the random generators of Python, NumPy and torch.
- `preserve_flags`: torch's process-wide switches, with the number of threads.
- `preserve_state`: tensors, models, optimizers and what else holds a state.
- `without_collector`: no garbage collection inside a timed block.
- `frozen_heap`: collections inside look only at what the block itself made.
"""

from __future__ import annotations

import gc
import math
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from labkit.contents import CONTAINERS, keeping
from labkit.device import accelerator_in_use
from labkit.switches import set_torch_flags, torch_flags

PutBack = Callable[[], Any]

# By bytes. They compare bit by bit, also zeros of both signs and what is no number.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Sources of random numbers of one's own, beside the global ones.
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
# Kinds whose own attributes are not followed: `_parts` knows what they hold.
_PLAIN = (torch.Tensor, np.ndarray, *GENERATORS, *CONTAINERS, tuple)


def rng_state() -> dict[str, Any]:
    """The state of every generator that `labkit.seed_all` seeds, for `set_rng_state`.

    Those of the accelerator are under ``device``: None while it is unused.
    """
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "device": _device_states(),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    _set_device_states(state["device"])


def _device_states() -> list[torch.Tensor] | None:
    """The states of an accelerator's generators, one a device; None while it is unused."""
    kind = accelerator_in_use()
    if kind is None:
        return None
    module = torch.get_device_module(kind)
    if not hasattr(module, "get_rng_state_all"):
        # mps: there is one device.
        return [module.get_rng_state()]
    states: list[torch.Tensor] = module.get_rng_state_all()
    return states


def _set_device_states(states: list[torch.Tensor] | None) -> None:
    kind = accelerator_in_use()
    if kind is None:
        return
    module = torch.get_device_module(kind)
    if states is None:
        # It was first used since: seed it as it would have been without us.
        seed = getattr(module, "manual_seed_all", module.manual_seed)
        seed(torch.initial_seed())
    elif hasattr(module, "set_rng_state_all"):
        module.set_rng_state_all(states)
    else:
        module.set_rng_state(states[0])


@contextmanager
def giving_back(put_back: PutBack) -> Iterator[None]:
    """Call ``put_back()`` at the end of the block, whatever the block raises.

    An interrupt may strike while things are put back, as the second of two often does: then
    ``put_back`` is called again, so it must bear that, and nothing stays half restored.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        # Contexts that it has left open, such as torch's fork_rng, end before things are put back.
        traceback.clear_frames(interrupt.__traceback__)
        raise
    finally:
        try:
            put_back()
        except KeyboardInterrupt:
            put_back()
            raise


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Give back every random generator as it was."""
    with giving_back(partial(set_rng_state, rng_state())):
        yield


@contextmanager
def preserve_flags() -> Iterator[None]:
    """Give back torch's process-wide switches as they were."""
    with giving_back(partial(set_torch_flags, torch_flags())):
        yield


@contextmanager
def without_collector() -> Iterator[None]:
    """No automatic garbage collection inside.

    A collection in one block and not in its neighbour would be charged to the technique.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Python 3.12 itself freezes some hundred objects; a program that freezes has tens of thousands.
PYTHONS_OWN = 2_000
# Seconds. To search all of torch, IPython and matplotlib for garbage takes a quarter of one, half
# of a short run.
CLEAN_FOR = 5.0
_clean_until = -math.inf


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect once, then let collections inside skip all that exists now.

    What a notebook has dropped is freed first; of what it dropped within `CLEAN_FOR` seconds of the
    last time, only where an accelerator's memory is at stake. Without the freeze each release of a
    workload would search all of torch for garbage, which takes longer than a short run.
    """
    global _clean_until
    freeze = gc.get_freeze_count() < PYTHONS_OWN
    clean = freeze and time.monotonic() < _clean_until
    if not clean or accelerator_in_use() is not None:
        gc.collect()
    if freeze:
        gc.freeze()
    try:
        yield
    finally:
        if freeze:
            gc.unfreeze()
            _clean_until = time.monotonic() + CLEAN_FOR


@contextmanager
def preserve_state(*objects: Any) -> Iterator[None]:
    """Put ``objects`` back as they were, in place and bit for bit.

    Follows their attributes through containers, tensors, arrays, random generators, modules,
    optimizers and all that has a ``state_dict``. Other objects that they hold are out of reach:
    list them too. Costs one copy of every tensor, on its device, and of every array. TypeError for
    an object that holds no state.
    """
    with giving_back(partial(call_all, remember(objects))):
        yield


def call_all(undo: list[PutBack]) -> None:
    """Put back what `remember` has seen; once more does no harm.

    One that fails does not keep the others from it: the first error is raised after all of them.
    """
    errors: list[Exception] = []
    for put_back in undo:
        try:
            put_back()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def remember(objects: tuple[Any, ...], copies: str | None = None) -> list[PutBack]:
    """What puts back ``objects`` and all that they hold, as `preserve_state`, in this order.

    ``copies``: the device where copies of tensors wait; None: each on its own.
    """
    todo, undo = list(objects), list[PutBack]()
    listed = set(map(id, objects))
    # Keeps them alive, so that an id stays its object's own.
    seen: dict[int, Any] = {}
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        undo += _put_backs(item, copies)
        todo += _parts(item)
        if isinstance(item, _PLAIN):
            continue
        if id(item) in listed or _has_state(item):
            todo.append(_attributes(item))
    return undo


def _put_backs(item: Any, copies: str | None) -> list[PutBack]:
    """What puts back the item itself, without what it holds."""
    if isinstance(item, torch.Tensor):
        return [_remember_tensor(item, copies)]
    if isinstance(item, torch.Generator):
        return [partial(item.set_state, item.get_state())]
    if isinstance(item, np.random.RandomState):
        return [partial(item.set_state, item.get_state())]
    if isinstance(item, np.random.Generator):
        return [partial(setattr, item.bit_generator, "state", item.bit_generator.state)]
    if isinstance(item, random.Random):
        return [partial(item.setstate, item.getstate())]
    if isinstance(item, np.ndarray) and item.flags.writeable:
        return [partial(_rewrite, item, item.copy())]
    if isinstance(item, CONTAINERS):
        return [keeping(item)]
    return []


def _rewrite(array: np.ndarray, before: np.ndarray) -> None:
    """Only where bits differ: its memory may be a file's, or closed to writing by now."""
    if array.dtype == object:
        alike = all(one is two for one, two in zip(array.flat, before.flat, strict=True))
    else:
        alike = array.tobytes() == before.tobytes()
    if not alike:
        array[...] = before


def _parts(item: Any) -> list[Any]:
    """What the item holds, by its kind."""
    if isinstance(item, torch.Tensor) and item.is_leaf:
        return [item.grad]
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, (*CONTAINERS, tuple)):
        return list(item)
    if isinstance(item, np.ndarray) and item.dtype == object:
        return list(item.flat)
    return []


def _attributes(item: Any) -> dict[str, Any]:
    if not hasattr(item, "__dict__"):
        raise TypeError(f"cannot preserve {item!r}: it holds no state")
    return vars(item)


def _each_entry_once(tensor: torch.Tensor) -> torch.Tensor:
    """Of expanded dimensions the first entry: copy_ refuses to write the same memory twice."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor


def _has_state(item: Any) -> bool:
    return isinstance(item, torch.nn.Module) or hasattr(type(item), "state_dict")


def _remember_tensor(tensor: torch.Tensor, copies: str | None) -> PutBack:
    """Copy a tensor now; the returned function writes the copy back to the same memory."""
    # detach() refuses lazy parameters here, before the step makes them.
    data = tensor.detach().data
    grad, trained = None, tensor.requires_grad
    if tensor.is_leaf:
        grad = tensor.grad
    once = data
    if data.layout is torch.strided:
        once = _each_entry_once(data)
    # Of a tensor without data there is nothing to copy to another device.
    where = once.device if once.is_meta else copies or once.device
    value = once.to(where, copy=True)

    def put_back() -> None:
        if once.layout in _COMPRESSED and once._nnz() != value._nnz():
            # copy_ refuses another number of entries.
            once.resize_as_sparse_(value)
        if not _same_bits(once, value):
            once.copy_(value)
        # The step may have given it other memory, or another type.
        tensor.data = data
        if tensor.is_leaf:
            tensor.grad = grad
            tensor.requires_grad_(trained)

    return put_back


def _same_bits(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether they surely are; only on the CPU, whose memory may be a file's or a neighbour's."""
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    if not plain or tensor.device.type != "cpu" or copy.device != tensor.device:
        return False
    if tensor.is_complex():
        tensor, copy = torch.view_as_real(tensor), torch.view_as_real(copy)
    integer = _INTEGERS.get(tensor.element_size())
    if integer is None or tensor.is_quantized:
        return False
    return torch.equal(tensor.view(integer), copy.view(integer))
