"""A file for each front notebook: what only its own technique moves, and answers to its exercise.

``lab_06.py`` has ``alive(names)``, which asserts on a counter that only the technique moves;
``names`` are those of the notebook's cells down to its panel. Where it has ``CHECK``, it is a table
of the exercise's answers, and ``deeper_06.py`` is one of the deeper notebook's:

- ``RIGHT``: an answer that passes, and with it those of ``ALSO_RIGHT``;
- ``WRONG``: pairs of an answer and its hint, as it begins; "…" stands for any text;
- ``RAISES``: answers whose own error the reader is to see, its type and its message;
- ``PATIENCE``: seconds that the check waits, in the place of its own;
- ``DRAWS``: whether its answers draw random numbers.
"""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit import count, seed_all


def lab_of(notebook: str) -> ModuleType:
    """The file of a notebook: ``lab_06`` of ``06_mixed_precision``, ``lab_template``."""
    number = notebook.split("_")[0] or "template"
    return import_module(f"{__name__}.lab_{number}")


def tables() -> list[ModuleType]:
    """All files here that have one."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*_*.py"))
    found = [import_module(f"{__name__}.{name}") for name in names if name != "__init__"]
    return [each for each in found if hasattr(each, "CHECK")]


def fits(text: str, hint: str) -> bool:
    """Whether a text begins with the hint, in which "…" stands for any text."""
    return bool(re.match(".*?".join(map(re.escape, hint.split("…"))), text, re.DOTALL))


def nothing(*arguments: Any) -> None:
    """An answer of which nothing is written yet."""


def counters(names: dict[str, Any], **settings: Any) -> Any:
    """What a step with these settings does."""
    seed_all(0)
    workload = names["make_workload"](**names["lab"].settings(settings))
    try:
        return count(workload.step)
    finally:
        if workload.close:
            workload.close()
