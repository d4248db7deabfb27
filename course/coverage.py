"""Which notebooks this machine can show in full."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch

from course import machine
from course.machine import UNKNOWN, fast_dtypes, machine_card
from course.notebook_files import NOTEBOOKS, NotebookError, about, course_notebooks

# What a notebook may need, in words.
NEEDS = {
    "cuda": "CUDA",
    "bf16": "fast bfloat16",
    "cores2": "2+ cores",
    "compiler": "a C++ compiler",
}
COMPILERS = ("c++", "g++", "clang++", "cl")


def notebook_coverage(folder: Path | None = None) -> dict[str, str]:
    """What this machine shows of each notebook: ``in full``, or ``without: ...`` what it lacks.

    A notebook's metadata says what it needs for what; one that does not is named with the reason.
    """
    folder = folder or NOTEBOOKS
    machine_has = _machine_has()
    coverage = {}
    for path in course_notebooks(folder):
        name = path.relative_to(folder).with_suffix("").as_posix()
        try:
            said = about(path)
        except NotebookError as error:
            coverage[name] = f"cannot tell: it {error.reason}"
            continue
        if "needs" in said:
            coverage[name] = _shown(said["needs"], machine_has)
        else:
            coverage[name] = "cannot tell: its metadata.labkit does not say what it needs"
    return coverage


def _machine_has() -> dict[str, bool | None]:
    """Need -> whether it is met; None where the machine does not tell."""
    cores = machine_card()["cpu"]["cores"]
    several = None
    if cores != UNKNOWN:
        several = cores >= 2
    return {
        "cuda": torch.cuda.is_available(),
        "bf16": fast_dtypes()["bfloat16"],
        "cores2": several,
        "compiler": any(map(shutil.which, COMPILERS)),
    }


def _shown(needs: Mapping[str, str], machine_has: Mapping[str, bool | None]) -> str:
    missing = []
    for need, part in needs.items():
        met = machine_has.get(need)
        if met:
            continue
        doubt = ", unknown here" if met is None else ""
        missing.append(f"{part} (needs {NEEDS.get(need, need)}{doubt})")
    if missing:
        return f"without: {'; '.join(missing)}"
    return "in full"


def doctor() -> int:
    """Print the machine's card, then what each notebook shows here (``python -m course
    doctor``).
    """
    machine.doctor()
    print()
    for name, text in notebook_coverage().items():
        print(f"{name}: {text}")
    return 0
