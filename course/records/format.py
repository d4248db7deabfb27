"""The format of recorded runs, ``data/reference/<machine>/<notebook>.json``, stated once.

The classes are the format. msgspec reads and writes the files by them, and the JSON schema that
stands beside the data is generated from them: ``python -m course.records.format`` writes it.
A figure that is not finite is null in a file, as is one that was not measured.

Beyond the schema, a file is refused when it is of the future, lacks what a machine card must say,
or states figures that do not follow from its raw times.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta, Struct

from course.notebook_files import ROOT
from course.records.planned import PlanRatios
from course.written import write_whole
from labkit.journal import Failure
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement

SCHEMA = 3
SCHEMA_FILE = ROOT / "data" / "reference" / "record.schema.json"
# Digits of the raw times: finer than any noise floor.
DIGITS = 5
# Of clocks that are wrong.
TOLERANCE = timedelta(days=1)

CARD = ("cpu", "gpu", "os", "python", "torch", "cuda", "cudnn", "threads", "switches", "measured")
STATE = ("load_average", "cpu_mhz", "gpu")
COUNTERS = ("flops", "launches", "saved_bytes", "host_reads")

Result: TypeAlias = Comparison | RaceResult | PlanRatios | Failure

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Figure: TypeAlias = float | None
Interval: TypeAlias = tuple[Figure, Figure]
Device: TypeAlias = Literal["cpu", "cuda"]
Verdict: TypeAlias = Literal["faster", "slower", "same", "unclear"]
Source: TypeAlias = Literal["predicted", "measured"]
Settings: TypeAlias = dict[str, bool | int | float | str | None]


def plain(settings: Mapping[str, Any]) -> Settings:
    """Settings as JSON knows them; others, such as a dtype or infinity, by their names."""
    found: Settings = {}
    for name, value in settings.items():
        known = isinstance(value, bool | int | float | str | None)
        if isinstance(value, float):
            known = math.isfinite(value)
        found[name] = value if known else str(value)
    return found


class RecordError(ValueError):
    """A file that is not to be trusted as a record; the message says why."""


class Side(Struct, kw_only=True, forbid_unknown_fields=True):
    """One side of a comparison, the baseline or the candidate."""

    label: str
    settings: Settings
    times: Annotated[
        tuple[Positive, ...],
        Meta(
            description="seconds per step, a block each, in the order A B B A A B B A ...: "
            "pair i is the i-th of both sides"
        ),
    ]
    builds: Annotated[
        tuple[Count, ...],
        Meta(description="the build, from 0, that each time was taken of; empty: one build"),
    ] = ()
    median: Figure
    iqr: Figure
    steps_per_block: Annotated[int, Meta(ge=1)]
    samples: Positive
    unit: str
    cold: Annotated[Figure, Meta(description="seconds of the very first step")]
    peak_bytes: Count | None
    reserved_bytes: Count | None
    counters: Annotated[
        dict[str, Count | None] | str | None,
        Meta(
            description=f"of one warm step: {', '.join(COUNTERS)}; a text says why there are none"
        ),
    ]
    error: Annotated[str | None, Meta(description="what ended this side")]

    @classmethod
    def of(cls, side: Measurement) -> Side:
        """What a file keeps of one side."""
        values = {name: getattr(side, name) for name in cls.__struct_fields__}
        return cls(**values | {"settings": plain(side.settings)})

    def result(self) -> Measurement:
        """The side as labkit knows it."""
        kept = {each.name for each in fields(Measurement)}.intersection(self.__struct_fields__)
        return Measurement(**{name: getattr(self, name) for name in kept})


class Entry(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One result of a lab."""

    lab: Annotated[str, Meta(description="name of the function that makes the workload")]

    def stated(self) -> Mapping[str, Figure]:
        """The figures that must follow from the raw times."""
        return {}


class ComparisonEntry(Entry, tag="comparison"):
    """Two sides timed in turn."""

    device: Device
    seed: int | None
    threads: Annotated[
        int | None, Meta(description="of torch on the CPU; null: as the caller had them")
    ]
    baseline: Side
    candidate: Side
    speedup: Figure
    interval: Annotated[Interval, Meta(description="95 % interval of the speed-up")]
    noise_floor: Annotated[Figure, Meta(description="of the A/A control, as a logarithm")]
    verdict: Verdict

    @classmethod
    def of(
        cls, result: Comparison, seed: int | None = None, threads: int | None = None
    ) -> ComparisonEntry:
        """What a file keeps: figures of the rounded times, so that a reader finds the same."""
        baseline, candidate = map(_rounded, result.arms)
        result = replace(result, baseline=baseline, candidate=candidate)
        return cls(
            lab=result.lab,
            device=cast(Device, result.device),
            seed=seed,
            threads=threads,
            baseline=Side.of(baseline),
            candidate=Side.of(candidate),
            speedup=result.speedup,
            interval=result.interval,
            noise_floor=result.noise_floor,
            verdict=cast(Verdict, result.verdict),
        )

    def result(self) -> Comparison:
        """The comparison, up to the rounding of its times."""
        sides = self.baseline.result(), self.candidate.result()
        return Comparison(*sides, device=self.device, lab=self.lab)

    def stated(self) -> Mapping[str, Figure]:
        """Interval and verdict are no part of it: their rules may change."""
        return {
            "speedup": self.speedup,
            "baseline's median": self.baseline.median,
            "candidate's median": self.candidate.median,
        }


