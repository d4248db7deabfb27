"""Whether code can be compiled is tried, not looked up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from labkit.compiler import trouble_with_compiling

NAMES = ("c++", "g++", "clang++", "cc", "gcc", "clang", "cl")
ASKS = "from labkit.compiler import trouble_with_compiling; print(trouble_with_compiling('cpu'))"


def test_no_trouble_where_the_compiled_operator_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def compile_nothing(function: object) -> object:
        calls.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    assert trouble_with_compiling("cpu") is None
    assert calls == [torch.relu]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("no headers\nand a trace"), "RuntimeError: no headers"),
        (ImportError(), "ImportError: "),
    ],
)
def test_the_first_line_of_the_error_is_told(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(function: object) -> object:
        raise error

    monkeypatch.setattr(torch, "compile", refuse)
    assert trouble_with_compiling("cpu") == said


def test_a_compiler_that_does_not_work_is_found_out(tmp_path: Path) -> None:
    for name in NAMES:
        compiler = tmp_path / name
        compiler.write_text("#!/bin/sh\nexit 1\n")
        compiler.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    folder = str(tmp_path / "inductor")
    changed = {
        "PATH": path,
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    done = subprocess.run(
        [sys.executable, "-c", ASKS],
        env=environment | changed,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() not in ("", "None"), done.stderr
