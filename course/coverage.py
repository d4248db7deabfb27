"""Which notebooks this machine can show in full."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from labkit import machine
from labkit.machine import UNKNOWN, fast_dtypes, machine_card

_NEEDS = {
    "cuda": "CUDA",
    "bf16": "fast bfloat16",
    "cores2": "2+ cores",
    "compiler": "a C++ compiler",
}


def notebook_coverage(folder: Path | None = None) -> dict[str, str]:
    """What this machine shows of each notebook, by the needs in its metadata: ``in full`` or ``without: ...``."""
    cores = machine_card()["cpu"]["cores"]
    has = {
        "cuda": torch.cuda.is_available(),
        "bf16": fast_dtypes()["bfloat16"],
        "cores2": None if cores == UNKNOWN else cores >= 2,
        "compiler": any(map(shutil.which, ("c++", "g++", "clang++", "cl"))),
    }
    coverage = {}
    for path in sorted((folder or Path(__file__).parent.parent / "notebooks").glob("[!_]*.ipynb")):
        try:
            needs = json.loads(path.read_text(encoding="utf-8"))["metadata"]["labkit"]["needs"]
        except (ValueError, KeyError) as error:
            coverage[path.stem] = f"cannot tell: no metadata.labkit.needs in it ({error!r})"
            continue
        missing = {need: arm for need, arm in needs.items() if not has.get(need)}
        doubt = {need: ", unknown here" if has.get(need) is None else "" for need in missing}
        arms = "; ".join(
            f"{arm} (needs {_NEEDS.get(need, need)}{doubt[need]})" for need, arm in missing.items()
        )
        coverage[path.stem] = f"without: {arms}" if arms else "in full"
    return coverage


def doctor(args: Any = None) -> int:
    """Print the machine's card, then what each notebook shows here (``python -m course doctor``)."""
    machine.doctor()
    print("", *(f"{name}: {text}" for name, text in notebook_coverage().items()), sep="\n")
    return 0
