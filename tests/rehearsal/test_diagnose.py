"""The diagnosis finds faults that only a GPU has, on a rehearsed card."""

from __future__ import annotations

import json

import pytest

from tests.rehearsal.test_rehearsal import rehearse

READS = "the host waits for the device"
COPIES = "copies from pageable memory"
LAUNCHES = "batch too small for the fixed costs of a step"


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    done = rehearse("-m", "tests.rehearsal.diagnose_checks", cards="16x2")
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_reads_and_copies_are_tried_where_they_are(found: dict[str, list[str]]) -> None:
    assert READS in found["a read in each step is counted"]
    assert COPIES not in found["a read in each step is counted"]
    assert READS not in found["no read is counted without one"]
    assert COPIES in found["pageable copies are counted"]


def test_another_card_is_refused_by_name(found: dict[str, list[str]]) -> None:
    told = found["another card is refused by name"]
    assert len(told) == 1
    assert all("cuda:1, which is not torch's current device" in each for each in told)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("slow reads are named first", READS),
        ("slow pageable copies are named first", COPIES),
        ("slow launches are named first", LAUNCHES),
    ],
)
def test_a_gross_fault_is_named_first(program: str, name: str, found: dict[str, list[str]]) -> None:
    assert found[program][0] == name
