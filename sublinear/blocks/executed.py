"""Which Python functions run: the calls of one thread, those of libraries left out."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from cProfile import Profile as Profiler
from functools import cache, partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

from labkit.restore import giving_back
from labkit.restore.collector import without_collector

_PATHS = sysconfig.get_paths()
_STANDARD = tuple({_PATHS["stdlib"] + os.sep, _PATHS["platstdlib"] + os.sep})
# Often a folder inside that of the standard library.
_INSTALLED = ("site-packages", "dist-packages")
_HERE = Path(__file__).parents[1]
_LIBRARIES = tuple(
    str(folder) + os.sep
    for folder in (Path(torch.__file__).parent, Path(np.__file__).parent, _HERE)
)


@cache
def is_library(file: str) -> bool:
    """Whether a file belongs to torch, NumPy, Python's standard library or this package."""
    if file.startswith(_LIBRARIES) or file.startswith("<frozen"):
        return True
    inside = file.startswith(_STANDARD)
    return inside and not any(folder in file for folder in _INSTALLED)


def of_library(module: ModuleType | None) -> bool:
    """Whether a module is one of them."""
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return is_library(file)


@contextmanager
def watching(ran: Callable[[FrameType], None]) -> Iterator[None]:
    """Call ``ran`` inside as each function begins, in this thread.

    It must not raise: Python would then stop to call it. Another profiler waits meanwhile, and so
    does the garbage collector.
    """

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and not is_library(frame.f_code.co_filename):
            ran(frame)

    profiler = sys.getprofile()
    if not (profiler is None or callable(profiler) or isinstance(profiler, Profiler)):
        raise RuntimeError(
            f"a {type(profiler).__name__} profiles this thread, which could not go on afterwards: "
            "plan the model before it starts"
        )

    # The collector calls functions that no code in here has called.
    with without_collector(), giving_back(partial(_set_profile, profiler)):
        sys.setprofile(profile)
        yield


def _set_profile(profiler: Any) -> None:
    # Before Python 3.12, cProfile takes the same place, and only it can take it again.
    if isinstance(profiler, Profiler):
        profiler.enable()
    else:
        sys.setprofile(profiler)
