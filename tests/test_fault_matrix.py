"""The fault matrix of the whole: what happens to it, row by row, and who bears it, in columns.

After a fault nothing is lost or changed (models, optimizers, random numbers, torch's switches,
files, the reader's board), a clear word is said, and the next run works. `MATRIX` names the test of
each cell, here or elsewhere, or says why the fault cannot happen there.

Interrupts strike at calls of Python functions, counted, so that each moment can be repeated; also
in the last of them, where things are put back. A full disk is the limit on the size of a file
(RLIMIT_FSIZE), which needs no rights, or a write that fails.
"""

import ast
import errno
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import UnidentifiedImageError
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader

import whyslow
from course import data, speedrun
from course.board import Board, board, cell, measure
from course.board.store import Figure
from course.small_gpu import search_batch, try_batch
from course.switches import TASK
from labkit import Lab, Workload
from labkit.arm import ArmDied
from labkit.comparing import measuring
from labkit.panel import LabPanel
from labkit.restore import preserve_flags, preserve_rng, preserve_state
from labkit.restore.generators import rng_state
from labkit.restore.switches import torch_flags
from labkit.results import Comparison
from labkit.turn import TURN, Busy
from sublinear import fit, verify

# anomaly mode is one of the slow script's switches
pytestmark = [
    pytest.mark.filterwarnings("ignore:Error detected in"),
    pytest.mark.usefixtures("forked_python"),
]
ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("panel and Lab", "board", "diagnose", "sublinear")
NO_PAGE = "does not apply: it has no widgets"
NO_FILE = "does not apply: it writes no file"
MATRIX = {
    "a hundred stops": (
        "labkit/test_panel_runs.py::test_stop_a_hundred_times_leaves_no_trace",
        "test_fault_matrix.py::test_interrupts_at_any_moment",
        "test_fault_matrix.py::test_interrupts_at_any_moment",
        "test_fault_matrix.py::test_interrupts_at_any_moment",
    ),
    "interrupt": (
        "labkit/test_faults.py::test_a_kernel_interrupt_ends_a_headless_run_with_what_there_is "
        "test_fault_matrix.py::test_interrupts_at_any_moment",
        "course/test_board.py::test_interrupted_while_measuring "
        "course/test_board.py::test_a_race_that_is_interrupted_has_its_complete_seeds",
        "test_fault_matrix.py::test_interrupts_while_things_are_put_back",
        "sublinear/test_refusals.py::test_an_interrupted_profile_leaves_the_model_untouched "
        "test_fault_matrix.py::test_interrupts_while_things_are_put_back",
    ),
    "out of memory": (
        "labkit/test_lab.py::test_out_of_memory_while_building_and_in_the_memory_pass "
        "labkit/test_panel.py::test_an_arm_without_memory_is_a_result",
        "test_fault_matrix.py::test_a_switch_that_runs_out_of_memory",
        "test_fault_matrix.py::test_a_step_that_fails_is_told_and_changes_nothing",
        "sublinear/test_safe.py::test_a_step_that_does_not_fit_is_proven_on_a_part "
        "test_fault_matrix.py::test_a_model_that_fails_is_told_and_unchanged",
    ),
    "NaN loss": (
        "labkit/test_comparing.py::test_a_broken_training_is_not_compared "
        "labkit/test_racing.py::test_divergence_ends_a_run",
        "test_fault_matrix.py::test_a_switch_that_loses_its_numbers",
        "test_fault_matrix.py::test_a_loss_that_is_no_number_is_diagnosed_all_the_same",
        "test_fault_matrix.py::test_a_loss_that_is_no_number_is_planned_all_the_same",
    ),
    "killed worker": (
        "labkit/test_faults.py::test_a_killed_worker_is_named_and_leaves_nothing_behind "
        "labkit/test_remote.py::test_an_arm_that_dies_is_a_result",
        "course/test_board.py::test_killed_in_the_middle",
        "test_fault_matrix.py::test_a_killed_worker_ends_a_diagnosis",
        "test_fault_matrix.py::test_a_killed_probe_of_the_largest_batch",
    ),
    "damaged data": (
        "course/test_data.py::test_damaged_pack_is_made_again "
        "course/test_data_sources.py::test_flipped_byte_without_network_is_an_error",
        "course/test_board.py::test_a_damaged_or_older_file_is_put_aside "
        "test_fault_matrix.py::test_an_image_that_cannot_be_read",
        "test_fault_matrix.py::test_a_step_that_fails_is_told_and_changes_nothing",
        NO_FILE,
    ),
    "full disk": (
        "test_fault_matrix.py::test_a_full_disk_keeps_the_old_file "
        "test_fault_matrix.py::test_data_that_cannot_be_kept_are_used",
        "course/test_board.py::test_no_room_or_no_right_to_write "
        "test_fault_matrix.py::test_a_full_disk_keeps_the_old_file",
        "test_fault_matrix.py::test_a_step_that_fails_is_told_and_changes_nothing",
        NO_FILE,
    ),
    "two at a time": (
        "labkit/test_panel.py::test_one_panel_at_a_time "
        "browser/test_panel.py::test_second_panel_is_refused_and_can_stop_the_first",
        "course/test_board.py::test_two_kernels_lose_nothing_of_each_other "
        "test_fault_matrix.py::test_one_measurement_at_a_time",
        "test_fault_matrix.py::test_one_measurement_at_a_time",
        "test_fault_matrix.py::test_one_measurement_at_a_time",
    ),
    "sliders moved all the time": (
        "test_fault_matrix.py::test_a_hundred_moves_of_a_slider",
        "test_fault_matrix.py::test_a_hundred_clicks_of_keep_and_leave",
        NO_PAGE,
        NO_PAGE,
    ),
    "reload": (
        "browser/test_panel.py::test_page_reload_during_a_run "
        "labkit/test_panel.py::test_after_a_reload_the_panel_says_what_the_notebook_lacks",
        "test_fault_matrix.py::test_a_kernel_that_is_restarted_finds_what_was_kept",
        NO_PAGE,
        NO_PAGE,
    ),
    "run twice": (
        "browser/test_panel.py::test_run_shows_live_numbers_and_leaves_its_result_in_the_notebook "
        "test_fault_matrix.py::test_twice_is_once",
        "test_fault_matrix.py::test_a_board_cell_that_is_run_twice",
        "test_fault_matrix.py::test_twice_is_once",
        "test_fault_matrix.py::test_twice_is_once",
    ),
}


