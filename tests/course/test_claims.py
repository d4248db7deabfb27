"""Claims as data, and what a record says to one: found by identity, repeats pooled,
judged with care.
"""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from course.claims import Claim, Correction, Ledger, checks, ledger, load
from course.claims.findings import Finding, effect_and_doubt, findings, gain_in_words
from course.claims.match import named
from course.claims.one_build import one_build
from course.claims.pool import pool_comparisons
from course.records.planned import PlanRatios
from course.records.store import Record
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement

INF = math.inf


def claim(**changes):
    about = {"text": "amp is faster", "source": "someone", "said": "1.5x to 3x", "why": "because"}
    about |= {"figure": (1.5, 3), "expect": (0, INF), "setting": "a CPU", "same_setting": True}
    if "arm" not in changes:
        about |= {"change": {"amp": True}}
    return Claim(**(about | changes))


def times(ratio=1.0, count=24):
    """Of a quiet machine."""
    return tuple(1e-3 / ratio * (1 + 1e-4 * (i % 3)) for i in range(count))


def comparison(ratio=2.0, *, size=8, lab="make_workload", device="cpu", count=24, **about):
    """Without and with amp, a speed-up of this ratio and half of the memory."""
    before, after = {"amp": False, "size": size}, {"amp": True, "size": size}
    base = Measurement("baseline", before, times(1, count), peak_bytes=2**20)
    other = Measurement("amp=True", after, times(ratio, count), peak_bytes=2**19)
    return Comparison(base, other, device=device, lab=lab, **about)


def race(seconds, target=0.9, lab="make_workload"):
    """Five seeds an arm, which need so many seconds."""
    runs = []
    for arm, time in seconds.items():
        for seed in range(5):
            runs.append(RaceRun(arm, seed, ((20, time * (seed + 1), target),), True))
    return RaceResult(tuple(runs), target, "accuracy", True, lab=lab)


def record(*results, machine="m", gpu=None, cores=2, doubt=None):
    card = {"gpu": gpu, "cpu": {"cores": cores}}
    when = datetime(2026, 11, 20, tzinfo=UTC)
    return Record(
        machine, "06_x", "0" * 16, when, 1.0, "0.1.0", card, {}, {}, tuple(results), doubt=doubt
    )


def found(claim, *results, **about):
    """What the claim finds in one record with these results."""
    [finding] = findings(claim, [record(*results, **about)])
    return finding


def nothing(finding):
    """Whether a claim has found nothing: its value is nan, which equals nothing."""
    return repr(finding) == repr(Finding(""))


# ------------------------------------------------------------------------------------------ judging


@pytest.mark.parametrize(
    ("ratio", "figure", "word"),
    [
        (2.0, (1.5, 3), "reproduced"),
        (4.0, (1.5, 3), "better"),
        (1.2, (1.5, 3), "worse"),
        (3.0, (2.9, 2.95), "better"),
        (1.2, (1, INF), "reproduced"),
        (0.5, (1, INF), "worse"),
        (0.5, (0, 1), "reproduced"),
        (1.5, (0, 1), "better"),
        # The same is not faster, and costs nothing where slower was feared.
        (1.0, (1, INF), "worse"),
        (1.0, (0, 1), "better"),
        (1.0, (0.9, 1.1), "reproduced"),
    ],
)
def test_a_figure_of_the_sources_setting_is_judged_by_its_interval(ratio, figure, word):
    finding = found(claim(figure=figure), comparison(ratio))
    assert finding.word == word
    assert finding.value == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize(
    ("figure", "word"),
    [
        ((0.4, 0.6), "reproduced"),
        ((0.6, 0.7), "better"),
        ((0.1, 0.2), "worse"),
        ((0, 1), "reproduced"),
        ((1, INF), "better"),
    ],
)
def test_less_memory_is_better(figure, word):
    finding = found(claim(metric="memory", figure=figure), comparison())
    assert (finding.value, finding.word) == (0.5, word)


