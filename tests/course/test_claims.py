"""The ledger: claims against records, RESULTS.md, and that no prose holds a measured number that is in no record."""

import math
import re
from dataclasses import replace

import pytest
from test_records import CARD, comparison, entry, finished

from course import notebooks as notebook_tool
from course.claims import Claim, Correction, ledger, results_page
from course.claims import ledgers as claims
from course.cli import main
from course.notebook_files import ROOT, notebook_path, read_notebook
from course.records import planned, reference, store
from labkit import plots
from labkit.race import RaceResult
from labkit.results import Comparison


def claim(**changes):
    about = {"text": "amp is faster", "source": "someone", "said": "1.5x to 3x", "why": "because"}
    about |= {"figure": (1.5, 3), "expect": (0, 10), "change": {"amp": True}}
    return Claim(**(about | changes))


@pytest.fixture
def found(tmp_path):
    """A function: what a claim finds in the record of one machine with these results."""

    def look(claim, *kept, **changes):
        store.write(tmp_path / "m", entry(*kept, **changes))
        [finding] = claims.findings(claim, reference("06_x", folder=tmp_path))
        return finding

    return look


@pytest.mark.parametrize(
    ("ratio", "figure", "verdict"),
    [
        (2.0, (1.5, 3), "reproduced"),
        (4.0, (1.5, 3), "beaten"),
        (1.2, (1.5, 3), "refuted"),
        (1.2, (1, math.inf), "reproduced"),  # a plain "faster"
        (0.5, (1, math.inf), "refuted"),
        (0.5, (0, 1), "reproduced"),  # a plain "slower"
        (1.5, (0, 1), "refuted"),
        (1.0, (1, math.inf), "refuted"),  # the same is not faster
        (1.0, (0.9, 1.1), "reproduced"),
    ],
)
def test_verdicts_on_speed(found, ratio, figure, verdict):
    finding = found(claim(figure=figure), comparison(ratio))
    assert (
        finding.verdict == verdict
        and finding.value == pytest.approx(ratio, rel=1e-3)
        and not finding.contradicts
    )


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [((0.4, 0.6), "reproduced"), ((0.6, 0.7), "beaten"), ((0.1, 0.2), "refuted")],
)
def test_less_memory_is_better(found, figure, verdict):
    finding = found(claim(metric="memory", figure=figure), comparison(2.0))
    assert (finding.value, finding.verdict) == (0.5, verdict)


def test_a_run_that_could_not_tell_supports_nothing(found):
    few = comparison(2.0)
    few = replace(
        few,
        **{arm: replace(getattr(few, arm), times=(1e-3,) * 3) for arm in ("baseline", "candidate")},
    )
    finding = found(claim(expect=(5, 6)), few)
    assert finding.verdict == "cannot tell" and not finding.contradicts


def test_an_interval_on_both_sides_of_a_bound_cannot_tell():
    assert claims._verdict(claim(figure=(1, math.inf)), 0.9, 1.1) == "on the bound"
    assert claims._verdict(claim(figure=(0, 1)), 0.9, 1.1) == "on the bound"
    assert claims._verdict(claim(figure=(1.5, 3)), 1.2, 1.6) == "on the bound"
    assert (
        claims._verdict(claim(figure=(1.5, 3)), 2.9, 3.1) == "reproduced"
    )  # not worse, whatever else it is
    assert (
        claims._verdict(claim(metric="memory", figure=(1, math.inf)), 1, 1) == "refuted"
    )  # the same is not more
    assert claims._verdict(claim(metric="memory", figure=(0, 1)), 0.9, 0.95) == "reproduced"


def test_counters_are_compared_exactly(found):
    assert (
        found(claim(metric="flops", figure=(1, 1)), comparison()).verdict == "not recorded yet"
    )  # one arm has none
    both = comparison()
    both = replace(both, candidate=replace(both.candidate, counters=both.baseline.counters))
    assert found(claim(metric="flops", figure=(1, 1)), both).verdict == "reproduced"


