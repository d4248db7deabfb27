"""Watching a program line by line: public shapes, ways to begin and to end, and what it says."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import whyslow
from tests.whyslow.shapes import LONG, SHAPES, small
from whyslow.lines import source_of
from whyslow.shares import BLOCK, BLOCKS, Tally
from whyslow.stacks import (
    BACKWARD,
    FORWARD,
    START,
    UPDATE,
    VALIDATION,
    Place,
    is_own,
    mark_of,
    stack_of_thread,
)

ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path, script, *arguments, options=(), module=False):
    """A script in a process of its own, watched; what came of it."""
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, "-m", "whyslow", *options, str(file), *arguments]
    if module:
        command = [sys.executable, str(file), *arguments]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_planted_line_comes_first(name, capsys):
    shape = SHAPES[name]
    with whyslow.watch() as watched:
        shape.run()
    report = watched.report
    [heaviest, *_] = report.lines
    assert shape.line in heaviest.source
    assert heaviest.cause == shape.cause
    assert heaviest.share > 0.5
    assert heaviest.interval[0] <= heaviest.share <= heaviest.interval[1]
    assert max(report.causes, key=report.causes.get) == shape.cause
    assert sum(report.causes.values()) == pytest.approx(1)
    assert shape.line in capsys.readouterr().err


def test_shares_are_those_of_the_clock():
    with whyslow.watch() as watched:
        for _ in range(10):
            time.sleep(3 * LONG)  # three parts
            time.sleep(LONG)  # one part
    shares = {line.source[-11:]: line.share for line in watched.report.lines}
    assert shares["three parts"] == pytest.approx(0.75, abs=0.1)


def test_a_line_that_holds_the_lock_gets_the_time_that_it_took():
    # Sorting holds the interpreter's lock: nobody can look meanwhile.
    numbers = list(range(400_000, 0, -1))
    begin = time.perf_counter()
    with whyslow.watch() as watched:
        for _ in range(5):
            sorted(numbers, key=lambda each: each)  # holds the lock
    wall = time.perf_counter() - begin
    assert watched.report.seconds == pytest.approx(wall, rel=0.3)
    assert "holds the lock" in watched.report.lines[0].source


def test_imports_and_what_runs_before_the_loop_are_start_up(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "slow_to_import.py").write_text("import time; time.sleep(0.8)", encoding="utf-8")
    monkeypatch.syspath_prepend(str(installed))
    with whyslow.watch() as watched:
        import slow_to_import  # noqa: F401

        time.sleep(0.1)  # once, before the loop
        train_slowly()
        time.sleep(0.1)  # behind the loop
    report = watched.report
    causes = {line.source: line.cause for line in report.every_line}
    assert causes["import slow_to_import  # noqa: F401"] == "start-up"
    assert causes["time.sleep(0.1)  # once, before the loop"] == "start-up"
    assert causes["time.sleep(0.1)  # behind the loop"] == "outside the loop"
    assert causes["time.sleep(2 * LONG)  # in the loop"] == "your own code"
    assert report.causes["start-up"] > 0.5
    assert "is start-up; most of the rest is" in report.sentence
    assert "Try first, for start-up" not in str(report)


def train_slowly():
    layer, inputs = nn.Linear(512, 512), torch.randn(2048, 512)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        layer(inputs).sum().backward()
        optimizer.step()
        time.sleep(2 * LONG)  # in the loop


@pytest.mark.parametrize(("seconds", "first"), [(8.0, "backward"), (99.0, "start-up")])
def test_what_to_try_is_for_start_up_where_that_is_nearly_all(seconds, first):
    tally = Tally()
    tally.add((Place("train.py", 1, "<module>"), START), 0.1, seconds)
    tally.add((Place("train.py", 2, "<module>"), BACKWARD), 0.2, 2.0)
    report = whyslow.Report(tally)
    assert f"Try first, for {first}:" in str(report)
    rest = f"80% of it is start-up; most of the rest is {first}"
    assert rest in report.sentence or "Most time goes to start-up: 98%" in report.sentence
    assert (rest in report.sentence) == (first == "backward")


def test_a_line_for_two_things_names_both():
    tally = Tally()
    here = Place("train.py", 2, "forward")
    validating = (Place("train.py", 8, "test"), VALIDATION, here)
    for stack, seconds in (((here, FORWARD), 2.0), (validating, 1.0), ((here, UPDATE), 0.1)):
        tally.add(stack, 0.1, seconds)
    [line] = whyslow.Report(tally).lines
    assert (line.cause, line.others) == ("forward", ("validation",))
    assert line.share == 1 and "forward, validation" in str(whyslow.Report(tally))


def test_a_budget_is_not_spent_on_imports(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "slow_too.py").write_text("import time; time.sleep(0.4)", encoding="utf-8")
    monkeypatch.syspath_prepend(str(installed))
    with whyslow.watch(seconds=0.2, show=False) as watched:
        import slow_too  # noqa: F401

        time.sleep(1.0)  # watched for 0.2 s
    assert 0.55 < watched.report.seconds < 1.2


def test_what_it_looks_at_is_not_changed():
    def train():
        torch.manual_seed(0)
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())
        for inputs, targets in DataLoader(
            TensorDataset(torch.randn(64, 8), torch.randint(4, (64,))), batch_size=8, shuffle=True
        ):
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.state_dict()

    plain = train()
    with whyslow.watch():
        seen = train()
    assert all(torch.equal(plain[name], seen[name]) for name in plain)


def test_it_ends_by_itself_while_the_training_goes_on(capsys):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = whyslow.start(seconds=0.1)
    said = ""
    for _ in range(500):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.002)
        said = capsys.readouterr().err
        if said:
            break
    assert "Watched" in said
    looks = watched.report.looks
    time.sleep(0.02)
    assert watched.report.looks == looks
    watched.stop()
    assert not capsys.readouterr().err


def test_a_report_may_be_left_to_the_caller(capsys):
    with whyslow.watch(show=False) as watch:
        while watch.report.looks < 5:
            torch.ones(100, 100) @ torch.ones(100, 100)
    assert watch.report.lines
    printed = capsys.readouterr()
    assert not printed.err and not printed.out


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_loop_that_fails_is_reported_and_the_error_goes_on(error, capsys):
    with pytest.raises(error), whyslow.watch():
        time.sleep(5 * LONG)
        raise error
    said = capsys.readouterr().err
    assert f"until {error.__name__}" in said and "time.sleep" in said


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"seconds": 0}, ValueError),
        ({"seconds": "20"}, TypeError),
    ],
)
def test_a_budget_that_is_none_is_told(given, error):
    with pytest.raises(error, match="use a"):
        whyslow.watch(**given)


SCRIPT = """
    import sys, time
    import helper
    if __name__ == "__main__":
        for number in range(int(sys.argv[1])):
            helper.work(number)
        print("trained", sys.argv[1:])
