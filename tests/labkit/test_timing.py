"""`labkit.Timer` against d2l's own class."""

import time

import pytest

from labkit import Timer


@pytest.fixture
def clock(monkeypatch):
    """A clock that both classes read, so that they must agree to the last digit."""
    now = [100.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_same_figures_as_d2l(clock):
    d2l = pytest.importorskip(
        "d2l.torch", reason="d2l is not installed: it comes with the course's dependency group"
    )
    ours, theirs = Timer(), d2l.Timer()
    for pause in (0.25, 1.5, 0.125):
        for timer in (ours, theirs):
            timer.start()
        clock[0] += pause
        assert ours.stop() == theirs.stop() == pause
    assert ours.times == theirs.times
    assert ours.avg() == theirs.avg()
    assert ours.sum() == theirs.sum()
    assert ours.cumsum() == theirs.cumsum()
    assert {name for name in dir(theirs) if not name.startswith("_") and name != "tik"} <= set(
        dir(ours)
    )


def test_starts_on_creation(clock):
    timer = Timer()
    clock[0] += 2
    assert timer.stop() == 2


def test_context_manager_records_each_block_even_a_failing_one(clock):
    timer = Timer()
    with timer:
        clock[0] += 1
    with pytest.raises(RuntimeError, match="inside"), timer:
        clock[0] += 3
        raise RuntimeError("inside")
    assert timer.times == [1, 3]


def test_average_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="nothing was recorded"):
        Timer().avg()


def test_sync_waits_for_the_device_at_both_ends(monkeypatch):
    calls = []
    monkeypatch.setattr("labkit.timing.synchronize", lambda: calls.append("sync"))
    with Timer(sync=True):
        pass
    # creation, start, stop.
    assert len(calls) == 3
    with Timer():
        pass
    assert len(calls) == 3
