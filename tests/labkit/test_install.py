"""`pip install .` gives labkit, whyslow and sublinear, which work where nothing of the course is
installed.

From a checkout the course is importable, too: the editable install puts the project's root on
the path.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution, requires, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import importlib.util
for name in ("course", "d2l", "torchvision", "sklearn", "jupyterlab"):
    assert importlib.util.find_spec(name) is None, f"{name} came along"

import torch
import labkit
import sublinear
import whyslow
from labkit.panel import LabPanel
for room in (labkit, whyslow, sublinear):
    assert "site-packages" in room.__file__, room.__file__

matrix = torch.ones(64, 64)
def eight():
    for _ in range(8):
        matrix @ matrix

result = labkit.compare(lambda: matrix @ matrix, eight, seconds=0.2)
print(result)
assert result.verdict in ("faster", "slower", "same", "unclear") and result.ratios

def make_workload(times):
    return labkit.Workload(lambda: [matrix @ matrix for _ in range(times)], samples=times)

lab = labkit.Lab(make_workload, times=[1, 2])
assert lab.run(times=2, seconds=0.1).ratios
assert LabPanel(lab) is not None

model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))
inputs = torch.randn(64, 32)
fitted = sublinear.fit(model, inputs, max_overhead=1.0)
assert sublinear.verify(model, fitted.plan, inputs).passed
"""


def find_uv() -> str:
    """uv, which started these tests: it names itself in the variable UV."""
    found = os.environ.get("UV") or shutil.which("uv")
    assert found, "the tests need uv, which the README's command installs"
    return found


def lend_compiled(environment: Path) -> None:
    """What Python has compiled of these packages here: it takes what fits the sources there."""
    lend = shutil.copy2 if os.name == "nt" else os.symlink
    ours, [theirs] = Path(distribution("torch").locate_file("")), environment.rglob("site-packages")
    for package in theirs.iterdir():
        for compiled in (ours / package.name).rglob("__pycache__"):
            folder = theirs / compiled.relative_to(ours)
            if folder.parent.is_dir():
                folder.mkdir(exist_ok=True)
                for file in compiled.iterdir():
                    lend(file, folder / file.name)


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
    # The versions of the tests' own environment: their wheels are in uv's cache, and no other
    # torch is fetched.
    pins = [f"{name}=={version(name).split('+')[0]}" for name in ("torch", "numpy", "matplotlib")]
    # A copy, so that the build leaves nothing behind in the project.
    source = tmp_path / "source"
    for room in ("labkit", "whyslow", "sublinear", "course"):
        shutil.copytree(ROOT / room, source / room)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(uv, "pip", "install", "--quiet", "--python", python, source, *pins)
    lend_compiled(environment)

    print(run(python, "-c", SCRIPT))
    assert "SCRIPT.py" in run(python.with_name("whyslow"), "--help")


def test_a_kernel_in_notebooks_finds_the_course() -> None:
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", "import course, course.exercises; print(course.__file__)"],
        cwd=ROOT / "notebooks",
        env=outside,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == ROOT / "course" / "__init__.py"


@pytest.mark.parametrize("name", ["d2l", "torchvision", "scikit-learn", "jupyterlab"])
def test_what_the_course_needs_is_no_dependency_of_labkit(name: str) -> None:
    assert not [line for line in requires("labkit") or [] if line.lower().startswith(name)]
