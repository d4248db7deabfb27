"""Settings of JupyterLab for this checkout's own environment: no news over the first panel.

JupyterLab reads them from its folder in the environment. Only an editable install, as `uv run`
makes it here, puts them there: who installs labkit elsewhere keeps JupyterLab as it is.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETTINGS = "course/jupyter/overrides.json"
TARGET = "share/jupyter/lab/settings/overrides.d/pytorch-speed-lab.json"


class Settings(BuildHookInterface):
    """Add the settings to the wheel of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` is "editable" or "standard"."""
        if version == "editable":
            build_data["shared_data"][SETTINGS] = TARGET