def names_in(path: Path) -> set[str]:
    """The names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_every_cell_has_its_test() -> None:
    named = set()
    for fault, cells in MATRIX.items():
        assert len(cells) == len(COLUMNS), fault
        for cell_text in cells:
            if cell_text.startswith("does not apply: "):
                continue
            for name in cell_text.split():
                path, _, test = name.partition("::")
                assert test in names_in(ROOT / "tests" / path), f"{fault}: there is no {name}"
                named.add(name)
    here = {name for name in names_in(Path(__file__)) if name.startswith("test_")}
    unnamed = here - {name.partition("::")[2] for name in named}
    assert unnamed == {"test_every_cell_has_its_test"}


# ------------------------------------------------------------------------------- what is kept


def plain(item: Any) -> Any:
    """State as something that can be compared."""
    if isinstance(item, torch.Tensor | np.ndarray):
        # nan would equal nothing
        return repr(item.tolist())
    if isinstance(item, dict):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [plain(each) for each in item]
    return repr(item)


class Trained:
    """A reader's training: what it holds, and one step of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.batches = [(torch.randn(8, 8), torch.randint(4, (8,))) for _ in range(4)]
        self.losses: list[float] = []
        self.step(self.batches[0])

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())
        random.random()
        return loss.detach()

    def state(self) -> Any:
        modules = [sorted(vars(each)) for each in self.model.modules()]
        gradients = [each.grad for each in self.model.parameters()]
        states = self.model.state_dict(), self.optimizer.state_dict()
        return plain([*states, gradients, self.losses, modules, self.model.training, around()])


