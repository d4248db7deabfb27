"""The recipes for a loop of one's own and for the trainers of libraries, each in a process of its
own. What is not installed is skipped: the project does not depend on these libraries, and CI
installs them for these tests alone.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("name", ["plain", "accelerate", "lightning", "transformers", "fastai"])
def test_a_recipe_sees_the_parts_of_a_training(name):
    if name != "plain" and find_spec(name) is None:
        pytest.skip(f"{name} is not installed; it is no dependency of the project")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.whyslow.recipes", name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    if "causes" in found:
        assert any("in the step" in line for line in found["lines"])
        assert sum(found["causes"].values()) == pytest.approx(1)
        return
    assert found["step_seconds"] > 0
    assert {"loading", "forward", "backward", "update"} <= found["phases"].keys()
    assert sum(found["phases"].values()) == pytest.approx(1, abs=0.02)
