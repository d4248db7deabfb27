"""Foreign models that the compiler captures, each in a process of its own.

What is not installed is skipped: the project does not depend on these libraries.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.sublinear.foreign_models import FOREIGN, LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = {"HF_HUB_OFFLINE": "1"}

# Of the bytes that a plain step saves: what the plan may save at most, at half more time.
AT_MOST = 0.75
SAVES_LITTLE = {
    "wav2vec2": "its encoder's layers may be left out, each by a number of its own: many graphs",
    "nf_resnet26": "its scaled weights are computed anew in each step, and kept: 0.78",
    "resnet10t": "it is short: 0.76",
    "mixer_s32_224": "with two images its weights and their gradients make the peak",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_twelve_steps_are_the_plain_ones_bit_by_bit(name: str) -> None:
    if find_spec(LIBRARIES[name]) is None:
        pytest.skip(f"{LIBRARIES[name]} is not installed; it is no dependency of the project")
    done = subprocess.run(
        [sys.executable, "-m", "tests.sublinear.captured_zoo", name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **OFFLINE},
        capture_output=True,
        text=True,
        timeout=480,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differences"] == []
    assert found["planned"]
    if name not in SAVES_LITTLE:
        assert found["saved"] < AT_MOST * found["plain"]
