"""labkit and sublinear on a rehearsed card: the checks of `kit_checks`, all in one process."""

from __future__ import annotations

import json

import pytest

from tests.rehearsal.kit_checks import CHECKS
from tests.rehearsal.test_rehearsal import rehearse


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    done = rehearse("-m", "tests.rehearsal.kit_checks")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_on_a_card(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None, outcomes[name]
