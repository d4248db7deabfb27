"""What every arm can do: the one protocol by which sides of a comparison are measured."""

from __future__ import annotations

from typing import Any, Protocol

from labkit.memory_timeline import Timeline

# Peak bytes: those of live tensors (None where they cannot be counted), and those that torch took
# from the driver (None except on CUDA).
Peak = tuple[int | None, int | None]
# Counts of one step by name, or why they cannot be had.
Counts = dict[str, int] | str


class ArmDied(RuntimeError):
    """An arm's own process ended before its work did."""


class Arm(Protocol):
    """One side of a comparison, wherever it lives.

    ``samples`` (one step's), ``unit`` and ``device`` are known from `start` on. `start` after
    `close` builds the workload anew. What the workload raises comes through.
    """

    label: str
    settings: dict[str, Any]
    samples: float
    unit: str
    device: str

    def start(self) -> float:
        """Build the workload and run its first step; seconds of that step."""

    def block(self, steps: int) -> float:
        """Run ``steps`` steps; their seconds."""

    def check(self) -> None:
        """FloatingPointError when the last step returned nan or infinity."""

    def peak(self) -> Peak:
        """Peak bytes of one warm step of a fresh workload. Releases the arm before and after."""

    def counters(self) -> Counts:
        """Exact counts of one warm step of a fresh workload. Releases the arm before and after."""

    def timeline(self) -> Timeline:
        """What is alive when in one warm step of a fresh workload. Releases the arm, too."""

    def release(self) -> None:
        """Let go of the workload and its memory; the process that it lives in stays."""

    def close(self) -> None:
        """Release the workload and all that it holds, its process too. May be called twice."""