def around() -> Any:
    """What a run must leave as it was, of the whole process."""
    # a worker's thread that has just been told to end
    ended = ("QueueFeederThread", "Thread-")
    names = [each.name for each in threading.enumerate() if not each.name.startswith(ended)]
    return plain(
        [rng_state(), torch_flags(), sorted(names), TURN.holder, sys.getprofile(), exchanged()]
    )


def exchanged() -> list[Any]:
    """What of torch's own a measurement hooks into or exchanges; and the alarm clock."""
    hooks = (
        module_hooks._global_forward_pre_hooks,
        module_hooks._global_forward_hooks,
        optimizer_hooks._global_optimizer_pre_hooks,
        optimizer_hooks._global_optimizer_post_hooks,
    )
    functions = (
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        torch.Tensor.zero_,
        torch.zeros_like,
        torch.save,
        DataLoader.__iter__,
        open,
    )
    clock = [signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)]
    return [*map(len, hooks), *map(id, functions), *clock]


@pytest.fixture
def training() -> Iterator[Trained]:
    with preserve_rng(), preserve_flags():
        yield Trained()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's board, which is not there yet."""
    path = tmp_path / "data" / "board.json"
    monkeypatch.setenv("LABKIT_BOARD", str(path))
    return path


def figure(switch: str, present: tuple[str, ...] = ()) -> Figure:
    return Figure(switch, "time", present, 2.0, (1.8, 2.2), "faster", 200.0)


def kept(path: Path) -> list[Any]:
    """What the reader kept, whole: a measurement saves its figure beside it."""
    machines = json.loads(path.read_text())["machines"].values()
    entries = (entry for machine in machines for entry in machine["switches"].items())
    return [entry for entry in entries if entry[1]["kept"]]


def keep(switch: str) -> None:
    """Keep a switch on the reader's board."""
    shown = Board()
    shown.latest = figure(switch)
    shown.keep()
    assert shown.said.startswith("Kept, in ")


# --------------------------------------------------------------------------------- interrupts


