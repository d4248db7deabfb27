"""What was noted of each setting of a lab, also in processes of its sides."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.results import Workload

Step = Callable[[], Any]


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

    def watching(
        self, make: Callable[..., Workload], watch: Callable[[Step, dict[str, Any]], Step]
    ) -> Callable[..., Workload]:
        """The same ``make_workload``, whose steps are what ``watch`` makes of step and settings."""

        @functools.wraps(make)
        def made(**settings: Any) -> Workload:
            workload = make(**settings)
            return replace(workload, step=watch(workload.step, settings))

        return made

    def _file(self, settings: Mapping[str, Any]) -> Path:
        words = [f"{name}-{value}".replace(" ", "-") for name, value in sorted(settings.items())]
        return Path(self._path) / f"{'_'.join(words)}.json"
