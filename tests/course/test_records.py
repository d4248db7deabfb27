"""Records: written whole or not at all, refused when not to be trusted,
shown beside a reader's own run.
"""

import ast
import json
import math
import os
import re
from copy import deepcopy
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import jsonschema
import msgspec
import numpy as np
import pytest
import torch

from course.records import format, planned, reference, references, store
from course.records.format import RecordError, RecordFile, entry_of
from course.records.listening import Listener, read_entries
from course.records.notebook_hash import hash_of, notebook_hash
from course.records.references import Recorded
from course.written import write_whole
from labkit import Lab, Workload, race
from labkit.journal import Failure, journal
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement

COUNTERS = {"flops": 100, "launches": 3, "saved_bytes": 4, "host_reads": 0}
STATE = {"load_average": "unknown", "cpu_mhz": "unknown", "gpu": None}
CARD = dict.fromkeys(
    ("cpu", "os", "python", "cuda", "cudnn", "threads", "switches", "measured"), "unknown"
)
CARD |= {"gpu": None, "torch": "2.15", "labkit": "0.1.0"}


def comparison(ratio=2.0, *, lab="make_workload", size=8, error=None, **changes):
    """Twelve quiet pairs with this ratio."""
    changes = changes or {"amp": True}
    before = {name: {True: False}.get(value, 0) for name, value in changes.items()} | {"size": size}
    times = tuple(1e-3 * (1 + 1e-4 * (i % 3)) for i in range(12))
    base = Measurement("baseline", before, times, cold=0.5, peak_bytes=2**20, counters=COUNTERS)
    faster = () if error else tuple(t / ratio for t in times)
    label = ", ".join(f"{name}={value}" for name, value in changes.items())
    other = Measurement(label, changes | {"size": size}, faster, peak_bytes=2**19, error=error)
    return Comparison(base, other, lab=lab)


def finished(seconds=(1.0, 2.0), arms=("baseline", "fast"), lab="make_workload"):
    runs = [
        RaceRun(arm, seed, ((10, (seed + 1) * time, 0.5), (20, (seed + 1) * 2 * time, 0.9)), True)
        for arm, time in zip(arms, seconds, strict=True)
        for seed in range(5)
    ]
    return RaceResult(tuple(runs), 0.9, "accuracy", True, lab=lab)


def entry(*results, notebook="06_x", **changes):
    """A whole record."""
    listed = []
    for result in results:
        about = {"seed": 0, "threads": 1} if isinstance(result, Comparison) else {}
        listed.append(entry_of(result, **about))
    whole = {
        "notebook": notebook,
        "notebook_hash": "0" * 16,
        "recorded": "2026-11-20T12:00:00Z",
        "seconds": 12.5,
        "labkit": "0.1.0",
        "failed": None,
        "machine": CARD,
        "before": STATE,
        "after": STATE,
        "results": tuple(listed),
    }
    return RecordFile(**whole | changes)


def as_json(content):
    return json.loads(format.encode(content))


def again(result):
    """What is read of a result that was written."""
    written = format.encode(entry_of(result))
    return msgspec.json.decode(written, type=format.AnyEntry).result()


# ---------------------------------------------------------------------------------- the file format


def test_a_record_comes_back_as_it_was(tmp_path):
    one, raced = comparison(1.26), finished()
    failure = Failure("make_workload", {"dtype": "float16"}, "RuntimeError: no")
    path = store.write(tmp_path / "laptop", entry(one, raced, failure))
    record = store.read(path)
    assert (record.machine, record.notebook, record.device) == ("laptop", "06_x", "cpu")
    first, second, third = record.results
    assert (
        first.speedup == pytest.approx(1.26, rel=1e-4)
        and first.verdict == "faster"
        and first.lab == "make_workload"
    )
    assert first.baseline.counters == COUNTERS and first.baseline.times == one.baseline.times
    assert second == raced and third == failure


def test_figures_follow_exactly_from_the_rounded_times():
    noisy = tuple(1.23456789e-3 * (1 + 0.013 * math.sin(i)) for i in range(30))
    result = Comparison(Measurement("a", {}, noisy), Measurement("b", {"x": 1}, noisy[::-1]))
    kept = entry_of(result)
    assert entry_of(kept.result()) == kept
    assert kept.baseline.times[1] == 0.0012481
    assert kept.baseline.median == kept.result().baseline.median


