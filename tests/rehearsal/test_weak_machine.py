"""The front notebooks on a machine without fast bf16, with one core and without a compiler.

None asks its reader to bet on what that machine does not show. CI tries those that would, where
it could; `--rehearse all` tries all.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from course.front import is_front
from course.notebook_files import course_notebooks, notebook_path, place, read_notebook
from tests.forked import Forks, forking
from tests.rehearsal.weak import LACKS, Weak, on_a_weak_machine, one_core

FRONT = [place(path) for path in course_notebooks() if is_front(read_notebook(path))]
# Their recipe, workload or scenarios name bf16, workers or a compiler; and the first one.
CONCERNED = ("00", "04", "06", "07", "09", "10", "14", "22", "23", "24")
# What a scenario needs, and what is to be read before its Run where that is missing.
NEEDS = {
    "bf16": (
        lambda settings: "bf16" in (settings.get("precision"), *_switched_on(settings)),
        r"bf16 is (slow|emulated)",
    ),
    "workers": (
        lambda settings: int(settings.get("num_workers", 0)) > 0,
        r"one core",
    ),
    "compiler": (
        lambda settings: (
            "compile" in _switched_on(settings) or "compile" in settings.get("execution", "")
        ),
        r"no (C\+\+ )?compiler",
    ),
}
# The panel of 06: a run, and what it then shows.
RUN = """
panel.choose("convnet")
panel.run(wait=True)
print(panel.view.live.state["picture"])
"""


def _switched_on(settings: dict[str, str]) -> list[str]:
    return [name for name, value in settings.items() if value == "True"]


def unwarned(found: Weak) -> list[str]:
    """The scenarios that need what is missing, without a word on it before their Run."""
    silent = []
    for scenario, (question, settings) in found.asked["scenarios"].items():
        for name, (needs, words) in NEEDS.items():
            if needs(settings) and not re.search(words, found.printed + question):
                silent.append(f"{scenario!r} needs {name}: {question}")
    return silent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--rehearse") == "all"
        wanted = [name for name in FRONT if everything or name.startswith(CONCERNED)]
        metafunc.parametrize("name", wanted)


@pytest.fixture(scope="module")
def weak_forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Kernels of a process that began on such a machine."""
    with ExitStack() as stack:
        with one_core():
            started = stack.enter_context(forking(tmp_path_factory.mktemp("weak"), LACKS))
        yield started


@pytest.mark.notebook
def test_a_front_notebook_runs_and_promises_nothing_that_is_missing(
    name: str, weak_forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, text in weak_forks.variables.items():
        monkeypatch.setenv(variable, text)
    questions = [RUN] if name == "06_mixed_precision" else []
    found = on_a_weak_machine(notebook_path(name), *questions)
    assert found.errors == []
    has, really = found.asked["has"], found.asked["really"]
    assert (has["bf16"], has["cores"], has["compiler"], has["gpu"]) == (False, 1, False, False)
    assert not really["bf16"] and not really["compiler"]
    assert really["cores"] == 1 or not hasattr(os, "sched_setaffinity")
    assert unwarned(found) == []
    assert "is fast" not in found.printed
    if questions:
        takes_another_road(found)


def takes_another_road(found: Weak) -> None:
    """06: what emulation costs is said first, no race, and a recorded machine is shown beside."""
    assert "without units for it" in found.printed
    assert found.asked["modes"] == ["Time", "Memory"]
    asked = {question for question, _ in found.asked["scenarios"].values()}
    # The same question as elsewhere: another one would give the answer away.
    assert asked == {"How many times as fast is a step in bf16?"}
    [drawn] = found.answers
    assert re.search(r"On another machine: [1-9]\.\d+ times as fast", drawn)
    assert "roof of bf16" in drawn and "roof of fp32" in drawn


def test_a_promise_is_found() -> None:
    settings = {"model": "convnet", "precision": "bf16"}
    asked = {"scenarios": {"convnet": ["How many times as fast?", settings]}}
    assert unwarned(Weak(asked=asked)) == ["'convnet' needs bf16: How many times as fast?"]
    assert unwarned(Weak(asked=asked, printed="bf16 is slow on this machine")) == []
    asked = {
        "scenarios": {"w": ["Who is ahead?", {"num_workers": "2"}], "b": ["?", {"bf16": "True"}]}
    }
    assert len(unwarned(Weak(asked=asked))) == 2
    asked["scenarios"]["w"][0] = "This machine has one core. Who is ahead?"
    assert unwarned(Weak(asked=asked)) == ["'b' needs bf16: ?"]