def test_what_a_plan_is_predicted_to_need_is_called_predicted(found):
    kept = planned("fit", {"model": "a", "amp": True}, memory=0.5, time=1.25, batch=3)
    asked = {"lab": "fit", "at": {"model": "a"}}
    memory = found(claim(metric="memory", figure=(0.6, 0.7), **asked), kept)
    assert (memory.value, memory.verdict) == (0.5, "beaten (predicted)")
    assert (
        found(claim(metric="batch", figure=(4, 5), **asked), kept).verdict == "refuted (predicted)"
    )
    assert found(claim(figure=(0.75, 0.85), **asked), kept).value == 0.8
    assert (
        found(claim(metric="memory", lab="fit", at={"model": "b"}), kept).verdict
        == "not recorded yet"
    )
    measured = planned("fit", {"model": "a", "amp": True}, source="measured", memory=0.5)
    assert found(claim(metric="memory", figure=(0.6, 0.7), **asked), measured).verdict == "beaten"


def test_a_race_is_found_by_patterns_of_its_arms(found):
    raced = finished((2.0, 1.0), ("max_lr=0.1", "schedule='1cycle', cycle_steps=300"))
    change = {"arm": "*cycle_steps=*", "against": "max_lr=*"}
    assert found(claim(change=change), raced).value == pytest.approx(2)
    assert found(claim(change=change | {"against": "no*"}), raced).verdict == "not recorded yet"
    late = RaceResult(
        tuple(type(r)(r.arm, r.seed, r.curve, False) for r in raced.runs), 0.9, "accuracy", True
    )
    assert (
        found(claim(change=change), type(late)(**(vars(late) | {"lab": "make_workload"}))).verdict
        == "not recorded yet"
    )


def test_what_fits_more_than_once_has_to_be_picked(found):
    both = comparison(2.0, size=8), comparison(3.0, size=16)
    with pytest.raises(
        ValueError, match=r"'amp is faster'.* has 2 comparisons that fit; narrow `at`"
    ):
        found(claim(), *both)
    assert found(claim(pick="smallest"), *both).value == pytest.approx(2)
    assert found(claim(pick="largest"), *both).value == pytest.approx(3)
    assert found(claim(at={"size": 16}), *both).value == pytest.approx(3)
    assert found(claim(change={"amp": ...}, at={"size": 8}), *both).value == pytest.approx(2)


def test_other_labs_settings_and_devices_do_not_count(found):
    assert found(claim(lab="make_layers"), comparison()).verdict == "not recorded yet"
    assert found(claim(), comparison(2.0, amp=True, fused=True)).verdict == "not recorded yet"
    assert found(claim(device="cuda"), comparison()).machine == ""
    assert (
        found(claim(device="cuda"), comparison(), machine=CARD | {"gpu": {"name": "X"}}).verdict
        == "reproduced"
    )


def test_a_finding_far_from_what_we_expect_contradicts(found):
    assert found(claim(expect=(1, 1.5)), comparison(2.0)).contradicts
    assert not found(claim(expect=(1, 2.5)), comparison(2.0)).contradicts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "speed"}, "metric='speed': use one of speedup"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"pick": "best"}, "pick='best'"),
        ({"figure": (3, 1)}, r"figure=\(3, 1\): use \(low, high\)"),
        ({"expect": (-1, 1)}, r"expect=\(-1, 1\)"),
    ],
)
def test_bad_claims_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


def test_a_ledger_prints_claims_and_corrections():
    text = str(
        ledger("06_none", [claim()], [Correction("a list", "ImageNet", "CIFAR-10", "the paper")])
    )
    for words in (
        "amp is faster",
        "someone: 1.5x to 3x",
        "not recorded yet",
        "because",
        "ImageNet",
        "Right: CIFAR-10",
    ):
        assert words in text


