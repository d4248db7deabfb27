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
# Which choice a verdict names.
AHEAD = {"faster": 0, "slower": 1, "same": 2}
AGAIN = "this run does not decide it. Run it again."
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
        if self.kind not in RULES:
            raise ValueError(f"Bet kind={self.kind!r}: use {', '.join(map(repr, RULES))}")
        if len(set(self.sides)) != 2:
            raise ValueError(f"Bet sides={self.sides!r}: give two names, as in ('Adam', 'SGD')")
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


DEFAULTS = {
    TIME: Bet("How many times as fast will the candidate be?"),
    MEMORY: Bet("How much of the baseline's memory will the candidate need?", BYTES),
    RACE: Bet("Who will reach the target?", ARRIVES),
}


def checked(bets: Mapping[str, Bet] | None, scenarios: Collection[str]) -> dict[str, Bet]:
    """The bets of a lab's scenarios. TypeError or ValueError for what is no bet of theirs."""
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
    seen = _seen(result)
    if seen is None:
        return None
    on = "on " if isinstance(answer, str) else ""
    words = f"You bet {on}{shown(bet.kind, answer)}"
    measured = f"{words}, measured {format_factor(seen.factor)}×"
    if seen.stopped:
        return Judgement(None, f"{words}. Stopped: it decides no bet.")
    if disturbed and seen.by_clock and bet.kind != ARRIVES and not seen.is_sure_of(answer):
        return Judgement(None, f"{measured} beside other programs: {AGAIN}")
    if isinstance(answer, str):
        return _judge_choice(bet, answer, seen)
    if seen.why_no_factor:
        return Judgement(None, f"{words}: no figure decides that, since {seen.why_no_factor}.")
    if not seen.has_factor:
        return None
    if seen.tone == "unclear" and not seen.is_near:
        return Judgement(None, f"{measured}, which is unclear: {AGAIN}")
    # Who bets on no difference has to mean it.
    close = seen.tone == "same" or seen.is_near or 1 / SAME <= answer <= SAME
    near = SAME if close else NEAR
    return judge_factor(bet.kind, answer, seen.factor, seen.interval, near)


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


def _judge_choice(bet: Bet, answer: str, seen: _Seen) -> Judgement:
    place = seen.arrivals if bet.kind == ARRIVES else AHEAD.get(seen.ahead, -1)
    begin = f"You bet on {answer}"
    if bet.kind == ORDER and seen.is_near and (place < 0 or answer == bet.choices[2]):
        right = answer == bet.choices[2]
        words = f"{begin}: {'right' if right else 'it was neither'}, they differ by under 5 %."
        return Judgement(right, words, answer, bet.choices[2])
    if place < 0:
        return Judgement(None, f"{begin}: {AGAIN}")
    outcome = bet.choices[place]
    right = outcome == answer
    words = f"{begin}: {'right' if right else f'it was {outcome}'}."
    if bet.kind == ORDER:
        words += seen.why_neither
    return Judgement(right, words, answer, outcome)


def stands(result: object) -> bool:
    """Whether what a result says of who is ahead holds although other programs disturbed it."""
    seen = _seen(result)
    return seen is None or not seen.by_clock or seen.is_ahead_by_far


def shown(kind: str, answer: Answer) -> str:
    """``2.0×``; of memory ``50 %``; ``neither``."""
    if isinstance(answer, str):
        return answer
    return format_share(answer) if kind == BYTES else f"{short(answer)}×"


@dataclass(frozen=True)
class _Seen:
    """What a result says of its two sides, as far as bets ask for it.

    ``tone`` is the verdict, also of one side that is surely ahead by an unclear size; ``ahead``
    differs from it where nothing tells the sides apart, for the reason ``why_neither``.
    ``arrivals`` is the choice that came true in a race; ``is_near`` says that the whole interval
    lies within 5 %.
    """

    tone: str
    factor: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    why_no_factor: str = ""
    ahead: str = ""
    why_neither: str = ""
    arrivals: int = -1
    is_near: bool = False
    by_clock: bool = True
    stopped: bool = False

    @property
    def has_factor(self) -> bool:
        return 0 < self.factor < math.inf

    @property
    def is_level(self) -> bool:
        """Whether there is no difference that other programs could have made."""
        return self.tone == "same" or self.is_near or not self.has_factor

    @property
    def is_ahead_by_far(self) -> bool:
        """Whether other programs do not make such a difference, or there is none."""
        return self.is_level or max(self.factor, 1 / self.factor) >= AHEAD_BY_FAR

    def is_sure_of(self, answer: Answer) -> bool:
        """Whether it decides an answer although other programs disturbed it."""
        if self.is_level:
            return True
        clear = self.tone != "unclear"
        if isinstance(answer, str):
            return clear and self.is_ahead_by_far
        off = max(answer / self.factor, self.factor / answer)
        far = max(self.factor, 1 / self.factor, off) >= FAR
        return far or (off <= NEAR and clear)


def _seen(result: object) -> _Seen | None:
    """None of a sweep, which has many results."""
    if isinstance(result, MemoryComparison):
        ratio = result.ratio
        same = not math.isnan(ratio) and abs(math.log(ratio)) <= SAME_MEMORY
        tone = "same" if same else "differs"
        return _Seen(tone, ratio, (ratio, ratio), result.why_no_factor, by_clock=False)
    if isinstance(result, RaceResult):
        return _seen_in_race(result)
    return _seen_in_times(result) if isinstance(result, Comparison) else None


def _seen_in_times(result: Comparison) -> _Seen:
    tone, why = result.tone, ""
    near = not result.too_short and tone != "same"
    near = near and all(1 / SAME <= bound <= SAME for bound in result.interval)
    if tone == "unclear" and not (result.changed or result.too_short or result.error):
        tone, why = "same", " Both sides are one program, and no difference is clear."
    return _Seen(tone, result.speedup, result.interval, ahead=tone, why_neither=why, is_near=near)


def _seen_in_race(result: RaceResult) -> _Seen:
    if len(result.arms) < 2:
        return _Seen("unclear", stopped=True)
    baseline, candidate = result.arms[:2]
    tone = ahead = result.verdict(candidate)
    by, why = result.told_by(candidate), ""
    steps = [result.median(arm, by="steps") for arm in (baseline, candidate)]
    if tone == "unclear" and by == "times" and max(steps) <= SAME * min(steps):
        ahead, why = "same", " Both need about as many steps, and no difference in time is clear."
    reasons = {
        "nothing": "neither side reached the target",
        "counts": f"the candidate reached the target {result.counts(candidate, 'the baseline')}",
    }
    factor, low, high = result.speedup(candidate)
    arrive = result.arrives(candidate), result.arrives(baseline)
    return _Seen(
        tone,
        factor,
        (low, high),
        why_no_factor=reasons.get(by, ""),
        ahead=ahead,
        why_neither=why,
        arrivals=[(True, True), (True, False), (False, True), (False, False)].index(arrive),
        stopped=result.stopped,
    )


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
        # Whether a run with a bet has ended, decided or not; a picture alone is none.
        self.measured = False
        self.watch(lambda: None)

    def watch(self, changed: Callable[[], None]) -> None:
        """From now on call ``changed()`` after each bet, in place of what was called before."""
        self.changed = changed

    def leave_open(self, key: object, question: str, bet: str, *, measured: bool = True) -> None:
        """Note an answer that its run did not decide.

        ``measured`` is False for what no panel has measured to its end.
        """
        self._open[key] = question, bet
        self.measured |= measured
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
