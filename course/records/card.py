"""The machine's card for a record, measured in a process of its own.

Measuring leaves a CUDA context and about 1 GB of cached memory behind. In the recorder's process
they would stand beside every notebook until the last one; here they end with the child.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from course.machine import machine_card
from course.records.kernel import environment

Card = dict[str, Any]


def measured_card() -> Card:
    """`machine_card` with its rates. ChildProcessError says why it could not be measured."""
    command = [sys.executable, "-m", "course.records.card"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise ChildProcessError(f"this machine could not be measured: {reason}")
    card: Card = json.loads(done.stdout.splitlines()[-1])
    return card


def machine_name(card: Mapping[str, Any]) -> str:
    """A folder name for a machine, from its GPU or else its CPU and cores.

    ``nvidia-h200``, ``amd-epyc-2-cores``.
    """
    if card.get("gpu"):
        name = card["gpu"]["name"]
    else:
        name = f"{card['cpu']['model']} {card['cpu']['cores']} cores"
    plain = re.sub(r"\((r|tm)\)|\bprocessor\b|\bcpu\b", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unnamed-machine"


def hardware(card: Mapping[str, Any]) -> str | None:
    """Machines whose CPUs tell no more than "Xeon" share a folder;
    what they can do tells them apart.
    """
    if card["gpu"]:
        return str(card["gpu"]["name"])
    if isinstance(card["cpu"], dict):
        return str(card["cpu"].get("instructions"))
    return None


if __name__ == "__main__":
    print(json.dumps(machine_card(measure=True)))
