"""Each result as HTML: one sentence, bars with their intervals, and the numbers in a table.

The numbers are those of the text, which stands beside the HTML in every output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit import html
from labkit.device import device_in_words
from labkit.html import Bar, Markup, Ratio
from labkit.text import (
    format_bytes,
    format_factor,
    format_interval,
    format_rate,
    format_seconds,
    format_settings,
    format_steps,
    with_article,
)

if TYPE_CHECKING:
    from labkit.counters import Counters
    from labkit.memory import MemoryMeter
    from labkit.memory_timeline import MemoryComparison
    from labkit.racing import RaceResult
    from labkit.results import Comparison, Measurement
    from labkit.sweep import Sweep

ROLES = ("baseline", "candidate")


def comparison(result: Comparison) -> Markup:
    """Both sides of a comparison: their times, their memory, and the speed-up."""
    labels = side_labels(result)
    return html.result(
        html.sentence(_badge(result), comparison_sentence(result)),
        _speed_bars(result, labels),
        _memory_bars(result, labels),
        speedup_ratio(result),
        html.table(_sides_table(result)),
        html.note(_small_print(result)),
        *map(html.note, result.notes),
    )


def comparison_sentence(result: Comparison) -> str:
    """What a comparison found, in one sentence beside the badge that says its verdict."""
    for role, side in zip(ROLES, result.arms, strict=True):
        if side.error:
            return f"The {role} ended by {side.error}: there is nothing to compare."
    if not result.ratios:
        return "Stopped before there was anything to compare."
    low, high = map(format_factor, result.interval)
    builds = _number(result.build_count, "build")
    taken = f"{_number(result.pairs, 'pair')}, {builds}"
    found = f"{format_factor(result.speedup)} times as fast as the baseline"
    per = ""
    if by_throughput(result):
        per = f" for the same number of {result.baseline.unit}"
    if all(map(math.isfinite, result.interval)):
        sentence = f"The candidate is {found}{per} (95 % interval {low} to {high}; {taken})."
    else:
        sentence = f"The candidate is {found}{per}: too few pairs for an interval ({taken})."
    if result.agreement:
        sentence += f" It is {result.agreement}."
    elif result.too_short and math.isfinite(result.interval[0]):
        sentence += " So few pairs decide nothing: give it more seconds."
    return sentence


def _badge(result: Comparison) -> Markup:
    return html.badge(result.verdict, result.conclusion)


def side_labels(result: Comparison) -> tuple[Markup, Markup]:
    """The names of both sides, and what they have set differently."""
    before, after = {}, {}
    for name, (one, other) in result.changed.items():
        before[name], after[name] = one, other
    if not after:
        names = (result.baseline.label, result.candidate.label)
    else:
        names = (format_settings(before), format_settings(after))
    return html.side("baseline", names[0]), html.side("candidate", names[1])


def speedup_ratio(result: Comparison) -> Markup:
    """The speed-up with its interval beside the noise floor; nothing where there is none."""
    if not result.ratios:
        return Markup()
    low, high = result.interval
    text = f"{result.speedup:.3f}x  {format_interval(low, high)}".rstrip()
    row = Ratio("speed-up", result.speedup, (low, high), text, result.verdict)
    title = "Speed-up with its 95 % interval; grey: the noise floor; line: no difference"
    return html.ratios(title, [row], result.noise_floor)


def sweep(results: Sweep) -> Markup:
    """One line for each value that was swept."""
    if not results:
        return html.result(html.sentence(str(results)))
    rows = []
    for value, result in zip(results.values, results, strict=True):
        rows.append(Ratio(str(value), result.speedup, result.interval, "", result.verdict))
    scale = html.ratio_scale(rows)
    speedup_head = "speed-up"
    if any(result.baseline.samples != result.candidate.samples for result in results):
        speedup_head = f"speed-up for the same number of {results[0].baseline.unit}"
    head = [
        results.control,
        "baseline",
        "candidate",
        speedup_head,
        "",
        "verdict",
        "95 % interval",
        "",
    ]
    lines = []
    for row, result in zip(rows, results, strict=True):
        line = [row.label]
        line += [side.error or format_seconds(side.median) for side in result.arms]
        line += [f"{result.speedup:.3f}x", html.ratio_cell(row, scale)]
        interval = format_interval(*row.interval) or "-"
        line += [_badge(result), interval, result.taken]
        lines.append(line)
    memory = [_memory_cells(result) for result in results]
    if any(memory):
        head += ["peak memory", "of the baseline's"]
        for line, cells in zip(lines, memory, strict=True):
            line += cells or ["-", "-"]
    sentence = html.sentence(f"Sweep of {results.control}: {sweep_sentence(results)}.")
    return html.result(sentence, html.table([head, *lines]), html.note(_sweep_note(results)))


def sweep_sentence(results: Sweep) -> str:
    """At which values the candidate was faster, slower, the same.

    As in ``faster at 64, 256; unclear at 8``.
    """
    found: dict[str, list[str]] = {}
    for value, result in zip(results.values, results, strict=True):
        found.setdefault(result.conclusion, []).append(str(value))
    return "; ".join(f"{words} at {', '.join(values)}" for words, values in found.items())


def race(result: RaceResult) -> Markup:
    """The time to the target of each side of a race, over its seeds."""
    if not result.arms:
        return html.result(html.preformatted(str(result)))
    sentences = [html.sentence(_race_title(result))]
    bars = []
    for number, arm in enumerate(result.arms):
        low, high = result.spread(arm)
        median = result.median(arm)
        text = f"{format_seconds(median)}  [{format_seconds(low)}, {format_seconds(high)}]"
        if not result.arrived(arm):
            text = "did not reach it"
        tone = "candidate" if number else "baseline"
        bars.append(Bar(arm, median, text, (low, high), tone))
    spread = result.spread_name
    head = ["", "median time", spread, "median steps", "reached by"]
    rows = [head]
    for arm in result.arms:
        rows.append(_race_row(result, arm))
    title = f"Median training time to the target, with its {spread} (shorter is better)"
    return html.result(
        *sentences,
        html.bars(title, bars),
        _race_ratios(result),
        html.table(rows),
    )


def memory(meter: MemoryMeter) -> Markup:
    """What a block of code needed at its peak, and what was left of it."""
    figures = {
        "peak": meter.peak,
        "at the end": meter.current,
        "saved for backward": meter.saved_for_backward,
        "reserved": meter.reserved,
    }
    rows = []
    for label, size in figures.items():
        if size is not None:
            tone = "candidate" if label == "peak" else "baseline"
            rows.append(Bar(label, size, format_bytes(size), tone=tone))
    words = f"At its peak the block held {format_bytes(meter.peak)} on {meter.device}"
    if meter.saved_for_backward is not None:
        words += f"; autograd saved up to {format_bytes(meter.saved_for_backward)} for backward"
    return html.result(html.sentence(f"{words}."), html.bars("Memory of live tensors", rows))


def memory_comparison(result: MemoryComparison) -> Markup:
    """The peak memory of both sides, and in which part of the step it is reached."""
    bars = []
    rows = [["", *ROLES]]
    for role, side in zip(ROLES, result.arms, strict=True):
        value = math.nan if side.peak is None else side.peak
        label = html.side(role, format_settings(_own(result, side.settings)))
        bars.append(Bar(label, value, side.peak_text, tone=role))
    rows.append(["peak memory", *(side.peak_text for side in result.arms)])
    rows.append(["reached in", *(side.peak_part or "-" for side in result.arms)])
    rows.append(["before the step", *(format_bytes(side.before) for side in result.arms)])
    return html.result(
        html.sentence(memory_sentence(result)),
        html.bars("Peak memory of a step (shorter is better)", bars),
        html.table(rows),
    )


def memory_sentence(result: MemoryComparison) -> str:
    """What a comparison of memory found, in one sentence."""
    for role, side in zip(ROLES, result.arms, strict=True):
        if side.error:
            return f"The {role} ended by {side.error}: there is nothing to compare."
    if None in (result.baseline.peak, result.candidate.peak):
        return "The peak of one side cannot be counted: there is nothing to compare."
    before, after = (side.peak_text for side in result.arms)
    if not result.baseline.peak and not result.candidate.peak:
        return "Neither side has tensors: there is nothing to compare."
    if not result.baseline.peak:
        return f"The candidate needs {after}; the baseline has no tensors."
    if not result.candidate.peak:
        return f"The candidate has no tensors; the baseline needs {before}."
    words = f"The candidate needs {format_factor(result.ratio)} times the memory of the baseline"
    part = ""
    if result.candidate.peak_part:
        part = f", its most in the {result.candidate.peak_part} part of the step"
    return f"{words}: {after} instead of {before}{part}."


def _own(result: MemoryComparison, settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in result.changed}


def measurement(result: Measurement) -> Markup:
    """The times of one step alone."""
    return html.result(
        html.sentence(measurement_sentence(result)),
        html.table(_rows([result])),
        *map(html.note, result.notes),
    )


def measurement_sentence(result: Measurement) -> str:
    """What one step takes, in one sentence."""
    if result.error:
        return f"The step ended by {result.error}."
    if not result.times:
        return "Nothing was timed."
    times = f"median of {_number(len(result.times), 'block')}, IQR {format_seconds(result.iqr)}"
    rate = format_rate(result.throughput, result.unit)
    return f"One step takes {format_seconds(result.median)} ({times}): {rate}."


def counters(counted: Counters) -> Markup:
    """The counts of one step."""
    return html.result(html.table([["one step", ""], *counted.rows()]))


class Speed(NamedTuple):
    """How fast a side is, as a bar shows it: median, quartiles, and the text behind it."""

    value: float
    quartiles: tuple[float, float]
    text: str


def by_throughput(result: Comparison) -> bool:
    """Whether the sides process different amounts in a step, so that its time would mislead."""
    return bool(result.ratios) and result.baseline.samples != result.candidate.samples


def speeds(result: Comparison) -> list[Speed]:
    """Of both sides: the time of a step, or the throughput; see `by_throughput`."""
    found = []
    for side in result.arms:
        low, high = side.quartiles
        if by_throughput(result):
            text = side.error or format_rate(side.throughput, side.unit)
            rates = (side.samples / high, side.samples / low)
            found.append(Speed(side.throughput, rates, text))
        else:
            text = side.error or format_seconds(side.median)
            found.append(Speed(side.median, (low, high), text))
    return found


def _speed_bars(result: Comparison, labels: Sequence[str]) -> Markup:
    rows = []
    for role, label, speed in zip(ROLES, labels, speeds(result), strict=True):
        rows.append(Bar(label, speed.value, speed.text, speed.quartiles, role))
    title = f"Time of {with_article(result.one_step)}: median and quartiles (shorter is better)"
    if by_throughput(result):
        title = "Throughput: median and quartiles (longer is better)"
    return html.bars(title, rows)


def _memory_bars(result: Comparison, labels: Sequence[str]) -> Markup:
    rows = []
    for role, label, side in zip(ROLES, labels, result.arms, strict=True):
        if side.peak_bytes is not None:
            rows.append(Bar(label, side.peak_bytes, side.peak_text, tone=role))
        elif side.peak_text != "-":
            rows.append(Bar(label, math.nan, side.peak_text, tone=role))
    if not rows:
        return Markup()
    title = f"Peak memory of {with_article(result.one_step)} (shorter is better)"
    return html.bars(title, rows)


def _sides_table(result: Comparison) -> list[list[str]]:
    rows = _rows(result.arms)
    return [["", *ROLES], *rows[1:]]


def _rows(sides: Sequence[Measurement]) -> list[list[str]]:
    # Not above: results show themselves by this module.
    from labkit.results import table_rows

    return table_rows(sides)


def _small_print(result: Comparison) -> str:
    parts = [f"{result.seconds:.1f} s on {device_in_words(result.device)}"]
    if math.isfinite(result.noise_floor):
        parts.append(f"noise floor {result.noise_floor:.1%}")
    if result.stopped:
        parts.append("stopped early")
    if result.assumed:
        parts.append(result.assumed)
    if result.shared:
        parts.append(f"both sides: {format_settings(result.shared)}")
    return "; ".join(parts)


def _memory_cells(result: Comparison) -> list[str]:
    if math.isnan(result.memory_ratio):
        return []
    return [format_bytes(result.candidate.peak_bytes), f"{result.memory_ratio:.2f}"]


def _sweep_note(results: Sweep) -> str:
    first = results[0]
    settings = []
    for role, side in zip(ROLES, first.arms, strict=True):
        others = {name: value for name, value in side.settings.items() if name != results.control}
        if others:
            settings.append(f"{role}: {format_settings(others)}")
    return "; ".join(settings)


def _race_title(result: RaceResult) -> str:
    sign = "at least" if result.higher_is_better else "at most"
    words = f"Race to {result.metric} of {sign} {result.target:g}"
    for arm in result.arms[1:]:
        words += f"; {arm} {result.without_factor(arm) or _race_factor(result, arm)}"
    return f"{words}."


def _race_factor(result: RaceResult, arm: str) -> str:
    factor = f"{format_factor(result.speedup(arm)[0])} times as fast as {result.arms[0]}"
    return f"is {factor} ({result.certainty(arm)}): {result.verdict(arm)}"


def _race_row(result: RaceResult, arm: str) -> list[str]:
    low, high = result.spread(arm)
    arrived = f"{result.tally(arm)} seeds"
    errors = sorted({run.error for run in result.of(arm) if run.error})
    if errors:
        arrived += f" ({', '.join(errors)})"
    if not result.arrived(arm):
        return [arm, "-", "-", "-", arrived]
    times = [format_seconds(result.median(arm)), f"{format_seconds(low)} – {format_seconds(high)}"]
    return [arm, *times, format_steps(result.median(arm, "steps")), arrived]


def _race_ratios(result: RaceResult) -> Markup:
    rows = []
    with_interval = ""
    for arm in result.arms[1:]:
        by = result.told_by(arm)
        if by == "nothing":
            continue
        ratio, low, high = result.speedup(arm)
        text = f"{ratio:.2f}x  {format_interval(low, high, 2)}".rstrip()
        if by == "counts":
            ratio = math.nan
            text = f"{result.tally(arm)} against {result.tally(result.arms[0])} seeds"
        elif not math.isnan(low):
            with_interval = ", with 95 % interval"
        rows.append(Ratio(arm, ratio, (low, high), text, result.verdict(arm)))
    if not rows:
        return Markup()
    title = f"As fast to the target as {result.arms[0]}{with_interval}; line: no difference"
    return html.ratios(title, rows)


def _number(count: int, word: str) -> str:
    if count == 1:
        return f"one {word}"
    return f"{count} {word}s"
