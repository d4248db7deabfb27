"""The rehearsed card: it catches the mistakes that are planted, and leaves sound programs alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rehearsal.planted import PLANTED

ROOT = Path(__file__).resolve().parents[2]


def rehearse(
    *command: str, cards: str = "16x2", root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run Python with rehearsed cards of so many gigabytes, which are imported from ``root``."""
    paths = [str(root / "tests" / "rehearsal" / "site"), str(root)]
    environment = os.environ | {"LABKIT_REHEARSE": cards, "PYTHONPATH": os.pathsep.join(paths)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str | None]]:
    done = rehearse("-m", "tests.rehearsal.planted")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught_and_the_sound_program_runs(
    name: str, outcomes: dict[str, list[str | None]]
) -> None:
    wrong, right = outcomes[name]
    assert wrong is not None, "not caught"
    assert right is None


def test_there_are_many_kinds_of_mistakes() -> None:
    assert len(PLANTED) >= 25


def test_a_wrong_number_of_gigabytes_is_named() -> None:
    done = rehearse("-c", "pass", cards="eighty")
    assert "LABKIT_REHEARSE='eighty': use gigabytes of a card" in done.stderr


def test_memory_is_counted_and_given_back() -> None:
    code = """if True:
        import torch
        a = torch.zeros(1000, device="cuda")
        first = torch.cuda.memory_allocated()
        b = a.double()
        del a, b
        print(first, torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["4096", "12288", "0"], done.stderr


def test_a_storage_is_one_object_that_tells_its_card() -> None:
    code = """if True:
        import torch
        a = torch.zeros(4, device="cuda")
        here = a.untyped_storage()
        print(here is a[1:].untyped_storage(), here.device, here.is_cuda)
        print(a.cpu().untyped_storage().device)
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["True", "cuda:0", "True", "cpu"], done.stderr


def test_a_tensor_lies_on_its_card_in_another_process_too() -> None:
    code = """if True:
        import torch
        from labkit import Lab, Workload
        inputs = torch.ones(3, device="cuda:1")
        weights = torch.nn.Parameter(inputs * 2)
        def make_workload(double: bool) -> Workload:
            torch.accelerator.set_device_index(1)
            assert weights.requires_grad
            assert weights.is_leaf
            return Workload(lambda: inputs @ weights)
        lab = Lab(make_workload, runs_in="process", memory=False, double=[False, True])
        result = lab.run(double=True, seconds=0.05)
        print(result.device, result.candidate.error, inputs.sum().item())
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["cuda", "None", "3.0"], done.stderr


def test_a_graph_replays_on_the_same_memory() -> None:
    code = """if True:
        import torch
        x, graph = torch.zeros(3, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 3
        x.fill_(2)
        graph.replay()
        print(y.tolist())
    """
    assert rehearse("-c", code).stdout.strip() == "[6.0, 6.0, 6.0]"


def test_compiled_code_and_the_scaler_run() -> None:
    code = """if True:
        import torch
        from torch.nn import functional as F
        net = torch.nn.Linear(8, 2).to("cuda")
        fast, scaler = torch.compile(net), torch.amp.GradScaler("cuda")
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)
        x, y = torch.randn(4, 8, device="cuda"), torch.zeros(4, dtype=torch.long, device="cuda")
        with torch.autocast("cuda"):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(fast(x).device, net.weight.grad.device)
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["cuda:0", "cuda:0"], done.stderr


def test_the_profiler_sees_each_operator_once() -> None:
    code = """if True:
        import torch
        net = torch.nn.Linear(16, 16, device="cuda")
        x = torch.randn(4, 16, device="cuda")
        with torch.profiler.profile() as profiler:
            net(x).sum().backward()
        names = [event.name for event in profiler.events()]
        row = [row for row in profiler.key_averages() if row.key == "aten::addmm"]
        print(names.count("aten::addmm"), row[0].count, row[0].self_device_time_total > 0,
              "PythonDispatchMode" in names)
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["1", "1", "True", "False"], done.stderr


def test_operators_that_another_mode_calls_on_stay_on_the_card() -> None:
    # The backward of autocast's cast names, in C++, the device that it sees.
    code = """if True:
        import torch
        from labkit import count
        net, x = torch.nn.Linear(8, 8).to("cuda"), torch.randn(4, 8, device="cuda")
        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = net(net(x)).float().sum()
            loss.backward()
        print(count(step).launches > 0, net.weight.grad.device)
    """
    done = rehearse("-c", code)
    assert done.stdout.split() == ["True", "cuda:0"], done.stderr


def test_a_graph_of_compiled_code_replays() -> None:
    code = """if True:
        import torch
        x, graph = torch.zeros(3, device="cuda"), torch.cuda.CUDAGraph()
        triple, net = torch.compile(lambda x: x * 3), torch.compile(torch.nn.Identity())
        triple(net(x))
        with torch.cuda.graph(graph):
            y = triple(net(x))
        x.fill_(2)
        graph.replay()
        print(y.tolist())
    """
    done = rehearse("-c", code)
    assert done.stdout.strip() == "[6.0, 6.0, 6.0]", done.stderr
