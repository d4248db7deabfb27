"""Which storages are claimed to lie on a card, and how many bytes each card holds.

A tensor stays a CPU tensor; its storage is remembered with the index of the card that it claims.
Views and the Parameter that wraps a tensor share the storage, and so the claim.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

CPU = -1
# The caching allocator hands out multiples of this.
ROUNDING = 512
# What holds no tensor.
SIMPLE = (int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


@dataclass
class Card:
    """The memory of one rehearsed card, in bytes.

    ``peak`` can be reset, as torch's own; ``highest`` is that of the whole process.
    """

    total: int
    limit: int
    now: int = 0
    peak: int = 0
    highest: int = 0
    refused: int = 0

    def take(self, size: int) -> None:
        """Count an allocation. OutOfMemoryError, in CUDA's words, where it does not fit."""
        if self.now + size > self.limit:
            self.refused += 1
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total "
                "capacity of "
                f"{self.total / 2**30:.2f} GiB of which {(self.limit - self.now) / 2**20:.2f} MiB "
                "is free. (rehearsed)"
            )
        self.now += size
        self.peak = max(self.peak, self.now)
        self.highest = max(self.highest, self.now)


cards: list[Card] = []
_living: dict[int, weakref.ref[torch.UntypedStorage]] = {}
_lock = threading.RLock()


def tensors_of(tree: object) -> list[torch.Tensor]:
    """The tensors among the leaves of a tree, in their order; each operator asks for them."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if tree is None or isinstance(tree, SIMPLE):
        return []
    if type(tree) in (tuple, list):
        return [leaf for each in tree for leaf in tensors_of(each)]
    if type(tree) is dict:
        return [leaf for each in tree.values() for leaf in tensors_of(each)]
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The tensor's own storage; None for those that have none: sparse ones, wrappers,
    functorch's.
    """
    try:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def place_of(tensor: torch.Tensor) -> int | None:
    """The card that the tensor claims, `CPU`, or None where nothing was said yet."""
    storage = storage_of(tensor)
    return None if storage is None else getattr(storage, "place", None)


def on_card(tensor: torch.Tensor) -> bool:
    """Whether the tensor claims to lie on a card."""
    place = place_of(tensor)
    return place is not None and place != CPU


def put(tree: object, place: int, *, again: bool = False) -> None:
    """Claim all tensors of a tree that claim nothing yet; with ``again`` those, too,
    that lie elsewhere.
    """
    for leaf in tensors_of(tree):
        if not leaf.is_meta:
            storage = storage_of(leaf)
            if storage is not None:
                claim(storage, place, again)


def claim(storage: torch.UntypedStorage, place: int, again: bool = False) -> None:
    """As `put`, of one storage."""
    known = getattr(storage, "place", None)
    if known is not None and (known == place or not again):
        return
    if known not in (None, CPU):
        raise RuntimeError("a storage cannot move from a card: copy it (a fault of the rehearsal)")
    if place != CPU:
        size = -(-storage.nbytes() // ROUNDING) * ROUNDING
        with _lock:
            cards[place].take(size)
            _living[id(storage)] = weakref.ref(storage)
        weakref.finalize(storage, _free, id(storage), place, size).atexit = False
    # torch keeps a storage's Python object, and so its attributes, for as long as the storage
    # lives.
    storage.place = place  # type: ignore[attr-defined]


def copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The same bytes, which claim nothing yet."""
    return torch.UntypedStorage(storage.nbytes()).copy_(storage)


def _free(key: int, place: int, size: int) -> None:
    with _lock:
        _living.pop(key, None)
        cards[place].now -= size


def pin(tensor: torch.Tensor) -> None:
    """Remember the tensor's memory as page-locked."""
    storage = storage_of(tensor)
    assert storage is not None
    claim(storage, CPU)
    storage.pinned = True  # type: ignore[attr-defined]


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `pin` was told of this memory."""
    return getattr(storage_of(tensor), "pinned", False)


@contextlib.contextmanager
def as_out_of_memory(on_a_card: bool) -> Iterator[None]:
    """What the CPU's allocator cannot give, a card could not either."""
    try:
        yield
    except RuntimeError as error:
        if on_a_card and "DefaultCPUAllocator" in str(error):
            cards[0].refused += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. {error} (rehearsed)") from None
        raise


def living() -> list[torch.UntypedStorage]:
    """All storages on cards that are alive."""
    found = [reference() for reference in list(_living.values())]
    return [storage for storage in found if storage is not None]
