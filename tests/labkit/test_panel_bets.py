"""Bets without widgets: questions of each kind, and when an answer is right."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.panel import Bet, guess
from labkit.panel.guess import MEMORY, RACE, TIME, Decided, Score, judge
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement
from labkit.sweep import Sweep


def timed(before: float, after: float, pairs: int = 40, spread: float = 0.0) -> Comparison:
    sides = []
    for name, seconds in (("baseline", before), ("candidate", after)):
        times = tuple(seconds * (1 + spread * (-1) ** (i // 3)) for i in range(pairs))
        spread = -spread
        builds = (0, 1, 2, 3) * (pairs // 4)
        sides.append(Measurement(name, {"side": name}, times=times, builds=builds))
    return Comparison(*sides)


def unclear() -> Comparison:
    """1.01 times as fast, in four builds between 0.99 and 1.03 times."""
    ratios = (0.990, 1.030, 0.997, 1.023)
    sides = []
    for name in ("baseline", "candidate"):
        times = [1.0 if name == "candidate" else ratio for ratio in ratios for _ in range(6)]
        builds = [build for build in range(4) for _ in range(6)]
        side = Measurement(name, {"side": name}, times=tuple(times), builds=tuple(builds))
        sides.append(side)
    result = Comparison(*sides)
    assert result.tone == "unclear" and result.interval[0] < 1 < result.interval[1]
    return result


def one_program(result: Comparison) -> Comparison:
    """The same times, as if both sides had the same settings."""
    return Comparison(*(replace(side, settings={}) for side in result.arms))


def raced(before: list[bool], after: list[bool]) -> RaceResult:
    runs = []
    for arm, reached in (("baseline", before), ("other", after)):
        for seed, there in enumerate(reached):
            runs.append(RaceRun(arm, seed, ((10, 1.0 + (arm == "baseline"), 0.5),), there))
    return RaceResult(tuple(runs), 0.9, "accuracy", True)


def in_step(steps: int) -> RaceResult:
    """Times that cross, of runs that need 100 steps and so many."""
    runs = []
    for arm, count in (("baseline", 100), ("other", steps)):
        for seed in range(4):
            seconds = 1.0 + ((seed + len(arm)) % 2)
            runs.append(RaceRun(arm, seed, ((count, seconds, 0.9),), True))
    return RaceResult(tuple(runs), 0.9, "accuracy", True)


def remembered(before: int | None, after: int | None) -> MemoryComparison:
    return MemoryComparison(Timeline("baseline", peak=before), Timeline("candidate", peak=after))


ALL, NONE = [True] * 3, [False] * 3
UNDECIDED = "You bet on neither: this run does not decide it. Run it again."
IN_STEP = "Both need about as many steps, and no difference in time is clear."
CANDIDATE = "You bet on the candidate: it was neither."
NEAR = "they differ by under 5 %."
ONE_PROGRAM = "Both sides are one program, and no difference is clear."


@pytest.mark.parametrize(
    ("kind", "answer", "result", "right", "words"),
    [
        ("factor", 2.0, timed(2, 1), True, "You bet 2.0×, measured 2.00×: right."),
        ("factor", 2.3, timed(2, 1), True, "You bet 2.3×, measured 2.00×: right."),
        ("factor", 2.5, timed(2, 1), False, "You bet 2.5×, measured 2.00×: 1.25 times too high."),
        (
            "factor",
            1.0,
            timed(1, 1.01, pairs=8, spread=0.4),
            None,
            "You bet 1.0×, measured 1.56×, which is unclear: this run does not decide it. "
            "Run it again.",
        ),
        # Who bets on no difference is not right where there is one.
        ("factor", 1.0, timed(1.1, 1), False, "You bet 1.0×, measured 1.10×: 1.10 times too low."),
        ("factor", 0.5, timed(2, 1), False, "You bet 0.50×, measured 2.00×: 4.0 times too low."),
        # Where nothing differs, a small difference is a wrong idea.
        ("factor", 0.9, timed(1, 1), False, "You bet 0.90×, measured 1.000×: 1.11 times too low."),
        ("factor", 1.04, timed(1, 1), True, "You bet 1.0×, measured 1.000×: right."),
        # Unclear whether anything differs, and surely by no more than 5 %.
        ("factor", 1.0, unclear(), True, "You bet 1.0×, measured 1.010×: right."),
        ("factor", 1.2, unclear(), False, "You bet 1.2×, measured 1.010×: 1.19 times too high."),
        ("order", "neither", unclear(), True, f"You bet on neither: right, {NEAR}"),
        ("order", "the candidate", unclear(), False, f"{CANDIDATE[:-1]}, {NEAR}"),
        ("bytes", 0.5, remembered(100, 52), True, "You bet 50 %, measured 52 %: right."),
        ("bytes", 0.9, remembered(100, 103), True, "You bet 90 %, measured 103 %: right."),
        (
            "bytes",
            0.9,
            remembered(10**6, 10**6),
            False,
            "You bet 90 %, measured 100 %: 1.11 times too low.",
        ),
        (
            "bytes",
            0.5,
            remembered(100, 0),
            None,
            "You bet 50 %: no figure decides that, since the candidate has no tensors.",
        ),
        ("factor", 2.0, raced(ALL, ALL), True, "You bet 2.0×, measured 2.00×: right."),
        (
            "factor",
            2.0,
            raced(NONE, NONE),
            None,
            "You bet 2.0×: no figure decides that, since neither side reached the target.",
        ),
        (
            "factor",
            2.0,
            raced([False, True, True], ALL),
            None,
            "You bet 2.0×: no figure decides that, since the candidate reached the target "
            "in 3 of 3 seeds, the baseline in 2 of 3.",
        ),
        ("arrives", "both", raced(ALL, ALL), True, "You bet on both: right."),
        ("arrives", "none", raced(ALL, ALL), False, "You bet on none: it was both."),
        (
            "arrives",
            "only the baseline",
            raced(ALL, NONE),
            True,
            "You bet on only the baseline: right.",
        ),
        ("arrives", "both", raced(NONE, ALL), False, "You bet on both: it was only the candidate."),
        # Where some seeds of a side arrived, and some did not, more than half of them decide.
        ("arrives", "none", raced(NONE, [True, False, False]), True, "You bet on none: right."),
        ("arrives", "both", raced(ALL, [True, True, False]), True, "You bet on both: right."),
        (
            "arrives",
            "both",
            raced([True] * 4, [True, True, False, False]),
            False,
            "You bet on both: it was only the baseline.",
        ),
        ("order", "the candidate", timed(2, 1), True, "You bet on the candidate: right."),
        ("order", "neither", timed(1, 2), False, "You bet on neither: it was the baseline."),
        ("order", "neither", timed(1, 1), True, "You bet on neither: right."),
        # A clear difference of a few per cent: the side that is ahead is right, and so is neither.
        ("order", "neither", timed(1.03, 1), True, f"You bet on neither: right, {NEAR}"),
        ("order", "the candidate", timed(1.03, 1), True, "You bet on the candidate: right."),
        (
            "order",
            "the baseline",
            timed(1.03, 1),
            False,
            "You bet on the baseline: it was the candidate.",
        ),
        ("order", "neither", timed(1.08, 1), False, "You bet on neither: it was the candidate."),
        (
            "order",
            "neither",
            timed(1, 1.01, pairs=8, spread=0.4),
            None,
            UNDECIDED,
        ),
        # Of one program the truth is known.
        (
            "order",
            "neither",
            one_program(timed(1, 1.01, pairs=8, spread=0.4)),
            True,
            f"You bet on neither: right. {ONE_PROGRAM}",
        ),
        (
            "order",
            "the candidate",
            one_program(timed(1, 1.01, pairs=8, spread=0.4)),
            False,
            f"You bet on the candidate: it was neither. {ONE_PROGRAM}",
        ),
        ("order", "neither", one_program(timed(1, 1, pairs=0)), None, UNDECIDED),
        # The clock decides nothing, the steps do.
        ("order", "neither", in_step(104), True, f"You bet on neither: right. {IN_STEP}"),
        ("order", "the candidate", in_step(96), False, f"{CANDIDATE} {IN_STEP}"),
        ("order", "neither", in_step(130), None, UNDECIDED),
        # All pairs agree, though the size is unclear.
        (
            "order",
            "the baseline",
            Comparison(
                *(Measurement(name, times=(t,) * 3) for name, t in (("a", 1.0), ("b", 7.0)))
            ),
            True,
            "You bet on the baseline: right.",
        ),
    ],
)
def test_when_an_answer_is_right(
    kind: str, answer: Any, result: Any, right: bool | None, words: str
) -> None:
    judgement = judge(Bet("?", kind), answer, result)
    assert judgement is not None
    assert (judgement.right, judgement.words) == (right, words)


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        ("factor", 2.0, Sweep("size", (timed(2, 1),))),
        ("factor", 2.0, Comparison(Measurement("a"), Measurement("b"))),
    ],
)
def test_what_says_nothing_judges_nothing(kind: str, answer: Any, result: Any) -> None:
    assert judge(Bet("?", kind), answer, result) is None


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        ("arrives", "none", "You bet on none"),
        ("order", "the baseline", "You bet on the baseline"),
        ("factor", 2.0, "You bet 2.0×"),
    ],
)
def test_a_race_that_was_stopped_decides_no_bet(kind: str, answer: Any, said: str) -> None:
    for before, after in (([False], [False]), ([True] * 3, [True] * 3), ([True], [])):
        stopped = replace(raced(before, after), stopped=True)
        judgement = judge(Bet("?", kind), answer, stopped)
        assert judgement is not None and judgement.right is None
        assert judgement.words == f"{said}. Stopped: it decides no bet."


def test_within_a_wide_interval_a_bet_stays_open() -> None:
    judgement = guess.judge_factor("factor", 3.0, 2.0, (1.0, 5.0))
    assert judgement.right is None
    assert judgement.words == "You bet 3.0×, measured 2.00×: still possible, the interval is wide."


def test_every_kind_says_what_right_means_and_every_mode_has_a_question() -> None:
    for kind, rule in guess.RULES.items():
        assert rule.endswith(".") and len(rule) < 70
        assert bool(Bet("?", kind).choices) == (kind in ("arrives", "order"))
    for mode in (TIME, MEMORY, RACE):
        assert guess.asked({}, mode, None).kind == guess.KINDS[mode][0]


def test_choices_have_the_question_s_words() -> None:
    sides = "Adam", "SGD"
    bet = Bet("Which is faster?", "order", sides)
    assert bet.choices == ("Adam", "SGD", "neither")
    found = judge(bet, "neither", timed(1, 2))
    assert found is not None and found.words == "You bet on neither: it was SGD."
    bet = Bet("Who arrives?", "arrives", sides)
    assert bet.choices == ("both", "only Adam", "only SGD", "none")
    found = judge(bet, "both", raced(NONE, ALL))
    assert found is not None and found.words == "You bet on both: it was only Adam."


def test_a_scenario_s_bet_is_asked_in_the_modes_that_decide_it() -> None:
    bets = {"large": Bet("Which is faster?", "order"), "tiny": Bet("Who arrives?", "arrives")}
    assert guess.asked(bets, TIME, "large").question == "Which is faster?"
    assert guess.asked(bets, RACE, "tiny").question == "Who arrives?"
    assert guess.asked(bets, MEMORY, "large") is guess.DEFAULTS[MEMORY]
    assert guess.asked(bets, TIME, "tiny") is guess.DEFAULTS[TIME]
    assert guess.asked(bets, TIME, "other") is guess.DEFAULTS[TIME]
    # Of a step, and so not of a race; in a panel that opens with one, of the race.
    assert guess.asked(bets, RACE, "large") is guess.DEFAULTS[RACE]
    assert guess.asked(bets, RACE, "large", (RACE, TIME)).question == "Which is faster?"
    assert guess.asked(bets, TIME, "large", (RACE, TIME)) is guess.DEFAULTS[TIME]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Bet("Which?", "kilos"), ValueError, "kind='kilos': use 'factor', 'bytes'"),
        (lambda: Bet("Which?", "order", ("a", "a")), ValueError, "give two names"),
        (lambda: Bet("How?", most=12), ValueError, "most=12: use 16 or 128"),
        (lambda: guess.checked({"x": Bet("?")}, {"a": {}}), ValueError, "scenarios .* are 'a'"),
        (lambda: guess.checked({"a": "?"}, {"a": {}}), TypeError, r"bets\['a'\]='\?': use Bet"),
    ],
)
def test_what_is_no_bet_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_a_question_counts_once() -> None:
    wrong, right = (Decided("Which?", "both", "one", truth) for truth in (False, True))
    score = Score()
    assert str(score) == ""
    score.count("a", wrong)
    assert str(score) == "0 of 1 bet right"
    score.count("a", right)
    score.count("b", right)
    assert str(score) == "1 of 2 bets right"
    assert score.decided == (wrong, right)
    score.count("c", right)
    assert str(score) == "2 of 3 bets right, 2 in a row"
    score.count("d", wrong)
    assert str(score) == "2 of 4 bets right"


def test_a_question_is_told_with_its_scenario_once() -> None:
    bet = Bet("small: which is faster?")
    assert bet.asked_in("small") == bet.asked_in(None) == "small: which is faster?"
    assert bet.asked_in("a large one") == "a large one · small: which is faster?"


def test_a_bet_has_few_digits() -> None:
    assert [guess.short(factor) for factor in (0.25, 1.04, 2.0, 64.0)] == [
        "0.25",
        "1.0",
        "2.0",
        "64",
    ]
    assert math.isclose(guess.NEAR, 1.2)


def test_a_bet_that_is_decided_says_what_was_bet_and_measured() -> None:
    factor = judge(Bet("How many?"), 4.0, timed(1.0, 0.5))
    assert (factor.right, factor.bet, factor.measured) == (False, "4.0×", "2.00×")
    order = judge(Bet("Who?", "order"), "neither", timed(1.0, 0.5))
    assert (order.right, order.bet, order.measured) == (False, "neither", "the candidate")


def test_times_beside_other_programs_decide_who_is_ahead_and_no_factor_that_is_near() -> None:
    order, times = Bet("Which?", "order", ("with", "without")), Bet("How many times?")
    found = judge(times, 2.0, timed(1.4, 1), disturbed=True)
    assert found is not None and found.right is None
    beside = "measured 1.40× beside other programs: this run does not decide it. Run it again."
    assert found.words == f"You bet 2.0×, {beside}"
    # As the verdict, and all that is made of it.
    for answer, right in (("with", True), ("without", False), ("neither", False)):
        ahead = judge(order, answer, timed(1.4, 1), disturbed=True)
        assert ahead is not None and ahead.right is right
    little = judge(order, "with", timed(1.2, 1), disturbed=True)
    assert little is not None and little.right is None
    near = judge(times, 1.3, timed(1.4, 1), disturbed=True)
    assert near is not None and near.right is True
    # Nobody else can have made a side a tenth of what was bet.
    beyond = judge(Bet("How many times?"), 14.0, timed(1.4, 1), disturbed=True)
    assert beyond is not None and beyond.right is False
    far = judge(Bet("How many times?"), 2.0, timed(8, 1), disturbed=True)
    assert far is not None and far.right is False
    same = judge(order, "neither", timed(1.001, 1), disturbed=True)
    assert same is not None and same.right is True
    assert [guess.stands(timed(ratio, 1)) for ratio in (1.4, 1.2, 0.8, 0.7)] == [
        *(True, False, False, True)
    ]
    assert guess.stands(remembered(100, 95))
    # Bytes and counts of steps are what they are.
    memory = judge(Bet("How much?", "bytes"), 0.5, remembered(100, 52), disturbed=True)
    assert memory is not None and memory.right is True
    race = judge(Bet("Who?", "arrives"), "both", raced(ALL, ALL), disturbed=True)
    assert race is not None and race.right is True
    # Who is first is told by the clock.
    first = judge(order, "with", in_step(100), disturbed=True)
    assert first is not None and first.right is None
    assert "beside other programs" in first.words
    for disturbed in (True, False):
        by_far = judge(order, "with", raced(ALL, ALL), disturbed=disturbed)
        assert by_far is not None and by_far.right is True
