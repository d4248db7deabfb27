"""A file for each front notebook: what only its own technique moves, and answers to its exercise.

``lab_06.py`` has ``alive(names)``, which asserts on a counter that only the technique moves;
``names`` are those of the notebook's cells down to its panel. Where it has ``CHECK``, ``RIGHT`` and
``WRONG``, these are the exercise's check, an answer that passes, and pairs of an answer and its
hint.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import count, seed_all


def lab_of(notebook: str) -> ModuleType:
    """The file of a notebook: ``lab_06`` of ``06_mixed_precision``, ``lab_template``."""
    number = notebook.split("_")[0] or "template"
    return import_module(f"{__name__}.lab_{number}")


def every() -> list[ModuleType]:
    """All files that are here."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("lab_*.py"))
    return [import_module(f"{__name__}.{name}") for name in names]


def counters(names: dict[str, Any], **settings: Any) -> Any:
    """What a step with these settings does."""
    seed_all(0)
    workload = names["make_workload"](**names["lab"].settings(settings))
    try:
        return count(workload.step)
    finally:
        if workload.close:
            workload.close()