def count_calls(run: Callable[[], object], since: str = "") -> int:
    """How many Python functions a run calls, once all that it loads is there.

    ``since`` names one: only calls from its first one on count.
    """
    run()
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and (calls or since in ("", frame.f_code.co_name)):
            calls += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def interrupted(run: Callable[[], object], at: int, since: str = "") -> bool:
    """Run, with a KeyboardInterrupt at a call; whether it struck before the end."""
    calls = 0

    def strike(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and (calls or since in ("", frame.f_code.co_name)):
            calls += 1
        # Python takes a profiler away that raises: it strikes once
        if calls == at:
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        run()
    # A run may also end with what it has by then, or say that it was interrupted. No suppress():
    # its own end is a call, which would be struck outside of the run.
    except KeyboardInterrupt:
        assert calls == at
    finally:
        sys.setprofile(None)
    return calls == at


def make_products(size: int) -> Workload:
    torch.backends.cudnn.benchmark = True
    matrix = torch.ones(size, size)
    return Workload(lambda: (matrix @ matrix).sum())


PRODUCTS = Lab(make_products, size=[8, 16])


def watched(training: Trained) -> None:
    """A few steps in a with-block; what they train is put back, for it is no part of watching."""
    trained = preserve_state(training.model, training.optimizer, training.losses)
    # torch's own optimizers, interrupted, leave gradients off.
    with trained, preserve_rng(), preserve_flags():
        with whyslow.watch() as watched:
            for batch in DataLoader(training.batches, batch_size=None):
                training.step(batch)
        del watched
    sampler_ends()


def sampler_ends() -> None:
    """Wait for it: where an interrupt comes before it is told to, it ends at its next look."""
    ends = time.monotonic() + 5
    while "whyslow" in {thread.name for thread in threading.enumerate()}:
        assert time.monotonic() < ends, "a sampler goes on"
        time.sleep(0.002)


def runs(training: Trained) -> dict[str, Callable[[], object]]:
    """A short run of each."""
    inputs = training.batches[0][0]
    plan = fit(training.model, inputs, max_overhead=100.0, repeats=1).plan
    return {
        "lab": partial(PRODUCTS.run, size=16, seconds=0.02),
        "board": partial(board, "host_device_transfers", seconds=0.02),
        "diagnose": partial(whyslow.diagnose, training.step, training.batches, seconds=0.1),
        "watch": partial(watched, training),
        "fit": partial(fit, training.model, inputs, repeats=1),
        "verify": partial(verify, training.model, plan, inputs),
    }


def open_modes() -> list[object]:
    """Torch's modes and hooks: what stays would see all that the program computes later."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    modes = [*_get_current_dispatch_mode_stack(), *_get_current_function_mode_stack()]
    return modes + [hooks] * (hooks is not None)


def unharmed_by_interrupts(
    run: Callable[[], object], moments: list[int], state: Callable[[], Any], since: str = ""
) -> None:
    """Nothing is left behind by any of them, and the next run works."""
    before, struck = state(), 0
    for at in moments:
        struck += interrupted(run, at, since)
        sampler_ends()
        assert state() == before, f"changed by an interrupt at call {at}"
        assert not open_modes(), f"left open by an interrupt at call {at}"
    assert struck > len(moments) // 2
    run()
    assert state() == before


# what strikes in a finalizer Python itself swallows, and tells
swallowed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
KINDS = ("lab", "diagnose", "watch", "fit", "verify", "board")


@swallowed
@pytest.mark.parametrize("kind", KINDS)
def test_interrupts_at_any_moment(kind: str, training: Trained, path: Path) -> None:
    """Forty; fewer for a board, whose runs are long."""
    keep("as_tensor")
    run = runs(training)[kind]
    calls, chance = count_calls(run), random.Random(0)
    moments = [chance.randrange(1, calls) for _ in range({"board": 8}.get(kind, 40))]
    before = kept(path)
    unharmed_by_interrupts(run, moments, training.state)
    assert kept(path) == before and not list(path.parent.glob("*draft"))


@swallowed
@pytest.mark.parametrize("kind", ["diagnose", "verify"])
def test_interrupts_while_things_are_put_back(kind: str, training: Trained, path: Path) -> None:
    """At calls of what puts random numbers, switches and models back, which is the last of all."""
    run = runs(training)[kind]
    since = "restore" if kind == "diagnose" else ""
    calls = min(count_calls(run, since) for _ in range(3))
    moments = list(range(calls - 240, calls, 6))
    if since:
        # How many calls a diagnosis takes depends on the clock: some experiments more fit, or
        # fewer. Each of them is put back, so those of the first half are put back as well.
        moments = list(range(1, calls // 2, max(1, calls // 80)))
    unharmed_by_interrupts(run, moments, training.state, since)


# ------------------------------------------------------------------------ what a step may meet


def out_of_memory() -> None:
    torch.empty(2**55)


def damaged() -> None:
    speedrun.decode(b"no image")


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FAILURES = {
    "out of memory": (out_of_memory, RuntimeError, "memory|allocate"),
    "damaged data": (damaged, UnidentifiedImageError, "cannot identify image"),
    "full disk": (full_disk, OSError, "No space left"),
}


@pytest.mark.parametrize("fault", FAILURES)
@pytest.mark.parametrize("at", [0, 2], ids=["first step", "third step"])
def test_a_step_that_fails_is_told_and_changes_nothing(
    fault: str, at: int, training: Trained
) -> None:
    fail, error, words = FAILURES[fault]
    steps = 0

    def step(batch: Any) -> torch.Tensor:
        nonlocal steps
        steps += 1
        loss = training.step(batch)
        if steps > at:
            fail()
        return loss

    before = training.state()
    with pytest.raises(error, match=words) as told:
        # Time for three steps before the experiments, which may fail, on a busy machine, too.
        whyslow.diagnose(step, training.batches, seconds=2.0)
    assert "while diagnosing 'step'" in "".join(told.value.__notes__)
    assert (training.state(), steps) == (before, 0)
    assert whyslow.diagnose(training.step, training.batches, seconds=0.2).step_seconds > 0
    assert training.state() == before


class Failing(nn.Linear):
    """Fails in its backward, after all else has run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x)
        if result.requires_grad:
            result.register_hook(lambda gradient: out_of_memory())
        return result


