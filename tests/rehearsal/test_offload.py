"""Plans that send what checkpoints hold to the CPU, on a rehearsed card: bits and bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rehearsal.offload_checks import MODELS
from tests.rehearsal.test_rehearsal import rehearse


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    done = rehearse("-m", "tests.rehearsal.offload_checks", cards="16")
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_in_the_bytes_that_are_predicted(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    for here in (found[name]["found"], *found[name]["others"]):
        assert here["same"] and here["left"] == 0, here
        assert here["arrived"] == here["sent"], here
        # What a block that is kept in part has chosen is not known, and counts as all.
        assert 0.9 < here["counted"] / here["predicted"] < 1.03, here
    assert found[name]["found"]["counted"] > 0.97 * found[name]["found"]["predicted"]


@pytest.mark.parametrize("name", MODELS)
def test_it_takes_less_time_in_as_many_bytes(name: str, found: dict[str, dict[str, Any]]) -> None:
    (peak, seconds), here = found[name]["here"], found[name]["found"]
    assert here["sent"] and here["predicted"] <= peak and here["seconds"] < seconds


def test_a_model_is_fitted_by_the_link_that_was_measured(found: dict[str, dict[str, Any]]) -> None:
    here = found["fit"]
    assert here["with"] and not here["without"]
    assert here["proof"] == "one step is the plain one bit by bit"
    assert here["in budget"]
    assert "on the CPU meanwhile" in here["text"] and "\nCPU " in here["text"]