class Run(Struct, kw_only=True, forbid_unknown_fields=True):
    """One run of a race."""

    arm: str
    seed: int
    reached: bool
    error: str | None
    curve: Annotated[
        tuple[tuple[int, Figure, Figure], ...],
        Meta(description="steps, training seconds and metric at each evaluation"),
    ]

    @classmethod
    def of(cls, run: RaceRun) -> Run:
        """What a file keeps of one run."""
        return cls(
            arm=run.arm, seed=run.seed, reached=run.reached, error=run.error, curve=run.curve
        )

    def result(self) -> RaceRun:
        """The run as labkit knows it."""
        curve = []
        for steps, seconds, value in self.curve:
            curve.append((steps, _known(seconds), _known(value)))
        return RaceRun(self.arm, self.seed, tuple(curve), self.reached, self.error)


class RaceEntry(Entry, tag="race"):
    """A race to a target."""

    metric: str
    target: float
    higher_is_better: bool
    runs: Annotated[tuple[Run, ...], Meta(min_length=1)]
    median_seconds: Annotated[
        dict[str, Figure], Meta(description="to the target; null: fewer than half arrived")
    ]
    interval_seconds: dict[str, Interval]

    @classmethod
    def of(cls, result: RaceResult) -> RaceEntry:
        """What a file keeps of a race."""
        runs = tuple(replace(run, curve=_rounded_curve(run)) for run in result.runs)
        result = replace(result, runs=runs)
        return cls(
            lab=result.lab,
            metric=result.metric,
            target=result.target,
            higher_is_better=result.higher_is_better,
            runs=tuple(map(Run.of, runs)),
            median_seconds={arm: result.median(arm) for arm in result.arms},
            interval_seconds={arm: result.interval(arm) for arm in result.arms},
        )

    def result(self) -> RaceResult:
        """The race, up to the rounding of its curves."""
        runs = tuple(run.result() for run in self.runs)
        return RaceResult(runs, self.target, self.metric, self.higher_is_better, lab=self.lab)

    def stated(self) -> Mapping[str, Figure]:
        """The medians."""
        return {f"{arm}'s median_seconds": figure for arm, figure in self.median_seconds.items()}


class Ratios(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some of what a plan needs, over what the plain model needs."""

    memory: Positive | None = None
    time: Positive | None = None
    batch: Positive | None = None


class PlanEntry(Entry, tag="planned"):
    """What a plan needs beside the plain model."""

    settings: Settings
    figures: Ratios
    source: Source

    @classmethod
    def of(cls, result: PlanRatios) -> PlanEntry:
        """What a file keeps of a plan."""
        ratios = {name: _round(value) for name, value in result.figures.items()}
        return cls(
            lab=result.lab,
            settings=plain(result.settings),
            figures=Ratios(**ratios),
            source=cast(Source, result.source),
        )

    def result(self) -> PlanRatios:
        """The plan's ratios."""
        figures = msgspec.to_builtins(self.figures)
        return PlanRatios(self.lab, self.settings, figures, self.source)


class FailureEntry(Entry, tag="failure"):
    """A lab that raised."""

    settings: Settings
    error: str

    @classmethod
    def of(cls, result: Failure) -> FailureEntry:
        """What a file keeps of a failure."""
        return cls(lab=result.lab, settings=plain(result.settings), error=result.error)

    def result(self) -> Failure:
        """The failure."""
        return Failure(self.lab, self.settings, self.error)


AnyEntry: TypeAlias = ComparisonEntry | RaceEntry | PlanEntry | FailureEntry

_ENTRIES: dict[type, Callable[..., AnyEntry]] = {
    Comparison: ComparisonEntry.of,
    RaceResult: RaceEntry.of,
    PlanRatios: PlanEntry.of,
    Failure: FailureEntry.of,
}


class RecordFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """One notebook's run on one machine.

    Times are seconds, sizes bytes. null: not measured, or not finite. Written by
    `python -m course record`, never by hand.
    """

    schema: Literal[3] = 3
    notebook: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$")]
    notebook_hash: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{16}$",
            description="of the cells that measure, see course/records/notebook_hash.py",
        ),
    ]
    recorded: Annotated[
        str,
        Meta(
            pattern=r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?$",
            description="UTC, when the run ended; some old ones know the day only",
        ),
    ]
    seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="the whole notebook took, what was taken over included; null: not known"),
    ]
    runs: Annotated[
        int,
        Meta(
            ge=1,
            description="of how many runs of the notebook the results are: more than one where a "
            "run was cut off and the next one went on",
        ),
    ] = 1
    labkit: str
    failed: Annotated[
        str | None, Meta(description="why the run ended before its last cell; null: it did not")
    ]
    machine: Annotated[
        dict[str, Any],
        Meta(
            description="the machine card, as `python -m course doctor` prints it",
            extra_json_schema={"required": list(CARD)},
        ),
    ]
    before: Annotated[
        dict[str, Any],
        Meta(
            description="what changes while a machine works",
            extra_json_schema={"required": list(STATE)},
        ),
    ]
    after: Annotated[dict[str, Any], Meta(extra_json_schema={"required": list(STATE)})]
    results: tuple[AnyEntry, ...]

    @property
    def time(self) -> datetime:
        """When the run ended."""
        return datetime.fromisoformat(self.recorded).replace(tzinfo=UTC)


