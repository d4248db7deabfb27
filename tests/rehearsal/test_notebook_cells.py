"""Cells of notebooks on a rehearsed card, or on a machine that lacks something, in a child process.

A cell is named by its id. Only what a cell needs runs before it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from course.notebook_files import long_path, read_notebook
from labkit.restore import preserve_flags
from tests.rehearsal.test_rehearsal import ROOT, rehearse

COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "cl")


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_SIZE", "test")


def cells(name: str, *ids: str) -> str:
    """The sources of these cells, one after the other."""
    by_id = {cell.id: cell.source for cell in read_notebook(long_path(name)).cells}
    return "\n\n".join(by_id[each] for each in ids) + "\n"


def printed(code: str) -> list[str]:
    """The lines that the program prints on a rehearsed card."""
    done = rehearse("-c", code, cards="16")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_largest_batch_is_found_beside_whatever_lives_on_the_card() -> None:
    """The budget is the step's. In one precision, so that rates can be divided by each other."""
    code = cells("05_batch_size", "setup", "b04", "b05")
    code += "resident = torch.zeros(2**26, device=device)\n"
    code += cells("05_batch_size", "b24", "b25", "b26")
    code += "print(found, sum(needed is not None for _, needed in log))\n"
    code += "print(torch.backends.cudnn.conv.fp32_precision)\n"
    *_, counts, precision = printed(code)
    found, measured = map(int, counts.split())
    assert found > 0
    assert measured > 2
    assert precision == "ieee"


def test_matrices_that_were_measured_are_released() -> None:
    """And the wide transformer of a GPU has a lower rate than the convnet."""
    name = "06_mixed_precision"
    code = cells(name, "setup", "e0d2c314")
    code += "before = torch.cuda.memory_allocated()\n"
    code += cells(name, "9ebd43f8", "aee2995b")
    code += "print(before, torch.cuda.memory_allocated(), LR['transformer'] < LR['convnet'])\n"
    before, after, lower = printed(code)[-1].split()
    assert before == after
    assert lower == "True"


def test_a_wide_mlp_has_a_lower_rate_on_a_gpu() -> None:
    name = "13_gradient_accumulation"
    code = cells(name, "setup", "0ed10a94", "workload")
    code += "weight = torch.nn.Parameter(torch.zeros(1, device=device))\n"
    code += "print(OPTIMIZERS['AdamW']([weight]).param_groups[0]['lr'])\n"
    assert float(printed(code)[-1]) < 1e-3


def test_a_profiler_is_left_behind_in_a_process_of_its_own() -> None:
    name = "17_debug_tools"
    code = cells(name, "setup", "35877116", "40f228d2", "workload")
    code += "result = lab.run(tool='profiler', width=16, seconds=0.05)\n"
    code += "print(result.device, result.in_short())\n"
    code += "print(lab.runs_in, torch.autograd._profiler_enabled())\n"
    *_, result, place = printed(code)
    assert place == "process False"
    assert result.startswith("cuda")
    assert "ended by" not in result


def test_gradients_held_against_those_of_a_cpu_leave_the_workers_precision() -> None:
    name = "14_distributed_data_parallel"
    imports = ast.parse(cells(name, "workload").split("\n", 1)[1]).body
    assert any("preserve_flags" in ast.unparse(line) for line in imports[:20])
    script = ast.parse(cells(name, "634076c0").split("\n", 1)[1]).body
    [function] = [node for node in script if getattr(node, "name", "") == "gradients"]
    seen = []

    def wrapped(*settings: str) -> torch.nn.Module:
        seen.append(torch.backends.cudnn.conv.fp32_precision)
        return torch.nn.Linear(2, 2)

    def my_share(*settings: str) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)

    names = {"torch": torch, "F": F, "preserve_flags": preserve_flags, "rank": 1}
    names |= {"wrapped": wrapped, "my_share": my_share}
    exec(compile(ast.Module([function], []), name, "exec"), names)
    settings = dict.fromkeys(("model", "wrap", "processes", "bucket_mb", "batch_size"), "")
    with preserve_flags():
        torch.backends.cudnn.conv.fp32_precision = "tf32"
        names["gradients"](settings, "nowhere")
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"
    assert seen == ["ieee"]


def test_a_compiler_that_does_not_work_greys_what_would_need_it(tmp_path: Path) -> None:
    """In all notebooks that compile: a compiler on the PATH is not enough."""
    for name in COMPILERS:
        compiler = tmp_path / name
        compiler.write_text("#!/bin/sh\nexit 1\n")
        compiler.chmod(0o755)
    begin = "import torch\nfrom labkit import Lab, Workload, pick, pick_device\n"
    begin += "device = pick_device()\n"
    optimizers = begin + cells("08_optimizers", "ac86670a") + "print('08:', reasons['compiled'])\n"
    budgets = begin + "from torch._functorch import config\nBATCH = 1\ndef small_step(backend): 1\n"
    budgets += cells("12_sublinear_memory", "8aeb9b9a") + "print('12:', reason[0.0])\n"
    graphs = cells("22_compile_and_cuda_graphs", "setup", "49c5c7da", "whatfits")
    graphs += "print('22:', unavailable['execution']['default'])\n"
    each = [optimizers, budgets, graphs]
    changed = {
        "LABKIT_SIZE": "full",
        "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    done = subprocess.run(
        [sys.executable, "-c", f"for code in {each!r}: exec(code, {{}})"],
        cwd=ROOT,
        env=environment | changed,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines() if line[2:4] == ": ")
    assert found["08"].startswith("torch.compile does not work here: ")
    assert found["12"].startswith("torch.compile does not work here: ")
    assert found["22"] == "needs a working compiler"
