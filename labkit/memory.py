"""How much memory a block of code needs: the peak of its live tensors, and what autograd keeps for the backward pass."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from labkit.device import pick_device

_LIFTS = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift.default}
_PARTS = {torch.sparse_coo: ("_indices", "_values"), torch.sparse_csr: ("crow_indices", "col_indices", "values")}


class StorageTracker(TorchDispatchMode):
    """Exact bytes of the live storages on one device, from what torch's dispatcher sees inside a ``with`` block.

    ``existing``: storages older than the block, if an operator in it uses them or the parameter whose gradient they are.
    ``current``: bytes alive now. ``peak``: ``existing`` plus the most that the block ever added, backward pass and
    recomputation included. Views share one storage, which counts once and in full.

    Not seen: work space inside one operator, memory that compiled code allocates, and a storage resized by hand until an
    operator uses it again. Memory made outside torch (``from_numpy``, worker processes) counts as existing. Sizes are not
    rounded to the allocator's blocks (512 bytes on CUDA). Fake and meta tensors take no memory and count nothing.
    """

    supports_higher_order_operators = True
    reserved = None  # that is a matter of caching allocators

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.device = _resolve(device)
        self._lock = threading.Lock()  # backward passes on CUDA run in threads of their own
        self._reset()

    def _reset(self) -> None:
        self.existing = self._added = self._most_added = 0
        self._alive: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._freed: deque[int] = deque()

    def __enter__(self) -> StorageTracker:
        self._reset()
        super().__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self._record()
        self._alive.clear()  # drops the weak references: what dies from now on is not ours to count

    @property
    def peak(self) -> int:
        return self.existing + self._most_added

    @property
    def current(self) -> int:
        self._record()
        return self.existing + self._added

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper: it unpacks itself, then its plain tensors come by here
        kwargs = kwargs or {}
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # Inputs that were not made in the block are older, except what `torch.tensor` just made behind the dispatcher's
        # back. So are the gradients of parameters, which `zero_grad` frees without any operator.
        grads = [leaf.grad for leaf in inputs if leaf.is_leaf and leaf.requires_grad]
        self._record(old=None if func in _LIFTS else [inputs, grads])
        result = func(*args, **kwargs)
        self._record(new=[inputs, result])  # the inputs again: resize_ and set_ change their storage
        return result

    def _record(self, old: Any = None, new: Any = None) -> None:
        with self._lock:
            while self._freed:
                self._added -= self._freed.popleft()
            for storage in _storages((old, new), self.device):
                # torch keeps one Python object per storage as long as the storage lives, also while only C++ (autograd)
                # uses it: its identity names the storage, and its weak reference dies when the memory is freed.
                key, size = id(storage), storage.nbytes()
                reference, known = self._alive.get(key) or (weakref.ref(storage, partial(self._free, key)), None)
                if known is None and old is not None:
                    self.existing += size
                else:
                    self._added += size - (known or 0)
                self._alive[key] = reference, size
            self._most_added = max(self._most_added, self._added)

    def _free(self, key: int, _: Any) -> None:
        _, size = self._alive.pop(key, (None, 0))
        self._freed.append(size)  # only a note: this may run anywhere, also while the lock is held


class MemoryMeter:
    """Memory that a block needs: ``with MemoryMeter() as memory: step()``. All in bytes; may be read inside the block.

    ``peak``, ``current``: bytes of live tensors; ``reserved``: the most that torch took from the driver (None off CUDA);
    ``saved_for_backward``: the most that autograd held at one time, see `saved_bytes` (None with ``saved=False``).

    On CUDA these are the allocator's figures for the whole device, and entering resets torch's global peak statistics.
    Elsewhere a `StorageTracker` counts what the block uses. Counting what is saved replaces ``saved_tensors_hooks`` that
    are set further out, disables autograd's check for in-place changes of saved tensors, is refused by ``torch.func`` and
    makes compiled code compile anew: pass ``saved=False`` there. Never time a step inside a meter.
    """

    def __init__(self, device: torch.device | str | None = None, *, saved: bool = True) -> None:
        self.device = _resolve(device)
        self._source = _CudaAllocator(self.device) if self.device.type == "cuda" else StorageTracker(self.device)
        self._saved = _SavedForBackward(self.device) if saved else None
        self._exit: ExitStack | None = None

    def __enter__(self) -> MemoryMeter:
        if self._exit is not None:
            raise RuntimeError("this MemoryMeter is in use: a block inside its block needs a meter of its own")
        with ExitStack() as stack:
            stack.enter_context(self._source)
            if self._saved is not None:
                self._saved = _SavedForBackward(self.device)
                stack.enter_context(self._saved)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        stack, self._exit = self._exit, None
        assert stack is not None
        stack.__exit__(*exc_info)

    peak: int = property(lambda self: self._source.peak)  # type: ignore[assignment]
    current: int = property(lambda self: self._source.current)  # type: ignore[assignment]
    reserved: int | None = property(lambda self: self._source.reserved)  # type: ignore[assignment]
    saved_for_backward: int | None = property(lambda self: self._saved and self._saved.peak)  # type: ignore[assignment]


def saved_bytes(fn: Callable[[], Any]) -> int:
    """Run ``fn()`` once: the most bytes that autograd held for backward at one time, on all devices.

    Distinct storages count once and in full; leaves that require a gradient (parameters) do not: they live anyway.
    """
    with (saved := _SavedForBackward(None)):
        fn()
    return saved.peak


class _SavedForBackward(saved_tensors_hooks):
    """Hands autograd each tensor in a wrapper, whose end tells that the tensor is no longer held."""

    def __init__(self, device: torch.device | None) -> None:
        super().__init__(partial(_Held, self), lambda held: held.tensor)
        self.device, self.peak, self.bytes = device, 0, 0
        self.holders: Counter[int] = Counter()  # identity of a storage, which its holders keep alive -> their number
        self.released: deque[tuple[int, int]] = deque()

    def hold(self, tensor: torch.Tensor) -> list[tuple[int, int]]:
        base = tensor if tensor._base is None else tensor._base  # a linear layer saves a view of its weight
        held = [(id(storage), storage.nbytes()) for storage in _storages(tensor, self.device)]
        if base.is_leaf and base.requires_grad:
            held = []
        while self.released:
            key, size = self.released.popleft()
            self.holders[key] -= 1
            self.bytes -= 0 if self.holders[key] else size
        for key, size in held:
            self.bytes += 0 if self.holders[key] else size
            self.holders[key] += 1
        self.peak = max(self.peak, self.bytes)
        return held


class _Held:
    def __init__(self, counter: _SavedForBackward, tensor: torch.Tensor) -> None:
        self.counter, self.tensor, self.keys = counter, tensor, counter.hold(tensor)

    def __del__(self) -> None:
        self.counter.released.extend(self.keys)  # only a note: this may run anywhere


class _CudaAllocator:
    """Figures of torch's CUDA allocator over a block. The device has one peak: an inner block's reset would lose the
    outer block's, which therefore reads it first."""

    _open: ClassVar[list[_CudaAllocator]] = []

    def __init__(self, device: torch.device) -> None:
        self.device, self._figures = device, (0, 0, 0)

    def __enter__(self) -> None:
        for block in self._open:
            block._read()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._figures = (0, 0, 0)
        self._open.append(self)

    def __exit__(self, *exc_info: Any) -> None:
        self._read()
        self._open.remove(self)

    def _read(self) -> tuple[int, int, int]:
        if self in self._open:
            peak, reserved = torch.cuda.max_memory_allocated(self.device), torch.cuda.max_memory_reserved(self.device)
            self._figures = (
                max(peak, self._figures[0]),
                max(reserved, self._figures[1]),
                torch.cuda.memory_allocated(self.device),
            )
        return self._figures

    peak = property(lambda self: self._read()[0])
    reserved = property(lambda self: self._read()[1])
    current = property(lambda self: self._read()[2])


def _storages(tree: Any, device: torch.device | None) -> Iterator[torch.UntypedStorage]:
    """The storages on ``device`` (None: any) of all tensors in nested containers; of wrappers and sparse ones, their parts.

    Tensors of other layouts (oneDNN's own) keep their memory to themselves.
    """
    for leaf in tree_leaves(tree):
        if not isinstance(leaf, torch.Tensor):
            continue
        if is_traceable_wrapper_subclass(leaf):
            yield from _storages([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]], device)
        elif leaf.layout in _PARTS:
            yield from _storages([getattr(leaf, name)() for name in _PARTS[leaf.layout]], device)
        elif leaf.layout is torch.strided:
            storage = leaf.untyped_storage()
            if device is None or (storage.device.type == device.type and device.index in (None, storage.device.index)):
                yield storage


def _resolve(device: torch.device | str | None) -> torch.device:
    try:
        found = pick_device() if device is None else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device={device!r} is no device of torch: use 'cpu', 'cuda' or 'cuda:1'") from error
    if found.type != "cuda":
        return torch.device(found.type)  # storages on the CPU carry no index
    if not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: torch finds no CUDA device on this machine")
    torch.cuda.init()
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())
