"""How much memory a block of code needs: the peak of its live tensors, and what autograd keeps for
backward.

One question on every device: the older tensors that the block works with, and what it adds at most.
Which older tensors it uses is seen by the dispatcher. What it adds is counted tensor by tensor, and
on CUDA by torch's allocator, which knows work space and rounding as well. All else that a notebook
holds on the device is left out: two steps can be held against each other however full the card is.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _pop_mode,
    _push_mode,
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_leaves

from labkit.device import pick_device, release_memory
from labkit.restore.attributes import patched
from labkit.text import format_bytes

_LIFTS = {
    torch.ops.aten.lift_fresh.default,
    torch.ops.aten.lift_fresh_copy.default,
    torch.ops.aten.lift.default,
}
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
}


class StorageTracker(TorchDispatchMode):
    """Exact bytes of the live storages on one device, from what torch's dispatcher sees in one
    ``with`` block.

    ``existing``: storages older than the block, if an operator uses them, or the parameter whose
    gradient they are. ``current``: bytes alive at the last operator. ``peak``: ``existing`` plus
    the most that the block ever added, backward pass and recomputation included. Views share one
    storage, which counts once and in full. Memory made outside torch (``from_numpy``) counts as
    existing, fake tensors as nothing. Not seen: work space in an operator, tensors that compiled
    code makes and hands to no operator, rounding by the allocator, a storage resized by hand until
    an operator uses it, and other threads.
    """

    supports_higher_order_operators = True
    # Else compiled code would step aside for the eager one.
    ignore_compile_internals = classmethod(lambda cls: True)

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.device = _resolve(device)
        self.existing = self.current = self.peak = self._added = self._most_added = 0
        # Backward passes on CUDA run in threads of their own.
        self._lock = threading.Lock()
        self._over = False
        self._alive: dict[int, tuple[weakref.finalize, int]] = {}
        # Notes of storages that died, which may be anywhere, also under the lock.
        self._freed: deque[int] = deque()

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self.record()
        self._over = True
        for end, _ in self._alive.values():
            # What dies from now on is not ours to count.
            end.detach()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # A wrapper: it unpacks itself, then its plain tensors come by here.
            return NotImplemented
        if self._over:
            # A thread that outlives the block.
            return func(*args, **(kwargs or {}))
        inputs = _tensors((args, kwargs))
        # Inputs that were not made in the block are older, except what `torch.tensor` just made
        # behind the dispatcher's back. So are the gradients of parameters, which `zero_grad` frees
        # without any operator.
        grads = [leaf.grad for leaf in inputs if leaf.is_leaf and leaf.requires_grad]
        self.record(old=None if func in _LIFTS else [*inputs, *grads])
        result = func(*args, **(kwargs or {}))
        # The inputs again, where they are written to: resize_ and set_ change their storage.
        schema = getattr(func, "_schema", None)
        written = inputs if schema is None or schema.is_mutable else ()
        self.record(new=[*written, result])
        return result

    def restart(self) -> None:
        """Let ``peak`` begin anew from what is alive now."""
        self.record()
        with self._lock:
            self._most_added = self._added
            self.peak = self.current

    def record(self, old: Any = None, new: Any = None) -> None:
        """Bring the figures up to date, with tensors that an operator uses (``old``) or has just
        made (``new``).
        """
        # Before the notes are read: an identity may be used again.
        storages = _storages(old or new, self.device)
        with self._lock:
            while self._freed:
                self._added -= self._alive.pop(self._freed.popleft())[1]
            for storage in storages:
                # torch keeps one Python object per storage as long as the storage lives, also while
                # only C++ (autograd) uses it: its identity names the storage, and it dies when the
                # memory is freed.
                key, size = id(storage), storage.nbytes()
                end, known = self._alive.get(key) or (
                    weakref.finalize(storage, self._freed.append, key),
                    None,
                )
                if known is None and old is not None:
                    self.existing += size
                else:
                    self._added += size - (known or 0)
                self._alive[key] = end, size
            self._most_added = max(self._most_added, self._added)
            self.current, self.peak = self.existing + self._added, self.existing + self._most_added


class _Figures(NamedTuple):
    """Bytes, as a meter tells them."""

    peak: int = 0
    current: int = 0
    reserved: int | None = None
    saved: int | None = None


class MemoryMeter:
    """Bytes that a block of code needs: ``with MemoryMeter() as memory: step()``. Can be read
    inside the block too.

    ``peak``, ``current``: older tensors that the block uses, and what it added; ``reserved``: the
    most that torch took from the driver for it (None except on CUDA); ``saved_for_backward``: the
    most that autograd held at one time, see `saved_bytes` (None with ``saved=False``).

    On CUDA what was added is the allocator's figure beyond that on entry, work space of operators
    and rounding included, for all that happens on the device meanwhile; elsewhere a
    `StorageTracker` counts live tensors alone. On CUDA entering collects garbage, empties torch's
    cache and resets its peak statistics. Older tensors that nothing but compiled code or the replay
    of a CUDA graph uses are not seen, nor what a replay needs besides.

    Threads that the block starts are counted, but not what they save for backward. Elsewhere than
    on CUDA, tensors that a thread makes which ran before the block are not.

    Counting what is saved replaces ``saved_tensors_hooks`` set further out, stops autograd's check
    for in-place changes, is refused by ``torch.func`` and may compile code anew: ``saved=False``
    leaves it out.

    ``device`` is that of `pick_device` by default; ValueError for CUDA where there is none.
    RuntimeError for a meter that is entered in its own block.

    >>> with MemoryMeter("cpu") as memory:
    ...     one = torch.ones(250)
    ...     other = one * 2
    ...     del one
    >>> memory.peak, memory.current
    (2000, 1000)
    """

    _open: ClassVar[list[MemoryMeter]] = []

    def __init__(self, device: torch.device | str | None = None, *, saved: bool = True) -> None:
        self.device, self._count_saved = _resolve(device), saved
        self._figures = _Figures()
        self._saved: _SavedForBackward | None = None
        self._allocator: _Allocator | None = None

    def __enter__(self) -> MemoryMeter:
        if self in self._open:
            raise RuntimeError(
                "this MemoryMeter is in use: a block inside its block needs a meter of its own"
            )
        for meter in self._open:
            # A CUDA device has one peak, which an inner block is about to reset.
            meter._read()
        self._figures = _Figures()
        self._saved, self._allocator = None, None
        if self.device.type == "cuda":
            self._allocator = _Allocator(self.device)
        with ExitStack() as stack:
            self._tracker = stack.enter_context(StorageTracker(self.device))
            stack.enter_context(_in_started_threads(self._tracker))
            if self._count_saved:
                self._saved = _SavedForBackward(self.device)
                stack.enter_context(self._saved)
            self._open.append(self)
            self._entered = stack.pop_all()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._read()
        self._open.remove(self)
        self._entered.__exit__(*exc_info)

    def _read(self) -> _Figures:
        """The figures now; after the block, those at its end."""
        if self not in self._open:
            return self._figures
        saved = None
        if self._saved is not None:
            saved = self._saved.peak
        self._tracker.record()
        self._figures = _Figures(self._tracker.peak, self._tracker.current, None, saved)
        if self._allocator is not None:
            self._allocator.read()
            used = self._tracker.existing
            peak = used + self._allocator.most_added
            # Older tensors that the block does not use may have died meanwhile.
            current = max(0, used + self._allocator.added)
            reserved = max(peak, used + self._allocator.most_reserved)
            self._figures = _Figures(peak, current, reserved, saved)
        return self._figures

    def __repr__(self) -> str:
        figures = [f"peak {format_bytes(self.peak)}", f"current {format_bytes(self.current)}"]
        if self.reserved is not None:
            figures.append(f"reserved {format_bytes(self.reserved)}")
        if self.saved_for_backward is not None:
            figures.append(f"saved for backward {format_bytes(self.saved_for_backward)}")
        return f"MemoryMeter on {self.device}: {', '.join(figures)}"

    @property
    def peak(self) -> int:
        """The most bytes at any time in the block."""
        return self._read().peak

    @property
    def current(self) -> int:
        """Bytes now, or at the end of the block."""
        return self._read().current

    @property
    def reserved(self) -> int | None:
        """The most bytes that torch took from CUDA's driver for the block, at least ``peak``."""
        return self._read().reserved

    @property
    def saved_for_backward(self) -> int | None:
        """The most bytes that autograd held for backward at one time."""
        return self._read().saved


