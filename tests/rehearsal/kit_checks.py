"""What labkit and sublinear do on a card, each a function that asserts. ``python -m
tests.rehearsal.kit_checks``.

Prints a JSON object: name -> null, or the traceback of what went wrong.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import sublinear
from course.machine import machine_card, matmul_rate
from labkit import Lab, MemoryMeter, Workload, count, pick_device, race
from labkit.arm import LocalArm
from labkit.device import is_out_of_memory, release_memory, survive
from labkit.memory import StorageTracker
from labkit.remote import RemoteArm
from labkit.restore.attributes import patched
from labkit.results import Comparison
from sublinear.profiling import restored, training
from tests.labkit.counting import counting
from tests.rehearsal import places

Check = Callable[[], None]
CHECKS: dict[str, Check] = {}
NOT_COUNTABLE = "not countable: the step replays a CUDA graph"
# More than the card has.
TOO_MUCH = 2**36
MIB = 2**20


def check(function: Check) -> Check:
    """Add a check under its name in words."""
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


def trainer(device: str) -> Callable[[], None]:
    """A training step whose tensors are multiples of the allocator's unit."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(128, 128, device=device)

    def step() -> None:
        net(x).square().sum(1).mul(0.1).backward(torch.ones(128, device=device))
        optimizer.step()
        optimizer.zero_grad()

    return step