def test_a_model_that_fails_is_told_and_unchanged(training: Trained) -> None:
    good, inputs = training.model[4], training.batches[0][0]
    failing = Failing(8, 4)
    before = training.state()
    training.model[4] = failing
    with pytest.raises(RuntimeError, match=r"memory|allocate"):
        fit(training.model, inputs, max_overhead=100.0, repeats=1)
    training.model[4] = good
    assert training.state() == before
    assert fit(training.model, inputs, max_overhead=100.0, repeats=1).proof
    assert training.state() == before


# ------------------------------------------------------------------------------- lost numbers


def test_a_loss_that_is_no_number_is_diagnosed_all_the_same(training: Trained) -> None:
    before = training.state()

    def step(batch: Any) -> torch.Tensor:
        return training.step(batch) * float("nan")

    found = whyslow.diagnose(step, training.batches, seconds=2)
    assert any("returned nan: its training is broken" in why for why in found.unmeasured.values())
    assert training.state() == before


def test_a_loss_that_is_no_number_is_planned_all_the_same(training: Trained) -> None:
    inputs = training.batches[0][0] * float("nan")
    before = training.state()
    fitted = fit(training.model, inputs, max_overhead=100.0, repeats=1)
    assert "bit by bit" in fitted.proof
    assert verify(training.model, fitted.plan, inputs).passed
    assert training.state() == before


# ---------------------------------------------------------------------------------- the board


def spoil(monkeypatch: pytest.MonkeyPatch, switch: str, fail: Callable[[], float]) -> None:
    """Where the switch is on, each epoch of the speedrun calls ``fail`` for its loss."""
    train = measure.train

    def spoiled(switches: Any = (), task: Any = TASK, seed: int = 0) -> Iterator[Any]:
        for seconds, accuracy, loss in train(switches, task, seed):
            yield seconds, accuracy, fail() if switch in switches else loss

    monkeypatch.setattr(measure, "train", spoiled)


