"""The tank over time, noted by a watched device and drawn: notebook 10's picture."""

import time
import xml.etree.ElementTree as ET

import pytest

from course.measured import tank
from course.measured.tank import Job, Round, Tanks
from course.stand_in import SecondCore, ThisCore
from labkit import Lab, Workload

# Two steps, queued at 1 and 2, worked off from 1 to 3 and from 3 to 5.
ROUND = Round((Job(1, 1, 3, 1), Job(2, 3, 5, 2)), ((2, 5),), 6)


def test_the_level_jumps_when_a_step_is_queued_and_drains_evenly():
    levels = [ROUND.level(moment) for moment in (0, 1, 1.5, 2, 3, 4, 5, 6)]
    assert levels == [0, 1, 0.75, 1.5, 1, 0.5, 0, 0]
    assert ROUND.lit == pytest.approx(4 / 6)


def test_the_host_prepares_from_where_it_was_free_until_it_queues():
    assert ROUND.prepares == [(0, 1), (1, 2)]
    # Behind a read; and on one core, where a call is done before the host goes on.
    read = Round((Job(1, 1, 2, 1), Job(3, 3, 5, 3)), ((1, 2), (3, 5)), 5)
    assert read.prepares == [(0, 1), (2, 3)]
    alone = Round((Job(1, 1, 2, 2), Job(3, 3, 5, 5)), ((5, 5),), 5)
    assert alone.prepares == [(0, 1), (2, 3)]


def nap():
    time.sleep(0.01)
    return "rested"


def test_a_second_core_has_a_queue_and_this_core_has_none():
    levels = []
    for kind in (SecondCore, ThisCore):
        tanks = Tanks()
        device = tanks.watch(kind(), 3, device=kind.__name__)
        for _ in range(3):
            device.submit(nap)
        assert device.read() == "rested"
        device.close()
        found = tanks.of({"device": kind.__name__, "read_every": 1})
        assert len(found.jobs) == 3 and len(found.waits) == 1
        assert all(job.queued <= job.begin < job.end <= found.seconds for job in found.jobs)
        levels.append(max(found.level(job.queued) for job in found.jobs))
    assert levels[0] > 2 and levels[1] == 1


def test_a_round_ends_with_the_read_behind_its_last_update():
    tanks = Tanks()
    device = tanks.watch(ThisCore(), 2, read_every=1)
    for number in range(5):
        assert len(tanks._rounds[("read_every", 1),]) == number // 2
        device.submit(pow, number, 2)
        assert device.read() == number**2
    found = tanks.of({"read_every": 1})
    assert len(found.jobs) == len(found.waits) == 2
    assert tanks.of({"read_every": 2}) is None


def test_the_round_that_took_most_nearly_as_long_is_chosen():
    tanks = Tanks()
    device = tanks.watch(ThisCore(), 1, read_every=1)
    for pause in (0.0, 0.05, 0.0):
        device.submit(time.sleep, pause)
        device.read()
    assert tanks.of({"read_every": 1}, 0.05).seconds >= 0.05
    assert tanks.of({"read_every": 1}).seconds < 0.05


def test_sides_are_named_by_what_they_differ_in():
    def make(read_every, played_by, copies):
        return Workload(lambda: None)

    lab = Lab(
        make,
        read_every=[1, 2],
        copies=["pageable", "pinned"],
        situation={"played_by": ["second core"]},
        memory=False,
    )
    result = lab.run(read_every=2, seconds=0.05)
    assert tank._names(result) == ["read every update", "read every 2 updates"]
    result = lab.run(copies="pinned", seconds=0.05)
    assert tank._names(result) == ["copies pageable", "copies pinned"]
    result = lab.run(seconds=0.05)
    assert tank._names(result) == ["baseline", "candidate"]


def test_both_sides_of_a_run_are_drawn():
    tanks = Tanks()

    def make(read_every):
        device = tanks.watch(SecondCore(), 4, read_every=read_every)

        def step():
            for number in range(1, 5):
                device.submit(time.sleep, 0.001)
                if number % read_every == 0:
                    device.read()

        return Workload(step, close=device.close)

    lab = Lab(make, read_every=[1, 4], memory=False)
    result = lab.run(read_every=4, seconds=0.2)
    root = ET.fromstring(tank.of(tanks)(result))
    words = root.get("aria-label")
    assert words.count("an update, busy") == 2
    assert "read every update: " in words and "read every 4 updates: " in words
    kinds = [node.get("class") for node in root.iter("{http://www.w3.org/2000/svg}rect")]
    # A lamp per update and a wait per read, and each once in the legend.
    assert kinds.count("k-fill k-arm3") == 4 + 4 + 1
    assert kinds.count("k-band k-candidate") == 4 + 4 + 1
    assert kinds.count("k-fill k-slower") == 4 + 1 + 1
    # Of the level's ticks only the least and the most, on both sides.
    ticks = [text for text in root.itertext() if text.isdecimal()]
    most = str(max(map(int, ticks)))
    assert ticks.count("0") == 3 and ticks.count(most) == 2 and len(ticks) == 5
    assert len([text for text in root.itertext() if text.endswith(" per update")]) == 2
    assert tank.of(Tanks())(result) == ""
    assert tank.of(tanks)("no comparison") == ""