class Operators(TorchDispatchMode):
    """Keeps the names of what was called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(func._overloadpacket.__name__)
        return func(*args, **kwargs or {})


# ------------------------------------------------------------------------------------------- memory


@check
def a_meter_tells_what_the_block_needs_however_full_the_card_is() -> None:
    step = trainer("cuda")
    step()
    seen = []
    for size in (1, 2**24):
        others = torch.zeros(size, device="cuda")
        with MemoryMeter(saved=False) as memory:
            step()
        seen.append((memory.peak, memory.current, memory.reserved))
        assert others.is_cuda
    assert seen[0] == seen[1], seen
    assert 0 < seen[0][1] <= seen[0][0] == seen[0][2], seen


@check
def a_meter_says_the_same_on_a_card_as_on_the_CPU() -> None:
    seen = []
    for device in ("cpu", "cuda"):
        step = trainer(device)
        step()
        with MemoryMeter(device) as memory:
            step()
        seen.append((memory.peak, memory.current, memory.saved_for_backward))
    assert seen[0] == seen[1], seen


@check
def the_tracker_sees_the_same_on_a_card_as_on_the_CPU() -> None:
    seen = []
    for device in ("cpu", "cuda"):
        step = trainer(device)
        with StorageTracker(device) as tracker:
            step()
        seen.append((tracker.existing, tracker.peak, tracker.current))
    assert seen[0] == seen[1], seen


@check
def older_tensors_that_die_meanwhile_do_not_make_a_debt() -> None:
    others = [torch.zeros(2**20, device="cuda")]
    with MemoryMeter(saved=False) as memory:
        others.clear()
        kept = torch.zeros(128, device="cuda")
        assert memory.current == 0
    assert kept.is_cuda and memory.peak >= 0


@check
def a_side_needs_the_same_however_full_the_card_is() -> None:
    def make() -> Workload:
        return Workload(trainer("cuda"))

    peaks = []
    for size in (1, 2**24):
        others = torch.zeros(size, device="cuda")
        arm = LocalArm(make, "a", seed=0)
        arm.start()
        peaks.append(arm.peak())
        assert others.is_cuda
    assert peaks[0] == peaks[1] and peaks[0][0], peaks


@check
def batches_that_wait_their_turn_are_no_part_of_a_step() -> None:
    def make(batches: int) -> Workload:
        net = nn.Linear(1024, 1024).to("cuda")
        pool = [torch.randn(256, 1024, device="cuda") for _ in range(batches)]
        return Workload(lambda: net(pool[0]).square().mean().backward())

    peaks = []
    for batches in (1, 64):
        arm = LocalArm(lambda batches=batches: make(batches), "a", seed=0)
        arm.start()
        peaks.append(arm.peak())
    assert peaks[0] == peaks[1], peaks


@check
def a_fitted_model_needs_the_same_however_full_the_card_is() -> None:
    net = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4))).to("cuda")
    x = torch.randn(256, 128, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    fitted = sublinear.fit(net, x, optimizer=optimizer, max_overhead=1.0, repeats=1)
    seen = []
    for size in (1, 2**24):
        others = torch.zeros(size, device="cuda")
        seen.append((fitted._peak(fitted.original), fitted._peak(fitted.model)))
        assert others.is_cuda
    assert seen[0] == seen[1], seen
    (plain, _), (planned, _) = seen[0]
    assert abs(fitted.plain.peak_bytes / plain - 1) < 0.05, (fitted.plain.peak_bytes, plain)
    assert abs(fitted.predicted.peak_bytes / planned - 1) < 0.05


@check
def what_was_tried_leaves_the_card_as_it_was() -> None:
    net = nn.Linear(128, 128).to("cuda")
    gc.collect()
    before = torch.cuda.memory_allocated()
    x = torch.ones(4, 128, device="cuda")
    beside = torch.cuda.memory_allocated()
    with restored(net, training(x)):
        # Copies lie off the card.
        assert torch.cuda.memory_allocated() == beside
        net(x).sum().backward()
    del x
    release_memory()
    assert torch.cuda.memory_allocated() == before


# ------------------------------------------------------------------------------------------- graphs


def graphed(keep_method: bool) -> Workload:
    """A step that replays a graph: by its object, or by its method."""
    x = torch.ones(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2 + 1).sum()
    replay = graph.replay

    def step() -> torch.Tensor:
        if keep_method:
            replay()
        else:
            graph.replay()
        return y

    return Workload(step)


@check
def peaks_and_counts_of_a_graph_are_not_countable() -> None:
    honest = torch.cuda.CUDAGraph.replay
    for keep_method in (False, True):
        arm = LocalArm(lambda keep_method=keep_method: graphed(keep_method), "a")
        arm.start()
        assert arm.counters() == NOT_COUNTABLE
        allocated, reserved = arm.peak()
        assert allocated is None and reserved >= 1024 * 4
        arm.close()
    assert torch.cuda.CUDAGraph.replay is honest


@check
def a_graph_that_is_only_there_is_no_matter() -> None:
    def plain() -> Workload:
        kept = graphed(False)
        x = torch.ones(4, 4, device="cuda")
        kept.step()
        return Workload(lambda: (x @ x, kept)[0].sum())

    arm = LocalArm(plain, "a")
    arm.start()
    assert arm.counters()["flops"] == 2 * 4**3
    assert arm.peak()[0] is not None


@check
def a_result_says_that_a_graph_is_not_countable() -> None:
    def make_workload(how: str) -> Workload:
        if how == "graph":
            return graphed(False)
        x = torch.ones(1024, device="cuda")
        return Workload(lambda: (x * 2 + 1).sum())

    lab = Lab(make_workload, how=["eager", "graph"])
    with counting():
        result = lab.run(how="graph", seconds=0.05)
    assert isinstance(result, Comparison) and result.device == "cuda"
    assert result.candidate.counters == NOT_COUNTABLE
    assert result.candidate.peak_bytes is None and result.candidate.reserved_bytes
    assert result.baseline.peak_bytes
    assert "not countable" in str(result) and "not countable" in result._repr_html_()
    assert result.memory_ratio != result.memory_ratio


# -------------------------------------------------------------------------------------- first steps


@check
def libraries_are_loaded_before_the_first_step() -> None:
    seen = Operators()

    def make() -> Workload:
        torch.zeros(1, device="cuda")
        return Workload(lambda: seen.names.append("step"))

    arm = LocalArm(make, "a")
    with seen:
        arm.start()
    before = seen.names[: seen.names.index("step")]
    for name in ("mm", "convolution", "convolution_backward"):
        assert before.count(name) == 1, (name, before)
    arm.close()


@check
def without_cuDNN_a_step_that_needs_none_runs() -> None:
    convolve = F.conv2d

    def missing(*_: Any, **__: Any) -> None:
        raise RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")

    torch.nn.functional.conv2d = missing
    try:
        arm = LocalArm(lambda: Workload(trainer("cuda")), "a")
        assert arm.start() > 0 and arm.block(2) > 0
        arm.close()
    finally:
        torch.nn.functional.conv2d = convolve


@check
def both_sides_out_of_memory_still_say_on_which_device() -> None:
    def in_the_step(size: int) -> Workload:
        return Workload(lambda: torch.empty(size, device="cuda").sum())

    def in_the_build(size: int) -> Workload:
        huge = torch.empty(size, device="cuda")
        return Workload(huge.sum)

    for make in (in_the_step, in_the_build):
        result = Lab(make, size=[TOO_MUCH, 2 * TOO_MUCH]).run(size=2 * TOO_MUCH, seconds=0.05)
        assert [side.error for side in result.arms] == ["out of memory"] * 2
        assert result.device == "cuda", (make, result.device)


@check
def a_process_out_of_memory_says_on_which_device() -> None:
    def make() -> Workload:
        return Workload(lambda: torch.empty(2**36, device="cuda").sum())

    arm = RemoteArm(make, "a")
    try:
        arm.start()
    except torch.OutOfMemoryError:
        assert arm.device == "cuda"
    else:
        raise AssertionError("there is room for it")
    finally:
        arm.close()


# ------------------------------------------------------------------------------------------- device


def on_the_second_card(chosen: bool) -> Workload:
    """A step on cuda:1, which is torch's current device where it was ``chosen``."""
    if chosen:
        torch.accelerator.set_device_index(1)
    x = torch.ones(256, 256, device="cuda:1")
    return Workload(lambda: (x @ x).sum())


