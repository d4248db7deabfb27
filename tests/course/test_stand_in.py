"""The device that a second core plays, and the host's part of an update."""

import threading
from dataclasses import replace

import pytest
import torch

from course import stand_in
from course.probe import Abilities
from course.stand_in import DEVICES, PIECE, Preparing, SecondCore, ThisCore, on_this_machine
from labkit.results import Measurement


@pytest.fixture(params=[ThisCore, SecondCore])
def device(request):
    made = request.param()
    yield made
    made.close()


def test_calls_are_done_in_order_and_the_last_one_s_value_is_read(device):
    done = []
    for number in range(20):
        device.submit(done.append, number)
    device.submit(pow, 2, 5)
    assert device.read() == 32
    assert done == list(range(20))


def test_the_second_core_works_beside_this_one():
    device, gate = SecondCore(), threading.Event()
    device.submit(gate.wait, 10)
    assert not gate.is_set()
    gate.set()
    assert device.read() is True
    before = threading.active_count()
    device.close()
    assert threading.active_count() == before - 1


def test_an_error_comes_with_the_next_read_and_drops_what_is_behind():
    device, behind = SecondCore(), []
    device.submit(pow, 0, -1)
    device.submit(behind.append, 1)
    with pytest.raises(ZeroDivisionError):
        device.read()
    assert behind == []
    device.submit(pow, 2, 3)
    assert device.read() == 8
    device.close()


def test_the_thread_computes_with_as_many_threads_as_the_lab_says():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        device = SecondCore()
        device.submit(lambda: (torch.ones(512, 512).sum(), torch.get_num_threads()))
        assert device.read()[1] == 1
        device.close()
    finally:
        torch.set_num_threads(before)


def test_a_batch_is_the_normalized_cut_of_the_pictures():
    pixels = torch.randint(256, (4, 48), dtype=torch.uint8)
    batch = torch.empty(4, 48)
    for seconds in (0.0, 1e-4):
        assert Preparing(pixels, seconds)(batch) is batch
        torch.testing.assert_close(batch, (pixels.float() - 127.5) / 64)


def test_preparing_is_the_timed_piece_so_many_times(monkeypatch):
    """Pictures of one width for all: those beyond a core's cache take longer a column."""
    pieces = []
    monkeypatch.setattr(stand_in, "_normalize", lambda pictures, _: pieces.append(pictures.shape))

    def measured(step, seconds):
        step()
        return Measurement("a piece", times=(0.002, 0.001))

    monkeypatch.setattr(stand_in, "measure", measured)
    pixels = torch.randint(256, (32, 1024), dtype=torch.uint8)
    Preparing(pixels, 0.0035)(torch.empty(32, 1024))
    assert pieces == [(32, PIECE)] * 4 + [(32, PIECE // 2)]


def test_each_machine_has_a_device_and_says_why_another_cannot_play_it():
    two = Abilities(bf16=False, bf16_speedup=1.0, cores=2, gpu=False, compiler=False)
    one, gpu = replace(two, cores=1), replace(two, cores=1, gpu=True)
    for has, first in ((two, "second core"), (one, "this core"), (gpu, "GPU")):
        players, unavailable = on_this_machine(has)
        assert players[0] == first and first in DEVICES
        assert set(players) <= {*DEVICES, "yours"}
        assert first not in unavailable["played_by"] and "yours" in unavailable["played_by"]
        assert set(unavailable) == {"played_by"}
    assert on_this_machine(one)[1]["played_by"]["second core"] == "this machine has one core"
