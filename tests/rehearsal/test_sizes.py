"""Every notebook's sizes fit the cards that they are chosen for, as far as can be predicted.

A card of 8 GB takes the `small` values of `pick`, as do all of less than `LARGE_GPU`, such as those
of 16 GB. The other values are taken from 24 GB on: what fits there fits 80 GB as well. CI predicts
one that needs much; `pytest tests/rehearsal/test_sizes.py --rehearse all` all of them
(about eight minutes of one core).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from course.notebook_files import code_cells, course_notebooks, long_path, place, read_notebook
from labkit.device import LARGE_GPU
from tests.rehearsal import sizes

ROOT = Path(__file__).resolve().parents[2]
FEW = ("11_activation_checkpointing",)
# Of the card's memory: the rest is for work space and fragmentation.
SHARE = 0.85
# The card whose sizes are predicted, and the smallest one that takes them.
SIZES = {8: 8, 80: 24}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" not in metafunc.fixturenames:
        return
    wanted = list(FEW)
    if metafunc.config.getoption("--rehearse") == "all":
        wanted = [place(path) for path in course_notebooks()]
    metafunc.parametrize("name", wanted)


def predict(*arguments: str) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rehearsal.sizes", "--json", *arguments],
        cwd=ROOT,
        env=os.environ | {"LABKIT_SIZE": "full", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def prediction(name: str) -> dict[int, dict]:
    """The notebook's predictions, by the card's gigabytes."""
    found = predict(name, "--cards", *map(str, SIZES))
    return {each["gigabytes"]: each for each in found}


def test_a_notebook_fits_the_smallest_cards_that_take_its_sizes(name: str) -> None:
    for card, smallest in SIZES.items():
        found = prediction(name)[card]
        assert 0 < found["most"] <= SHARE * smallest * 10**9, found["where"]


def test_cells_and_labs_that_are_not_run_are_known(name: str) -> None:
    for found in prediction(name).values():
        reasons = found["left_out"].values()
        assert not [reason for reason in reasons if reason.startswith("FAILED")]


def test_the_cards_are_those_that_pick_tells_apart():
    assert 16 * 10**9 < LARGE_GPU <= 24 * 10**9


@pytest.mark.parametrize("table", [sizes.LEFT_OUT, sizes.HELD, sizes.BY_HAND])
def test_the_exceptions_are_of_notebooks_that_there_are(table: dict) -> None:
    names = {name for path in course_notebooks() for name in (path.stem, place(path))}
    assert table.keys() <= names


def test_what_is_left_out_is_in_the_notebooks() -> None:
    for notebook, texts in sizes.LEFT_OUT.items():
        cells = [cell.source for cell in code_cells(read_notebook(long_path(Path(notebook).name)))]
        for text in texts:
            assert sum(text in source for source in cells) == 1, (notebook, text)


STEP = """
from course import models
net = models.convnet(8).to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(64, 3, 32, 32).to("cuda")
y = torch.zeros(64, dtype=torch.long, device="cuda")
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(torch.cuda.max_memory_allocated())
"""


def peak_of_a_step(start: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", f"import torch\n{start}\n{STEP}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_hollow_step_takes_as_much_as_one_that_computes():
    hollow = peak_of_a_step("import tests.rehearsal.hollow as h\nh.hollow_install()")
    computed = peak_of_a_step("from tests.rehearsal import install\ninstall(gigabytes=80)")
    assert hollow == pytest.approx(computed, rel=0.02)
