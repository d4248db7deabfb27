"""The diagnosis finds faults that only a GPU has, on a rehearsed card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rehearsal.test_rehearsal import ROOT, rehearse

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


# A training as a reader writes it; the card takes its time where the host waits for it.
WATCHED = """
import json, torch, whyslow
from torch.nn import functional as F
from tests.rehearsal.diagnose_checks import SlowReads

model = torch.nn.Linear(32, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(8, 32).cuda(), torch.zeros(8, dtype=torch.long).cuda()
total = 0.0
with SlowReads(), whyslow.watch() as watch:
    for _ in range(40):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
line = watch.report.lines[0]
print(json.dumps([line.source, line.cause, line.share]))
"""


def test_a_host_wait_is_named_by_its_line(tmp_path: Path) -> None:
    # Installed, so that the rehearsal's own lines are no reader's.
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name in ("tests", "whyslow", "labkit"):
        (installed / name).symlink_to(ROOT / name)
    script = tmp_path / "train.py"
    script.write_text(WATCHED)
    done = rehearse(str(script), root=installed)
    assert done.returncode == 0, done.stderr[-3000:]
    source, cause, share = json.loads(done.stdout.splitlines()[-1])
    assert (source, cause) == ("total += loss.item()", "host waits")
    assert share > 0.5
