"""The files of recorded runs, ``data/reference/<machine>/<notebook>.json``, in the format of ``record.schema.json``.

Records are made by ``python -m course record`` and never by hand: what is read has to fit the schema,
and its figures have to follow from its raw times.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from course.notebook_files import ROOT, code_cells, notebook_path, read_notebook, tags
from labkit.journal import Failure, Keeper, keep
from labkit.race import RaceResult, RaceRun
from labkit.results import Comparison, Measurement
from labkit.text import format_settings

SCHEMA = 2
DIGITS = 5  # of the raw times: finer than any noise floor
LARGEST = 16 * 2**20  # bytes of a record: what is easily carried home from a borrowed machine
RATIOS = ("memory", "time", "batch")
SOURCES = ("predicted", "measured")
# Cells that measure nothing: to edit these does not make a record old.
_IMPORT = re.compile(r"\s*(from \S+ )?import ")
_APART = {"claims", "exercise", "panel", "predict", "reference", "solution", "yours"}


class RecordError(ValueError):
    """A file that is not to be trusted as a record; the message says why."""


@dataclass(frozen=True)
class Planned:
    """What a plan needs beside the plain model, as ratios: ``memory``, ``time``, largest ``batch``.

    ``source`` says whether it was "predicted", with nothing timed, or "measured".
    """

    lab: str
    settings: dict[str, Any]
    figures: dict[str, float]
    source: str = "predicted"

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.3g}x" for name, value in self.figures.items())
        return f"{self.lab}, {format_settings(self.settings)}: {figures} of the plain model's ({self.source})"

    __repr__ = __str__


Result = Comparison | RaceResult | Planned | Failure


@dataclass(frozen=True)
class Record:
    """One notebook's run on one machine. ``doubt`` says why it may no longer hold, or None."""

    machine: str
    notebook: str
    notebook_hash: str
    recorded: datetime
    seconds: float | None
    labkit: str
    card: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    results: tuple[Result, ...]
    failed: str | None = None
    doubt: str | None = None

    @property
    def label(self) -> str:
        """Machine and date, and the doubt if there is one: how a record is named wherever it is drawn."""
        return f"{self.machine}, {self.recorded:%Y-%m-%d}" + (
            f" ({self.doubt})" if self.doubt else ""
        )

    @property
    def device(self) -> str:
        """``cuda`` for a machine with a GPU, else ``cpu``."""
        return "cuda" if self.card["gpu"] else "cpu"


def reference_folder() -> Path:
    """Where recorded runs lie: ``data/reference`` of the checkout that labkit is used from."""
    return ROOT / "data" / "reference"


def notebook_hash(path: Path) -> str:
    """16 hex digits of the code that measures: text, imports, panels, claims and exercises are no part of it."""
    code = [
        cell.source.strip()
        for cell in code_cells(read_notebook(path))
        if not _APART & set(tags(cell))
    ]
    lines = [
        line for line in "\n".join(code).splitlines() if line.strip() and not _IMPORT.match(line)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------------- writing


def writer(path: Path) -> Keeper:
    """A keeper for `labkit.journal` that appends each result to the file."""

    def write_line(result: Result, about: Mapping[str, Any]) -> None:
        line = json.dumps(as_dict(result) | dict(about), allow_nan=False, default=_number)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return write_line


def planned(
    lab: str, settings: Mapping[str, Any], *, source: str = "predicted", **figures: float
) -> Planned:
    """Keep what a plan needs, as ratios to the plain model: with the labs' results, when these are being recorded.

    ``figures``: any of ``memory`` and ``time`` of one step, and ``batch``, the largest that fits. ValueError for
    others, for a ratio that is not positive and finite, or for a source not "predicted" or "measured".
    """
    if not figures or not figures.keys() <= set(RATIOS):
        raise ValueError(f"figures={sorted(figures)}: give some of {RATIOS}")
    for name, value in figures.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"{name}={value!r}: use a ratio to the plain model, positive and finite"
            )
    if source not in SOURCES:
        raise ValueError(f"source={source!r}: use one of {SOURCES}")
    result = Planned(
        lab, dict(settings), {name: float(value) for name, value in figures.items()}, source
    )
    keep(result)
    return result


