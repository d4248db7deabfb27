"""`python -m course record`: what it runs, what it keeps of a run that fails or is stopped,
and how records travel.
"""

import os
import signal
import subprocess
import sys
import time
import zipfile

import nbformat
import pytest
import torch
from msgspec.structs import replace as changed
from nbformat.v4 import new_code_cell, new_notebook

from course.cli import main
from course.records import card, estimate, format, kernel, listening, store
from course.records import record as recording
from course.records.listening import Listener
from labkit.journal import Failure
from tests.forked import ONE

pytestmark = pytest.mark.usefixtures("forked_python")
# The recorder, but that the card's rates, which take ten seconds here, are left out.
PROGRAM = """
import sys
from course.cli import main
from course.records import record
from course.machine import machine_card
record.measured_card = lambda: machine_card() | {"measured": {}}
sys.exit(main())
"""

RUN = """
from labkit import Lab, Workload
def make_nothing(x):
    return Workload(lambda: None)
Lab(make_nothing, memory=False, x=[1, 2]).run(x=2, seconds=0.05);
"""


@pytest.fixture
def course(tmp_path, notebooks_of_its_own):
    """A course of its own: a function that writes a notebook, whose records go to tmp_path/out."""
    notebooks_of_its_own(CARD)

    def add(name, *cells):
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)
        return path

    return add


@pytest.fixture(scope="module")
def record_of_a_run():
    """A list for the record that the first test that begins with one lets be made."""
    return []


@pytest.fixture
def had(course, tmp_path, record_of_a_run):
    """A function that writes a notebook which has its record already."""

    def add(name):
        path = course(name, RUN)
        if not record_of_a_run:
            assert main(["record", str(path)]) == 0
            written = tmp_path / "out" / MACHINE / f"{name}.json"
            record_of_a_run.append(format.decode(written.read_bytes()))
        whole = changed(record_of_a_run[0], notebook=name)
        return store.write(tmp_path / "out" / MACHINE, whole)

    return add


CARD = dict.fromkeys(
    ("os", "python", "cuda", "cudnn", "threads", "switches", "measured"), "unknown"
)
CARD |= {
    "cpu": {"model": "Test(R) CPU Processor", "cores": 2},
    "gpu": None,
    "torch": "2.15",
    "labkit": "0.1.0",
}
MACHINE = "test-2-cores"


def read(tmp_path, name):
    return store.read(tmp_path / "out" / MACHINE / f"{name}.json")


def test_a_notebook_runs_at_full_size_and_keeps_what_it_measured(course, tmp_path, capsys):
    path = course("05_tiny", "import os; assert os.environ['LABKIT_SIZE'] == 'full'", RUN)
    assert main(["record", str(path)]) == 0
    record = read(tmp_path, "05_tiny")
    assert [result.lab for result in record.results] == ["make_nothing"] and record.failed is None
    assert (
        record.doubt is None
        and record.seconds > 0
        and set(record.before) == {"load_average", "cpu_mhz", "gpu"}
    )
    assert record.results[0].candidate.counters["launches"] == 0
    assert "05_tiny (1 of 1)" in capsys.readouterr().out


def test_it_goes_on_where_it_was_stopped(course, tmp_path, capsys):
    paths = [str(course(name, RUN)) for name in ("01_a", "02_b")]
    assert main(["record", paths[0]]) == 0
    first = (tmp_path / "out" / MACHINE / "01_a.json").read_text()
    assert main(["record"]) == 0  # all notebooks of the course
    assert "01_a: recorded" in capsys.readouterr().out
    assert (tmp_path / "out" / MACHINE / "01_a.json").read_text() == first and read(
        tmp_path, "02_b"
    ).results
    course("01_a", RUN + "x = 1")  # other code: the record is no longer of this notebook
    assert "older version" in read(tmp_path, "01_a").label
    assert main(["record"]) == 0
    assert read(tmp_path, "01_a").doubt is None


def test_again_records_anew(had, tmp_path):
    first = store.read(had("01_a"))
    assert main(["record", "01_a", "--again"]) == 0  # by name
    assert read(tmp_path, "01_a").results != first.results