@check
def a_step_on_a_card_that_is_not_the_current_one_is_refused() -> None:
    torch.zeros(1, device="cuda")
    arm = LocalArm(lambda: on_the_second_card(chosen=False), "a")
    with contextlib.closing(arm), survive(ValueError) as outcome:
        arm.start()
    assert outcome.error is not None, "its time and its memory would have been those of cuda:0"
    assert "on cuda:1" in outcome.error and "set_device_index(1)" in outcome.error, outcome.error


@check
def a_side_may_choose_its_card_for_itself_alone() -> None:
    torch.zeros(1, device="cuda")
    arm = LocalArm(lambda: on_the_second_card(chosen=True), "a")
    assert arm.start() > 0 and arm.block(2) > 0
    assert torch.cuda.current_device() == 0
    peak, _ = arm.peak()
    assert peak is not None and peak >= 2 * 256 * 256 * 4, peak
    arm.close()
    assert torch.cuda.current_device() == 0


def racer(chosen: bool) -> Workload:
    """As `on_the_second_card`, with a metric that goes up by one each step."""
    values = iter(range(100))
    return replace(on_the_second_card(chosen), evaluate=lambda: next(values))


@check
def a_race_on_a_card_that_is_not_the_current_one_is_refused() -> None:
    torch.zeros(1, device="cuda")
    with survive(ValueError) as outcome:
        race({"a": lambda: racer(chosen=False)}, target=2, steps=5, seeds=1)
    assert outcome.error is not None, "its times would have been those of cuda:0"
    assert "set_device_index(1)" in outcome.error, outcome.error


@check
def a_side_of_a_race_may_choose_its_card_for_itself_alone() -> None:
    waited: list[int] = []
    wait = torch.cuda.synchronize

    def watched(*arguments: Any) -> None:
        waited.append(torch.cuda.current_device())
        wait(*arguments)

    torch.zeros(1, device="cuda")
    with patched(torch.cuda, "synchronize", watched):
        result = race({"a": lambda: racer(chosen=True)}, target=2, steps=5, seeds=1)
    assert result.arrived("a") == 1
    assert set(waited[-2:]) == {1}, waited
    assert torch.cuda.current_device() == 0


@check
def a_build_on_a_card_gets_other_addresses() -> None:
    held: list[int] = []

    def make_workload(side: int) -> Workload:
        held.append(torch.cuda.memory_allocated())
        x = torch.ones(256, 256, device="cuda")
        return Workload(lambda: (x @ x).sum())

    gc.collect()
    before = torch.cuda.memory_allocated()
    result = Lab(make_workload, side=[0, 1], memory=False).run(side=1, seconds=1)
    assert isinstance(result, Comparison) and result.build_count > 2
    # What lies beside each build on the card, after the first one of each side.
    beside = held[2 : 2 * result.build_count]
    assert min(beside) > before and len(set(beside)) > len(beside) // 2, beside
    gc.collect()
    assert torch.cuda.memory_allocated() == before


@check
def an_ambiguous_text_is_judged_by_the_card() -> None:
    error = RuntimeError("GET was unable to find an engine to execute this computation")
    card = places.cards[0]
    before, card.refused = card.refused, 0
    assert not is_out_of_memory(error)
    try:
        torch.empty(TOO_MUCH, device="cuda")
    except torch.OutOfMemoryError:
        assert is_out_of_memory(error)
    else:
        raise AssertionError("there is room for it")
    finally:
        card.refused += before


@check
def copies_from_the_card_are_host_reads() -> None:
    there, here = torch.ones(4, device="cuda"), torch.ones(4)
    reads = {
        "cpu": count(lambda: there.cpu()).host_reads,
        "to": count(lambda: there.to("cpu", torch.float64)).host_reads,
        "copy_": count(lambda: here.copy_(there)).host_reads,
        "item": count(lambda: there.sum().item()).host_reads,
        "non-blocking": count(lambda: there.to("cpu", non_blocking=True)).host_reads,
        "the other way": count(lambda: here.to("cuda")).host_reads,
        "no copy": count(lambda: there.double()).host_reads,
    }
    expected = {"cpu": 1, "to": 1, "copy_": 1, "item": 1}
    assert reads == expected | {"non-blocking": 0, "the other way": 0, "no copy": 0}, reads


@check
def the_machine_card_is_of_the_card() -> None:
    card = machine_card()
    assert pick_device().type == "cuda" and card["gpu"]["name"] == "Rehearsal GPU"
    assert "accelerator" not in card
    rate = matmul_rate(torch.float32, torch.device("cuda"), tf32=True)
    assert rate is not None and rate > 0


def main() -> None:
    outcomes: dict[str, str | None] = {}
    # What is let go of is searched for again and again: not in all of torch.
    gc.collect()
    gc.freeze()
    for name, function in CHECKS.items():
        outcomes[name] = None
        try:
            function()
        except Exception:
            outcomes[name] = traceback.format_exc()
        gc.collect()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
