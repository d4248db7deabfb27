"""One step, looked at: which models and optimizers it uses, and what is switched on in it."""

from __future__ import annotations

import builtins
import io
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint as recomputing
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from labkit.counters import CountingMode
from labkit.device import check_current
from labkit.restore.attributes import exchanged
from labkit.restore.memory import bytes_of
from whyslow.events import BACKWARD, FORWARD, IN_LOADER, UPDATE, listening
from whyslow.phases import Phases


@dataclass
class Seen(Phases):
    """What one step did, and where its time went.

    ``roots``: modules that the step itself calls. ``launches``: operators that compute, by phase.
    ``unused``: roots in evaluation mode that recorded a graph.
    """

    roots: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    unused: list[nn.Module] = field(default_factory=list)
    devices: set[torch.device] = field(default_factory=set)
    launches: dict[str, int] = field(default_factory=dict)
    host_reads: int = 0
    pageable: int = 0
    backwards: int = 0
    recomputed: int = 0
    lower_precision: bool = False
    anomaly: bool = False
    deterministic: bool = False
    profiled: bool = False
    images: bool = False
    samples: int = 0
    written: list[str] = field(default_factory=list)
    on_new: Callable[[Any], None] = lambda item: None

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Of all roots, each once."""
        found = {}
        for root in self.roots:
            found.update({id(each): each for each in root.parameters()})
        return list(found.values())

    @property
    def device(self) -> str:
        """The accelerator that the step works on, or cpu."""
        others = sorted({each.type for each in self.devices} - {"cpu", "meta"})
        return others[0] if others else "cpu"

    @property
    def compiled(self) -> bool:
        """Whether a root is compiled code."""
        kinds = [type(module).__name__ for root in self.roots for module in root.modules()]
        return "OptimizedModule" in kinds

    def begins(self, what: str, item: Any, values: Any) -> None:
        super().begins(what, item, values)
        if what == FORWARD:
            self._calls(item, values)
        elif what == IN_LOADER:
            # No root of the step; but a norm in it has a state that is put back.
            self.on_new(item)
        elif what == BACKWARD:
            self.backwards += 1
        elif what == UPDATE and not any(item is known for known in self.optimizers):
            self.on_new(item)
            self.optimizers.append(item)

    def ends(self, what: str, item: Any, values: Any) -> None:
        super().ends(what, item, values)
        if what != FORWARD or item.training or not torch.is_grad_enabled():
            return
        if any(each.requires_grad for each in tensors_of(values)):
            self.unused.append(item)

    def _calls(self, root: nn.Module, inputs: Any) -> None:
        if not any(root is known for known in self.roots):
            self.on_new(root)
            self.roots.append(root)
        tensors = tensors_of(inputs)
        for device in {each.device for each in (*root.parameters(), *tensors)} - self.devices:
            check_current(device)
            self.devices.add(device)
        if tensors and tensors[0].dim():
            self.samples = self.samples or tensors[0].shape[0]
        self.images |= any(each.dim() == 4 for each in tensors)
        self.lower_precision |= torch.is_autocast_enabled(self.device)
        self.anomaly |= torch.is_anomaly_enabled()
        self.deterministic |= torch.are_deterministic_algorithms_enabled()
        self.profiled |= torch.autograd._profiler_enabled()


def tensors_of(values: Any) -> list[torch.Tensor]:
    """All tensors in a batch, or in whatever else."""
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


class _Operators(CountingMode):
    """Counts what the step asks of the device, by phase."""

    def __init__(self, phases: Phases) -> None:
        super().__init__()
        self._phases = phases
        self.by_phase: dict[str, int] = defaultdict(int)

    def launched(self) -> None:
        super().launched()
        self.by_phase[self._phases.phase] += 1


def from_host(func: Any, args: Any) -> torch.Tensor | None:
    """The CPU's tensor that this call of torch's Python API moves, if it is one that does."""
    if func in (torch.Tensor.to, torch.Tensor.cuda) and args[0].device.type == "cpu":
        source: torch.Tensor = args[0]
        return source
    return None


class _Copies(TorchFunctionMode):
    """Counts the bytes that go to an accelerator from memory that is not page-locked."""

    pageable = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        source = from_host(func, args)
        if source is not None and result.device.type != "cpu" and not source.is_pinned():
            self.pageable += bytes_of(source)
        return result


def observe(step: Callable[[], object], on_new: Callable[[Any], None]) -> Seen:
    """Run one step and say what it did. ``on_new`` is given each root and optimizer before it is
    first used.
    """
    seen = Seen(on_new=on_new)
    with listening(seen), _writes(seen), _recomputes(seen):
        seen.begin()
        step()
        seen.end()
    return seen


def count_operators(step: Callable[[], object], seen: Seen) -> None:
    """Note in ``seen`` what operators one more step calls, by phase."""
    phases = Phases()
    with listening(phases), _Copies() as copies, _Operators(phases) as operators:
        step()
    seen.launches, seen.host_reads = dict(operators.by_phase), operators.host_reads
    seen.pageable = copies.pageable


@contextmanager
def _writes(seen: Seen) -> Iterator[None]:
    """Note the files that the step opens for writing."""
    opened = builtins.open

    def told(file: Any, mode: str = "r", *args: Any, **keywords: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(file, int):
            seen.written.append(str(file))
        return opened(file, mode, *args, **keywords)

    save = torch.save

    # Its names are torch's: they may be given by name.
    def saved(obj: Any, f: Any, *args: Any, **keywords: Any) -> None:
        if isinstance(f, str) or hasattr(f, "__fspath__"):
            seen.written.append(str(f))
        save(obj, f, *args, **keywords)

    with exchanged([(builtins, "open", told), (io, "open", told), (torch, "save", saved)]):
        yield


def recomputers() -> Iterator[tuple[Any, str]]:
    """What torch.utils looks up when it is asked to recompute, by version."""
    for name in ("", "_impl"):
        function = f"_checkpoint_without_reentrant_generator{name}"
        if hasattr(recomputing, function):
            yield recomputing, function
    yield recomputing.CheckpointFunction, "apply"


@contextmanager
def _recomputes(seen: Seen) -> Iterator[None]:
    """Count the calls whose activations are computed again in the backward pass."""

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*args: Any, **keywords: Any) -> Any:
            seen.recomputed += 1
            return original(*args, **keywords)

        return counts

    with exchanged((owner, name, counted(getattr(owner, name))) for owner, name in recomputers()):
        yield