"""


def test_a_script_is_watched_as_it_is(tmp_path):
    (tmp_path / "helper.py").write_text(
        "import time\ndef work(n):\n    time.sleep(0.02)  # beside the script\n", encoding="utf-8"
    )
    done = run(tmp_path, SCRIPT, "20", "--rate", "0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained ['20', '--rate', '0.1']\n"
    assert "helper.py:3" in done.stderr and "beside the script" in done.stderr


FAILS = """
    import sys, time
    time.sleep(0.3)
    {end}
"""


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("raise RuntimeError('no')", "RuntimeError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("sys.exit(3)", ""),
    ],
)
def test_a_script_that_ends_in_another_way_ends_so_and_is_reported_last(tmp_path, end, error):
    text = FAILS.format(end=end)
    plain = run(tmp_path, text, module=True)
    done = run(tmp_path, text)
    assert done.returncode == plain.returncode != 0
    _, watched = done.stderr.split("Watched ")
    assert ", until" in watched if error else ", until" not in watched
    assert error in watched and "time.sleep(0.3)" in watched
    assert "Traceback" not in watched and ("Traceback" in done.stderr) == bool(error)


WORKERS = """
    import time
    import torch
    import whyslow
    from torch.utils.data import DataLoader, Dataset

    whyslow.start()

    class Slow(Dataset):
        def __len__(self): return 12
        def __getitem__(self, number):
            time.sleep(0.05)
            return torch.zeros(4)

    if __name__ == "__main__":
        for batch in DataLoader(Slow(), 2, num_workers=1, multiprocessing_context="{kind}"):
            batch.sum()