def test_equal_memory_is_neither_less_nor_more():
    same = comparison()
    same = replace(same, candidate=replace(same.candidate, peak_bytes=2**20))
    assert found(claim(metric="memory", figure=(0, 1)), same).word == "worse"
    assert found(claim(metric="memory", figure=(1, INF)), same).word == "better"
    assert found(claim(metric="memory", figure=(1, 1)), same).word == "reproduced"


@pytest.mark.parametrize("figure", [(1.5, 3), (1, INF), (0, 1)])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0, 9.0])
def test_another_setting_is_never_judged(figure, ratio):
    other = claim(figure=figure, same_setting=False)
    assert found(other, comparison(ratio)).word == "other setting"


def test_the_device_of_the_result_decides_and_not_the_machine():
    of_gpus = claim(machine="cuda")
    on_cpu, on_gpu = comparison(2.0), comparison(2.5, device="cuda")
    assert found(of_gpus, on_cpu).word == "other setting"
    assert found(of_gpus, on_cpu, gpu={"name": "X"}).word == "other setting"
    assert found(of_gpus, on_gpu, gpu={"name": "X"}).word == "reproduced"
    only = claim(device="cuda")
    assert nothing(found(only, on_cpu, gpu={"name": "X"}))
    both = findings(claim(), [record(on_cpu, on_gpu, gpu={"name": "X"})])
    assert [finding.machine for finding in both] == ["m (cpu), 2026-11-20", "m, 2026-11-20"]
    assert both[1].value == pytest.approx(2.5, rel=1e-3)


def test_what_was_only_calculated_is_predicted_and_never_judged():
    asked = claim(metric="memory", figure=(0.6, 0.7), lab="fit")
    plan = PlanRatios("fit", {"amp": True}, {"memory": 0.5, "time": 1.25})
    finding = found(asked, plan)
    assert (finding.value, finding.word) == (0.5, "predicted")
    assert found(claim(lab="fit"), plan).value == 0.8
    assert found(asked, replace(plan, source="measured")).word == "better"
    assert nothing(found(asked, replace(plan, settings={"amp": False})))


def test_an_interval_on_both_sides_of_a_bound_is_unclear():
    raced = race({"baseline": 1.0, "fast=True": 1.0})
    spread = [replace(run, curve=((9, 1 + run.seed / 8, 0.9),)) for run in raced.runs[:5]]
    raced = replace(raced, runs=(*spread, *raced.runs[5:]))
    arm = {"fast": True}
    low, high = raced.speedup("fast=True")[1:]
    assert found(claim(arm=arm, figure=((low + high) / 2, 9)), raced).word == "unclear"
    # Not worse than the range, whatever else it is.
    assert found(claim(arm=arm, figure=(low, (low + high) / 2)), raced).word == "reproduced"


def test_a_race_in_which_a_run_never_arrived_is_told_by_counts():
    raced = race({"baseline": 1.0, "fast=True": 0.5})
    lost = [replace(run, reached=run.arm != "baseline" or run.seed < 2) for run in raced.runs]
    raced = replace(raced, runs=tuple(lost))
    finding = found(claim(arm={"fast": True}, figure=(1, INF)), raced)
    words = "reached by 5 of 5 seeds against 2 of 5"
    assert str(finding) == f"{words} unclear" and not finding.contradicts
    assert effect_and_doubt(claim(), finding) == f"{words} (unclear)"
    assert math.isnan(finding.value)
    nowhere = replace(raced, runs=tuple(replace(run, reached=False) for run in raced.runs))
    assert nothing(found(claim(arm={"fast": True}), nowhere))


def test_a_race_of_two_seeds_has_no_interval_and_decides_nothing():
    raced = race({"baseline": 1.0, "fast=True": 0.5})
    raced = replace(raced, runs=tuple(run for run in raced.runs if run.seed < 2))
    finding = found(claim(arm={"fast": True}, figure=(1, INF), expect=(5, 6)), raced)
    assert str(finding) == "2 unclear" and not finding.contradicts


