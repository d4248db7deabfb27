"""The explorables in a real browser: their models against Python's, then operated in JupyterLab
and on a page without a kernel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from course.explorables.explorable import module

pytestmark = pytest.mark.browser


class Model:
    """The functions that an explorable's module exports, called in the browser."""

    def __init__(self, page: Page, name: str) -> None:
        self.page, self.name = page, name
        page.evaluate(
            """async ([name, source]) => {
                const blob = new Blob([source], {type: 'text/javascript'});
                window[name] = await import(URL.createObjectURL(blob));
            }""",
            [name, module(name)],
        )

    def __call__(self, function: str, *arguments: Any) -> Any:
        call = "([name, function_, given]) => window[name][function_](...given)"
        return self.page.evaluate(call, [self.name, function, list(arguments)])

    def value(self, name: str) -> Any:
        return self.page.evaluate("([module, name]) => window[module][name]", [self.name, name])


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


# ------------------------------------------------------------------------------------------ models


def test_roofline_is_the_formula(blank: Page) -> None:
    model = Model(blank, "roofline")
    machines = model.value("MACHINES")
    assert set(machines) == {"avx2", "amx", "gpu8", "h100"}
    limits = set()
    for name, form, width, rows, fixed in product(
        machines, ("fp32", "bf16", "fp16"), (64, 512, 8192), (32, 1024), (0, 1e-5)
    ):
        state = {"machine": name, "format": form, "width": width, "rows": rows, "fixed": fixed}
        found = model("layer", state)
        machine, size = machines[name], 4 if form == "fp32" else 2
        work = 2 * rows * width**2
        moved = size * (width * width + rows * width + rows * width)
        useful = max(work / machine["peak"][form], moved / machine["bandwidth"])
        assert found["seconds"] == pytest.approx(fixed + useful)
        assert found["intensity"] == pytest.approx(work / moved)
        assert found["rate"] == pytest.approx(work / (fixed + useful))
        assert found["rate"] <= found["roof"] <= machine["peak"][form] * (1 + 1e-12)
        assert (found["limit"] == "fixed cost") == (fixed > useful)
        limits.add(found["limit"])
    assert limits == {"fixed cost", "arithmetic", "memory"}
    # Nothing is gained where the fixed cost is nearly all, twice where bytes are.
    tiny = {"machine": "h100", "format": "bf16", "rows": 32, "fixed": 1e-4}
    assert model("speedup", tiny, 64) < 1.01
    assert model("speedup", {**tiny, "fixed": 0}, 64) == pytest.approx(2)


class Mulberry32:
    """The explorables' random numbers, in Python."""

    def __init__(self, seed: int) -> None:
        self.state = seed & 0xFFFFFFFF

    def uniform(self) -> float:
        self.state = (self.state + 0x6D2B79F5) & 0xFFFFFFFF
        mixed = (self.state ^ (self.state >> 15)) * (self.state | 1) & 0xFFFFFFFF
        mixed ^= (mixed + ((mixed ^ (mixed >> 7)) * (mixed | 61) & 0xFFFFFFFF)) & 0xFFFFFFFF
        return ((mixed ^ (mixed >> 14)) & 0xFFFFFFFF) / 2**32

    def normal(self) -> float:
        first, second = self.uniform(), self.uniform()
        return math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)


def timed(plan: str, runs: int, drift: float, noise: float, planted: float, seed: int) -> Any:
    """Pairs of program and milliseconds, as the explorable simulates them."""
    shape = Mulberry32(seed)
    waves, phase = 0.3 + 0.5 * shape.uniform(), shape.uniform()
    rest = Mulberry32(seed + 1000003)
    programs = "A" * runs + "B" * runs if plan == "sequence" else "ABBA" * (runs // 2)
    taken = []
    for place, program in enumerate(programs):
        wave = 0.5 * math.sin(2 * math.pi * (waves * (place + 0.5) / len(programs) + phase))
        length = 10 if program == "A" else 10 * (1 + planted)
        taken.append((program, length * (1 + drift * wave) * (1 + noise * rest.normal())))
    return taken


def interval(plan: str, taken: Any) -> tuple[float, float]:
    """The 95 % interval of B - A over A, with scipy's quantiles."""
    from scipy import stats

    a = [time for program, time in taken if program == "A"]
    b = [time for program, time in taken if program == "B"]
    if plan == "sequence":
        half = stats.t.ppf(0.975, 2 * len(a) - 2)
        half *= math.sqrt((statistics.variance(a) + statistics.variance(b)) / len(a))
    else:
        times = iter([time for _, time in taken])
        fours = zip(times, times, times, times, strict=True)
        inside = [(second + third - first - last) / 2 for first, second, third, last in fours]
        half = stats.t.ppf(0.975, len(inside) - 1)
        half *= math.sqrt(statistics.variance(inside) / len(inside))
    middle = statistics.mean(b) - statistics.mean(a)
    return (middle - half) / statistics.mean(a), (middle + half) / statistics.mean(a)


@pytest.mark.parametrize("plan", ["sequence", "turn"])
def test_noisy_timing_is_seeded_and_its_interval_right(blank: Page, plan: str) -> None:
    model = Model(blank, "noisy_timing")
    for seed in range(6):
        settings = {"plan": plan, "runs": [8, 20, 40][seed % 3], "seed": seed}
        settings |= {"drift": 0.04 * seed, "noise": 0.02, "planted": 0.01 * (seed % 2)}
        taken = timed(**settings)
        found = model("experiment", settings)
        assert [run["program"] for run in found] == [program for program, _ in taken]
        assert [run["time"] for run in found] == pytest.approx([time for _, time in taken])
        told = model("verdict", plan, found)
        low, high = interval(plan, taken)
        assert (told["low"], told["high"]) == pytest.approx((low, high), abs=2e-5)
        expected = "B slower" if low > 0 else "B faster" if high < 0 else "no difference"
        assert told["claim"] == expected


def test_noisy_timing_teaches_what_it_says(blank: Page) -> None:
    """Equal programs: drift misleads one order and not the other; both are right without it."""
    model = Model(blank, "noisy_timing")

    def claimed(plan: str, **changes: Any) -> int:
        settings = {"plan": plan, "runs": 20, "drift": 0.06, "noise": 0.02, "planted": 0, "seed": 5}
        claims = model("claims", settings | changes)
        assert len(claims) == 200
        return sum(claim != "no difference" for claim in claims)

    assert claimed("sequence") > 100
    assert claimed("turn") < 25
    assert claimed("sequence", drift=0) < 25
    assert claimed("turn", planted=0.05) > 180
    assert model("judge", "B slower", 0) == model("judge", "B faster", 0.01) == "wrong"
    assert model("judge", "B slower", 0.01) == "right"
    assert model("judge", "no difference", 0.01) == "missed"