# ---------------------------------------------------------------------------------------------- the course's own ledger

LEDGERS = {book.notebook: book for book in results_page.ledgers()}
NAMES = [path.stem for path in notebook_tool.notebooks() if not path.stem.startswith("_")]


def test_every_notebook_has_a_ledger():
    assert list(LEDGERS) == NAMES
    assert all(book.claims for book in LEDGERS.values())


def test_results_md_is_up_to_date():
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert text == results_page.results_text(list(LEDGERS.values())), (
        "run `python -m course results`"
    )
    assert main(["results", "--check"]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_no_record_contradicts_a_claim(name):
    for one, findings in LEDGERS[name].rows():
        assert not [str(finding) for finding in findings if finding.contradicts], one.text


@pytest.mark.parametrize("name", NAMES)
def test_corrections_still_hold(name):
    for correction in LEDGERS[name].corrections:
        assert correction.holds is None or correction.holds(), correction.says


def test_the_known_errors_of_the_sources_are_shown():
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    for known in ("ResNet-56", "four workers", "set_to_none", "d2l.Timer", "23 %", "32 %", "133"):
        assert known in text, known


def test_check_tells_a_stale_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results_page, "ROOT", tmp_path)
    assert main(["results", "--check"]) == 1 and "out of date" in capsys.readouterr().out
    assert main(["results"]) == 0 and main(["results", "--check"]) == 0


def test_the_heat_map_has_a_row_a_recorded_claim_and_a_column_a_machine(tmp_path, capsys):
    machines = sorted(
        {record.machine for book in LEDGERS.values() for record in book.references.records}
    )
    [axis] = results_page.heat_map(list(LEDGERS.values())).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == 2 * machines  # below and above
    found = [found for book in LEDGERS.values() for _, found in book.rows()]
    recorded = [rows for rows in found if any(finding.machine for finding in rows)]
    assert len(axis.get_yticklabels()) == len(recorded) > 0
    axis.figure.draw_without_rendering()
    assert axis.get_position().width > 0.3  # the names leave room for the cells
    picture = tmp_path / "map.png"
    assert main(["results", "--check", "--figure", str(picture), "--machines", machines[0]]) == 0
    assert picture.stat().st_size > 10_000
    assert main(["results", "--figure", str(picture), "--machines", "cray-1"]) == 1
    assert "no record of cray-1" in capsys.readouterr().err


def test_the_heat_map_says_where_it_cannot_tell():
    unsure = claims.Finding("m", 1.0, 0.9, 1.1, "cannot tell")
    assert results_page._gain(claim(), unsure)[1] == "cannot tell" and math.isnan(
        results_page._gain(claim(), unsure)[0]
    )
    assert results_page._gain(
        claim(metric="memory"), claims.Finding("m", 0.25, 0.25, 0.25, "beaten")
    ) == (
        4,
        "4.00x smaller",
    )


def test_the_heat_map_marks_what_is_doubtful_or_predicted_and_draws_what_never_arrived():
    old = claims.Finding("m, 2026-11-20 (ended early)", 2.0, 2.0, 2.0, "reproduced (predicted)")
    assert results_page._gain(claim(metric="batch"), old) == (2.0, "2.00x larger*\n(predicted)")
    assert plots.heat_map({"a": [(0.0, "never"), (math.inf, "x")]}, ["m", "n"]).axes


def test_a_refused_record_is_named_in_the_ledger(tmp_path):
    path = store.write(tmp_path / "m", entry(comparison()))
    path.write_text("{")
    book = claims.Ledger("06_x", [claim()])
    book.references = reference("06_x", folder=tmp_path)
    assert (
        "Not shown: m/06_x.json is damaged" in str(book)
        and "Not shown: m/06_x.json" in book.markdown()
    )


# ------------------------------------------------------------------------------------------------- numbers in the prose

