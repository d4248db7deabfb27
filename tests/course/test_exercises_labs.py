"""The answers of each table in `tests/labs`: wrong ones get their hints, right ones pass, and a
check leaves everything as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests import labs

TABLES = labs.tables()
RIGHT = [(lab, answer) for lab in TABLES for answer in (lab.RIGHT, *getattr(lab, "ALSO_RIGHT", ()))]
WRONG = [(lab, *row) for lab in TABLES for row in lab.WRONG]
RAISES = [(lab, *row) for lab in TABLES for row in getattr(lab, "RAISES", ())]


def name_of(answer: Any) -> str:
    """Of an answer with a mistake that is given, which."""
    if isinstance(answer, partial):
        return "_".join(answer.keywords)
    return str(answer.__name__)


def each(names: str, rows: list[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """A test for each row, with the names of its check and its answer."""
    ids = [f"{lab.CHECK.__name__}-{name_of(answer)}" for lab, answer, *_ in rows]
    return pytest.mark.parametrize(names, rows, ids=ids)


def settings() -> dict[str, object]:
    return {
        "random numbers": hash(torch.get_rng_state().numpy().tobytes()),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "process group": dist.is_initialized(),
        "errors of threads": threading.excepthook,
    }


@pytest.fixture(autouse=True)
def as_before(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if hasattr(lab, "PATIENCE"):
        monkeypatch.setattr(f"{lab.CHECK.__module__}.PATIENCE", lab.PATIENCE)
    # With a seed that no check sets: one that leaves its own is found out.
    torch.manual_seed(2**20)
    before = settings()
    yield
    after = settings()
    if getattr(lab, "DRAWS", False):
        after["random numbers"] = before["random numbers"]
    assert after == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@each("lab, answer, hint", WRONG)
def test_a_wrong_answer_gets_its_hint(
    lab: ModuleType, answer: Callable[..., Any], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.CHECK(answer) is False
    said = capsys.readouterr().out
    assert labs.fits(said, f"not yet: {hint}"), said


@each("lab, answer", RIGHT)
def test_a_right_answer_passes(
    lab: ModuleType, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    threads = set(threading.enumerate())
    assert lab.CHECK(answer) is True
    assert capsys.readouterr().out.startswith("✓ ")
    # One that a wrong answer before it has left may end meanwhile.
    assert not set(threading.enumerate()) - threads
    assert len(lab.WRONG) >= 3


@each("lab, answer, kind, message", RAISES)
def test_an_error_of_the_reader_s_own_is_raised(
    lab: ModuleType, answer: Callable[..., Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        lab.CHECK(answer)