"""


@pytest.mark.parametrize("kind", ["fork", "spawn"])
def test_one_line_at_the_top_of_a_script_reports_once_with_workers(tmp_path, kind):
    done = run(tmp_path, WORKERS.format(kind=kind), module=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Watched") == 1
    assert "for batch in DataLoader" in done.stderr
    assert "worker processes" in done.stderr


def test_text_for_exec_and_generators_are_own_lines():
    text = "def slow():\n    for _ in range(5):\n        time.sleep(0.02)\n        yield 1\n"
    space = {"time": time}
    exec(text, space)
    with whyslow.watch() as watched:
        sum(space["slow"]())
    line = watched.report.lines[0]
    assert (line.place, line.function, line.source) == ("<string>:3", "slow", "")
    assert "no source, in slow" in str(watched.report)


def test_methods_that_dataclasses_make_are_no_lines_of_the_reader():
    from whyslow.lines import Line

    assert not is_own(Line.__init__.__code__)
    assert not is_own(nn.Module.__call__.__code__) and not is_own(whyslow.watch.start.__code__)
    assert is_own(small.__code__)


def test_marks_fit_the_torch_that_is_installed():
    from torch.nn.modules.module import Module
    from torch.optim import Optimizer
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    assert mark_of(torch.Tensor.backward.__code__) == "backward"
    assert mark_of(_BaseDataLoaderIter.__next__.__code__) == "loading"
    assert mark_of(Module._call_impl.__code__) == "forward"
    assert mark_of(inspect.unwrap(Optimizer.zero_grad).__code__) == "update"
    assert mark_of(torch.save.__code__) == "logging"


def test_a_file_says_which_lines_are_without_gradients(tmp_path):
    file = tmp_path / "parts.py"
    file.write_text(
        textwrap.dedent(
            """
            with torch.no_grad():
                for x in loader:
                    model(x)
            with torch.no_grad():
                for p in weights:
                    p.add_(p.grad)
            def test(model):
                model.eval()
            def train(model):
                model.eval(); loss.backward()
            """
        ),
        encoding="utf-8",
    )
    source = source_of(str(file))
    assert source["without"] == [(2, 4), (8, 9)] and source["update"] == [(5, 7)]
    assert source["loss"] == [(11, 11)]
    assert set(source["loops"]) == {(3, 4), (6, 7)}
    assert not source_of(str(tmp_path / "none.py"))["loops"]


def test_a_long_run_keeps_few_blocks():
    tally = Tally()
    for number in range(10 * BLOCKS):
        tally.add(("loading",), number * BLOCK, BLOCK)
    assert len(list(tally.items())) <= BLOCKS
    assert tally.total == pytest.approx(10 * BLOCKS * BLOCK)


def test_without_a_line_of_the_reader_it_says_so():
    report = whyslow.Report(Tally())
    assert "No line of your own files" in str(report) and "No line" in report._repr_html_()


def test_the_page_shows_the_source_with_a_bar_and_escapes_it():
    with whyslow.watch() as watched:
        for _ in range(5):
            time.sleep(LONG) or "<script>"
    html = watched.report._repr_html_()
    assert "&lt;script&gt;" in html and "<script>" not in html
    assert 'data-cause="your own code"' in html and "width:" in html


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_in_a_look(monkeypatch, collects):
    """Python 3.11 hangs or crashes where a frame that is asked for begins a collection."""
    seen = []
    frames = sys._current_frames

    def asked():
        seen.append(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", asked)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert stack_of_thread(threading.get_ident())
        after = gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [collects and sys.version_info >= (3, 12)]
    assert after == collects