def as_dict(result: Result) -> dict[str, Any]:
    """A result as plain JSON values; times are rounded to five digits, infinity becomes None."""
    if isinstance(result, Failure):
        return {"kind": "failure"} | asdict(result) | {"settings": _plain(result.settings)}
    if isinstance(result, Planned):
        figures = {name: _round(value) for name, value in result.figures.items()}
        return (
            {"kind": "planned"}
            | asdict(result)
            | {"settings": _plain(result.settings), "figures": figures}
        )
    if isinstance(result, Comparison):
        # Figures of the rounded times, so that whoever reads them finds exactly the same.
        result = replace(
            result, baseline=_rounded(result.baseline), candidate=_rounded(result.candidate)
        )
        return {
            "kind": "comparison",
            "lab": result.lab,
            "device": result.device,
            "seed": None,
            "threads": None,
            "baseline": _arm(result.baseline),
            "candidate": _arm(result.candidate),
            "speedup": _finite(result.speedup),
            "interval": [_finite(bound) for bound in result.interval],
            "noise_floor": _finite(result.noise_floor),
            "verdict": result.verdict,
        }
    result = replace(
        result, runs=tuple(replace(run, curve=_curve(run.curve)) for run in result.runs)
    )
    return {
        "kind": "race",
        "lab": result.lab,
        "metric": result.metric,
        "target": result.target,
        "higher_is_better": result.higher_is_better,
        "runs": [
            asdict(run) | {"curve": [[_finite(x) for x in point] for point in run.curve]}
            for run in result.runs
        ],
        "median_seconds": {arm: _finite(result.median(arm)) for arm in result.arms},
        "interval_seconds": {
            arm: [_finite(bound) for bound in result.interval(arm)] for arm in result.arms
        },
    }


def _rounded(arm: Measurement) -> Measurement:
    cold = None if arm.cold is None else _round(arm.cold)
    return replace(arm, times=tuple(map(_round, arm.times)), cold=cold)


def _curve(curve: tuple[tuple[int, float, float], ...]) -> tuple[tuple[int, float, float], ...]:
    return tuple((steps, _round(seconds), _round(value)) for steps, seconds, value in curve)


def _arm(arm: Measurement) -> dict[str, Any]:
    figures = {"median": _finite(arm.median), "iqr": _finite(arm.iqr)}
    return asdict(arm) | figures | {"settings": _plain(arm.settings)}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    kept = {
        name: value if isinstance(value, plain) else str(value) for name, value in settings.items()
    }
    # JSON knows no infinity; a value that is "off" by being infinite is kept by its name.
    return {
        k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in kept.items()
    }


def _number(value: Any) -> Any:
    """A NumPy or torch scalar as Python's own number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a record")


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write(folder: Path, record: Mapping[str, Any]) -> Path:
    """Validate a record and write it to ``folder/<notebook>.json``. RecordError, and nothing written, for a bad one."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
    if len(text) > LARGEST:
        raise RecordError(
            f"{record['notebook']}: {len(text)} bytes; a record has at most {LARGEST}"
        )
    check(json.loads(text))
    path = folder / f"{record['notebook']}.json"
    write_whole(path, text)
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a full disk or an interrupt leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------------- reading


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(
        json.loads((Path(__file__).parent / "record.schema.json").read_text(encoding="utf-8"))
    )


def check(record: Any) -> None:
    """RecordError unless this fits the schema, lies in the past, and its figures follow from its raw times."""
    version = record.get("schema") if isinstance(record, Mapping) else None
    if version != SCHEMA:
        raise RecordError(f"has schema version {version!r}; this labkit reads version {SCHEMA}")
    from jsonschema.exceptions import best_match

    if error := best_match(_validator().iter_errors(record)):
        place = "/".join(map(str, error.absolute_path)) or "the record"
        raise RecordError(f"does not fit record.schema.json: {place}: {error.message[:200]}")
    if _time(record["recorded"]) > datetime.now(UTC) + timedelta(
        days=1
    ):  # a day for clocks that are wrong
        raise RecordError(f"is from the future: {record['recorded']}")
    for entry in record["results"]:
        _check_figures(entry)


