"""`pip install .` alone: labkit and its panel work in an environment that holds nothing of the course."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import importlib.util
for course in ("d2l", "torchvision", "sklearn", "jupyterlab"):
    assert importlib.util.find_spec(course) is None, f"{course} came along"

import torch
import labkit
assert "site-packages" in labkit.__file__, labkit.__file__

matrix = torch.ones(64, 64)
result = labkit.compare(lambda: matrix @ matrix, lambda: [matrix @ matrix for _ in range(8)], seconds=1)
print(result)
assert result.verdict in ("faster", "slower", "same", "cannot tell") and result.ratios

def make_workload(times):
    return labkit.Workload(lambda: [matrix @ matrix for _ in range(times)], samples=times)

lab = labkit.Lab(make_workload, times=[1, 2])
assert lab.run(times=2, seconds=0.5).ratios
assert labkit.LabPanel(lab) is not None
"""


def find_uv() -> str:
    """uv, which started these tests: it names itself in the variable UV."""
    found = os.environ.get("UV") or shutil.which("uv")
    assert found, "the tests need uv, which the README's command installs"
    return found


def test_pip_install_alone_gives_working_tools(tmp_path: Path) -> None:
    uv, environment = find_uv(), tmp_path / "venv"
    outside = {
        key: value
        for key, value in os.environ.items()
        if key not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
    }

    def run(*command: object) -> str:
        done = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env=outside,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(uv, "venv", "--python", sys.executable, environment)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    # The versions of the tests' own environment: their wheels are in uv's cache, and no other torch is fetched.
    pins = [f"{name}=={version(name).split('+')[0]}" for name in ("torch", "numpy", "matplotlib")]
    # A copy, so that the build leaves nothing behind in the project.
    source = shutil.copytree(ROOT / "labkit", tmp_path / "source" / "labkit").parent
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(uv, "pip", "install", "--quiet", "--python", python, source, *pins)

    print(run(python, "-c", SCRIPT))
    assert "doctor" in run(python.with_name("labkit"), "--help")


@pytest.mark.parametrize("name", ["d2l", "torchvision", "scikit-learn", "jupyterlab"])
def test_what_the_course_needs_is_no_dependency_of_labkit(name: str) -> None:
    assert not [line for line in requires("labkit") or [] if line.lower().startswith(name)]