def test_a_run_that_failed_supports_nothing():
    failed = comparison()
    failed = replace(failed, candidate=replace(failed.candidate, error="out of memory"))
    finding = found(claim(expect=(5, 6)), failed)
    assert finding.word == "unclear"
    assert not finding.clear and not finding.contradicts
    few = comparison(count=3)
    assert found(claim(figure=(1, INF)), few).word == "unclear"


def test_a_figure_has_no_exponent():
    assert str(Finding("m", 999.6, 999.6, 999.6, "better")) == "1,000 better"


def test_counters_are_compared_exactly():
    asked = claim(metric="flops", figure=(1, 1))
    one = comparison()
    one = replace(one, baseline=replace(one.baseline, counters={"flops": 100}))
    assert nothing(found(asked, one))
    both = replace(one, candidate=replace(one.candidate, counters={"flops": 100}))
    assert found(asked, both).word == "reproduced"
    fewer = replace(one, candidate=replace(one.candidate, counters={"flops": 99}))
    assert found(asked, fewer).word == "better"


def test_a_finding_far_from_what_we_expect_contradicts():
    assert found(claim(expect=(1, 1.5)), comparison(2.0)).contradicts
    assert not found(claim(expect=(1, 2.5)), comparison(2.0)).contradicts


def test_what_we_expect_of_few_cores_is_not_asked_of_many():
    asked = claim(expect=(1, 1.5), cores=2)
    assert found(asked, comparison(2.0), cores=2).contradicts
    assert not found(asked, comparison(2.0), cores=16).contradicts
    assert not found(asked, comparison(2.0), cores=None).contradicts


# ----------------------------------------------------------------------------------------- identity


def test_several_results_that_fit_have_to_be_told_apart():
    both = comparison(2.0, size=8), comparison(3.0, size=16)
    with pytest.raises(ValueError, match=r"'amp is faster'.* 2 results that fit: .*say which by"):
        found(claim(), *both)
    assert found(claim(at={"size": 16}), *both).value == pytest.approx(3, rel=1e-3)
    assert found(claim(sizes={"cpu": {"size": 8}}), *both).value == pytest.approx(2, rel=1e-3)
    assert found(claim(sizes={"cuda": {"size": 8}}), both[1]).value == pytest.approx(3, rel=1e-3)
    assert found(claim(change={"amp": "*"}, at={"size": 8}), *both).word == "reproduced"


def test_the_baseline_belongs_to_the_question():
    back = comparison(2.0)
    back = Comparison(back.candidate, back.baseline, lab=back.lab)
    off = claim(change={"amp": False})
    assert found(off, back).value == pytest.approx(0.5, rel=1e-3)
    assert found(claim(baseline={"amp": False}), comparison()).value == pytest.approx(2, rel=1e-3)
    assert nothing(found(claim(baseline={"amp": "half"}), comparison()))


def test_other_labs_and_further_changes_do_not_count():
    assert nothing(found(claim(lab="make_layers"), comparison()))
    assert nothing(found(claim(change={"amp": True, "size": 8}), comparison()))
    more = comparison()
    more = replace(more, baseline=replace(more.baseline, settings={"amp": False, "size": 4}))
    assert nothing(found(claim(), more))


def test_repeats_are_pooled_and_none_is_lost():
    first, second = comparison(2.0), comparison(3.0, count=25)
    finding = found(claim(), first, second)
    assert finding.low < 2.5 < finding.high
    pooled = pool_comparisons([first, second])
    assert pooled.baseline.times == first.baseline.times + second.baseline.times[:24]
    assert pooled.candidate.builds == (0,) * 24 + (1,) * 24
    assert pooled.ratios[:24] == first.ratios
    third = pool_comparisons([pooled, first])
    assert set(third.baseline.builds) == {0, 1, 2}