def _in_started_threads(mode: TorchDispatchMode) -> AbstractContextManager[None]:
    """Python threads that start inside run in ``mode``, to their own end: torch keeps its stack of
    modes for each thread.
    """
    start = threading.Thread.start

    def start_watched(thread: threading.Thread) -> None:
        run = thread.run

        def run_watched() -> None:
            # Else the thread and this function would keep each other alive.
            vars(thread).pop("run", None)
            # Not `with mode`: that keeps flags of the process, which other threads need.
            _push_mode(mode)
            try:
                run()
            finally:
                _pop_mode()

        thread.run = run_watched  # type: ignore[method-assign]
        start(thread)

    return patched(threading.Thread, "start", start_watched)


class _Allocator:
    """What torch's allocator for CUDA holds beyond what it held when this was made."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Else memory held in reserve would hide what the block needs of the driver.
        release_memory()
        torch.cuda.reset_peak_memory_stats(device)
        self._allocated = torch.cuda.memory_allocated(device)
        self._reserved = torch.cuda.memory_reserved(device)
        self.added = self.most_added = self.most_reserved = 0

    def read(self) -> None:
        """Take in the device's figures, before someone else resets its peak."""
        self.added = torch.cuda.memory_allocated(self.device) - self._allocated
        peak = torch.cuda.max_memory_allocated(self.device) - self._allocated
        reserved = torch.cuda.max_memory_reserved(self.device) - self._reserved
        self.most_added = max(self.most_added, peak)
        self.most_reserved = max(self.most_reserved, reserved)