def test_a_race_keeps_runs_that_never_arrived(tmp_path):
    result = race(
        {"a": lambda: Workload(lambda: None, evaluate=lambda: 0.0)}, target=1, steps=2, seeds=2
    )
    record = store.read(store.write(tmp_path / "m", entry(result, notebook="03_x")))
    assert [run.reached for run in record.results[0].runs] == [False, False]
    assert record.results[0].median("a") == math.inf
    assert "0 of 2 seeds arrived" in str(reference("03_x", folder=tmp_path))


def test_a_plan_s_ratios_are_kept_with_their_source(tmp_path, monkeypatch):
    with journal(Listener(tmp_path / "kept").keep):
        kept = planned("fit", {"model": "ResNet-50"}, memory=0.3, time=1.25)
    [entry_kept] = read_entries(tmp_path / "kept")
    assert entry_kept.result() == kept
    store.write(tmp_path / "m", entry(kept))
    assert "model='ResNet-50': memory 0.3x, time 1.25x of the plain model's (predicted)" in str(
        reference("06_x", folder=tmp_path)
    )


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({}, r"figures=\[\]: give some of \('memory', 'time', 'batch'\)"),
        ({"speed": 2.0}, "figures=\\['speed'\\]: give some of"),
        ({"memory": 0.0}, "memory=0.0: use a ratio to the plain model, positive and finite"),
        ({"time": math.inf}, "time=inf: use a ratio"),
        ({"time": 1.0, "source": "guessed"}, "source='guessed': use one of"),
    ],
)
def test_a_plan_s_ratios_are_checked(figures, message):
    with pytest.raises(ValueError, match=message):
        planned("fit", {}, **figures)


def broken(**changes):
    return lambda whole: whole | changes


def planted(whole):
    whole["results"][0]["speedup"] *= 1.1
    return whole


def in_the_side(**changes):
    def spoil(whole):
        whole["results"][0]["baseline"] |= changes
        return whole

    return spoil


nowhere = as_json(entry(finished()))["results"][0]
nowhere["runs"][0]["curve"] = []


def lacking(part, name):
    def spoil(whole):
        del whole[part][name]
        return whole

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (broken(schema=2), "schema version 2; this course reads version 3"),
        (broken(notebook_hash=7), r"Expected `str`, got `int` - at `\$.notebook_hash`"),
        (broken(extra=1), "unknown field `extra`"),
        (broken(recorded="2026-13-13"), "recorded: month must be in 1..12"),
        (lacking("machine", "switches"), "machine lacks switches"),
        (lacking("after", "cpu_mhz"), "after lacks cpu_mhz"),
        (in_the_side(times=[0.0] * 12), "Expected `float` > 0.0"),
        (in_the_side(builds=[0, 1]), "2 builds for 12 times"),
        (in_the_side(median=None), "states baseline's median None"),
        (in_the_side(counters={"flops": 1}), "counters lacks launches, saved_bytes, host_reads"),
        (
            broken(recorded=f"{datetime.now(UTC) + timedelta(days=400):%Y-%m-%dT%H:%M:%SZ}"),
            "is from the future",
        ),
        (broken(notebook="07_y"), "is a record of 07_y"),
        (planted, "states speedup"),
        (lambda whole: [whole], "Expected `object`, got `array`"),
        (lambda whole: {"notebook": "06_x"}, "schema version None"),
        (broken(results=[nowhere]), "is damaged: "),
    ],
)
def test_what_is_not_to_be_trusted_is_refused_with_the_reason(tmp_path, spoil, reason):
    path = tmp_path / "laptop" / "06_x.json"
    write_whole(path, json.dumps(spoil(as_json(entry(comparison())))))
    with pytest.raises(RecordError, match=f"laptop/06_x.json.*{reason}"):
        store.read(path)
    shown = reference("06_x", folder=tmp_path)
    assert shown.records == ()
    assert re.search(f"Not shown: laptop/06_x.json.*{reason}", str(shown))


def test_a_damaged_file_is_refused_and_the_others_are_shown(tmp_path):
    store.write(tmp_path / "good", entry(comparison()))
    write_whole(tmp_path / "bad" / "06_x.json", '{"schema": 3, "noteb')
    shown = reference("06_x", folder=tmp_path)
    assert shown.machines == ("good",) and "bad/06_x.json is damaged" in str(shown)


def test_nothing_is_written_for_a_bad_record(tmp_path):
    with pytest.raises(RecordError, match=r"\$.seconds"):
        store.write(tmp_path, entry(comparison(), seconds=-1))
    assert list(tmp_path.iterdir()) == []


