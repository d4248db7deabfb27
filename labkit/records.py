"""Recorded reference runs: what another machine measured, kept as JSON under
``data/reference/<machine>/<notebook>.json``.

Records are made by ``labkit record`` and never by hand. Each holds the machine's card, the date, and every comparison
and race that the notebook's headless calls produced, with their times in order.
"""

from __future__ import annotations

import json
import math
import os
from datetime import date
from pathlib import Path
from typing import Any

from labkit.results import Comparison, Measurement
from labkit.units import format_bytes, format_seconds, format_settings

SCHEMA = 1


def reference_folder() -> Path:
    """Where recorded runs lie: ``data/reference`` of the checkout that labkit is used from."""
    return Path(__file__).resolve().parent.parent / "data" / "reference"


def collect(lab: str, result: Any) -> None:
    """Append a result to the file that ``LABKIT_RECORD`` names; nothing to do when it is not set."""
    target = os.environ.get("LABKIT_RECORD")
    if not target:
        return
    path = Path(target)
    entries = json.loads(path.read_text()) if path.exists() else []
    write_json(path, [*entries, {"lab": lab} | as_dict(result)])


def as_dict(result: Any) -> dict[str, Any]:
    """A Comparison or RaceResult as plain JSON values; times are rounded to four digits, infinity becomes None."""
    if isinstance(result, Comparison):
        return {
            "kind": "comparison",
            "device": result.device,
            "baseline": _arm(result.baseline),
            "candidate": _arm(result.candidate),
            "speedup": _round(result.speedup),
            "interval": [_round(bound) for bound in result.interval],
            "noise_floor": _round(result.noise_floor),
            "verdict": result.verdict,
        }
    return {
        "kind": "race",
        "metric": result.metric,
        "target": result.target,
        "higher_is_better": result.higher_is_better,
        "runs": [
            {
                "arm": run.arm,
                "seed": run.seed,
                "reached": run.reached,
                "curve": [[steps, _round(seconds), _round(value)] for steps, seconds, value in run.curve],
            }
            for run in result.runs
        ],
        "median_seconds": {arm: _round(result.median(arm)) for arm in result.arms},
        "interval_seconds": {arm: [_round(bound) for bound in result.interval(arm)] for arm in result.arms},
    }


def _arm(arm: Measurement) -> dict[str, Any]:
    return {
        "label": arm.label,
        "settings": {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in arm.settings.items()
        },
        "times": [_round(seconds) for seconds in arm.times],
        "median": _round(arm.median),
        "steps_per_block": arm.steps_per_block,
        "samples": arm.samples,
        "unit": arm.unit,
        "cold": _round(arm.cold),
        "peak_bytes": arm.peak_bytes,
        "error": arm.error,
    }


def _round(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def write_json(path: Path, content: Any) -> None:
    """Write so that a full disk or an interrupt leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(content, indent=None, separators=(",", ":")) + "\n")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write(folder: Path, notebook: str, card: dict[str, Any], results: list[dict[str, Any]]) -> Path:
    """Write one notebook's record of this machine, dated today."""
    from labkit import __version__

    path = folder / f"{notebook}.json"
    head = {"schema": SCHEMA, "notebook": notebook, "date": date.today().isoformat(), "labkit": __version__}
    write_json(path, head | {"machine": card, "results": results})
    return path


def read(notebook: str, folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """All records of a notebook by machine; empty when there are none. ValueError names a file that is no record."""
    found = {}
    for path in sorted((folder or reference_folder()).glob(f"*/{notebook}.json")):
        record = json.loads(path.read_text())
        if record.get("schema") != SCHEMA or record.get("notebook") != notebook:
            raise ValueError(f"{path}: not a record of {notebook} with schema {SCHEMA}")
        found[path.parent.name] = record
    return found


class Reference:
    """The recorded runs of one notebook as a text table: machine and date, what was compared, and what came out."""

    def __init__(self, notebook: str, folder: Path | None = None) -> None:
        self.notebook, self.records = notebook, read(notebook, folder)

    def __str__(self) -> str:
        if not self.records:
            return (
                f"{self.notebook}: not recorded yet. `labkit record {self.notebook}.ipynb` records it on your machine."
            )
        return "\n\n".join("\n".join(self._lines(name, record)) for name, record in self.records.items())

    __repr__ = __str__

    def _lines(self, name: str, record: dict[str, Any]) -> list[str]:
        lines = [f"Recorded on {name}, {record['date']}, torch {record['machine'].get('torch', 'unknown')}:"]
        for result in record["results"]:
            if result["kind"] == "comparison":
                before, after = result["baseline"], result["candidate"]
                shared = {
                    key: value for key, value in before["settings"].items() if after["settings"].get(key) == value
                }
                changed = {key: value for key, value in after["settings"].items() if key not in shared}
                at = f"  (at {format_settings(shared)})" if shared else ""
                ended = before["error"] or after["error"]
                peaks = ""
                if before["peak_bytes"] is not None:
                    peaks = f"; peak memory {format_bytes(before['peak_bytes'])} -> {format_bytes(after['peak_bytes'])}"
                figure = f"ended by {ended}"
                if result["speedup"] is not None:
                    low, high = result["interval"]
                    figure = f"{result['speedup']:.2f}x [{low:.2f}, {high:.2f}] {result['verdict']}"
                what = format_settings(changed) or "the same again (A/A)"
                lines.append(f"  {what}: {figure}{peaks}{at}")
            else:
                for arm, seconds in result["median_seconds"].items():
                    arrived = [run["reached"] for run in result["runs"] if run["arm"] == arm]
                    median = format_seconds(math.inf if seconds is None else seconds)
                    goal = f"{result['metric']} {result['target']:g}"
                    lines.append(
                        f"  race to {goal}, {arm}: median {median}, {sum(arrived)} of {len(arrived)} seeds arrived"
                    )
        return lines


def reference(notebook: str) -> Reference:
    """The recorded runs of a notebook, such as ``reference("06_mixed_precision")``; says so when there is none yet."""
    return Reference(notebook)