def test_a_repeat_that_failed_does_not_spoil_the_others():
    good = comparison()
    bad = replace(good, candidate=replace(good.candidate, times=(), error="out of memory"))
    assert pool_comparisons([bad, good]) == good
    assert pool_comparisons([bad, bad]) == bad
    assert found(claim(), bad, good).word == "reproduced"


def test_an_arm_of_a_race_is_found_by_what_its_name_says():
    names = ("baseline", "lr=0.1", "norm='a'", "norm='a', lr=0.1", "norm='a', lr=0.1, steps=30")
    raced = race(dict.fromkeys(names, 1.0))
    assert named(raced, {"norm": "a", "lr": "*"}) == "norm='a', lr=0.1"
    assert named(raced, {"norm": "a"}) == "norm='a'"
    assert named(raced, {"norm": "a", "lr": "*", "steps": 30}) == "norm='a', lr=0.1, steps=30"
    assert named(raced, {"norm": "b", "lr": "*"}) is None
    assert named(raced, {"depth": "*"}) == "baseline"
    assert named(race({"a name": 1.0}), {"norm": "a"}) is None
    with pytest.raises(ValueError, match=r"fits several arms: lr=0\.1; lr=0\.2"):
        named(race({"lr=0.1": 1.0, "lr=0.2": 1.0}), {"lr": "*"})


def test_a_race_is_told_from_others_by_its_target():
    early, late = (race({"baseline": s, "lr=0.1": 1.0}, target=t) for s, t in [(2, 0.5), (3, 0.9)])
    asked = claim(arm={"lr": "*"})
    with pytest.raises(ValueError, match="say which by arm, against or target"):
        found(asked, early, late)
    assert found(replace(asked, target=0.9), early, late).value == pytest.approx(3)
    assert nothing(found(replace(asked, target=0.7), early, late))
    # Repeats are pooled.
    pooled = found(asked, early, race({"baseline": 4.0, "lr=0.1": 1.0}, 0.5))
    assert pooled.value == pytest.approx(math.sqrt(2 * 4))


def test_a_race_against_an_arm_that_is_not_its_first():
    raced = race({"baseline": 9.0, "lr=0.1": 3.0, "norm='a'": 1.0})
    asked = claim(arm={"norm": "a"}, against={"lr": "*"})
    assert found(asked, raced).value == pytest.approx(3)
    assert nothing(found(replace(asked, against={"depth": 3}), raced))
    never = replace(raced, runs=tuple(replace(run, reached=False) for run in raced.runs))
    assert nothing(found(asked, never))


# --------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "speed"}, "metric='speed': use one of speedup"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"machine": "gpu"}, "machine='gpu'"),
        ({"figure": (3, 1)}, r"figure=\[3, 1\]: use \[low, high\]"),
        ({"expect": (-1, 1)}, r"expect=\[-1, 1\]"),
        ({"change": {}}, "change or arm"),
        ({"change": {"a": 1}, "arm": {"a": 1}}, "change or arm"),
        ({"arm": {"a": 1}, "at": {"b": 1}}, "baseline and at are for comparisons"),
        ({"target": 0.5}, "against and target are for races"),
        ({"baseline": {"b": 1}}, r"baseline=\{'b': 1\}: use settings that change names"),
        ({"sizes": {"gpu": {}}}, "sizes="),
    ],
)
def test_bad_claims_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


GOOD = """
[[claim]]
text = "faster"
source = "someone"
said = "more"
figure = [1, inf]
setting = "a CPU"
same_setting = true
change = { amp = true, lr = "*" }
expect = [0, 9]
why = \"\"\"
of
that
\"\"\"

[[correction]]
source = "someone"
says = "a"
right = "b"
evidence = "c"
holds = "zero_grad_sets_none"
"""