def test_writing_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, "old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def notebook(tmp_path, *cells):
    path = tmp_path / "06_x.ipynb"
    code = [
        {"cell_type": "code", "source": source, "metadata": {"tags": tags}}
        for source, tags in cells
    ]
    path.write_text(
        json.dumps({"cells": [*code, {"cell_type": "markdown", "source": "text", "metadata": {}}]})
    )
    return path


def test_the_hash_is_of_what_measures(tmp_path):
    def hashed(*cells):
        return notebook_hash(notebook(tmp_path, *cells))

    plain = hashed(("import torch\nlab.run()", []))
    assert hashed(("from x import y\n\nlab.run()", []), ("claims", ["claims"])) == plain
    assert hashed(("import torch\nlab.run(amp=True)", [])) != plain
    assert hashed(("lab.run()", []), ("draw()", ["aside"])) == plain
    assert hashed(("lab.run()", []), ("draw()", [])) != plain


def test_layout_comments_and_imports_do_not_make_a_record_old():
    long = "from a import (\n    b,\n)\nlab.run(  # why\n    x='a', y=[\n1,\n2],\n)\n"
    assert hash_of([long]) == hash_of(['lab.run(x="a", y=[1, 2])', "import b"])
    inner = "def step():\n    import a\n    return a.b"
    assert hash_of([inner]) == hash_of(["def step():\n    return a.b"])
    file = "%%writefile a.py\n"
    assert hash_of([f"{file}import b\nrun()"]) == hash_of([f"{file}run()"]) != hash_of(["run()"])
    assert hash_of([f"{file}run()"]) != hash_of([f"{file}run(1)"])


def test_sizes_of_tests_do_not_make_a_record_old():
    plain = hash_of(["n = pick(cpu=8, cuda=64, test=2)"])
    assert hash_of(["n = pick(cpu=8, cuda=64, test=4)"]) == plain
    assert hash_of(["n = pick(cpu=8, cuda=64)"]) == plain
    assert hash_of(["n = pick(cpu=9, cuda=64, test=2)"]) != plain
    assert hash_of(["n = pick(cpu=8, test=2)"]) == hash_of(["n = 8"])
    assert hash_of(["n = pick(cpu=9, test=2)"]) != hash_of(["n = 8"])
    assert hash_of(["f(test=2)"]) != hash_of(["f(test=4)"]) != hash_of(["f()"])


def test_a_cell_may_be_split():
    parts = ["a = 1", "def f():\n    return a", "f()"]
    whole = hash_of(["\n".join(parts)])
    assert hash_of(parts) == whole
    assert hash_of(["import b", *parts[:2], "", parts[2]]) == whole
    assert hash_of([parts[1], parts[0], parts[2]]) != whole
    file, more = "%%writefile a.py\n", "%%writefile --append a.py\n"
    assert hash_of([file + parts[0], more + parts[1]]) == hash_of([file + "\n".join(parts[:2])])
    assert hash_of([file + parts[0], more + parts[2]]) != hash_of([file + "\n".join(parts[:2])])
    assert hash_of(["%timeit f()", "%timeit g()"]) != hash_of(["%timeit f()", "%timeit h()"])