@pytest.mark.parametrize("switch", ["host_device_transfers", "gradient_clipping"])
def test_a_switch_that_runs_out_of_memory(
    switch: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("as_tensor")
    kept, before = path.read_bytes(), around()
    with monkeypatch.context() as patch:
        spoil(patch, switch, lambda: torch.empty(2**55).item())
        shown = board(switch, seconds=0.02)
    assert shown.latest is None
    assert f"{switch} was not measured: " in str(shown) and "ended: out of memory" in str(shown)
    assert (path.read_bytes(), around()) == (kept, before)
    assert board(switch, seconds=0.02).latest is not None


def test_a_switch_that_loses_its_numbers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("as_tensor")
    kept, before = path.read_bytes(), around()
    with monkeypatch.context() as patch, pytest.raises(FloatingPointError, match="returned nan"):
        spoil(patch, "host_device_transfers", lambda: math.nan)
        board("host_device_transfers", seconds=0.02)
    assert (path.read_bytes(), around()) == (kept, before)
    assert board("host_device_transfers", seconds=0.02).latest is not None


def test_an_image_that_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("as_tensor")
    kept, before = path.read_bytes(), around()
    read = speedrun.read

    def damaged_read(train: bool, size: int) -> Any:
        images, labels = read(train=train, size=size)
        return np.array([b"no image", *images[1:]], dtype=object), labels

    with monkeypatch.context() as patch:
        patch.setattr(speedrun, "read", damaged_read)
        with pytest.raises(UnidentifiedImageError, match="cannot identify image"):
            board("host_device_transfers", seconds=0.02)
    assert (path.read_bytes(), around()) == (kept, before)
    assert board("host_device_transfers", seconds=0.02).latest is not None


def test_a_hundred_clicks_of_keep_and_leave(path: Path) -> None:
    keep("as_tensor")
    shown = Board()
    for number in range(100):
        shown.latest = figure(("optimizers", "compile")[number % 2], ("as_tensor",))
        (shown.keep if number % 4 < 2 else shown.leave)()
    assert set(Board().choices.made) == {"as_tensor", "optimizers", "compile"}
    assert Board().choices.switches == ("as_tensor",)
    assert [each.name for each in path.parent.glob("*.json")] == ["board.json"]


def test_a_kernel_that_is_restarted_finds_what_was_kept(path: Path) -> None:
    keep("as_tensor")
    shown = Board()
    # measured, and the page went away before a choice
    shown.latest = figure("optimizers")
    assert Board().choices.switches == ("as_tensor",) and Board().latest is None
    # its buttons still work: they belong to the kernel
    shown.keep()
    assert Board().choices.switches == ("as_tensor", "optimizers")


def test_a_board_cell_that_is_run_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(switch: str, present: tuple[str, ...], *_: Any, **__: Any) -> Figure:
        asked.append(present)
        return figure(switch, present)

    monkeypatch.setattr(cell, "measure", measured)
    for _ in range(2):
        board("as_tensor", seconds=1).keep()
    once = path.read_text()
    board("as_tensor", seconds=1).keep()
    assert path.read_text() == once and Board().choices.switches == ("as_tensor",)
    assert len(asked) == 3


# -------------------------------------------------------------------------- killed, and cut off


# Batches are plain numbers: the memory of a tensor may be gone with the worker that lent it.
KILLED = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import whyslow
from tests.test_fault_matrix import Trained

class Fatal(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return [0.1 * index] * 8, index % 4

training = Trained()
before = training.state()

def step(batch):
    inputs, targets = zip(*batch)
    return training.step((torch.tensor(inputs), torch.tensor(targets)))

loader = DataLoader(Fatal(), batch_size=8, num_workers=1, collate_fn=list)
try:
    whyslow.diagnose(step, loader, seconds=1)
except RuntimeError as error:
    assert "DataLoader worker" in str(error), error
    assert "while diagnosing" in "".join(error.__notes__)
    print("told")
for _ in range(20):
    try:
        time.sleep(0.02)
    except RuntimeError as straggler:
        # torch's handler of SIGCHLD may raise once more
        assert "DataLoader worker" in str(straggler)
assert training.state() == before
assert whyslow.diagnose(training.step, training.batches, seconds=0.3).step_seconds > 0
print("as before")
"""


def python(code: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own: torch tells of dead workers from a signal handler."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_a_killed_worker_ends_a_diagnosis() -> None:
    done = python(KILLED)
    assert done.stdout.split("\n")[:2] == ["told", "as before"], done.stderr


def make_fatal(batch_size: int) -> Workload:
    if batch_size > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Workload(lambda: torch.zeros(()), batch_size)


def test_a_killed_probe_of_the_largest_batch() -> None:
    """It is named, and may have been for want of memory; the next search works."""
    with pytest.raises(ArmDied, match=r"'batch 2' was ended by SIGKILL .*short of memory") as told:
        search_batch(lambda batch: try_batch(make_fatal, batch, None), limit=2)
    # What was found until then is not lost.
    [note] = told.value.__notes__
    assert "while batch 2 was tried" in note and re.search(r"batch 1: .* allocated", note)
    assert search_batch(lambda batch: try_batch(make_fatal, batch, None), limit=1).trials[0].fits


FULL = """
import resource, signal, sys
from pathlib import Path
from course.board import Board
from course.written import write_whole
from tests.test_fault_matrix import figure

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1])
try:
    write_whole(path, "new" * 100)
