"""The answers of each lab's table: the wrong ones get their hints, the right one passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import labs

TABLES = [lab for lab in labs.every() if hasattr(lab, "CHECK")]
WRONG = [
    pytest.param(lab.CHECK, answer, hint, id=f"{lab.CHECK.__name__}-{answer.__name__}")
    for lab in TABLES
    for answer, hint in lab.WRONG
]


@pytest.mark.parametrize(("check", "answer", "hint"), WRONG)
def test_a_wrong_answer_gets_its_hint(
    check: Callable[..., bool],
    answer: Callable[..., Any],
    hint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check(answer) is False
    assert capsys.readouterr().out.startswith(f"not yet: {hint}")


@pytest.mark.parametrize("lab", TABLES, ids=lambda lab: lab.CHECK.__name__)
def test_the_right_answer_passes(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.CHECK(lab.RIGHT) is True
    assert capsys.readouterr().out.startswith("✓ ")
    assert len(lab.WRONG) >= 3