# What looks like a measurement: a number with a unit of time, of bytes or of images, or a factor.
MEASURED = re.compile(
    r"(?<![\w.,])\d[\d.,]*\d?\s?(?:x(?! ?\d)|ms|µs|s|MiB|GiB|KiB|MB|GB|images/s|GB/s|%)(?![\w-])"
)
BOUND = re.compile(r"\[([^\]]*)\]\(\.\./RESULTS\.md[^)]*\)")
# A number of somebody else's, with its source in the same paragraph or row of a table.
CITED = re.compile(
    r"\b(?:19|20)\d\d\b|arXiv|[Ss]ection \d|Guide\b|\bblog\b|\brecipe\b|\barticle\b|\bpaper\b|\bthe same\b|\bMigacz\b"
)
# Rules of the kit and of the exercises: numbers that we set, not numbers that we found.
SET = {
    "00_start_here": {"95 %", "2 %", "0.5 %"},
    "04_data_loading": {"193 GB"},  # a product of three cited sizes
    "06_mixed_precision": {"5 %"},
}


def prose(name):
    """The paragraphs, list items and rows of a notebook's text, without code and formulas."""
    for cell in read_notebook(notebook_path(name)).cells:
        if cell.cell_type == "markdown":
            text = re.sub(
                r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|`[^`\n]*`", " ", cell.source, flags=re.DOTALL
            )
            yield from re.split(r"\n\s*\n|\n(?=\s*[-|])", text)


def recorded_numbers(name):
    """Every figure that a reader of the notebook's records could see."""
    for record in reference(name).records:
        for result in record.results:
            if isinstance(result, Comparison):
                yield from (
                    result.speedup,
                    1 / result.speedup,
                    *result.interval,
                    result.memory_ratio,
                )
                for arm in result.arms:
                    yield from (
                        arm.median,
                        arm.median * 1e3,
                        (arm.peak_bytes or math.nan) / 2**20,
                        arm.throughput,
                    )
            elif isinstance(result, RaceResult):
                for arm in result.arms:
                    yield from (result.median(arm), *result.speedup(arm), result.target * 100)


def unbound(name, paragraphs, numbers):
    """Measured numbers of a notebook's prose that are neither in a record nor cited nor set by us."""
    values = [number for number in numbers if math.isfinite(number)]
    for paragraph in paragraphs:
        for linked in BOUND.findall(paragraph):
            for text in re.findall(r"\d[\d,]*\.?\d*", linked):
                number, digits = float(text.replace(",", "")), len(text.partition(".")[2])
                if not any(
                    math.isclose(round(value, digits), number, abs_tol=1e-9) for value in values
                ):
                    yield f"{text} is linked to RESULTS.md, but in no record of {name}: {paragraph[:80]!r}"
        if not CITED.search(paragraph):
            for text in MEASURED.findall(BOUND.sub("", paragraph)):
                if text not in SET.get(name, ()):
                    yield f"{text} is neither cited nor linked to RESULTS.md: {paragraph[:80]!r}"


@pytest.mark.parametrize("name", NAMES)
def test_no_prose_holds_a_measured_number_that_is_in_no_record(name):
    assert list(unbound(name, prose(name), recorded_numbers(name))) == []


def test_the_search_for_unbound_numbers_finds_them():
    bound = "It ran [1.26x](../RESULTS.md) as fast."
    assert list(unbound("x", [bound], [1.2649])) == []
    [problem] = unbound("x", [bound], [1.3])
    assert "1.26 is linked" in problem
    [problem] = unbound("x", ["It ran 1.26x as fast."], [1.26])
    assert "neither cited nor linked" in problem
    assert (
        list(unbound("x", ["Smith (2017) found 1.26x.", "On 8 x 8 pixels, 24 blocks, 3x3."], []))
        == []
    )
    assert len(list(unbound("x", ["30 ms, 12.5 MiB, and 80 % of it"], []))) == 3
