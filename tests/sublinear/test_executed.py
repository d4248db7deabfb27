"""The functions that run, seen by a profiler of Python's."""

import cProfile
import gc
import pstats
import random
import sys

from sublinear.blocks.executed import watching


def test_functions_that_run_are_seen_and_another_profiler_goes_on() -> None:
    def inner() -> None:
        pass

    def outer() -> int:
        inner()
        return random.randint(1, 2)

    seen: list[str] = []
    profiler = cProfile.Profile()
    with profiler:
        with watching(lambda frame: seen.append(frame.f_code.co_name)):
            outer()
            assert not gc.isenabled()
        outer()
    assert seen[:2] == ["outer", "inner"] and "randint" not in seen
    assert sys.getprofile() is None and gc.isenabled()
    calls = {key[2]: figures[1] for key, figures in pstats.Stats(profiler).stats.items()}
    assert calls["outer"] >= 1