def test_a_file_is_read_with_its_corrections(tmp_path):
    (tmp_path / "06_x.toml").write_text(GOOD)
    [one], [correction] = load.load("06_x", tmp_path)
    assert (one.figure, one.why, one.change) == ((1, INF), "of that", {"amp": True, "lr": "*"})
    assert correction == Correction("someone", "a", "b", "c", checks.zero_grad_sets_none)
    assert load.names(tmp_path) == ["06_x"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('said = "more"\n', "", r"06_x\.toml, claim 1: said is missing"),
        ("said =", "sayed =", "claim 1: sayed: no such field; there are text"),
        ("same_setting = true", "same_setting = 1", "claim 1: same_setting=1: use bool"),
        ("[1, inf]", "[1]", r"claim 1: figure=\[1\]: use \[low, high\], two numbers"),
        ("[1, inf]", "1", "claim 1: figure=1: use list"),
        ('"someone"\nsaid', "true\nsaid", "claim 1: source=True: use str"),
        ("[0, 9]", "[9, 0]", r"claim 1: expect=\[9\.0, 0\.0\]: use"),
        ("zero_grad_sets_none", "no_such", "correction 1: holds='no_such': no such function"),
        ("zero_grad_sets_none", "pairwise", "correction 1: holds='pairwise': no such function"),
        ('evidence = "c"\n', "", "correction 1: evidence is missing"),
        ("[[correction]]", "[[corrections]]", r"06_x\.toml: corrections: use"),
        ("[[claim]]", "[[claim", r"06_x\.toml: .*line 2"),
    ],
)
def test_a_bad_file_is_refused_by_file_entry_and_field(tmp_path, old, new, message):
    assert old in GOOD
    (tmp_path / "06_x.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load.load("06_x", tmp_path)


def test_a_notebook_without_claims_is_named():
    with pytest.raises(ValueError, match="'06_none' has no claims; there are those of 00_start"):
        ledger("06_none")


def test_a_ledger_prints_claims_and_corrections():
    shown = Ledger("06_none", [claim()], [Correction("a list", "ImageNet", "CIFAR-10", "it says")])
    words = ("amp is faster", "someone: 1.5x to 3x (a CPU)", "not recorded yet", "because")
    for word in (*words, "ImageNet", "Right: CIFAR-10"):
        assert word in str(shown)
    assert "| amp is faster (speed-up; amp True) | someone |" in shown.markdown()


def test_gains_are_said_in_words():
    memory = claim(metric="memory")
    assert gain_in_words(claim(), 1446.2) == "1,446x"
    assert gain_in_words(memory, 4) == "4.00x smaller"
    assert gain_in_words(memory, INF) == "nothing left"
    assert gain_in_words(claim(), 0.0836) == "0.084x"


def test_a_side_that_was_timed_again_and_differs_marks_the_row():
    one = comparison(2.0, size=8)
    again = comparison(2.0, size=8, lab=one.lab)
    beside = {"baseline": replace(again.baseline, settings={"amp": None, "size": 8})}
    # The same medians say nothing against it.
    assert not one_build(one, [one, replace(again, **beside)])
    slower = replace(again.candidate, times=tuple(3 * each for each in again.candidate.times))
    other = replace(again, **beside, candidate=slower)
    assert one_build(one, [one, other])
    # Another lab, another device, another size: no equal side.
    for about in ({"lab": "other"}, {"device": "cuda"}):
        assert not one_build(one, [replace(other, **about)])
    elsewhere = replace(slower, settings={"amp": True, "size": 9})
    assert not one_build(one, [replace(other, candidate=elsewhere)])
    # What was built several times has an interval of builds.
    count = len(one.baseline.times)
    builds = tuple(i // 2 % 6 for i in range(count))
    sides = {
        name: replace(getattr(one, name), builds=tuple(sorted(builds)))
        for name in ("baseline", "candidate")
    }
    assert not one_build(replace(one, **sides), [other])
