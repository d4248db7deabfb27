"""The measuring kit of the PyTorch Speed Lab. The names a notebook uses, nothing else."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Eager, because `measure`, `race` and `diagnose` are functions in modules of the same name: whoever
# imports the module later must not replace the function. All of these need nothing beyond torch and
# NumPy.
from labkit.counters import Counters, count
from labkit.device import pick, pick_device, seed_all, synchronize
from labkit.diagnose import diagnose
from labkit.lab import Lab
from labkit.measure import compare, measure
from labkit.memory import MemoryMeter
from labkit.race import RaceResult, race
from labkit.results import Comparison, Measurement, Workload
from labkit.sweep import Sweep
from labkit.timing import Timer

__version__ = "0.2.0"

# On first use (PEP 562): these import matplotlib, widgets or Pillow, which would cost more than
# torch itself.
_LAZY = {
    "LabPanel": "panel",
    "lr_find": "lr_finder",
    "machine_card": "machine",
    "plot_schedule": "schedule",
}
_MODULES = ("data", "models", "plots")

if TYPE_CHECKING:
    from labkit import data, models, plots
    from labkit.lr_finder import lr_find
    from labkit.machine import machine_card
    from labkit.panel import LabPanel
    from labkit.schedule import plot_schedule

__all__ = [
    "Comparison",
    "Counters",
    "Lab",
    "LabPanel",
    "Measurement",
    "MemoryMeter",
    "RaceResult",
    "Sweep",
    "Timer",
    "Workload",
    "compare",
    "count",
    "data",
    "diagnose",
    "lr_find",
    "machine_card",
    "measure",
    "models",
    "pick",
    "pick_device",
    "plot_schedule",
    "plots",
    "race",
    "seed_all",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"labkit.{name}")
    if name in _LAZY:
        return getattr(import_module(f"labkit.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'labkit' has no attribute {name!r}")