def test_an_empty_text_in_an_f_string_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12.1 parses some; the hash is that of other versions."""
    plain = ast.parse('f"{a}{b}"')
    want = hash_of(['f"{a}{b}"'])
    string = plain.body[0].value
    string.values.insert(1, ast.Constant(""))
    monkeypatch.setattr(ast, "parse", lambda source: plain)
    assert hash_of(["anything"]) == want


@pytest.mark.parametrize(
    "other",
    [
        "def f(x, y=2):\n    'Text.'\n    return x * 1.5, None",
        "def f(x, y=1):\n    'Other text.'\n    return x * 1.5, None",
        "def f(x, y=1):\n    return x * 1.5, None",
        "def f(x, y=1):\n    'Text.'\n    return x + 1.5, None",
        "def f(x, y=1):\n    'Text.'\n    return x * 1.5, 'None'",
        "def f(x, y=1):\n    'Text.'\n    return x * 1.5",
        "def f(y, x=1):\n    'Text.'\n    return x * 1.5, None",
        "async def f(x, y=1):\n    'Text.'\n    return x * 1.5, None",
        "def f(x, y=1):\n    'Text.'\nx * 1.5, None",
    ],
)
def test_other_code_has_another_hash(other):
    assert hash_of([other]) != hash_of(["def f(x, y=1):\n    'Text.'\n    return x * 1.5, None"])


def test_the_hash_is_the_same_in_every_python():
    """Trees of later versions have fields more, such as type_params, which are empty here."""
    source = "@a\nasync def f(x: int = 1, *y, z=f'{x!r:>3}'):\n    async with y as (b, *c):\n"
    source += "        return [i for i in b if i] or {**c} or (lambda: ...)"
    assert hash_of([source]) == "78a75128819e6900"
    assert hash_of(["%timeit f()"]) != hash_of(["%timeit g()"]) != hash_of([])


def test_a_record_of_an_older_notebook_is_marked(tmp_path, monkeypatch):
    now = notebook(tmp_path, ("lab.run()", []))
    monkeypatch.setattr(store, "long_path", lambda name: now)
    old = store.read(store.write(tmp_path / "m", entry(comparison())))
    assert old.label == "m, 2026-11-20 (of an older version of the notebook)"
    fresh = store.read(
        store.write(tmp_path / "m", entry(comparison(), notebook_hash=notebook_hash(now)))
    )
    assert fresh.doubt is None and fresh.label == "m, 2026-11-20"
    ended = store.read(store.write(tmp_path / "m", entry(comparison(), failed="ZeroDivisionError")))
    assert "ended early" in ended.label


def test_committed_records_are_valid_and_small():
    paths = list(store.reference_folder().glob("*/*.json"))
    assert paths
    for path in paths:
        assert store.read(path).results and path.stat().st_size < 400_000, path


def test_every_field_of_a_measurement_is_kept():
    settings, times = {"a": 1, "b": "x", "c": None, "d": True, "e": 0.5}, (1e-3, 2e-3, 3e-3)
    side = Measurement(
        "a", settings, times, (0, 0, 1), 7, 64, "images", 0.5, 2**20, 2**21, "died", COUNTERS
    )
    assert None not in asdict(side).values()
    kept = again(replace(comparison(), baseline=side))
    assert kept.baseline == side


def test_the_published_schema_is_the_format_s():
    command = "run `python -m course.records.format`"
    assert format.SCHEMA_FILE.read_text(encoding="utf-8") == format.schema_text(), command


def test_the_published_schema_accepts_the_records_and_refuses_others():
    """Judged by another reader of schemas than the format's own."""
    published = json.loads(format.SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    plan, failure = planned("fit", {}, memory=0.5), Failure("make", {}, "no")
    whole = as_json(entry(comparison(), finished(), plan, failure))
    assert list(validator.iter_errors(whole)) == []
    for spoil in (
        broken(notebook_hash=7),
        broken(schema=2),
        broken(extra=1),
        lacking("machine", "switches"),
        in_the_side(times=[0.0]),
        in_the_side(more=1),
    ):
        assert list(validator.iter_errors(spoil(deepcopy(whole))))
    for path in store.reference_folder().glob("*/*.json"):
        assert not list(validator.iter_errors(json.loads(path.read_text(encoding="utf-8"))))


def test_settings_that_json_does_not_know_are_kept_by_name():
    settings = {"clip": math.inf, "dtype": torch.float16, "size": np.float64(2.5), "none": None}
    kept = again(replace(comparison(), candidate=Measurement("b", settings, (1e-3,) * 12)))
    plain = {"clip": "inf", "dtype": "torch.float16", "size": 2.5, "none": None}
    assert kept.candidate.settings == plain


@pytest.mark.parametrize("spoilt", ['"seconds":NaN', '"seconds":Infinity'])
def test_nan_is_no_json(tmp_path, spoilt):
    path = store.write(tmp_path / "m", entry(comparison()))
    path.write_text(path.read_text().replace('"seconds":12.5', spoilt))
    with pytest.raises(RecordError, match=r"is damaged: JSON is malformed"):
        store.read(path)


def test_a_record_too_large_to_carry_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LARGEST", 100)
    with pytest.raises(RecordError, match="a record has at most 100"):
        store.write(tmp_path, entry(comparison()))


def test_counters_that_fail_lose_no_times(tmp_path, monkeypatch):
    def make_fragile(x):
        def step():
            if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
                raise ArithmeticError("not while counted")

        return Workload(step)

    with journal(Listener(tmp_path / "kept").keep):
        result = Lab(make_fragile, memory=False, x=[1, 2]).run(x=2, seconds=0.05)
    assert result.ratios and "not while counted" in result.candidate.counters


# -------------------------------------------------------------------------------- what is collected


def test_a_lab_s_results_are_collected_when_asked(tmp_path, monkeypatch):
    target = tmp_path / "kept"

    def make_nothing(x):
        if x == 3:
            raise ArithmeticError("x is three")
        return Workload(lambda: None, evaluate=lambda: 1.0)

    lab = Lab(make_nothing, memory=False, seed=7, x=[1, 2, 3])
    assert lab.run(x=2, seconds=0.05).baseline.counters is None
    with journal(Listener(target).keep):
        lab.run(x=2, seconds=0.05)
        lab.race({"x": 2}, target=1, steps=1)
        with pytest.raises(ArithmeticError):
            lab.run(x=3, seconds=0.05)
    entries = [json.loads(line) for line in target.read_text().splitlines()]
    assert [one["kind"] for one in entries] == ["comparison", "race", "failure"]
    assert {one["lab"] for one in entries} == {"make_nothing"}
    assert (entries[0]["seed"], entries[0]["threads"]) == (7, 1)
    assert entries[0]["candidate"]["counters"] == {
        "flops": 0,
        "launches": 0,
        "saved_bytes": 0,
        "host_reads": 0,
    }
    assert "x is three" in entries[2]["error"] and entries[2]["settings"] == {"x": 3}


# ------------------------------------------------------------------------------ beside the reader's


@pytest.fixture
def two(tmp_path):
    gpu = CARD | {"gpu": {"name": "H200"}}
    cpu = [comparison(1.3), comparison(0.5, width=16), comparison(1.5, width=64), finished()]
    store.write(tmp_path / "a-cpu", entry(*cpu))
    large = [comparison(2.5, size=512), comparison(3.0, width=64), comparison(4.0, width=4096)]
    store.write(tmp_path / "h200", entry(*large, machine=gpu))
    return reference("06_x", folder=tmp_path)


def test_the_table_has_a_column_for_each_machine(two):
    text = str(two.beside(comparison(1.1)))
    assert "h200, 2026-11-20, at size=512" in text.splitlines()[0]
    assert (
        "1.10x" in text and "1.30x" in text and "2.50x" in text and "0.50" in text
    )  # the last: the memory


def test_a_sweep_that_both_arms_follow_has_a_row_a_value(tmp_path):
    def at(size, ratio):
        one = comparison(ratio, size=size)
        return replace(one, lab="make_workload")

    store.write(tmp_path / "m", entry(at(8, 1.5), at(16, 2.0)))
    table = str(reference("06_x", folder=tmp_path).beside([at(8, 1.1), at(16, 1.2)]))
    rows = [line for line in table.splitlines() if line.startswith("amp=True, at size=")]
    assert (
        len(rows) == 2
        and "1.10x" in rows[0]
        and "1.50x" in rows[0]
        and "1.20x" in rows[1]
        and "2.00x" in rows[1]
    )


def test_a_misspelt_notebook_is_guessed():
    assert str(reference("06_mixed_precison")) == (
        "06_mixed_precison: not recorded yet. Did you mean '06_mixed_precision'?"
    )
    assert "`course record 99_none` records it here" in str(reference("99_none"))


def test_records_without_the_swept_control_and_with_an_ended_arm_are_drawn_without_them(tmp_path):
    old = comparison(3.0)  # of a time when the lab had no such control
    settings = {"baseline": {"amp": False}, "candidate": {"amp": True}}
    arms = {name: replace(getattr(old, name), settings=chosen) for name, chosen in settings.items()}
    store.write(tmp_path / "old", entry(replace(old, **arms)))
    own = [comparison(1.0, size=size) for size in (8, 16)]
    assert "not recorded yet" in str(reference("06_x", folder=tmp_path).beside(own))
    store.write(tmp_path / "old", entry(comparison(error="out of memory")))
    beside = reference("06_x", folder=tmp_path).beside(comparison(1.1))
    assert "ended by out of memory" in str(beside)
    assert "ended by out of memory" in beside.picture() and "nan" not in beside.picture()


def test_a_lab_that_nobody_recorded_is_told_which_were(two):
    text = str(two.beside(comparison(1.1, lab="make_mine")))
    assert "Nothing of lab 'make_mine' was recorded; 06_x has make_workload" in text
    bare = Comparison(Measurement("old", {}, (1e-3,) * 12), Measurement("new", {}, (1e-3,) * 12))
    assert "new" in str(two.beside(bare)) and "A/A" not in str(two.beside(bare))


def test_another_question_is_not_answered_by_a_record(two):
    assert two.matching(comparison(1.1, lab="make_layers")) == []
    assert two.matching(comparison(1.1, fused=True)) == []
    assert "not recorded yet" in str(two.beside(comparison(1.1, fused=True)))


def test_a_sweep_meets_the_values_that_others_took(two):
    own = [comparison(1.0, width=16), comparison(1.2, width=64)]
    table = str(two.beside(own))
    assert "0.50x" in table and "3.00x" in table and "4.00x" not in table
    swept = dict(two.swept(own, "width"))
    assert [c.candidate.settings["width"] for c in swept["h200, 2026-11-20"]] == [64, 4096]
    picture = two.beside(own).picture()
    assert "h200, 2026-11-20" in picture and "a-cpu, 2026-11-20" in picture


def test_a_race_is_drawn_on_the_same_axes(two):
    beside = two.beside(finished((0.5, 3.0), ("baseline", "other")))
    assert "fast" in str(beside) and "other" in str(beside)  # each has arms of its own
    assert "a-cpu" in beside.picture() and beside.picture() in beside._repr_html_()


def test_the_figure_of_a_run_names_machine_and_date(two):
    picture = two.on("h200").beside(comparison(1.1)).picture()
    assert "h200, 2026-11-20, at size=512" in picture and "2.50× faster" in picture
    assert "a-cpu" not in picture


def test_the_reader_picks_the_machine(two, tmp_path):
    assert two.machines == ("h200", "a-cpu")  # a GPU first
    assert reference("06_x", "h200", tmp_path).machines == ("h200",)
    with pytest.raises(ValueError, match=r"machine='k80'.*a-cpu, h200"):
        reference("06_x", "k80", tmp_path)


def test_the_nearest_machine_has_the_reader_s_device_and_the_newest_code(tmp_path, monkeypatch):
    def write(machine, day, code="0" * 16, gpu=None):
        about = {"notebook_hash": code, "recorded": f"2026-11-{day}T00:00:00Z"}
        store.write(tmp_path / machine, entry(comparison(), machine=CARD | {"gpu": gpu}, **about))

    now = notebook(tmp_path, ("lab.run()", []))
    monkeypatch.setattr(store, "long_path", lambda name: now)
    assert reference("06_x", folder=tmp_path).nearest is None
    write("a-old-cpu", 20)
    write("b-gpu", 22, gpu={"name": "H200"})
    monkeypatch.setattr(references, "pick_device", lambda: torch.device("cpu"))
    assert reference("06_x", folder=tmp_path).nearest == "a-old-cpu"
    write("c-newer-cpu", 21)
    assert reference("06_x", folder=tmp_path).nearest == "c-newer-cpu"
    write("d-code-of-now", 19, code=notebook_hash(now))
    found = reference("06_x", folder=tmp_path)
    assert found.nearest == "d-code-of-now"
    monkeypatch.setattr(references, "pick_device", lambda: torch.device("cuda"))
    assert found.nearest == "b-gpu"


def test_what_was_never_recorded_says_so(tmp_path):
    shown = reference("06_x", folder=tmp_path)
    assert isinstance(shown, Recorded) and "not recorded yet" in str(shown)
    assert "not recorded yet" in str(shown.beside(comparison()))


def test_bad_requests_are_named(two):
    with pytest.raises(ValueError, match="nothing to hold beside"):
        two.beside([])
    with pytest.raises(ValueError, match="no sweep of one control"):
        two.beside([comparison(), comparison(amp=True, fused=True, size=16)])


def test_results_are_shown_one_after_the_other_under_their_names(two, capsys, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda what: shown.append(what.own))
    one, sweep = comparison(1.1), [comparison(1.1), comparison(1.2, size=16)]
    two.show({"first": one, "second": sweep}, finished())
    assert shown == [one, sweep, finished()]
    printed = capsys.readouterr().out
    assert printed.startswith("first\nsecond\nRecorded on ")
    assert str(two) in printed


def test_nothing_is_shown_where_one_is_no_result(two, capsys):
    with pytest.raises(
        TypeError, match=r"beside\(None\): use what lab.run, sweep or race returned"
    ):
        two.show(comparison(), {"lost": None})
    with pytest.raises(TypeError, match=r"beside\('a'\)"):
        two.show("a")
    assert capsys.readouterr().out == ""
