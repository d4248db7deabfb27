"""Whose code is it: the reader's own, or that of a library? Only the reader's own is read."""

from __future__ import annotations

import re
import sys
import sysconfig
import types
from typing import Any

# Also where they are used from their sources.
_LIBRARIES = ("torch", "numpy", "torchvision", "builtins", "labkit", "whyslow", "sublinear")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_PYTHONS = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def is_own_code(code: types.CodeType) -> bool:
    """Whether the reader has written it: it is no part of an installed package."""
    return _is_own_file(code.co_filename)


def is_own_module(item: Any) -> bool:
    """Whether ``item`` is a module of the reader's; `__main__` and a notebook are."""
    if not isinstance(item, types.ModuleType) or _is_library(item.__name__):
        return False
    file = getattr(item, "__file__", None)
    if file is None:
        return item.__name__ not in sys.stdlib_module_names
    return _is_own_file(file)


def is_own_class(kind: type) -> bool:
    """Whether the reader has written this class."""
    module = sys.modules.get(kind.__module__)
    if module is not None:
        return is_own_module(module)
    return not _is_library(kind.__module__)


def is_installed_class(kind: type) -> bool:
    """Whether a library has made this class: neither the reader, nor Python, torch or labkit."""
    first = (kind.__module__ or "").split(".")[0]
    return not (first in sys.stdlib_module_names or _is_library(first) or is_own_class(kind))


def _is_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in _LIBRARIES


def _is_own_file(file: str) -> bool:
    if file.startswith("<frozen") or _INSTALLED.search(file):
        return False
    return not file.startswith(_PYTHONS)
