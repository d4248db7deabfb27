"""Results of a notebook that was cut off: taken over where all is the same, else measured anew."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course.cli import main
from course.machine import machine_card
from course.records import unfinished
from course.records.unfinished import Listener, Run, Unfinished, code_of
from labkit import Lab, Workload
from labkit.journal import journal

MACHINE = "test-2-cores"
CARD = machine_card() | {"gpu": None, "measured": {}, "cpu": {"model": "Test CPU", "cores": 2}}
LAB = """
from labkit import Lab, Workload
def make_nothing(x):
    with open({log!r}, "a") as log:
        log.write(str(x))
    return Workload(lambda: None)
lab = Lab(make_nothing, memory=False, x=[1, 2, 3, 4])
"""


@pytest.fixture
def run(tmp_path):
    return Run(str(tmp_path / "kept"), "laptop", "06_x", "0" * 16, "first")


def make_nothing(x, kind):
    built.append(x)
    return Workload(lambda: None, evaluate=lambda: 1.0)


built = []


def measure(run, *settings, **about):
    """Results of a lab in a kernel of this run, and the settings that it had to build for them."""
    built.clear()
    lab = Lab(make_nothing, memory=False, x=[1, 2, 3], kind=[float, int], **about)
    listener = Listener(run)
    with journal(listener.keep, answer=listener.answer):
        results = [lab.run(baseline={"x": x}, x=x, kind=int, seconds=0.05) for x in settings]
    return results, sorted(set(built))


def test_a_later_run_measures_only_what_is_missing(run):
    [first], _ = measure(run, 2)
    later = replace(run, name="second")
    [again, other], built_for = measure(later, 2, 3)
    assert built_for == [3]
    assert again.baseline.times == pytest.approx(first.baseline.times, rel=1e-4)
    # As the caller gave them, and not as a file knows them.
    assert again.candidate.settings == {"x": 2, "kind": int}
    lines = Unfinished(Path(run.file)).of(later)
    assert [line.measured_in for line in lines] == ["first", "second"]
    assert lines[0].result.result().candidate.times == again.candidate.times
    assert other.ratios


def test_the_same_question_asked_twice_has_two_answers(run):
    first, _ = measure(run, 2, 2)
    again, built_for = measure(replace(run, name="second"), 2, 2, 2)
    assert built_for == [2]
    times = [result.baseline.times for result in again]
    assert times[0] != times[1]
    for one, other in zip(first, again, strict=False):
        assert one.baseline.times == pytest.approx(other.baseline.times, rel=1e-4)


@pytest.mark.parametrize("about", [{"seed": 1}, {"threads": None}])
def test_another_question_is_measured(run, about):
    measure(run, 2)
    assert measure(replace(run, name="second"), 2, **about)[1] == [2]


@pytest.mark.parametrize("about", [{"code": "1" * 16}, {"notebook": "07_y"}])
def test_what_is_of_other_code_is_measured(run, about):
    measure(run, 2)
    assert measure(replace(run, name="second", **about), 2)[1] == [2]


def test_a_race_is_taken_over(run):
    def raced(name, target):
        listener = Listener(replace(run, name=name))
        lab = Lab(make_nothing, x=[1, 2], kind=[float])
        built.clear()
        with journal(listener.keep, answer=listener.answer):
            return lab.race({"x": 2}, target=target, steps=1, seeds=2), len(built)

    first, builds = raced("first", 1)
    assert builds
    again, builds = raced("second", 1)
    assert builds == 0 and again.arms == first.arms
    assert raced("third", 0.5)[1] > 0


def test_a_line_that_was_cut_off_or_damaged_is_left_out(run, capsys):
    measure(run, 2, 3)
    kept = Unfinished(Path(run.file))
    whole = kept.path.read_bytes()
    kept.path.write_bytes(b'{"no": 1}\n' + whole[:-20])
    assert [line.question is None for line in kept.lines()] == [False]
    assert "kept: line 1 is left out" in capsys.readouterr().out
    kept.begin(replace(run, name="second"))
    assert kept.path.read_bytes().count(b"\n") == 1
    # What is of the notebook's other code goes.
    kept.begin(replace(run, code="1" * 16))
    assert not kept.path.exists()


def test_the_code_is_the_notebook_s_labkit_s_torch_s_and_the_machine_s(tmp_path, monkeypatch):
    path = tmp_path / "06_x.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1")]), path)
    codes = [code_of(path, CARD)]
    codes.append(code_of(path, CARD | {"torch": "2.11.0"}))
    codes.append(code_of(path, CARD | {"gpu": {"name": "NVIDIA H100"}}))
    monkeypatch.setattr(unfinished, "_packages", lambda: "others")
    codes.append(code_of(path, CARD))
    monkeypatch.undo()
    nbformat.write(new_notebook(cells=[new_code_cell("x = 2")]), path)
    codes.append(code_of(path, CARD))
    assert len(set(codes)) == 5
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1  # the same")]), path)
    assert code_of(path, CARD) == codes[0]


# ------------------------------------------------------------------------------- in whole notebooks


@pytest.fixture
def course(tmp_path, notebooks_of_its_own):
    """A function that writes the notebook 01_a, whose lab logs the settings that it builds."""
    notebooks_of_its_own(CARD)

    def write(*cells):
        lab = LAB.format(log=str(tmp_path / "log"))
        cells = [new_code_cell(cell) for cell in (lab, *cells)]
        nbformat.write(new_notebook(cells=cells), tmp_path / "01_a.ipynb")

    return write


def built_in_kernels(tmp_path):
    """The settings that were built since the last look."""
    found = set((tmp_path / "log").read_text())
    (tmp_path / "log").write_text("")
    return found


RUNS = "for x in (2, 3):\n    lab.run(x=x, baseline={'x': x}, seconds=0.05)"


def test_a_notebook_whose_kernel_died_goes_on(course, tmp_path, capsys):
    go = tmp_path / "go"
    end = f"import os\nif not os.path.exists({str(go)!r}): os._exit(1)"
    course(RUNS, end, RUNS.replace("3", "4"))
    assert main(["record", "--out", str(tmp_path / "r.zip")]) == 1
    assert "recorded as failed" in (said := capsys.readouterr().out) and "left: 1 note" in said
    assert built_in_kernels(tmp_path) == {"2", "3"}
    go.touch()
    assert main(["record", "--out", str(tmp_path / "r.zip")]) == 0
    said = capsys.readouterr().out
    assert "2 results of an earlier call are kept" in said and "nothing is left" in said
    # The second time 2 is asked for in a run is not the first time.
    assert built_in_kernels(tmp_path) == {"2", "4"}
    assert not (tmp_path / "r.zip.partial").exists()
    assert main(["record", "--add", str(tmp_path / "r.zip")]) == 0
    record = format_of(tmp_path / "out" / MACHINE / "01_a.json")
    assert len(record["results"]) == 4 and record["runs"] == 2 and record["failed"] is None


def format_of(path):
    return json.loads(path.read_text())


def test_kept_results_come_from_another_folder(course, tmp_path):
    go = tmp_path / "go"
    course(RUNS, f"import os\nif not os.path.exists({str(go)!r}): os._exit(1)")
    first, second = tmp_path / "first" / "r.zip", tmp_path / "second" / "r.zip"
    assert main(["record", "--out", str(first)]) == 1
    go.touch()
    before = (first.with_name("r.zip.partial")).read_bytes()
    built_in_kernels(tmp_path)
    assert main(["record", "--out", str(second), "--from", str(first)]) == 0
    assert built_in_kernels(tmp_path) == set()
    # What came back is read-only.
    assert first.with_name("r.zip.partial").read_bytes() == before
    assert not second.with_name("r.zip.partial").exists()


def test_a_cell_that_fails_drops_what_was_kept(course, tmp_path, capsys):
    needs = "if os.path.exists('go'): assert len(open('log').read())"
    course(RUNS, "import os\nif not os.path.exists('go'): os._exit(1)", needs)
    assert main(["record"]) == 1
    built_in_kernels(tmp_path)
    (tmp_path / "go").touch()
    # Nothing was built in this kernel: the cell misses it.
    assert main(["record"]) == 1
    assert "AssertionError" in capsys.readouterr().out
    assert not (tmp_path / "out.partial").exists()


def test_again_takes_nothing_over(course, tmp_path):
    course(RUNS)
    assert main(["record"]) == 0
    folder = tmp_path / "out" / MACHINE
    run = Run.begin(tmp_path / "out.partial", tmp_path / "01_a.ipynb", CARD)
    measure_in = Listener(run)
    with journal(measure_in.keep, answer=measure_in.answer):
        Lab(make_nothing, x=[1], kind=[float]).run(seconds=0.05)
    assert Unfinished(tmp_path / "out.partial").lines()
    built_in_kernels(tmp_path)
    # A recorder that is killed between the record and the end leaves such lines behind.
    assert main(["record"]) == 0
    assert not (tmp_path / "out.partial").exists()
    assert main(["record", "--again"]) == 0
    assert built_in_kernels(tmp_path) == {"2", "3"}
    assert format_of(folder / "01_a.json")["runs"] == 1


def test_a_kernel_ends_with_its_recorder(tmp_path):
    """Else it would disturb what the next call times."""
    alive = tmp_path / "alive"
    kernel = f"""
import sys, time, json
from course.records.unfinished import listen
listen(json.dumps(dict(file="f", machine="m", notebook="n", code="c", name="r")))
while True:
    open({str(alive)!r}, "w").write(str(time.time()))
    time.sleep(0.05)
"""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    process = subprocess.Popen([sys.executable, "-c", parent, kernel])
    try:
        limit = time.monotonic() + 60
        while not alive.exists():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    last = None
    while last != (last := alive.read_text()):
        assert time.monotonic() < limit
        time.sleep(0.5)
