"""A loan from its first command to the results page, on a rehearsed GPU: three commands are killed
at random moments, with all that they started; the last one goes on until all is recorded.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TypeAlias

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course.claims import ledgers, results_page
from course.cli import main
from course.records import references, store
from course.records.store import Record, read
from course.records.unfinished import Unfinished
from tests.rehearsal.test_rehearsal import ROOT

# What was measured: notebooks and sizes.
Asked: TypeAlias = set[tuple[str, int]]

MACHINE = "rehearsal-gpu"
# As notebooks of the course are called: the results page asks for those.
NOTEBOOKS = ("16_as_tensor", "20_validation_without_grad")
SIZES = (2, 3, 4, 5, 6, 7, 8)
# So many results are waited for before each of three kills, in random order. With none, the kill
# comes while a command starts.
RESULTS_BEFORE_A_KILL = (0, 1, 2)
# The recorder, but that the card's rates, which take ten seconds here, are left out.
PROGRAM = """
import sys
from course.cli import main
from course.records import record
from course.machine import machine_card
record.measured_card = lambda: machine_card() | {"measured": {}}
sys.exit(main())
"""
LAB = """
import torch
from labkit import Lab, Workload

def make_product(size, twice):
    with open(LOG, "a") as log:
        print(NAME, size, file=log)
    a = torch.rand(size, size, device="cuda")
    def step():
        return a @ a @ a if twice else a @ a
    return Workload(step)

lab = Lab(make_product, size=[1, *SIZES], twice=[False, True])
"""


def write_notebooks(folder: Path) -> list[Path]:
    """A lab that logs what it builds, and a cell for each of its runs."""
    paths = []
    for name in NOTEBOOKS:
        log = folder / "log"
        first = f"LOG, NAME, SIZES = {str(log)!r}, {name!r}, {SIZES}\n{LAB}"
        cells = [new_code_cell(first)]
        for size in SIZES:
            run = f"lab.run(baseline={{'size': {size}}}, size={size}, twice=True, seconds=0.1)"
            cells.append(new_code_cell(run))
        paths.append(folder / f"{name}.ipynb")
        nbformat.write(new_notebook(cells=cells), paths[-1])
    return paths


def begin(*arguments: str | Path) -> subprocess.Popen[str]:
    paths = [str(ROOT / "tests" / "rehearsal" / "site"), str(ROOT)]
    environment = os.environ | {"LABKIT_REHEARSE": "80", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "record", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_at(process: subprocess.Popen[str], out: Path, results: int, extra: float) -> None:
    """SIGKILL for the whole group, so many seconds after it has so many results."""
    while process.poll() is None and len(kept(out)) < results:
        time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(extra)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def recorded(out: Path) -> dict[str, Record]:
    """The whole records of a zip, each read as the course reads it."""
    found: dict[str, Record] = {}
    if not out.exists():
        return found
    folder = out.parent / "unpacked"
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        archive.extractall(folder)
    for path in folder.glob("*/*.json"):
        record = read(path)
        assert record.failed is None
        found[record.notebook] = record
    return found


def kept(out: Path) -> Asked:
    """What is measured and kept, in records or beside them: notebook and size."""
    found = set()
    for name in recorded(out):
        found |= {(name, size) for size in SIZES}
    for line in Unfinished.beside(out).lines():
        assert line.question is not None
        size = dict(line.question.sides[0])["size"]
        assert isinstance(size, int)
        found.add((line.notebook, size))
    return found


def built(log: Path) -> list[tuple[str, int]]:
    """Every build of a side so far."""
    if not log.exists():
        return []
    found = []
    for line in log.read_text().splitlines():
        name, size = line.split()
        found.append((name, int(size)))
    return found


def carry_home(out: Path, number: int) -> list[Path]:
    """What came back of a command lies in another folder; the next one is given that, if there is
    anything.
    """
    home = out.parent.parent / f"home-{number}"
    home.mkdir()
    for path in (out, Unfinished.beside(out).path):
        if path.exists():
            shutil.copy(path, home)
    for path in home.iterdir():
        return [path.with_name(out.name)]
    return []


def cut_off(tmp_path: Path, notebooks: list[Path]) -> tuple[list[Path], Asked]:
    """Three commands that are killed: the zips that came home, and all that was measured."""
    seed = time.time_ns()
    print(f"seed {seed}")
    moments = random.Random(seed)
    homes: list[Path] = []
    had: Asked = set()
    waits = moments.sample(RESULTS_BEFORE_A_KILL, len(RESULTS_BEFORE_A_KILL))
    for number, results in enumerate(waits):
        out, log = tmp_path / str(number) / "records.zip", tmp_path / "log"
        already = len(built(log))
        wanted, extra = 0, moments.uniform(0, 4)
        if results:
            # A command that was late to be killed may have left too little for this one.
            wanted = min(len(had) + results, len(NOTEBOOKS) * len(SIZES))
            extra = moments.uniform(0, 1)
        process = begin(*notebooks, "--out", out, "--from", *homes)
        kill_at(process, out, wanted, extra)
        # A kernel that was left behind ends by itself.
        time.sleep(0.5)
        assert not had & {*built(log)[already:]}, "measured again"
        had |= kept(out)
        assert len(had) >= wanted, "ended by itself"
        print(f"command {number}: killed {extra:.2f} s after {wanted} results, has {len(had)}")
        homes += carry_home(out, number)
    return homes, had


def test_a_loan_that_is_cut_off_three_times_is_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebooks = write_notebooks(tmp_path)
    homes, had = cut_off(tmp_path, notebooks)
    assert len(had) >= sum(RESULTS_BEFORE_A_KILL)
    out, log = tmp_path / "last" / "records.zip", tmp_path / "log"
    already = len(built(log))
    process = begin(*notebooks, "--out", out, "--from", *homes)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert "nothing is left to record" in said
    assert not had & {*built(log)[already:]}, "measured again"
    records = recorded(out)
    assert sorted(records) == sorted(NOTEBOOKS)
    for record in records.values():
        sizes = [result.candidate.settings["size"] for result in record.results]
        assert (sizes, record.machine, record.device) == ([*SIZES], MACHINE, "cuda")
        assert {result.device for result in record.results} == {"cuda"}
        assert all(result.ratios for result in record.results)
    # The zip is all there is to carry home.
    assert [path.name for path in out.parent.iterdir() if path.is_file()] == ["records.zip"]
    assert f"| {MACHINE} | yes | 2 |" in page_with(out, tmp_path / "reference", monkeypatch)


def page_with(out: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The results page of a course whose records are those of this zip."""
    for module in (store, references):
        monkeypatch.setattr(module, "reference_folder", lambda: folder)
    assert main(["record", "--add", str(out), "--out", str(folder)]) == 0
    return results_page.results_text(ledgers())
