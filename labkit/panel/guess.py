"""Bets: a question before a run, the reader's answer, and whether the result proves it right.

No widgets here. The kinds of questions, and when an answer is right:

- "factor": how many times as fast. Right within 20 % of what was measured; within 5 % where the
  verdict is "same", the whole interval lies within 5 % of 1, or the bet is on no difference.
- "bytes": which share of the memory. Right within 20 % as well; of the same memory within 5 %.
- "arrives": who reaches the target of a race: both, only one of them, none. A side arrives when
  more than half of its seeds do.
- "order": who is ahead: the candidate, the baseline, or neither. Right when the verdict says so;
  "neither" is right as well where the whole interval lies within 5 % of 1.

Where a result decides nothing, as where the interval is wide, the bet stays open. So it does where
a race was stopped: the seeds that are missing might have gone another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from labkit.memory_timeline import SAME as SAME_MEMORY
from labkit.memory_timeline import MemoryComparison
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.sweep import Sweep
from labkit.text import format_factor, format_share

TIME, MEMORY, RACE = "Time", "Memory", "Race"
FACTOR, BYTES, ARRIVES, ORDER = "factor", "bytes", "arrives", "order"
# The kinds that each mode can decide, the default first.
KINDS = {TIME: (FACTOR, ORDER), MEMORY: (BYTES,), RACE: (ARRIVES, ORDER, FACTOR)}
# The choices, with the names of the candidate and the baseline.
CHOICES = {
    ARRIVES: ("both", "only {0}", "only {1}", "none"),
    ORDER: ("{0}", "{1}", "neither"),
}
RULES = {
    FACTOR: "Within 20 % of what is measured is right; where nothing differs, 5 %.",
    BYTES: "Within 20 % of what is measured is right; where nothing differs, 5 %.",
    ARRIVES: "Who reaches the target in more than half of the seeds arrives.",
    ORDER: "The verdict of the run decides; within 5 % neither is right, too.",
}
# As a factor; and where there is no difference, which a bet on a small one would else always win.
NEAR, SAME = 1.2, 1.05
# A factor that other programs do not make.
FAR = 4.0
# And of a clear verdict: of 81 recorded sides that were timed twice, 5 differ by more.
AHEAD_BY_FAR = 1.3
# How far the slider of a factor may go.
REACHES = (16, 128)
# What the sides are called without names of their own.
UNNAMED = ("the candidate", "the baseline")

Answer = float | str


@dataclass(frozen=True)
class Bet:
    """A question about a run; ``kind``: see `labkit.panel.guess`.

    ``sides`` are the words that the question has for the candidate and the baseline. A factor may
    be anything from ``1 / most`` to ``most``, which is 16 or 128.

    >>> Bet("Which is faster?", "order", sides=("Adam", "SGD")).choices
    ('Adam', 'SGD', 'neither')
    """

    question: str
    kind: str = FACTOR
    sides: tuple[str, str] = UNNAMED
    most: int = 16

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise ValueError(f"Bet({self.question!r}): ask something, as in Bet('How many times?')")
        if self.kind not in RULES:
            raise ValueError(f"Bet kind={self.kind!r}: use {', '.join(map(repr, RULES))}")
        sides = self.sides
        if not isinstance(sides, tuple) or len(sides) != 2 or not all(map(_is_name, sides)):
            raise ValueError(f"Bet sides={sides!r}: name candidate and baseline: ('Adam', 'SGD')")
        if sides[0] == sides[1]:
            raise ValueError(f"Bet sides={sides!r}: the two names have to differ")
        if self.most not in REACHES:
            raise ValueError(f"Bet most={self.most!r}: use {' or '.join(map(str, REACHES))}")

    @property
    def names(self) -> tuple[str, str] | None:
        """Its names for the baseline and the candidate; None where it has none of its own."""
        candidate, baseline = self.sides
        return None if self.sides == UNNAMED else (baseline, candidate)

    @property
    def choices(self) -> tuple[str, ...]:
        """The answers to choose from; none where the answer is a factor."""
        return tuple(choice.format(*self.sides) for choice in CHOICES.get(self.kind, ()))

    def asked_in(self, scenario: str | None) -> str:
        """The question with its scenario before it, where it does not begin with that by itself."""
        if not scenario or self.question.startswith(scenario):
            return self.question
        return f"{scenario} · {self.question}"


def _is_name(side: object) -> bool:
    return isinstance(side, str) and bool(side.strip())


DEFAULTS = {
    TIME: Bet("How many times as fast will the candidate be?"),
    MEMORY: Bet("How much of the baseline's memory will the candidate need?", BYTES),
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


def judge(bet: Bet, answer: Answer, result: object, *, disturbed: bool = False) -> Judgement | None:
    """What a result says of an answer; None where it says nothing, as a sweep does.

    Times that other programs ``disturbed`` decide who is ahead, where that is clear and not by
    little, and that both are the same. A factor they prove right, and wrong where it is far off.
    """
    if isinstance(result, Sweep):
        return None
    on = "on " if isinstance(answer, str) else ""
    words = f"You bet {on}{answer_in_words(bet.kind, answer)}"
    if isinstance(result, RaceResult) and result.stopped:
        return Judgement(None, f"{words}. Stopped: it decides no bet.")
    by_clock = not isinstance(result, MemoryComparison) and bet.kind != ARRIVES
    if disturbed and by_clock and not _is_sure(answer, result):
        found = f"measured {format_factor(_measured(result)[0])}× beside other programs"
        return Judgement(None, f"{words}, {found}: this run does not decide it. Run it again.")
    if isinstance(answer, str):
        return _judge_choice(bet, answer, result)
    factor, interval, why_none = _measured(result)
    if why_none:
        return Judgement(None, f"{words}: no figure decides that, since {why_none}.")
    if not 0 < factor < math.inf:
        return None
    if _is_unclear(result) and not _is_near(result):
        found = f"measured {format_factor(factor)}×, which is unclear"
        return Judgement(None, f"{words}, {found}: this run does not decide it. Run it again.")
    # Who bets on no difference has to mean it.
    close = _is_same(result) or _is_near(result) or 1 / SAME <= answer <= SAME
    near = SAME if close else NEAR
    return judge_factor(bet.kind, answer, factor, interval, near)


def stands(result: object) -> bool:
    """Whether what a result says of who is ahead holds although other programs disturbed it."""
    if isinstance(result, Sweep | MemoryComparison):
        return True
    factor = _measured(result)[0]
    if _is_same(result) or _is_near(result) or not 0 < factor < math.inf:
        return True
    return max(factor, 1 / factor) >= AHEAD_BY_FAR


def _is_sure(answer: Answer, result: object) -> bool:
    """Whether a result that other programs disturbed decides an answer all the same."""
    factor = _measured(result)[0]
    if _is_same(result) or _is_near(result) or not 0 < factor < math.inf:
        return True
    times = max(factor, 1 / factor)
    if isinstance(answer, str):
        return stands(result) and not _is_unclear(result)
    off = max(answer / factor, factor / answer)
    far = max(times, off) >= FAR
    return far or (off <= NEAR and not _is_unclear(result))


def judge_factor(
    kind: str, answer: float, factor: float, interval: tuple[float, float], near: float = NEAR
) -> Judgement:
    """How far an answer is off; ``near`` is the factor within which it is right."""
    bet = shown(kind, answer)
    measured = format_share(factor) if kind == BYTES else f"{format_factor(factor)}×"
    begin = f"You bet {bet}, measured {measured}"
    off = max(answer / factor, factor / answer)
    # As it would be shown: nobody is told that 1.20 times is beyond 20 %.
    if round(off, 2) <= near:
        return Judgement(True, f"{begin}: right.", bet, measured)
    if interval[0] <= answer <= interval[1]:
        return Judgement(None, f"{begin}: still possible, the interval is wide.")
    direction = "high" if answer > factor else "low"
    # One digit would put what is just beyond 20 % on the border.
    times = f"{off:.2f}" if off < 2 else short(off)
    return Judgement(False, f"{begin}: {times} times too {direction}.", bet, measured)


def answer_in_words(kind: str, answer: Answer) -> str:
    """``2.0×``, ``50 %``, ``neither``."""
    return answer if isinstance(answer, str) else shown(kind, answer)


def _is_unclear(result: object) -> bool:
    """Whether a run could not tell its sides apart, so that its factor decides no bet either."""
    if isinstance(result, RaceResult):
        return result.verdict(result.arms[1]) == "unclear"
    if not isinstance(result, Comparison) or _is_one_program(result):
        return False
    return result.tone == "unclear"


def _is_same(result: object) -> bool:
    """Whether nothing differs between the sides: a time that is the same, an equal memory."""
    if isinstance(result, MemoryComparison):
        return abs(math.log(result.ratio)) <= SAME_MEMORY
    if isinstance(result, Comparison):
        return result.tone == "same" or _is_one_program(result)
    return isinstance(result, RaceResult) and result.verdict(result.arms[1]) == "same"


def shown(kind: str, answer: float) -> str:
    """``2.0×``; of memory ``50 %``."""
    return format_share(answer) if kind == BYTES else f"{short(answer)}×"


def _judge_choice(bet: Bet, answer: str, result: object) -> Judgement | None:
    place = _arrived(result) if bet.kind == ARRIVES else _ahead(result)
    if place is None:
        return None
    begin = f"You bet on {answer}"
    if bet.kind == ORDER and _is_near(result) and (place < 0 or answer == bet.choices[2]):
        right = answer == bet.choices[2]
        words = f"{begin}: {'right' if right else 'it was neither'}, they differ by under 5 %."
        return Judgement(right, words, answer, bet.choices[2])
    if place < 0:
        return Judgement(None, f"{begin}: this run does not decide it. Run it again.")
    outcome = bet.choices[place]
    right = outcome == answer
    words = f"{begin}: {'right' if right else f'it was {outcome}'}."
    if _is_one_program(result):
        words += " Both sides are one program, and no difference is clear."
    elif bet.kind == ORDER and _in_step(result):
        words += " Both need about as many steps, and no difference in time is clear."
    return Judgement(right, words, answer, outcome)


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


def _arrived(result: object) -> int | None:
    """Which of the choices came true in a race; None where not all of its sides have run."""
    if not isinstance(result, RaceResult) or len(result.arms) < 2:
        return None
    baseline, candidate = map(result.arrives, result.arms[:2])
    return [(True, True), (True, False), (False, True), (False, False)].index((candidate, baseline))


def _ahead(result: object) -> int | None:
    """Which of the choices is ahead; -1 where that is unclear, None where nothing has run."""
    if isinstance(result, RaceResult):
        if len(result.arms) < 2:
            return None
        return AHEAD.get("same" if _in_step(result) else result.verdict(result.arms[1]), -1)
    assert isinstance(result, Comparison)
    return AHEAD.get("same" if _is_one_program(result) else result.tone, -1)


def _is_near(result: object) -> bool:
    """Whether the whole interval of a comparison lies within 5 %."""
    if not isinstance(result, Comparison) or result.too_short or result.tone == "same":
        return False
    return all(1 / SAME <= bound <= SAME for bound in result.interval)


def _is_one_program(result: object) -> bool:
    """Whether a program was compared with itself, and no difference is clear: neither is ahead."""
    if not isinstance(result, Comparison) or result.tone != "unclear":
        return False
    return not (result.changed or result.too_short or result.error)


def _in_step(result: object) -> bool:
    """Whether both sides of a race need about as many steps, and their times are unclear."""
    if not isinstance(result, RaceResult) or result.verdict(result.arms[1]) != "unclear":
        return False
    if result.told_by(result.arms[1]) != "times":
        return False
    steps = [result.median(arm, by="steps") for arm in result.arms[:2]]
    return max(steps) <= SAME * min(steps)


# Which choice a verdict names.
AHEAD = {"faster": 0, "slower": 1, "same": 2}


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
        self._open: dict[object, tuple[str, str]] = {}
        # Whether a run has decided one, and not a picture alone.
        self.measured = False
        self.watch(lambda: None)

    def watch(self, changed: Callable[[], None]) -> None:
        """From now on call ``changed()`` after each bet, in place of what was called before."""
        self.changed = changed

    def leave_open(self, key: object, question: str, bet: str) -> None:
        """Note an answer that its run did not decide."""
        self._open[key] = question, bet
        self.changed()

    @property
    def undecided(self) -> tuple[tuple[str, str], ...]:
        """Question and answer of the bets that no run has decided."""
        return tuple(each for key, each in self._open.items() if key not in self._decided)

    def count(self, key: object, decided: Decided, *, measured: bool = True) -> None:
        """Count an answer, unless its question was answered before.

        ``measured`` is False for what no panel has measured.
        """
        self._decided.setdefault(key, decided)
        self.measured |= measured
        self.changed()

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