def saved_bytes(fn: Callable[[], Any]) -> int:
    """Run ``fn()`` once: the most bytes that autograd held for backward at one time, on all
    devices; each storage once and in full, but not leaves that require a gradient (parameters),
    which live anyway.
    """
    with (saved := _SavedForBackward(None)):
        fn()
    return saved.peak


class _SavedForBackward(saved_tensors_hooks):
    """Hands autograd each tensor in a holder, whose end tells that the tensor is no longer held."""

    def __init__(self, device: torch.device | None) -> None:
        super().__init__(self._hold, lambda holder: holder())
        self.device, self.peak, self._bytes = device, 0, 0
        # Identity of a storage, kept alive by its holders -> their number.
        self._holders: Counter[int] = Counter()
        self._released: deque[tuple[int, int]] = deque()

    def _hold(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        # A linear layer saves a view of its weight.
        base = tensor if tensor._base is None else tensor._base
        parameter = base.is_leaf and base.requires_grad
        held = [(id(s), s.nbytes()) for s in _storages(tensor, self.device) if not parameter]
        while self._released:
            key, size = self._released.popleft()
            self._holders[key] -= 1
            self._bytes -= 0 if self._holders[key] else size
        for key, size in held:
            self._bytes += 0 if self._holders[key] else size
            self._holders[key] += 1
        self.peak = max(self.peak, self._bytes)

        # Not itself: a node that holds its own output would never die without a backward.
        saved = tensor.detach()

        def holder() -> torch.Tensor:
            return saved

        # Only a note: it may come anywhere.
        weakref.finalize(holder, self._released.extend, held)
        return holder


def _storages(tree: Any, device: torch.device | None) -> list[torch.UntypedStorage]:
    """The storages of all tensors in nested containers on ``device`` (None: any); opaque layouts
    (oneDNN) show none.
    """
    found: list[torch.UntypedStorage] = []
    # No function mode, whoever set it, shall take these looks for calls of the reader's code.
    with torch._C.DisableTorchFunction():
        for leaf in _tensors(tree):
            found += _storages_of(leaf, device)
    return found


def _tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors in nested containers, in the order of `tree_leaves`."""
    if torch.is_tensor(tree):
        return [tree]
    kind = type(tree)
    if kind in (list, tuple):
        # Nearly all that operators are given: a tenth of the time of torch's own walk.
        found: list[torch.Tensor] = []
        for each in tree:
            if isinstance(each, torch.Tensor):
                found.append(each)
            elif each is not None:
                found += _tensors(each)
        return found
    if kind is dict:
        return _tensors(list(tree.values()))
    if tree is None or kind in (int, float, bool):
        return []
    return list(filter(torch.is_tensor, tree_leaves(tree)))


def _storages_of(leaf: torch.Tensor, device: torch.device | None) -> list[torch.UntypedStorage]:
    if is_traceable_wrapper_subclass(leaf):
        names = leaf.__tensor_flatten__()[0]
        return _storages([getattr(leaf, name) for name in names], device)
    if leaf.layout in _PARTS:
        return _storages([getattr(leaf, name)() for name in _PARTS[leaf.layout]], device)
    if leaf.layout is not torch.strided:
        return []
    storage = leaf.untyped_storage()
    if device is None:
        return [storage]
    # Fake tensors name a device and have no memory there.
    fake = storage.device.type == "meta" != device.type
    if fake or leaf.device != device:
        return []
    return [storage]


def _resolve(device: torch.device | str | None) -> torch.device:
    wanted = torch.device(pick_device() if device is None else device)
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r}: torch finds no CUDA device on this machine, use 'cpu'"
        )
    # As tensors name it: 'cuda' becomes 'cuda:0'.
    return torch.empty(0, device=wanted).device
