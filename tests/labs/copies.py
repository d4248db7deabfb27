"""A copy of the checkout with a new lab of each plot, in which their files are tried."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from course import new
from course.front import PLOTS
from course.notebook_files import ROOT

NEEDED = ("course", "labkit", "notebooks", "sublinear", "tests", "whyslow", "data/reference")
FILES = ("CHANGELOG.md", "README.md", "RESULTS.md", "pyproject.toml")
# One of each plot, the last one short.
LABS = {f"{number}_try_{plot.replace('-', '_')}": plot for number, plot in enumerate(PLOTS, 91)}
SHORT = list(LABS)[-1]


def copy_with_labs(folder: Path) -> None:
    """Copy what is needed, and make the labs there."""
    ignored = shutil.ignore_patterns("__pycache__", "screenshots", ".*_cache", ".ipynb_checkpoints")
    for name in NEEDED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    for name, plot in LABS.items():
        new.make(new.Lab(name, folder), plot, short=name == SHORT)


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of Python's there, with the packages of the copy."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Tests of the copy, in one process."""
    return run_in(folder, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *arguments)
