"""Faults from outside, an interrupt or a killed worker: all is as it was, the next run works."""

import threading

import pytest
from jupyter_client.manager import KernelManager

HEADLESS = """
import torch, threading
from labkit import Lab, Workload
from labkit.restore.switches import torch_flags

def make_workload(size):
    torch.backends.cudnn.benchmark = True
    matrix = torch.ones(size, size)
    return Workload(lambda: (matrix @ matrix).sum())

lab = Lab(make_workload, size=[32, 64])

def state():
    # IPython's own thread of its history ends when it likes.
    names = {thread.name for thread in threading.enumerate()}
    threads = {name for name in names if "History" not in name}
    return torch_flags(), torch.get_rng_state().tolist(), threads

before = state()
print("ready", flush=True)
result = lab.run(size=64, seconds=%s)
assert state() == before
print(result.stopped, len(result.ratios) > 0, result.candidate.error, flush=True)
"""


@pytest.fixture
def kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(client, code, on_text=lambda text: None):
    """All that a cell printed; an error in the cell is raised."""
    request, printed = client.execute(code), ""
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            printed += content["text"]
            on_text(content["text"])
        elif kind == "error":
            raise AssertionError("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return printed


def test_a_kernel_interrupt_ends_a_headless_run_with_what_there_is(kernel):
    manager, client = kernel

    def interrupt_soon(text):
        if "ready" in text:
            threading.Timer(2.5, manager.interrupt_kernel).start()

    # An hour's budget, unless precision ends it: a step this slow keeps that from being early.
    slow = HEADLESS.replace(
        "lambda: (matrix @ matrix).sum()", "lambda: __import__('time').sleep(0.1)"
    )
    assert "True True None" in run_cell(client, slow % 3600, interrupt_soon)
    assert "False True None" in run_cell(
        client, HEADLESS % 0.2
    )  # the next run works, in the same kernel


LOADING = """
import os, signal, torch
from torch.utils.data import DataLoader, TensorDataset
from labkit import Workload

class Fatal(TensorDataset):
    def __getitem__(self, index):
        if index == 0:  # as the system's out-of-memory killer would have it
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

def make_loading(fatal):
    data = (Fatal if fatal else TensorDataset)(torch.arange(40.0))
    loader = DataLoader(data, batch_size=4, num_workers=1)
    return Workload(lambda: sum(batch.sum() for (batch,) in loader), len(data))
"""

KILLED = """
import gc, multiprocessing, sys, threading, time, traceback
sys.path.insert(0, {folder!r})
import torch
from loading import make_loading
from labkit import Lab
from labkit.restore.switches import torch_flags

def state():
    # IPython's own thread of its history ends when it likes.
    names = {{thread.name for thread in threading.enumerate()}}
    threads = {{name for name in names if "History" not in name}}
    return torch_flags(), torch.get_rng_state().tolist(), threads

lab, before, said = Lab(make_loading, memory=False, fatal=[False, True]), state(), ""
try:
    try:
        lab.run(fatal=True, seconds=0.2)
    except RuntimeError as error:
        # With what it came from, should it have struck twice.
        said = "".join(traceback.format_exception(error))
        time.sleep(0.5)
    gc.collect()
except RuntimeError as straggler:
    # torch's handler of SIGCHLD raises once more while it remembers the dead worker.
    assert "DataLoader worker" in str(straggler)
assert "DataLoader worker" in said and "(while measuring 'fatal=True')" in said, said
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    try:
        gc.collect()
        if not multiprocessing.active_children():
            break
        time.sleep(0.05)
    except RuntimeError as straggler:
        assert "DataLoader worker" in str(straggler)
assert not multiprocessing.active_children()
assert state() == before, [(a, b) for a, b in zip(state(), before, strict=True) if a != b]
print("as before", flush=True)
"""


def test_a_killed_worker_is_named_and_leaves_nothing_behind(kernel, tmp_path):
    """In a kernel: torch tells of it from a signal handler, which would strike pytest as well."""
    (tmp_path / "loading.py").write_text(LOADING)
    _, client = kernel
    assert run_cell(client, KILLED.format(folder=str(tmp_path))).endswith("as before\n")
    assert run_cell(client, "print(len(lab.run(seconds=0.2).baseline.times) >= 2)").endswith(
        "True\n"
    )
