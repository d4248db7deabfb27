"""Chains and plans as JSON, in a dictionary or a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def store(data: dict[str, Any], path: str | Path | None) -> dict[str, Any]:
    """Write ``data`` as JSON to ``path``, unless that is None, and return it."""
    if path is not None:
        Path(path).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


def load(source: dict[str, Any] | str | Path) -> dict[str, Any]:
    """The dictionary itself, or the one in the JSON file at this path. Raises ValueError where there is none."""
    if isinstance(source, dict):
        return source
    try:
        data = json.loads(Path(source).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: not a JSON file ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"{source}: holds a {type(data).__name__}, where an object is expected")
    return data