except OSError as error:
    print(error.strerror)
shown = Board()
shown.latest = figure("optimizers")
shown.keep()
print(shown.said)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is of POSIX")
def test_a_full_disk_keeps_the_old_file(path: Path, tmp_path: Path) -> None:
    keep("as_tensor")
    kept = path.read_bytes()
    (tmp_path / "old.txt").write_text("old")
    command = [sys.executable, "-c", FULL, tmp_path / "old.txt"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    first, second = done.stdout.splitlines()
    assert first == os.strerror(errno.EFBIG)
    assert second.startswith("Kept in this cell, but not saved.") and first in second
    assert (tmp_path / "old.txt").read_text() == "old" and path.read_bytes() == kept
    left = {each.name for each in tmp_path.rglob("*") if each.is_file()}
    assert left - {".board.json.lock"} == {"old.txt", "board.json"}
    keep("optimizers")
    assert Board().choices.switches == ("as_tensor", "optimizers")


def test_data_that_cannot_be_kept_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(data, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(data, "write_whole", lambda *_: full_disk())
    samples, labels = np.arange(6.0), np.arange(6)
    got = data._packed("six", lambda: (samples, labels))
    assert got[0] is samples and got[1] is labels
    said = capsys.readouterr().err
    assert "six" in said and "No space left" in said and "made again" in said
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ at once, always, and again


def test_one_measurement_at_a_time(training: Trained, path: Path) -> None:
    keep("as_tensor")
    fitted = fit(training.model, training.batches[0][0], max_overhead=100.0, repeats=1)
    begun, ended = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with measuring(None):
            begun.set()
            ended.wait(60)

    other = threading.Thread(target=elsewhere)
    whole, chosen, before = path.read_bytes(), kept(path), training.state()
    calls = (
        partial(PRODUCTS.run, seconds=0.02),
        partial(board, "host_device_transfers", seconds=0.02),
        partial(board, "gradient_clipping", seconds=0.02),
        partial(whyslow.diagnose, training.step, training.batches, seconds=0.1),
        partial(fitted.measure, seconds=0.02),
    )
    other.start()
    assert begun.wait(60)
    try:
        for call in calls:
            with pytest.raises(Busy, match="another measurement is running"):
                call()
    finally:
        ended.set()
        other.join()
    assert (path.read_bytes(), training.state()) == (whole, before)
    for call in calls:
        call()
    assert (kept(path), training.state()) == (chosen, before)


def test_a_hundred_moves_of_a_slider() -> None:
    panel = LabPanel(Lab(make_products, memory=False, size=list(range(8, 17))), seconds=0.05)
    before = around()
    panel.run(wait=True)
    slider, chance = panel.controls["size"].candidate, random.Random(0)
    for _ in range(100):
        slider.value = chance.randrange(8, 17)
        time.sleep(chance.random() * 0.02)
    slider.value = 8
    slider.value = 15
    result = panel.wait(60)
    assert isinstance(result, Comparison) and result.candidate.settings == {"size": 15}
    assert panel.history[-1] is result
    assert all(not each.stopped and each.ratios for each in panel.history)
    panel.close()
    assert around() == before


@pytest.mark.parametrize("kind", ["lab", "diagnose", "fit", "verify"])
def test_twice_is_once(kind: str, training: Trained, path: Path) -> None:
    run, before = runs(training)[kind], training.state()
    found = [type(run()) for _ in range(2)]
    assert found[0] is found[1] and training.state() == before
