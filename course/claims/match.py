"""Which recorded result a claim means: by lab, by what changed and is set, never by its figure."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from course.claims.claim import Claim, Settings, Value
from course.claims.one_build import one_build
from course.claims.pool import pool_comparisons, pool_races
from course.records.matching import ANY, Question, holds
from course.records.planned import PlanRatios
from course.records.store import Record
from labkit.racing import RaceResult
from labkit.results import Comparison


@dataclass(frozen=True)
class Figure:
    """A claim's metric in one recorded result: value and interval, and how far to trust it.

    ``device`` is the result's own, not the machine's: a machine with a GPU times its CPU as well.
    ``verdict`` is what a comparison says of its times, empty for what is counted, planned or raced.
    """

    device: str
    value: float
    low: float
    high: float
    verdict: str = ""
    predicted: bool = False
    # False where an arm failed, or too few pairs were timed to claim anything.
    enough: bool = True
    # Of a race in which a run never arrived, in place of a value.
    counts: str = ""
    # The record itself shows that another build would leave the interval.
    one_build: bool = False


def figures(claim: Claim, record: Record) -> list[Figure]:
    """The claim's figure on each kind of device in a record, repeats pooled.

    ValueError when results with different settings fit.
    """
    found = []
    for device in ("cpu", "cuda"):
        if claim.device not in ("any", device):
            continue
        if claim.arm:
            figure = _raced(claim, record, device)
        else:
            figure = _compared(claim, record, device) or _planned(claim, record, device)
        if figure is not None:
            found.append(figure)
    return found


# ---------------- comparisons


def _compared(claim: Claim, record: Record, device: str) -> Figure | None:
    wanted = _question(claim, device)
    repeats: dict[str, list[Comparison]] = {}
    for result in record.results:
        if isinstance(result, Comparison) and result.device == device and wanted.fits(result):
            question = f"{result.changed}, at {result.shared}"
            repeats.setdefault(question, []).append(result)
    _only_one(claim, record, list(repeats), "baseline, at or sizes")
    for same in repeats.values():
        return _measured(claim, pool_comparisons(same), record)
    return None


def _question(claim: Claim, device: str) -> Question:
    at = {**claim.at, **claim.sizes.get(device, {})}
    return Question(claim.lab, claim.change, claim.baseline, at)


def _measured(claim: Claim, result: Comparison, record: Record) -> Figure | None:
    if claim.metric == "speedup":
        if not result.ratios:
            return None
        low, high = result.interval
        failed = bool(result.baseline.error or result.candidate.error)
        enough = not (failed or math.isnan(low))
        return Figure(
            result.device,
            result.speedup,
            low,
            high,
            verdict=result.verdict,
            enough=enough,
            one_build=enough and one_build(result, record.results),
        )
    if claim.metric == "memory":
        ratio = result.memory_ratio
    else:
        ratio = _counted(result, claim.metric)
    if math.isnan(ratio):
        return None
    return Figure(result.device, ratio, ratio, ratio)


def _counted(result: Comparison, counter: str) -> float:
    before, after = result.baseline.counters, result.candidate.counters
    if not isinstance(before, dict) or not isinstance(after, dict) or not before.get(counter):
        return math.nan
    return after[counter] / before[counter]


# ---------------- plans


def _planned(claim: Claim, record: Record, device: str) -> Figure | None:
    wanted = {**claim.change, **claim.at}
    plans: dict[str, PlanRatios] = {}
    for result in record.results:
        if not isinstance(result, PlanRatios) or record.device != device or result.lab != claim.lab:
            continue
        if holds(wanted, result.settings) and not math.isnan(_ratio(claim, result)):
            plans[str(result.settings)] = result
    _only_one(claim, record, list(plans), "at")
    for plan in plans.values():
        ratio = _ratio(claim, plan)
        return Figure(device, ratio, ratio, ratio, predicted=plan.source == "predicted")
    return None


def _ratio(claim: Claim, plan: PlanRatios) -> float:
    if claim.metric == "speedup" and "time" in plan.figures:
        return 1 / plan.figures["time"]
    return plan.figures.get(claim.metric, math.nan)


# ---------------- races


def _raced(claim: Claim, record: Record, device: str) -> Figure | None:
    """A race does not say on which device it ran: on the GPU, where the machine has one."""
    if record.device != device or claim.metric != "speedup":
        return None
    wanted = {**claim.arm, **claim.sizes.get(device, {})}
    repeats: dict[str, list[tuple[RaceResult, str, str]]] = {}
    for result in record.results:
        if not isinstance(result, RaceResult) or result.lab != claim.lab:
            continue
        if claim.target is not None and not math.isclose(claim.target, result.target):
            continue
        arm = named(result, wanted)
        against: str | None = result.arms[0]
        if claim.against:
            against = named(result, claim.against)
        if arm is None or against is None:
            continue
        question = f"{arm} against {against}, to {result.target:g}"
        repeats.setdefault(question, []).append((result, arm, against))
    _only_one(claim, record, list(repeats), "arm, against or target")
    for same in repeats.values():
        _, arm, against = same[0]
        race = pool_races([result for result, _, _ in same])
        by = race.told_by(arm, against)
        if by == "times":
            value, low, high = race.speedup(arm, against=against)
            return Figure(device, value, low, high, enough=not math.isnan(low))
        if by == "counts":
            counts = f"reached by {race.tally(arm)} seeds against {race.tally(against)}"
            return Figure(device, math.nan, math.nan, math.nan, enough=False, counts=counts)
    return None


def named(race: RaceResult, wanted: Settings) -> str | None:
    """The arm whose name says just this; a setting of ``"*"`` may be left out, at its default.

    ValueError when several do.
    """
    fitting: dict[str, int] = {}
    for arm in race.arms:
        said = _said(arm)
        if said is None or not said.keys() <= wanted.keys():
            continue
        fixed = {name: value for name, value in wanted.items() if value != ANY}
        if holds(fixed, said):
            fitting[arm] = len(said)
    # The one that says most: with "*" also the arm that says nothing of it would fit.
    best = [arm for arm, count in fitting.items() if count == max(fitting.values())]
    if len(best) > 1:
        raise ValueError(f"{dict(wanted)!r} fits several arms: {'; '.join(best)}")
    for arm in best:
        return arm
    return None


def _said(arm: str) -> dict[str, Value] | None:
    """The settings in an arm's name, ``"lr=0.1, norm='batch'"``; None for another name."""
    if arm == "baseline":
        return {}
    try:
        call = ast.parse(f"f({arm})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args:
            return None
        return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError):
        return None


def _only_one(claim: Claim, record: Record, questions: list[str], fields: str) -> None:
    if len(questions) > 1:
        raise ValueError(
            f"{claim.text!r}: {record.label} has {len(questions)} results that fit: "
            f"{'; '.join(questions)}; say which by {fields}"
        )
