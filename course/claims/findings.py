"""What a record says to a claim: a figure with its interval, and one word.

Many sources speak of large networks on GPUs. To write "refuted" under them after a run on two CPU
cores is wrong: only a figure of the source's kind of machine, model and setting is judged, all
others stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course.claims.claim import METRICS, Claim, Range
from course.claims.match import Figure, figures
from course.records.store import Record
from labkit.text import format_factor

REPRODUCED = "reproduced"
BETTER = "better"
WORSE = "worse"
OTHER = "other setting"
PREDICTED = "predicted"
UNCLEAR = "unclear"
MISSING = "not recorded yet"

WORDS = {
    REPRODUCED: "the source's kind of machine, model and setting, and our figure lies in its "
    "range; where the source says only faster or slower: the same direction",
    BETTER: "the same, with a larger gain or a smaller cost than its range",
    WORSE: "the same, with a smaller gain or a larger cost than its range; or no gain at all",
    OTHER: "another kind of machine, model or setting: our figure beside theirs, no judgement",
    PREDICTED: "calculated by the memory planner, not run: no judgement",
    UNCLEAR: "the same setting, but the interval holds a bound of the range, "
    "or is too wide to tell",
    MISSING: "no machine of this kind has run it",
}


@dataclass(frozen=True)
class Finding:
    """One record's answer to a claim.

    ``machine`` is its label: name, date, and its doubt if there is one.
    """

    machine: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    word: str = MISSING
    # False where the comparison itself could not tell whether there is a difference.
    clear: bool = True
    # Wholly outside of what we said to expect.
    contradicts: bool = False
    # Of a race in which a run never arrived, in place of a value: who did.
    counts: str = ""
    # The record itself shows that another build would leave the interval.
    one_build: bool = False

    @property
    def name(self) -> str:
        """The machine alone."""
        return self.machine.partition(",")[0]

    @property
    def doubtful(self) -> bool:
        """Whether the record ended early, or is of an older version of its notebook."""
        return self.machine.endswith(")")

    @property
    def known(self) -> bool:
        """Whether the record has an answer."""
        return bool(self.counts) or not math.isnan(self.value)

    @property
    def figure(self) -> str:
        """Value and interval, or who arrived; empty where the record has no answer."""
        if self.counts or not self.known:
            return self.counts
        interval = ""
        if self.high > self.low:
            interval = f" [{_digits(self.low)}, {_digits(self.high)}]"
        return _digits(self.value) + interval

    def __str__(self) -> str:
        word = self.word
        if self.one_build:
            word += ", one build"
        return " ".join(filter(None, [self.figure, word]))


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    # 999.5 rounds to 1,000.
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def findings(claim: Claim, records: Sequence[Record]) -> list[Finding]:
    """One finding a machine and kind of device; a single one without figures where there is none.

    ValueError when results with different settings fit the claim.
    """
    found = []
    for record in records:
        for figure in figures(claim, record):
            found.append(_finding(claim, record, figure))
    return found or [Finding("")]


def _finding(claim: Claim, record: Record, figure: Figure) -> Finding:
    clear = figure.enough and figure.verdict in ("", "faster", "slower", "same")
    interval = figure.low, figure.high
    contradicts = clear and not claim.expects(interval, _cores(record))
    label = record.label
    if figure.device != record.device:
        label = label.replace(",", f" ({figure.device}),", 1)
    return Finding(
        label,
        figure.value,
        *interval,
        judge(claim, figure),
        clear=clear,
        contradicts=contradicts,
        counts=figure.counts,
        one_build=figure.one_build,
    )


def _cores(record: Record) -> int | None:
    cpu = record.card["cpu"]
    if isinstance(cpu, dict) and isinstance(cpu.get("cores"), int):
        return int(cpu["cores"])
    return None


def judge(claim: Claim, figure: Figure) -> str:
    """The one word for a figure."""
    if figure.predicted:
        return PREDICTED
    if not claim.judges(figure.device):
        return OTHER
    if not figure.enough:
        return UNCLEAR
    claimed = claim.gains(*claim.figure)
    found = claim.gains(figure.low, figure.high)
    if 1.0 in claimed and (claimed[0] == 0 or math.isinf(claimed[1])):
        return _direction(claimed, found, figure.verdict)
    return _range(claimed, found)


def _direction(claimed: Range, found: Range, verdict: str) -> str:
    """A plain "faster" or "slower": a comparison's own verdict decides, else the interval."""
    faster = math.isinf(claimed[1])
    if verdict == "same" or found == (1, 1):
        # There is no gain where one was promised, or no loss where one was feared.
        return WORSE if faster else BETTER
    if verdict not in ("", "faster", "slower"):
        return UNCLEAR
    low, high = found
    if low > 1:
        return REPRODUCED if faster else BETTER
    if high < 1:
        return WORSE if faster else REPRODUCED
    return UNCLEAR


def _range(claimed: Range, found: Range) -> str:
    (least, most), (low, high) = claimed, found
    if high < least:
        return WORSE
    if low > most:
        return BETTER
    if low < least:
        return UNCLEAR
    return REPRODUCED


def gain(claim: Claim, finding: Finding) -> tuple[float, float, float]:
    """The finding as a gain with its interval: above 1 the candidate is better."""
    value, _ = claim.gains(finding.value, finding.value)
    return value, *claim.gains(finding.low, finding.high)


def gain_in_words(claim: Claim, value: float) -> str:
    """``"1.25x"``, ``"4.00x smaller"``."""
    if math.isinf(value):
        return "nothing left"
    return f"{format_factor(value)}x{METRICS[claim.metric].gain}"


def effect(claim: Claim, finding: Finding) -> str:
    """The finding's gain with its interval, ``"1.25x [1.20, 1.31]"``; of a race maybe counts."""
    if finding.counts:
        return finding.counts
    value, low, high = gain(claim, finding)
    text = gain_in_words(claim, value)
    if high > low:
        text += f" [{format_factor(low)}, {format_factor(high)}]"
    return text


def effect_and_doubt(claim: Claim, finding: Finding) -> str:
    """The same, and what stands behind it: ``"1.01x [0.98, 1.04] (unclear)"``, or predicted.

    ``(in doubt)``: the record ended early, or is of an older version of its notebook.
    """
    text = effect(claim, finding)
    if finding.word == PREDICTED:
        text += " (predicted)"
    elif not finding.clear:
        text += " (unclear)"
    if finding.doubtful:
        text += " (in doubt)"
    return text