def _check_figures(entry: dict[str, Any]) -> None:
    if entry["kind"] not in ("comparison", "race"):
        return
    again = as_dict(from_dict(entry))
    stated, found = [_figures(each) for each in (entry, again)]
    for name, figure in stated.items():
        if not _close(figure, found[name]):
            raise RecordError(f"states {name} {figure!r}, but its raw times give {found[name]!r}")


def _figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the raw times; interval and verdict hang on the bootstrap and on rules that may change."""
    if entry["kind"] == "race":
        return {"median_seconds": entry["median_seconds"]}
    medians = {f"{arm}'s median": entry[arm]["median"] for arm in ("baseline", "candidate")}
    return {"speedup": entry["speedup"]} | medians


def _close(stated: Any, found: Any) -> bool:
    if isinstance(stated, dict):
        return stated.keys() == found.keys() and all(
            _close(value, found[name]) for name, value in stated.items()
        )
    if isinstance(stated, float) and isinstance(found, float):
        return math.isclose(stated, found, rel_tol=1e-3)
    return bool(stated == found)


def from_dict(entry: Mapping[str, Any]) -> Result:
    """The result that `as_dict` made this from, up to the rounding of its times."""
    if entry["kind"] == "failure":
        return Failure(entry["lab"], entry["settings"], entry["error"])
    if entry["kind"] == "planned":
        return Planned(entry["lab"], entry["settings"], entry["figures"], entry["source"])
    if entry["kind"] == "comparison":
        arms = [_measurement(entry[name]) for name in ("baseline", "candidate")]
        return Comparison(arms[0], arms[1], device=entry["device"], lab=entry["lab"])
    runs = []
    for run in entry["runs"]:
        curve = tuple(
            (step, *(math.nan if x is None else x for x in point)) for step, *point in run["curve"]
        )
        runs.append(RaceRun(**(run | {"curve": curve})))
    return RaceResult(
        tuple(runs), entry["target"], entry["metric"], entry["higher_is_better"], lab=entry["lab"]
    )


def _measurement(arm: Mapping[str, Any]) -> Measurement:
    kept = {name: value for name, value in arm.items() if name not in ("median", "iqr")}
    builds = tuple(arm.get("builds", ()))
    return Measurement(**(kept | {"times": tuple(arm["times"]), "builds": builds}))


def read(path: Path) -> Record:
    """One record. RecordError names the file and why it is refused: damaged, another schema, from the future."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        check(entry)
        if entry["notebook"] != path.stem:
            raise RecordError(f"is a record of {entry['notebook']}")
    except RecordError as error:
        raise RecordError(f"{path.parent.name}/{path.name} {error}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise RecordError(f"{path.parent.name}/{path.name} is damaged: {error}") from None
    return Record(
        machine=path.parent.name,
        notebook=entry["notebook"],
        notebook_hash=entry["notebook_hash"],
        recorded=_time(entry["recorded"]),
        seconds=entry["seconds"],
        labkit=entry["labkit"],
        card=entry["machine"],
        before=entry["before"],
        after=entry["after"],
        results=tuple(from_dict(result) for result in entry["results"]),
        failed=entry["failed"],
        doubt=_doubt(entry),
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _doubt(entry: Mapping[str, Any]) -> str | None:
    notebook = notebook_path(entry["notebook"])
    if entry["failed"]:
        return "ended early"
    if notebook.exists() and notebook_hash(notebook) != entry["notebook_hash"]:
        return "of an older version of the notebook"
    return None


def read_all(notebook: str, folder: Path | None = None) -> tuple[list[Record], list[str]]:
    """The records of a notebook by machine, and the reasons why others were refused."""
    records, refused = [], []
    for path in sorted((folder or reference_folder()).glob(f"*/{notebook}.json")):
        try:
            records.append(read(path))
        except RecordError as error:
            refused.append(str(error))
    return records, refused
