"""Bytes of a stretch of code, and of a part of it."""

import gc

import torch

from sublinear.probe import Phase, probing


def test_a_phase_has_a_peak_of_its_own() -> None:
    with probing(torch.device("cpu")) as probe:
        first = torch.ones(1000)
        del first
        second = torch.ones(100)
        phase = Phase(probe)
        phase.begin()
        third = torch.ones(10)
        del third
        phase.end()
        assert second.sum() == 100
    assert (phase.before, phase.peak, phase.above) == (400, 440, 40)


def test_without_phases_all_counts() -> None:
    older = torch.ones(50)
    with probing(torch.device("cpu")) as probe:
        first = torch.ones(1000)
        assert older.sum() == 50
        del first
        second = torch.ones(100)
        assert probe.added == 400
        assert probe.peak >= 4000
        del second
        assert probe.added == 0


def test_a_phase_may_end_in_a_hook_and_again_later() -> None:
    with probing(torch.device("cpu")) as probe:
        phase = Phase(probe)
        phase.begin()
        first = torch.ones(100)
        phase.end()
        assert phase.above == 400
        second = torch.ones(200)
        phase.end()
        assert phase.above == 1200
        del first, second


def test_no_garbage_is_collected_meanwhile() -> None:
    gc.enable()
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with probing(torch.device("cpu")) as probe:
            cycle: list[object] = [torch.ones(100)]
            cycle.append(cycle)
            del cycle
            assert len([[] for _ in range(10_000)]) == 10_000
            assert probe.added == 400
    finally:
        gc.set_threshold(*thresholds)
    assert gc.isenabled()
