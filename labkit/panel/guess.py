"""Bets: a question before a run, the reader's answer, and whether the result proves it right.

No widgets here. The kinds of questions, and when an answer is right:

- "factor": how many times as fast. Right within 20 % of what was measured.
- "bytes": how many times the memory. Right within 20 % as well.
- "arrives": who reaches the target of a race: both, one, none. A side arrives when more than half
  of its seeds do.
- "order": who is ahead: the candidate, the baseline, or neither. Right when the verdict says so.

Where a result decides nothing, as where the interval is wide, the bet stays open.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from labkit.memory_timeline import MemoryComparison
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.sweep import Sweep
from labkit.text import format_factor

TIME, MEMORY, RACE = "Time", "Memory", "Race"
FACTOR, BYTES, ARRIVES, ORDER = "factor", "bytes", "arrives", "order"
# The kinds that each mode can decide, the default first.
KINDS = {TIME: (FACTOR, ORDER), MEMORY: (BYTES,), RACE: (ARRIVES, ORDER, FACTOR)}
CHOICES = {
    ARRIVES: ("both", "one", "none"),
    ORDER: ("the candidate", "the baseline", "neither"),
}
RULES = {
    FACTOR: "Right: within 20 % of what is measured.",
    BYTES: "Right: within 20 % of what is measured.",
    ARRIVES: "Right: that many sides reach the target in more than half of their seeds.",
    ORDER: "Right: the verdict says so.",
}
# As a factor.
NEAR = 1.2

Answer = float | str


@dataclass(frozen=True)
class Bet:
    """A question about a run; ``kind``: see `labkit.panel.guess`.

    >>> Bet("Who will reach the target?", "arrives").choices
    ('both', 'one', 'none')
    """

    question: str
    kind: str = FACTOR

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"Bet({self.question!r}): ask something, as in Bet('How many times?')")
        if self.kind not in RULES:
            raise ValueError(f"Bet kind={self.kind!r}: use {', '.join(map(repr, RULES))}")

    @property
    def choices(self) -> tuple[str, ...]:
        """The answers to choose from; none where the answer is a factor."""
        return CHOICES.get(self.kind, ())


DEFAULTS = {
    TIME: Bet("How many times as fast will the candidate be?"),
    MEMORY: Bet("How many times the memory will the candidate need?", BYTES),
    RACE: Bet("Who will reach the target?", ARRIVES),
}


def checked(bets: Mapping[str, Bet] | None, scenarios: Collection[str]) -> dict[str, Bet]:
    """The bets of a lab's scenarios. TypeError or ValueError for what is no bet of theirs."""
    if not isinstance(bets, Mapping | None):
        raise TypeError(f"bets={bets!r}: give a dict, scenario -> Bet('How many times?')")
    for name, bet in (bets or {}).items():
        if name not in scenarios:
            known = ", ".join(map(repr, scenarios)) or "none"
            raise ValueError(f"bets name {name!r}; the scenarios of this lab are {known}")
        if not isinstance(bet, Bet):
            raise TypeError(f"bets[{name!r}]={bet!r}: use Bet('How many times?')")
    return dict(bets or {})


def asked(
    bets: Mapping[str, Bet], mode: str, scenario: str | None, modes: Iterable[str] = KINDS
) -> Bet:
    """The bet of a scenario in its `home`, else that of the mode."""
    bet = bets.get(scenario or "")
    return bet if bet is not None and home(bet, modes) == mode else DEFAULTS[mode]


def home(bet: Bet, modes: Iterable[str]) -> str:
    """The mode that a bet is asked in: the first that can decide it; "" without one."""
    return next((mode for mode in modes if bet.kind in KINDS[mode]), "")


@dataclass(frozen=True)
class Judgement:
    """Whether an answer was right, or None where that stays open; and a sentence.

    ``bet`` and ``measured`` are the answer and what came out, where the run decides it.
    """

    right: bool | None
    words: str
    bet: str = ""
    measured: str = ""


def judge(bet: Bet, answer: Answer, result: object) -> Judgement | None:
    """What a result says of an answer; None where it says nothing, as a sweep does."""
    if isinstance(result, Sweep):
        return None
    if isinstance(answer, str):
        return _judge_choice(bet.kind, answer, result)
    factor, interval, why_none = _measured(result)
    if why_none:
        words = f"You bet {short(answer)}×: no factor decides that, since {why_none}."
        return Judgement(None, words)
    if not 0 < factor < math.inf:
        return None
    return judge_factor(answer, factor, interval)


