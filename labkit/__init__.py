"""The measuring kit of the PyTorch Speed Lab: `README.md` beside this file says what is where."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labkit.comparing import compare, measure
from labkit.counters import count
from labkit.device import pick, pick_device, seed_all
from labkit.lab import Lab
from labkit.memory import MemoryMeter
from labkit.racing import race
from labkit.results import Workload
from labkit.timing import Timer

__version__ = "0.3.0"

# On first use (PEP 562): these import matplotlib, which would cost more than torch itself.
_LAZY = {"lr_find": "lr_finder", "plot_schedule": "schedule"}

if TYPE_CHECKING:
    from labkit.lr_finder import lr_find
    from labkit.schedule import plot_schedule

__all__ = [
    "Lab",
    "MemoryMeter",
    "Timer",
    "Workload",
    "compare",
    "count",
    "lr_find",
    "measure",
    "pick",
    "pick_device",
    "plot_schedule",
    "race",
    "seed_all",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"labkit.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'labkit' has no attribute {name!r}")
