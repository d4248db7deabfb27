"""A claim of a source, and an error in one: plain values, read from this folder's TOML files.

A claim names one recorded comparison by what it is, never by how large its figure is. Of several
that fit, the largest says nothing: on another machine another one is the largest. So where a
sweep has many, the claim says at which setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Value = bool | int | float | str
Settings = Mapping[str, Value]
Range = tuple[float, float]

DEVICES = ("cpu", "cuda", "any")


@dataclass(frozen=True)
class Metric:
    """What a claim's figure is the ratio of, how a gain in it is said, whether it has no
    noise at all.
    """

    title: str
    higher_is_better: bool
    gain: str
    exact: bool = False


METRICS = {
    "speedup": Metric("speed-up", True, ""),
    "batch": Metric("largest batch, candidate / baseline", True, " larger"),
    "memory": Metric("peak memory, candidate / baseline", False, " smaller"),
    "flops": Metric("FLOPs, candidate / baseline", False, " fewer", exact=True),
    "launches": Metric("operator calls, candidate / baseline", False, " fewer", exact=True),
    "saved_bytes": Metric(
        "bytes saved for backward, candidate / baseline", False, " fewer", exact=True
    ),
}


@dataclass(frozen=True)
class Claim:
    """What a source says about one lab, and which recorded comparison is held against it.

    ``said`` is the source's figure in its own terms, ``figure`` the same as a range of our
    ``metric``; (1, inf) is a plain "faster", (0, 1) a plain "slower". ``metric``: ``speedup``
    (baseline / candidate time; in a race, time to the target), ``memory`` (peak, candidate /
    baseline), ``batch`` (the largest that fits, of a plan), or a counter's ratio: ``flops``,
    ``launches``, ``saved_bytes``.

    ``change`` holds exactly what the candidate sets differently, ``baseline`` what the baseline
    has there, ``at`` what both have set; ``"*"`` is any value. ``sizes`` adds to ``at`` by kind
    of device, since a lab's sizes depend on it: ``{"cpu": {"batch_size": 32}}``. In a race,
    ``arm`` and ``against`` hold what the arm's name says; without ``against``, the race's first
    arm. ``target`` tells races apart.

    ``machine`` is the source's kind of machine: ``cpu``, ``cuda`` or ``any``; ``setting`` says in
    words what it measured on; ``same_setting`` whether ours, but for the machine, is the same.
    Only a figure of that kind of machine and of the same setting is judged. ``device`` limits
    which figures are shown.

    ``expect`` is where our figure should lie, on machines with at most ``cores`` cores where that
    decides; ``why`` explains it. A claim with a ``headline``, a few words on what was compared,
    stands on the map. ``statements`` are the numbers in `statements.csv` that it is about.
    """

    text: str
    source: str
    said: str
    figure: Range
    expect: Range
    why: str
    setting: str
    same_setting: bool
    machine: str = "any"
    metric: str = "speedup"
    lab: str = "make_workload"
    device: str = "any"
    change: Settings = field(default_factory=dict)
    baseline: Settings = field(default_factory=dict)
    at: Settings = field(default_factory=dict)
    sizes: Mapping[str, Settings] = field(default_factory=dict)
    arm: Settings = field(default_factory=dict)
    against: Settings = field(default_factory=dict)
    target: float | None = None
    cores: int | None = None
    headline: str = ""
    statements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric={self.metric!r}: use one of {', '.join(METRICS)}")
        for name, value in (("device", self.device), ("machine", self.machine)):
            if value not in DEVICES:
                raise ValueError(f"{name}={value!r}: use one of {', '.join(DEVICES)}")
        for name, (low, high) in (("figure", self.figure), ("expect", self.expect)):
            if not 0 <= low <= high:
                raise ValueError(f"{name}={[low, high]!r}: use [low, high], with 0 <= low <= high")
        self._check_question()

    def _check_question(self) -> None:
        """ValueError unless it asks for a comparison, or for a race."""
        if bool(self.change) == bool(self.arm):
            raise ValueError("change or arm: give one of them, a comparison or a race")
        if self.arm and (self.baseline or self.at):
            raise ValueError("baseline and at are for comparisons: a race has arm and against")
        if self.change and (self.against or self.target is not None):
            raise ValueError("against and target are for races: a comparison has baseline and at")
        if not self.baseline.keys() <= self.change.keys():
            raise ValueError(f"baseline={dict(self.baseline)!r}: use settings that change names")
        if not self.sizes.keys() <= {"cpu", "cuda"}:
            raise ValueError(f"sizes={dict(self.sizes)!r}: use cpu and cuda")

    def judges(self, device: str) -> bool:
        """Whether a figure of this kind of device is one of the source's kind of machine
        and setting.
        """
        return self.same_setting and self.machine in ("any", device)

    def expects(self, value: Range, cores: int | None) -> bool:
        """Whether an interval touches what we said to expect; True on a machine that it was
        not said of.
        """
        if self.cores is not None and (cores is None or cores > self.cores):
            return True
        low, high = value
        return low <= self.expect[1] and high >= self.expect[0]

    def gains(self, low: float, high: float) -> Range:
        """A range of the metric as gains: above 1 the candidate is better, whatever the
        metric is.
        """
        if METRICS[self.metric].higher_is_better:
            return low, high
        return _inverse(high), _inverse(low)


def _inverse(ratio: float) -> float:
    if ratio == 0:
        return math.inf
    return 1 / ratio


@dataclass(frozen=True)
class Correction:
    """An error in a source: its words, what is right, how one knows, and a check that can
    be run today.
    """

    source: str
    says: str
    right: str
    evidence: str
    holds: Callable[[], bool] | None = None
    statements: tuple[str, ...] = ()
