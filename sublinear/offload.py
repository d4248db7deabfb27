"""What a checkpoint holds, sent to the CPU while the checkpoint does not run.

`torch.autograd.graph.save_on_cpu` would send everything, at once, and lose the layout. Here a
storage goes once the checkpoint has run, if nothing else holds it, and comes back as it was. Both
copies are queued where the blocks run, between page-locked memory and the device: the host does not
wait for them, the blocks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

# A storage, by identity.
Identity = int
Unpack = Callable[[], torch.Tensor]


def storages(tree: object) -> set[Identity]:
    """The storages of all tensors in nested containers."""
    found = set()
    for leaf in tree_leaves(tree):
        if torch.is_tensor(leaf) and leaf.layout is torch.strided:
            found.add(_identity(leaf))
    return found


def _identity(tensor: torch.Tensor) -> Identity:
    return tensor.untyped_storage()._cdata


class Parcels:
    """What one checkpoint holds: ``with parcels.packing():`` around it, and then `send`.

    ``stays``: storages that others hold, which are left where they are.
    """

    def __init__(self, state: object, stays: Iterable[Identity]) -> None:
        self._goes = storages(state).difference(stays)
        self._parcels: dict[tuple[Identity, torch.dtype], _Parcel] = {}

    def packing(self) -> saved_tensors_hooks:
        """Hooks for what torch saves directly inside, which of a checkpoint are its inputs."""
        return saved_tensors_hooks(self._pack, _unpack)

    def send(self, after: object) -> set[Identity]:
        """Send all but what goes on in the state ``after`` the checkpoint, which is returned."""
        crossing = storages(after)
        for (identity, _), parcel in self._parcels.items():
            if identity not in crossing:
                parcel.send()
        return self._goes & crossing

    def _pack(self, tensor: torch.Tensor) -> Unpack:
        moves = tensor.is_cuda and tensor.layout is torch.strided
        if not moves or _identity(tensor) not in self._goes:
            return _Original(tensor)
        key = _identity(tensor), tensor.dtype
        if key not in self._parcels:
            self._parcels[key] = _Parcel(tensor)
        return _View(self._parcels[key], tensor)


def _unpack(packed: Unpack) -> torch.Tensor:
    return packed()


class _Original:
    """A tensor that stays, unchanged: with hooks, torch itself does not look."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version

    def __call__(self) -> torch.Tensor:
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables that a checkpoint holds has been modified by an inplace "
                "operation: it would run again on other values"
            )
        return self.tensor


class _Parcel:
    """One storage, all of it: on its device, or on the CPU.

    ``views``: how many of the checkpoint's tensors lie in it. They come back together.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        self.here: _Original | None = _Original(tensor.detach().as_strided((count,), (1,), 0))
        self.device = tensor.device
        self.there = self.back = torch.empty(0)
        self.views = self.fetched = 0

    def send(self) -> None:
        if self.here is not None:
            self.there = self.here().to("cpu", non_blocking=True)
            self.here = None

    def fetch(self) -> torch.Tensor:
        if self.here is not None:
            return self.here()
        if self.fetched % self.views == 0:
            self.back = self.there.to(self.device, non_blocking=True)
        self.fetched += 1
        back = self.back
        if self.fetched % self.views == 0:
            # From now on only the checkpoint that runs holds it.
            self.back = self.there
        return back


class _View:
    """A tensor of the checkpoint in its parcel."""

    def __init__(self, parcel: _Parcel, tensor: torch.Tensor) -> None:
        self.parcel = parcel
        self.place = tensor.size(), tensor.stride(), tensor.storage_offset()
        parcel.views += 1

    def __call__(self) -> torch.Tensor:
        return self.parcel.fetch().as_strided(*self.place)