class _Version(Struct):
    """What is read of a file first: another version has other fields."""

    schema: Any = None


_versions = msgspec.json.Decoder(_Version)
_files = msgspec.json.Decoder(RecordFile)


# ------------------------------------------------------------------------------- reading, writing


def entry_of(result: Result, **about: int | None) -> AnyEntry:
    """What a file keeps of a result; ``about``, seed and threads, is known of a comparison only."""
    return _ENTRIES[type(result)](result, **about)


def encode(content: Struct) -> bytes:
    """A record, or a part of it, as JSON on one line. TypeError for what has no place there."""
    return msgspec.json.encode(content, enc_hook=_number)


def decode(data: bytes) -> RecordFile:
    """A record that may be trusted.

    Raises RecordError for one that is damaged, of another schema, from the future, or whose figures
    do not follow from its raw times.
    """
    try:
        version = _versions.decode(data).schema
        if version != SCHEMA:
            raise RecordError(f"has schema version {version!r}; this course reads version {SCHEMA}")
        content = _files.decode(data)
    except msgspec.ValidationError as error:
        raise RecordError(f"does not fit {SCHEMA_FILE.name}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"is damaged: {error}") from None
    _check(content)
    return content


def _check(content: RecordFile) -> None:
    """What no schema says."""
    try:
        late = content.time > datetime.now(UTC) + TOLERANCE
    except ValueError as error:
        raise RecordError(f"does not fit {SCHEMA_FILE.name}: recorded: {error}") from None
    if late:
        raise RecordError(f"is from the future: {content.recorded}")
    _require("machine", content.machine, CARD)
    _require("before", content.before, STATE)
    _require("after", content.after, STATE)
    for entry in content.results:
        _check_entry(entry)


def _require(place: str, found: Collection[str], wanted: Collection[str]) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise RecordError(f"does not fit {SCHEMA_FILE.name}: {place} lacks {', '.join(missing)}")


def _check_entry(entry: AnyEntry) -> None:
    if isinstance(entry, ComparisonEntry):
        for side in (entry.baseline, entry.candidate):
            if isinstance(side.counters, dict):
                _require("counters", side.counters, COUNTERS)
    if isinstance(entry, PlanEntry) and entry.figures == Ratios():
        raise RecordError(f"does not fit {SCHEMA_FILE.name}: a plan without figures")
    try:
        stated, found = entry.stated(), entry_of(entry.result()).stated()
    except (ArithmeticError, LookupError, ValueError) as error:
        raise RecordError(f"is damaged: {error}") from None
    if stated.keys() != found.keys():
        raise RecordError(f"states {sorted(stated)}, but its raw times give {sorted(found)}")
    for name, figure in stated.items():
        if not _close(figure, found[name]):
            raise RecordError(f"states {name} {figure!r}, but its raw times give {found[name]!r}")


def _close(stated: Figure, found: Figure) -> bool:
    if stated is None or found is None:
        return stated is None and (found is None or not math.isfinite(found))
    return math.isclose(stated, found, rel_tol=1e-3)


# ----------------------------------------------------------------------------------------- values


def _rounded(side: Measurement) -> Measurement:
    cold = side.cold
    if cold is not None:
        cold = _round(cold)
    return replace(side, times=tuple(map(_round, side.times)), cold=cold)


def _rounded_curve(run: RaceRun) -> tuple[tuple[int, float, float], ...]:
    return tuple((steps, _round(seconds), _round(value)) for steps, seconds, value in run.curve)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _known(value: Figure) -> float:
    if value is None:
        return math.nan
    return value


def _number(value: Any) -> Any:
    """A NumPy or torch scalar as Python's own number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a record")


# ----------------------------------------------------------------------------------------- schema


def schema_text() -> str:
    """The JSON schema of a record, as it is published."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Recorded run of one Speed Lab notebook on one machine, schema {SCHEMA}",
        **msgspec.json.schema(RecordFile),
    }
    return msgspec.json.format(msgspec.json.encode(_cleaned(schema)), indent=2).decode() + "\n"


def _cleaned(part: Any) -> Any:
    """Descriptions without their indentation, which Python 3.13 takes away by itself."""
    if isinstance(part, list):
        return [_cleaned(each) for each in part]
    if not isinstance(part, dict):
        return part
    clean = {key: _cleaned(value) for key, value in part.items()}
    if isinstance(clean.get("description"), str):
        clean["description"] = inspect.cleandoc(clean["description"])
    return clean


if __name__ == "__main__":
    write_whole(SCHEMA_FILE, schema_text())