def test_an_accelerator_that_records_do_not_know(course, tmp_path, monkeypatch, capsys):
    course("01_a", RUN)
    monkeypatch.setattr(recording, "pick_device", lambda: torch.device("mps"))
    assert main(["record", "01_a", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "the device is 'mps'" in said and "LABKIT_DEVICE=cpu" in said
    assert not (tmp_path / "out").exists()


def test_a_lab_that_fails_is_recorded_as_failed(course, tmp_path, capsys):
    broken = RUN.replace("return Workload(lambda: None)", "raise ArithmeticError('no such luck')")
    path = course("05_bad", RUN, broken)
    assert main(["record", str(path)]) == 1
    record = read(tmp_path, "05_bad")
    assert record.failed == "ArithmeticError: no such luck" and "ended early" in record.label
    assert [type(result).__name__ for result in record.results] == ["Comparison", "Failure"]
    assert "FAILED" in capsys.readouterr().out


def test_a_failed_run_does_not_replace_a_whole_record(course, had, tmp_path, capsys):
    had("05_a")
    course("05_a", RUN, "1 / 0")
    assert main(["record"]) == 1
    assert "stays" in capsys.readouterr().out and read(tmp_path, "05_a").failed is None


def test_a_notebook_that_measures_nothing_is_a_failure(course, tmp_path):
    assert main(["record", str(course("05_idle", "pass"))]) == 1
    assert "called lab.run" in read(tmp_path, "05_idle").failed


def test_a_budget_takes_the_missing_and_the_oldest_first(course, had, capsys):
    had("01_a")
    older = had("02_b")
    content = format.decode(older.read_bytes())
    store.write(older.parent, changed(content, recorded="2026-01-01T00:00:00Z"))
    course("03_c", RUN)
    capsys.readouterr()
    assert main(["record", "--budget-minutes", "5", "--again"]) == 0
    order = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " of 3)" in line]
    assert order == ["03_c", "02_b", "01_a"]


def test_a_budget_begins_nothing_that_does_not_fit(course, tmp_path, capsys, monkeypatch):
    # The second would fit, had the first taken no time.
    monkeypatch.setattr(estimate, "UNKNOWN_SECONDS", 118)
    course("01_a", RUN, "import time; time.sleep(2.5)")
    course("02_b", RUN)
    assert main(["record", "--budget-minutes", "2"]) == 0
    said = capsys.readouterr().out
    assert "02_b: takes about 118 s, not known, more than is left of the budget; next time" in said
    assert "left: 1 notebook, about 2 min: 02_b 118 s" in said
    assert [path.name for path in (tmp_path / "out").glob("*/*")] == ["01_a.json"]


def test_a_cell_that_outlasts_the_budget_ends_the_run(course, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "UNKNOWN_SECONDS", 1)
    course("01_a", RUN, "import time; time.sleep(100)")
    begin = time.monotonic()
    assert main(["record", "--budget-minutes", "0.1"]) == 1
    assert time.monotonic() - begin < 90
    record = read(tmp_path, "01_a")
    assert record.failed == "the time budget was over" and len(record.results) == 1


@pytest.mark.parametrize(
    "how",
    [
        # Its kernel has to end with it, and a fork's parent is another process.
        pytest.param(signal.SIGKILL, marks=pytest.mark.fresh, id="killed"),
        pytest.param(signal.SIGINT, id="interrupted"),
    ],
)
def test_stopped_in_the_middle_it_keeps_what_was_whole_and_goes_on(course, forks, tmp_path, how):
    """A process of its own, ended while the second of two notebooks runs; Ctrl-C says so in a
    line.
    """
    begun = tmp_path / "begun"
    slow = course("02_b", f"open({str(begun)!r}, 'w').close()", "import time; time.sleep(600)", RUN)
    paths = [str(course("01_a", RUN)), str(slow)]
    command = [sys.executable, "-c", PROGRAM, "record", *paths, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        limit = time.monotonic() + 120
        while not begun.exists():
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.1)
        process.send_signal(how)
        said = process.communicate(timeout=60)[0].decode()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if how == signal.SIGINT:
        assert (
            process.returncode == 130
            and "the same command goes on" in said
            and "Traceback" not in said
        )
    [machine] = (tmp_path / "out").iterdir()
    assert [path.name for path in machine.iterdir()] == ["01_a.json"]
    kept = (machine / "01_a.json").read_bytes()
    course(slow.stem, RUN)
    command[:1] = forks.python
    done = subprocess.run(
        command,
        env=os.environ | forks.variables | ONE,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "01_a: recorded" in done.stdout and "02_b (1 of 1)" in done.stdout
    assert (machine / "01_a.json").read_bytes() == kept and store.read(
        machine / "02_b.json"
    ).results


def test_records_travel_in_one_file(course, tmp_path):
    course("01_a", RUN)
    course("02_b", RUN)
    assert main(["record", "01_a", "--out", str(tmp_path / "r.zip")]) == 0
    assert main(["record", "02_b", "--out", str(tmp_path / "r.zip")]) == 0  # added to what is in it
    assert zipfile.ZipFile(tmp_path / "r.zip").namelist() == [
        f"{MACHINE}/01_a.json",
        f"{MACHINE}/02_b.json",
    ]
    assert main(["record", "--add", str(tmp_path / "r.zip")]) == 0
    assert read(tmp_path, "01_a").results and read(tmp_path, "02_b").results


def test_a_bad_file_adds_nothing(course, tmp_path, capsys):
    course("01_a", RUN)
    assert main(["record", "--out", str(tmp_path / "r.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "r.zip", "a") as archive:
        archive.writestr(f"{MACHINE}/02_b.json", '{"schema": 99}')
    assert main(["record", "--add", str(tmp_path / "r.zip")]) == 1
    assert "schema version 99" in capsys.readouterr().err and not (tmp_path / "out").exists()
    (tmp_path / "no.zip").write_text("no")
    assert main(["record", "--add", str(tmp_path / "no.zip")]) == 1
    assert "no.zip: no zip of records" in capsys.readouterr().err


def test_a_kernel_gets_absolute_paths_and_one_that_cannot_start_ends_only_its_notebook(
    course, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_DATA", "data/cache")
    monkeypatch.setenv("PYTHONPATH", "site")
    environment = kernel.environment()
    assert environment["LABKIT_DATA"] == str(tmp_path / "data" / "cache")
    assert environment["PYTHONPATH"].split(os.pathsep)[1] == str(tmp_path / "site")
    course("01_a", RUN)
    path = course("02_b", RUN)
    notebook = nbformat.read(course("01_a", RUN), 4)
    notebook.metadata.kernelspec = {
        "name": "no-such-kernel",
        "display_name": "x",
        "language": "python",
    }
    nbformat.write(notebook, path.with_name("01_a.ipynb"))
    assert main(["record"]) == 1
    assert (
        "no-such-kernel" in read(tmp_path, "01_a").failed and read(tmp_path, "02_b").failed is None
    )


def test_what_cannot_be_written_is_said_before_anything_runs(course, tmp_path, capsys):
    (tmp_path / "a file").write_text("")
    course("01_a", RUN)
    assert main(["record", "--out", str(tmp_path / "a file")]) == 1
    assert "a file" in capsys.readouterr().err
    course("my lab", RUN)
    assert main(["record", "my lab"]) == 1
    assert "use letters, digits, - and _" in capsys.readouterr().err


def test_an_older_or_a_failed_record_does_not_replace_a_better_one(had, tmp_path, capsys):
    path = had("01_a")
    kept = path.read_bytes()
    content = format.decode(kept)
    for name, changes in (
        ("old", {"recorded": "2025-01-01T00:00:00Z"}),
        ("failed", {"failed": "no luck"}),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.mkdir(MACHINE)
            archive.writestr(f"{MACHINE}/01_a.json", format.encode(changed(content, **changes)))
        assert main(["record", "--add", str(tmp_path / f"{name}.zip")]) == 0
        assert path.read_bytes() == kept
    assert "is newer" in capsys.readouterr().out


def test_a_budget_goes_by_what_the_notebook_took_here(course, had, tmp_path):
    def seconds(old):
        return estimate.expected("01_a", old, gpu=False).seconds

    assert seconds(None) == estimate.UNKNOWN_SECONDS
    whole = format.decode(had("01_a").read_bytes())
    store.write(tmp_path / "out" / "slow", changed(whole, seconds=900))
    assert seconds(read(tmp_path, "01_a")) == whole.seconds
    assert seconds(None) == 900
    store.write(tmp_path / "out" / MACHINE, changed(whole, seconds=200, failed=kernel.OVER))
    ended = read(tmp_path, "01_a")
    # It was not at its end.
    assert seconds(ended) == 300
    # And it does not take the turn of others again.
    assert estimate.turn(None) < estimate.turn(ended)


def test_bad_commands_are_named(course, tmp_path, capsys):
    assert main(["record", "no_such"]) == 1
    assert "no notebook at no_such" in capsys.readouterr().err
    for minutes in ("-1", "inf", "nan"):
        assert main(["record", "--budget-minutes", minutes]) == 1
        assert f"budget_minutes={float(minutes)}" in capsys.readouterr().err


def test_machines_are_named_by_gpu_or_by_cpu_and_cores():
    assert card.machine_name({"gpu": {"name": "NVIDIA H200"}, "cpu": {}}) == "nvidia-h200"
    assert (
        card.machine_name({"gpu": None, "cpu": {"model": "AMD EPYC", "cores": 2}})
        == "amd-epyc-2-cores"
    )
    assert card.machine_name(CARD) == MACHINE
    assert card.machine_name({"gpu": {"name": "显卡"}, "cpu": {}}) == "unnamed-machine"


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    kept = tmp_path / "results"
    assert listening.read_entries(kept) == ()
    Listener(kept).keep(Failure("make", {}, "OSError: gone"), {})
    whole = kept.read_bytes()
    kept.write_bytes(whole + whole[:20])
    [entry] = listening.read_entries(kept)
    assert entry.error == "OSError: gone"


@pytest.mark.fresh
def test_a_kernel_ends_with_its_recorder(tmp_path):
    """Else it would disturb what is timed next."""
    alive = tmp_path / "alive"
    kernel = f"""
import time
from course.records.listening import listen
listen({str(tmp_path / "results")!r})
while True:
    open({str(alive)!r}, "w").write(str(time.time()))
    time.sleep(0.05)
"""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    process = subprocess.Popen([sys.executable, "-c", parent, kernel])
    limit = time.monotonic() + 60
    try:
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
