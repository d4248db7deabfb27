"""Record a notebook: run it headless at this machine's full size and keep what its labs measured."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from labkit.machine import machine_card
from labkit.records import reference_folder, write


def machine_name(card: dict[str, Any]) -> str:
    """A folder name for a machine, from its GPU or else its CPU and cores: ``nvidia-h200``, ``amd-epyc-2-cores``."""
    name = card["gpu"]["name"] if card.get("gpu") else f"{card['cpu']['model']} {card['cpu']['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def record(notebook: Path, folder: Path | None = None) -> Path:
    """Run a notebook headless at this machine's full size, and write what its labs measured; needs nbclient.

    Nothing is written when a cell fails: the cell's error is raised.
    """
    import nbformat
    from nbclient import NotebookClient

    card = machine_card(measure=True)
    with tempfile.TemporaryDirectory() as draft:
        results = Path(draft) / "results.json"
        environment = os.environ | {"LABKIT_RECORD": str(results), "LABKIT_SIZE": "full"}
        client = NotebookClient(
            nbformat.read(notebook, as_version=4), timeout=None, resources={"metadata": {"path": notebook.parent}}
        )
        client.execute(env=environment)
        if not results.exists():
            raise ValueError(
                f"{notebook}: none of its cells called lab.run, lab.sweep or lab.race, so there is nothing to record"
            )
        return write(
            (folder or reference_folder()) / machine_name(card), notebook.stem, card, json.loads(results.read_text())
        )
