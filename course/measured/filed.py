"""What was noted of each setting of a lab, also in processes of its sides."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Filed:
    """Notes by settings, in small files of a folder that goes with the object that made it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="noted-")
        self._path = self._folder.name

    def __getstate__(self) -> dict[str, str]:
        """A copy in another process knows the folder, and does not end it."""
        return {"_path": self._path}

    def keep(self, settings: Mapping[str, Any], found: Any) -> None:
        """Keep what JSON can hold."""
        self._file(settings).write_text(json.dumps(found), encoding="utf-8")

    def kept(self, settings: Mapping[str, Any]) -> Any:
        """What was kept of these settings; None before anything."""
        file = self._file(settings)
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    def _file(self, settings: Mapping[str, Any]) -> Path:
        words = [f"{name}-{value}".replace(" ", "-") for name, value in sorted(settings.items())]
        return Path(self._path) / f"{'_'.join(words)}.json"