def judge_factor(answer: float, factor: float, interval: tuple[float, float]) -> Judgement:
    """How far an answer is off."""
    bet, measured = f"{short(answer)}×", f"{format_factor(factor)}×"
    begin = f"You bet {bet}, measured {measured}"
    off = max(answer / factor, factor / answer)
    if off <= NEAR:
        return Judgement(True, f"{begin}: right.", bet, measured)
    if interval[0] <= answer <= interval[1]:
        return Judgement(None, f"{begin}: still possible, the interval is wide.")
    direction = "high" if answer > factor else "low"
    return Judgement(False, f"{begin}: {short(off)} times too {direction}.", bet, measured)


def _judge_choice(kind: str, answer: str, result: object) -> Judgement | None:
    outcome = _arrived(result) if kind == ARRIVES else _ahead(result)
    if outcome is None:
        return None
    begin = f"You bet on {answer}"
    if not outcome:
        return Judgement(None, f"{begin}: this run does not decide it.")
    if outcome == answer:
        return Judgement(True, f"{begin}: right.", answer, outcome)
    return Judgement(False, f"{begin}: it was {outcome}.", answer, outcome)


def _measured(result: object) -> tuple[float, tuple[float, float], str]:
    """The factor of a result and its interval, or why it has none."""
    if isinstance(result, MemoryComparison):
        return result.ratio, (result.ratio, result.ratio), result.why_no_factor
    if isinstance(result, RaceResult) and len(result.arms) > 1:
        candidate = result.arms[1]
        factor, low, high = result.speedup(candidate)
        return factor, (low, high), why_no_factor(result)
    if isinstance(result, Comparison):
        return result.speedup, result.interval, ""
    return math.nan, (math.nan, math.nan), ""


def why_no_factor(result: RaceResult) -> str:
    """Why a race has no factor that a bet could be held against; "" where it has one."""
    by = result.told_by(result.arms[1])
    if by == "nothing":
        return "neither side reached the target"
    if by == "counts":
        return f"the candidate reached the target {result.counts(result.arms[1], 'the baseline')}"
    return ""


def _arrived(result: object) -> str | None:
    """How many sides of a race reached the target; None where not all of them have run."""
    if not isinstance(result, RaceResult) or len(result.arms) < 2:
        return None
    count = sum(2 * result.arrived(arm) > len(result.of(arm)) for arm in result.arms[:2])
    return ("none", "one", "both")[count]


def _ahead(result: object) -> str | None:
    """Who is ahead; "" where that is unclear."""
    if isinstance(result, RaceResult):
        return AHEAD.get(result.verdict(result.arms[1]), "") if len(result.arms) > 1 else None
    assert isinstance(result, Comparison)
    verdict = result.direction or result.verdict
    # Of one program against itself neither is ahead where no difference is clear.
    if verdict == "unclear" and not (result.changed or result.too_short or result.error):
        verdict = "same"
    return AHEAD.get(verdict, "")


# What a verdict says of who is ahead.
AHEAD = {"faster": "the candidate", "slower": "the baseline", "same": "neither"}


@dataclass(frozen=True)
class Decided:
    """A bet that a run has decided: the question, the answer and what was measured, in words."""

    question: str
    bet: str
    measured: str
    right: bool


class Score:
    """The bets of a kernel's session: each question counts once, by its first answer."""

    def __init__(self) -> None:
        self._decided: dict[object, Decided] = {}

    def count(self, key: object, decided: Decided) -> None:
        """Count an answer, unless its question was answered before."""
        self._decided.setdefault(key, decided)

    @property
    def decided(self) -> tuple[Decided, ...]:
        """The bets that count, in the order in which they were decided."""
        return tuple(self._decided.values())

    @property
    def streak(self) -> int:
        """How many of the latest bets are right, one after the other."""
        rights = [bet.right for bet in self.decided]
        return len(rights) if all(rights) else rights[::-1].index(False)

    def __str__(self) -> str:
        row = f", {self.streak} in a row" if self.streak > 1 else ""
        return score_in_words(self.decided) + row


def score_in_words(decided: Collection[Decided]) -> str:
    """``2 of 3 bets right``; "" without a bet."""
    if not decided:
        return ""
    bets = "bet" if len(decided) == 1 else "bets"
    return f"{sum(bet.right for bet in decided)} of {len(decided)} {bets} right"


# That of this process.
SCORE = Score()


def short(factor: float) -> str:
    """``2.0``, ``0.25``, ``16``: as few digits as a guess has."""
    if factor < 0.95:
        return f"{factor:.2f}"
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:.0f}"
