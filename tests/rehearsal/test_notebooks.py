"""Notebooks run from top to bottom on a rehearsed card.

CI runs those that have something for a card alone on a small one; `pytest tests/rehearsal
--rehearse all` runs every notebook on cards of 80, 16 and 8 GB (about an hour and a half of one
core).
"""

import pytest

from course.notebook_files import course_notebooks, notebook_path, place
from tests.rehearsal.notebooks import rehearse_notebook

# Precision, transfers, memory, kernels, graphs: what a card does in its own way.
FEW = (
    "06_mixed_precision",
    "08_optimizers",
    "10_host_device_transfers",
    "12_sublinear_memory",
    "16_as_tensor",
    "22_compile_and_cuda_graphs",
    "24_attention",
)
CARDS = ("80", "16", "8")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = [(name, "8") for name in FEW]
    if metafunc.config.getoption("--rehearse") == "all":
        wanted = [(place(path), card) for path in course_notebooks() for card in CARDS]
    ids = [f"{name}-{card}GB" for name, card in wanted]
    metafunc.parametrize(("name", "card"), wanted, ids=ids)


@pytest.mark.notebook
def test_runs_on_a_rehearsed_card(name: str, card: str) -> None:
    done = rehearse_notebook(notebook_path(name), card)
    assert done.errors == []
    assert done.peak > 0, "nothing was ever on the card"
