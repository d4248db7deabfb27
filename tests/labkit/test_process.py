"""Arms in processes of their own."""

import os
import signal

import pytest
import torch

from labkit import Lab, Workload
from labkit.arms import LocalArm, children
from labkit.arms.process import ProcessArm
from tests.labkit.counting import counting


def process_of(arm):
    return arm._child.process.pid


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_arm_has_a_process_of_its_own():
    def make(on):
        torch.backends.cudnn.benchmark = on
        print("noise on stdout must not disturb the pipe")
        return Workload(lambda: torch.full((), float(os.getpid())), 4)

    result = Lab(make, runs_in="process", on=[False, True]).run(on=True, seconds=0.2)
    assert result.ratios and result.candidate.samples == 4
    assert result.baseline.peak_bytes is not None
    assert not torch.backends.cudnn.benchmark


def test_pipes_and_process_end_with_the_arm():
    arm = ProcessArm(lambda: Workload(lambda: None), "a")
    assert arm.start() >= 0
    pid = process_of(arm)
    assert arm.block(3) >= 0
    arm.close()
    arm.close()
    assert gone(pid)


def test_an_arm_that_dies_is_a_result():
    def make(die):
        count = 0

        def step():
            nonlocal count
            count += 1
            if die and count > 50:
                os.kill(os.getpid(), signal.SIGKILL)

        return Workload(step)

    result = Lab(make, runs_in="process", memory=False, die=[False, True]).run(
        die=True, seconds=0.2
    )
    assert "was ended by SIGKILL" in result.candidate.error
    assert result.baseline.times and result.verdict == "unclear"


def test_an_exception_in_the_child_is_raised_here():
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a)

    def make(kind):
        if kind == "value":
            raise ValueError("no such layer")
        if kind == "odd":
            raise Odd(1, 2)
        return Workload(lambda: None)

    lab = Lab(make, runs_in="process", kind=["fine", "value", "odd"])
    with pytest.raises(ValueError, match="no such layer"):
        lab.run(kind="value", seconds=0.1)
    with pytest.raises(RuntimeError, match="Odd: 1"):
        lab.run(kind="odd", seconds=0.1)
    assert lab.run(seconds=0.1).ratios


def test_out_of_memory_in_the_child():
    def make(size):
        return Workload(lambda: torch.empty(size).fill_(0) if size < 2**40 else torch.empty(size))

    result = Lab(make, runs_in="process", memory=False, size=[8, 2**55]).run(
        size=2**55, seconds=0.1
    )
    assert result.candidate.error == "out of memory"


def test_a_child_that_cannot_start_says_why(monkeypatch):
    arm = ProcessArm(lambda: Workload(lambda: None), "a")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="ended with exit status 1"):
        arm.start()
    arm.close()


def test_an_isolated_arm_runs_on_the_lab_s_number_of_threads():
    def make(x):
        if torch.get_num_threads() != 1:
            raise ValueError(f"{torch.get_num_threads()} threads")
        return Workload(lambda: None)

    torch.set_num_threads(2)
    assert Lab(make, runs_in="process", memory=False, threads=1, x=[1]).run(seconds=0.05).ratios
    with pytest.raises(ValueError, match="2 threads"):
        Lab(make, runs_in="process", memory=False, threads=2, x=[1]).run(seconds=0.05)


def test_peaks_and_counts_are_taken_in_the_process_that_was_timed(monkeypatch):
    started = []

    class Counted(children.Child):
        def __init__(self, *arguments, **options):
            started.append(arguments)
            super().__init__(*arguments, **options)

    def make(size):
        weight = torch.ones(size, requires_grad=True)
        return Workload(lambda: (weight * weight).sum().backward())

    monkeypatch.setattr("labkit.arms.process.Child", Counted)
    lab = Lab(make, runs_in="process", size=[1000, 2000])
    with counting():
        result = lab.run(size=2000, seconds=0.05)
    assert len(started) == 2
    found = [(side.peak_bytes, side.counters["launches"]) for side in result.arms]
    arms = [LocalArm(lambda size=size: make(size), "a", seed=0) for size in (1000, 2000)]
    for arm in arms:
        arm.start()
    assert found == [(arm.peak()[0], arm.counters()["launches"]) for arm in arms]


def test_a_process_that_is_gone_is_started_again_for_its_peak():
    arm = ProcessArm(lambda: Workload(lambda: torch.ones(250).sum().item()), "a")
    arm.start()
    arm._child.process.kill()
    arm.release()
    assert arm._child is None
    assert arm.peak()[0] == 1004
    arm.close()
    assert arm._child is None


def test_the_card_is_given_back_before_a_process_starts(monkeypatch):
    order = []

    def no_child(**options):
        order.append("process")
        raise OSError("no process in this test")

    monkeypatch.setattr("labkit.arms.process.release_memory", lambda: order.append("release"))
    monkeypatch.setattr("labkit.arms.process.Child", no_child)
    arm = ProcessArm(lambda: Workload(lambda: None), "a")
    with pytest.raises(OSError, match="no process"):
        arm.start()
    arm.close()
    assert order == ["release", "process"]


@pytest.mark.parametrize(
    ("folder", "inherited"),
    [
        ("/cache/inductor/triton/0", False),
        ("/cache/triton/12", False),
        ("/mine/.triton/cache", True),
        ("/mine/triton", True),
        (None, False),
    ],
)
def test_a_process_finds_no_kernels_that_inductor_built_for_this_one(
    folder, inherited, monkeypatch
):
    seen = {}

    def no_process(command, *, env, **options):
        seen.update(env)
        raise OSError("no process in this test")

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    if folder is not None:
        monkeypatch.setenv("TRITON_CACHE_DIR", folder)
    monkeypatch.setattr(children.subprocess, "Popen", no_process)
    with pytest.raises(OSError, match="no process"):
        children.Child(stdout=None, stderr=None)
    assert seen.get("TRITON_CACHE_DIR") == (folder if inherited else None)
    assert "PATH" in seen


def test_it_is_said_that_processes_start(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    lab = Lab(lambda x: Workload(lambda: None), runs_in="process", memory=False, x=[1, 2])
    lab.run(x=2, seconds=0.05)
    shown = capsys.readouterr().err
    assert "starting baseline" in shown and "starting x=2" in shown
    # And nothing of it is left.
    assert shown.rsplit("\r", 1)[-1].strip() == ""


def test_an_interrupt_ends_a_process_whose_answer_is_still_to_come(monkeypatch):
    arm = ProcessArm(lambda: Workload(lambda: None), "a")
    arm.start()
    pid = process_of(arm)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(arm._child, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arm.peak()
    assert arm._child is None and gone(pid)
