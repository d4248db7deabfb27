"""The explorables in a real browser: their models against Python's, then operated in JupyterLab
and on a page without a kernel.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from course import explorables
from course.explorables.explorable import alive, module
from course.notebook_files import ROOT
from course.searches.splits import from_splits
from course.site import pages, stills
from sublinear.chain import Around, Block, Chain, Option

from .harness import JupyterServer, NotebookPage
from .test_accessible import in_both_themes

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


# ------------------------------------------------------------------------------------------ models


def test_roofline_is_the_formula(blank: Page) -> None:
    model = Model(blank, "roofline")
    machines = model.value("MACHINES")
    assert set(machines) == {"avx2", "amx", "gpu8", "h100"}
    limits = set()
    for name, form, width, rows, fixed in product(
        machines, ("fp32", "bf16"), (64, 512, 8192), (32, 1024), (0, 1e-5)
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
    # The narrowest of the bet's widths that gains enough, on the GPU that the question names.
    opens = model.value("OPENS")
    assert opens["machine"] == "gpu8"
    enough = [width for width in model.value("BETS") if model("speedup", opens, width) >= 1.5]
    for name in machines:
        assert model("answer", {**opens, "machine": name}) == enough[:1] == [512]
    assert model("speedup", {**opens, "machine": "avx2"}, 8192) < 1


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
        assert (told["low"], told["high"]) == pytest.approx((low, high), abs=1e-4)
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
    assert model("judge", "B slower", 0.01, "B slower") == "luck"
    assert model("judge", "B slower", 0.01, "B faster") == "right"
    assert model("judge", "no difference", 0.01) == "missed"


def test_a_small_difference_is_found_in_turn_and_by_luck_one_after_the_other(blank: Page) -> None:
    """Claims that are only true by luck would praise the wrong order."""
    model = Model(blank, "noisy_timing")
    for planted in (0.005, 0.01, 0.02):
        state = {**model.value("OPENS"), "planted": planted, "runs": 20}
        found = {
            plan: Counter(model("judgements", {**state, "plan": plan}))
            for plan in ("sequence", "turn")
        }
        told = model("claims", {**state, "plan": "sequence"})
        sequence, turn = found["sequence"], found["turn"]
        assert sequence["right"] + sequence["luck"] == told.count("B slower")
        assert sequence["wrong"] == told.count("B faster") > 20
        assert sequence["luck"] > 3 * turn["luck"] and turn["wrong"] < 5
        assert turn["right"] > sequence["right"]


def takes(lengths: list[float], train: float, workers: int, prefetch: int) -> list[float]:
    """When training takes each batch: the pipeline as events in order of time."""
    queues: list[deque[int]] = [deque() for _ in range(workers)]
    busy = [False] * workers
    events: list[tuple[float, str, int]] = []
    ready: set[int] = set()
    taken: list[float] = []
    issued, training = 0, False

    def start(worker: int, now: float) -> None:
        if queues[worker] and not busy[worker]:
            batch = queues[worker].popleft()
            busy[worker] = True
            heapq.heappush(events, (now + lengths[batch], "loaded", batch))

    def issue(now: float) -> None:
        nonlocal issued
        if issued < len(lengths):
            queues[issued % workers].append(issued)
            issued += 1
            start((issued - 1) % workers, now)

    for _ in range(workers * prefetch):
        issue(0)
    while events:
        now, kind, batch = heapq.heappop(events)
        if kind == "loaded":
            ready.add(batch)
            busy[batch % workers] = False
            start(batch % workers, now)
        else:
            training = False
        if not training and len(taken) in ready:
            training = True
            heapq.heappush(events, (now + train, "trained", len(taken)))
            taken.append(now)
            issue(now)
    return taken


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_pipeline_is_the_discrete_simulation(blank: Page, workers: int, prefetch: int) -> None:
    model = Model(blank, "loader_pipeline")
    settings = {"workers": workers, "prefetch": prefetch, "uneven": 0.7, "seed": 3}
    for load, train in ((60, 25), (20, 30), (100, 10)):
        settings |= {"load": load, "train": train}
        shape = Mulberry32(3)
        lengths = [load * (1 + 0.7 * (2 * shape.uniform() - 1)) for _ in range(60)]
        found = model("pipeline", settings, 60)
        assert [batch["take"] for batch in found] == pytest.approx(
            takes(lengths, train, workers, prefetch)
        )
        assert [batch["end"] - batch["begin"] for batch in found] == pytest.approx(lengths)
        assert max(batch["worker"] for batch in found) == workers - 1


def test_even_loads_take_the_longer_of_training_and_loading_by_workers(blank: Page) -> None:
    model = Model(blank, "loader_pipeline")
    for workers, load, train, prefetch in product((0, 1, 3, 7), (60, 20), (25,), (1, 2)):
        settings = {"workers": workers, "load": load, "train": train, "prefetch": prefetch}
        found = model("perBatch", settings | {"uneven": 0, "seed": 3})
        expected = max(train, load / workers) if workers else load + train
        assert found["time"] == pytest.approx(expected, rel=0.01)
        assert found["wait"] == pytest.approx(expected - train, abs=0.5)


def test_prefetch_helps_uneven_loads_only(blank: Page) -> None:
    model = Model(blank, "loader_pipeline")
    settings = {"workers": 2, "load": 50, "train": 25, "seed": 3}

    def time(prefetch: int, uneven: float) -> float:
        changes = {"prefetch": prefetch, "uneven": uneven}
        return model("perBatch", settings | changes)["time"]

    assert time(8, 0) == pytest.approx(time(1, 0), rel=0.01)
    assert time(8, 0.9) < 0.95 * time(1, 0.9)


def test_prefetch_is_seen_with_three_workers_at_the_opening(blank: Page) -> None:
    """As many as load in the time of a batch, on average; the answer is one more."""
    model = Model(blank, "loader_pipeline")
    three = {**model.value("OPENS"), "workers": 3}
    times = [model("perBatch", {**three, "prefetch": ahead})["time"] for ahead in (1, 2, 4, 8)]
    assert times == pytest.approx([34.8, 28.7, 26.6, 25.7], abs=0.05)
    assert [model("answer", {**three, "prefetch": ahead}) for ahead in (1, 2, 8)] == [[6], [4], [4]]
    assert model("answer", {**three, "uneven": 0}) == [3]
    assert model("answer", {**three, "train": 5}) == []


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_batch_is_in_one_place_at_a_time(blank: Page, workers: int) -> None:
    model = Model(blank, "loader_pipeline")
    batches = model("pipeline", {**model.value("OPENS"), "workers": workers}, 30)
    before: set[int] = set()
    for moment in range(0, 400, 7):
        now = model("momentOf", batches, moment)
        loading, loaded = ({each["i"] for each in now[place]} for place in ("loading", "loaded"))
        in_training = {now["training"]["i"]} if now.get("training") else set()
        assert not loading & loaded and not in_training & (loading | loaded)
        # What was in training before is done, or there still.
        assert not before & (loading | loaded)
        before = in_training
        assert len(loading) <= max(1, workers) and (workers or not loaded)
        assert all(number >= now["next"] for number in loading | loaded)


def chain_of(blocks: int, model: Model) -> Chain:
    """The explorable's chain as sublinear's: a tensor is a byte."""
    one = model.value("BLOCK")
    save = Option(
        "all", one["saved"], one["forward"], one["backward"], one["saved"], one["working"]
    )
    each = [
        Block(f"block {number}", one["output"], (save,), 0, one["bare"], one["forward"])
        for number in range(blocks)
    ]
    after = Around(peak_bytes=1)
    return Chain(tuple(each), model.value("INPUT"), 0, 1, "none", "estimated", after=after)


@pytest.mark.parametrize("blocks", [2, 4, 9, 16])
def test_memory_saw_agrees_with_sublinear(blank: Page, blocks: int) -> None:
    model = Model(blank, "memory_saw")
    chain = chain_of(blocks, model)
    everys = [model("regular", blocks, every) for every in range(1, blocks + 1)]
    own = [[1], [blocks - 1], sorted({1, blocks // 2, blocks - 1})]
    assert everys[0] == list(range(1, blocks)) and everys[-1] == []
    names = {"forward": "forward", "again": "forward", "bare": "bare", "backward": "backward"}
    for cuts in everys + own:
        costs = from_splits(chain, cuts, "test").costs
        found = model("account", blocks, cuts)
        told = [
            (names[event["kind"]], event["block"], event["alive"], event["peak"])
            for event in found["events"]
        ]
        assert told == [tuple(moment) for moment in costs.timeline]
        assert found["peak"] == costs.peak_bytes
        assert found["seconds"] == costs.seconds
        assert found["again"] == costs.run_again
        last = found["events"][-1]
        assert last["held"] == [0] * blocks and last["alive"] == model.value("INPUT")


def test_the_lowest_peak_is_at_the_square_root_of_blocks_by_saved(blank: Page) -> None:
    """A segment of k of n blocks: n / k outputs stay, and 4 k tensors while it runs again."""
    model = Model(blank, "memory_saw")
    for blocks, saved, best in ((16, 4, 2), (36, 4, 3), (16, 16, 1), (36, 16, 2), (16, 2, 3)):
        peaks = [
            model("account", blocks, model("regular", blocks, every), saved)["peak"]
            for every in range(1, blocks + 1)
        ]
        assert min(peaks) == peaks[best - 1]
        assert peaks[-1] > peaks[best - 1] and (best == 1 or peaks[0] > peaks[best - 1])
        assert best in model("answer", {"blocks": blocks, "saved": saved})


@pytest.mark.parametrize(("blocks", "saved"), [(4, 2), (6, 16), (9, 8), (12, 4), (16, 4)])
def test_the_least_peak_is_that_of_all_placements(blank: Page, blocks: int, saved: int) -> None:
    model = Model(blank, "memory_saw")
    tried = blank.evaluate(
        """([name, blocks, saved]) => {
            let lowest = Infinity;
            for (let bits = 0; bits < 2 ** (blocks - 1); bits++) {
                const cuts = [];
                for (let i = 1; i < blocks; i++) if (bits >> (i - 1) & 1) cuts.push(i);
                lowest = Math.min(lowest, window[name].account(blocks, cuts, saved).peak);
            }
            return lowest;
        }""",
        ["memory_saw", blocks, saved],
    )
    assert model("least", {"blocks": blocks, "saved": saved}) == tried
    if (blocks, saved) == (16, 4):
        assert tried == 16


def test_loss_cliff_is_the_walk(blank: Page) -> None:
    model = Model(blank, "loss_cliff")

    def loss(w: float) -> float:
        return 0.1 + 0.03 * (w - 7) ** 2 + 4 / (1 + math.exp(-(w - 8) / 0.06))

    for w in (-3, 1, 6.5, 7.9, 8, 8.1):
        slope = (loss(w + 1e-5) - loss(w - 1e-5)) / 2e-5
        assert model("loss", w) == pytest.approx(loss(w))
        assert model("gradient", w) == pytest.approx(slope, rel=1e-4, abs=1e-6)
    state = {"start": 1, "rate": 1, "noise": 0.4, "seed": 3}
    for clip in (None, 1, 0.1):
        noise, places = Mulberry32(3), [1.0]
        for _ in range(60):
            slope = model("gradient", places[-1]) + 0.4 * noise.normal()
            if clip is not None and abs(slope) > clip:
                slope = math.copysign(clip, slope)
            places.append(places[-1] - slope)
        assert model("walk", state, clip) == pytest.approx(places)


def test_clipping_keeps_the_ball_on_the_slope(blank: Page) -> None:
    model = Model(blank, "loss_cliff")
    state = {"start": 1, "rate": 1, "noise": 0.4, "seed": 3}
    free, clipped = model("walk", state, None), model("walk", state, 1)
    steps = [abs(b - a) for a, b in pairwise(clipped)]
    assert min(free) < -5
    assert min(clipped) > 0 and max(steps) <= 1 + 1e-9
    assert model("loss", model("walk", state, 0.05)[-1]) > 2 * model("loss", clipped[-1])
    thrown = model("thrown", free, 60)
    assert abs(free[thrown["step"]] - free[thrown["step"] - 1]) == thrown["length"] > 10
    assert model("thrown", free, thrown["step"] - 1) is None
    assert model("thrown", clipped, 60) is None
    for places in (free, clipped, [1, 7.9, 7, 8.2, 7.7, 9]):
        onto = [w for w in places[1:] if 4 / (1 + math.exp(-(w - 8) / 0.06)) > 0.05]
        assert model("climbs", places, 60) == len(onto) > 0
    assert model("climbs", [1, 7.9, 7, 8.2, 7.7, 9], 3) == 2


def test_the_best_bet_ends_lowest_whatever_the_noise(blank: Page) -> None:
    """Another noise has one best bet, too, and throws the ball that is not clipped."""
    model = Model(blank, "loss_cliff")
    state = model.value("OPENS")
    for _ in range(6):
        ends = {clip: model("loss", model("walk", state, clip)[-1]) for clip in model.value("BETS")}
        best = [clip for clip in ends if ends[clip] == min(ends.values())]
        assert model("answer", state) == best and len(best) == 1
        assert model("thrown", model("walk", state, None), 60)
        state = state | {"seed": model("nextNoise", state)}
    # Too small is slow, too large is thrown.
    state = model.value("OPENS")
    ends = {clip: model("loss", model("walk", state, clip)[-1]) for clip in (0.05, 0.5, 20)}
    assert min(ends[0.05], ends[20]) > 5 * ends[0.5]


# --------------------------------------------------------------------------------------- in a page

# All, or those of a lab that is new.
NAMES = os.environ.get("LABKIT_PICTURES", "").split() or [each.__name__ for each in stills.every()]
# A slider to press, by its name, where the first one will not do.
SLIDERS: defaultdict[str, str | None] = defaultdict(
    lambda: None,
    CacheWalk="lines",
    LoaderPipeline="load",
    LossCliff="clip",
    Pages="fault",
    TurnTheRavine="steep",
)


class Moving:
    """One explorable on a page."""

    def __init__(self, page: Page, root: Locator) -> None:
        self.page, self.root = page, root
        root.locator(".xp-result", has_text=re.compile(r"\w")).wait_for(timeout=30_000)

    def shown(self) -> str:
        """The drawing and the result in words."""
        picture = self.root.locator(".xp-picture").inner_html()
        return picture + self.root.locator(".xp-result").inner_text()

    def result(self) -> str:
        return self.root.locator(".xp-result").inner_text()

    def wagers(self) -> list[Locator]:
        """The buttons of the bet."""
        return self.root.locator("button.xp-wager").all()

    def press(self, node: Locator, key: str) -> None:
        """A key on a focused control; returns once it is drawn."""
        node.focus()
        self.page.keyboard.press(key)
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
        )

    def slider(self, name: str | None) -> Locator:
        """The slider of a name, or the first one."""
        look = f".xp-{name}" if name else ""
        return self.root.locator(f"input.xp-range{look}").first

    def rows_of_buttons(self) -> int:
        tops = "all => new Set(all.map(node => node.getBoundingClientRect().top)).size"
        return self.root.locator(".xp-button").evaluate_all(tops)

    def overflow(self) -> int:
        """Pixels by which something is wider than the frame."""
        return self.root.evaluate(
            """root => {
                const right = node => node.getBoundingClientRect().right;
                const parts = [...root.querySelectorAll('text, rect, input, select, button')];
                return Math.max(...parts.map(right)) - right(root);
            }"""
        )

    def collisions(self) -> list[str]:
        """Pairs of words in the drawing that lie on each other by more than their edges."""
        return self.root.evaluate(
            """root => {
                const shown = node => node.getClientRects().length && node.textContent.trim();
                const texts = [...root.querySelectorAll('.xp-picture text')].filter(shown);
                const boxes = texts.map(node => node.getBoundingClientRect());
                const shared = (a, b, from, to) =>
                    Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
                const collide = (a, b) =>
                    shared(a, b, 'left', 'right') > 2 && shared(a, b, 'top', 'bottom') > 4;
                const words = index => texts[index].textContent;
                return texts.flatMap((_, i) => texts.slice(0, i).flatMap(
                    (_, j) => collide(boxes[i], boxes[j]) ? [`${words(j)} | ${words(i)}`] : []
                ));
            }"""
        )


def drag(moving: Moving, grip: Locator, across: float, down: float = 0) -> None:
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    moving.page.mouse.move(x, y)
    moving.page.mouse.down()
    moving.page.mouse.move(x + across, y + down, steps=4)
    moving.page.mouse.up()
    moving.page.wait_for_timeout(100)


@pytest.fixture(scope="module")
def notebook(
    browser: Browser, context: BrowserContext, server: JupyterServer
) -> Iterator[NotebookPage]:
    page = NotebookPage(server, browser, context=context)
    cells = [f"from course.explorables import {name}\n{name}()" for name in NAMES]
    page.open([*cells, "from course.explorables import Roofline\nRoofline()"], "explorables.ipynb")
    assert page.run_all() == []
    yield page
    page.close()


def on(notebook: NotebookPage, index: int) -> Moving:
    return Moving(notebook.page, notebook.page.locator(".course-explorable").nth(index))


@pytest.mark.parametrize("name", NAMES)
def test_in_jupyterlab_keys_move_it_and_are_no_commands(notebook: NotebookPage, name: str) -> None:
    moving, cells = on(notebook, NAMES.index(name)), notebook.cells()
    slider = moving.slider(SLIDERS[name])
    for key in ("ArrowRight", "ArrowLeft"):
        before = moving.shown()
        moving.press(slider, key)
        assert moving.shown() != before, key
    grips = moving.root.locator(".xp-grip").all()
    calls = getattr(explorables, name)._esm.count("frame.grip({")
    assert len(grips) == {"BendTheRate": 6}.get(name, calls)
    for grip in grips:
        label, value = grip.get_attribute("aria-label"), grip.get_attribute("aria-valuetext")
        assert label and value
        before = moving.shown()
        moving.press(grip, "ArrowRight")
        assert moving.shown() != before, label
        assert grip.get_attribute("aria-valuetext") != value
    for node in [slider, *grips, *moving.root.locator("button, select").all()]:
        assert node.get_attribute("aria-label")
        node.focus()
        for key in ("b", "d", "d", "x"):
            notebook.page.keyboard.press(key)
    assert notebook.cells() == cells
    assert not [line for line in notebook.console if "course" in line or "render" in line]
    notebook.screenshot(f"explorable-{name}", moving.root)


# ------------------------------------------------------------------------------- question and bet


@pytest.fixture(scope="module")
def plain(browser: Browser) -> Iterator[Page]:
    """A page for one explorable at a time, without a kernel."""
    page = browser.new_page(reduced_motion="reduce", viewport={"width": 1100, "height": 900})
    yield page
    page.close()


def opened(page: Page, name: str) -> Moving:
    """The explorable as it opens."""
    page.set_content(alive(getattr(explorables, name)))
    return Moving(page, page.locator(".course-explorable"))


def hurry(page: Page) -> None:
    """Films on this page take an eighth of their time."""
    page.evaluate(
        """() => {
            const now = performance.now.bind(performance), frame = requestAnimationFrame;
            performance.now = () => 8 * now();
            window.requestAnimationFrame = draw => frame(time => draw(8 * time));
        }"""
    )


# What the result says while a bet is open.
BET_FIRST = "Bet first, or move something."


@pytest.mark.parametrize("name", NAMES)
def test_the_question_has_one_answer_that_the_opening_does_not_show(
    blank: Page, plain: Page, name: str
) -> None:
    model = Model(blank, getattr(explorables, name).script)
    opens = model.value("OPENS")
    answers = model("answer", opens)
    assert len(answers) == 1, f"right answers at the opening settings: {answers}"
    moving = opened(plain, name)
    asked = moving.root.locator(".xp-wagers").get_attribute("data-name")
    assert not asked or opens[asked] not in answers
    values = [json.loads(wager.get_attribute("value") or "") for wager in moving.wagers()]
    assert answers[0] in values and len(set(map(str, values))) == len(values) >= 2
    right = moving.wagers()[values.index(answers[0])].inner_text()
    assert moving.result() == BET_FIRST
    label = moving.root.locator(".xp-picture").get_attribute("aria-label")
    assert label == BET_FIRST and right not in BET_FIRST
    # The opening values are where `render` starts.
    moving.press(moving.wagers()[0], "Enter")
    assert moving.result() != BET_FIRST


@pytest.mark.parametrize("name", NAMES)
def test_a_bet_is_placed_by_keys_and_judged(blank: Page, plain: Page, name: str) -> None:
    model = Model(blank, getattr(explorables, name).script)
    answers = model("answer", model.value("OPENS"))
    moving = opened(plain, name)
    for wager, key in zip(moving.wagers(), ["Enter", "Space"] * len(NAMES), strict=False):
        moving.press(wager, key)
        judged = "right" if json.loads(wager.get_attribute("value") or "") in answers else "wrong"
        assert f", is {judged}. " in moving.result()
        assert wager.get_attribute("aria-pressed") == "true"
        assert f"xp-{judged}" in (wager.get_attribute("class") or "")
    assert moving.root.locator(".xp-wager[aria-pressed=true]").count() == 1
    moving.press(moving.slider(SLIDERS[name]), "ArrowRight")
    assert "Your bet" not in moving.result()


@pytest.mark.parametrize("name", NAMES)
def test_after_a_wrong_bet_the_answer_is_shown_when_it_is_asked_for(
    blank: Page, plain: Page, name: str
) -> None:
    model = Model(blank, getattr(explorables, name).script)
    (answer,) = model("answer", model.value("OPENS"))
    moving = opened(plain, name)
    show = moving.root.locator("button.xp-show")
    assert not show.is_visible()
    values = [json.loads(wager.get_attribute("value") or "") for wager in moving.wagers()]
    place = values.index(answer)
    wrong, right = moving.wagers()[place - 1], moving.wagers()[place]
    moving.press(wrong, "Enter")
    assert "xp-answer" not in (right.get_attribute("class") or "")
    # The reader may move first, and look then: the question stays that which was asked.
    for _ in range(2):
        moving.press(moving.slider(SLIDERS[name]), "ArrowRight")
    moving.press(show, "Enter")
    told = f"Yours: {wrong.inner_text()}. It is {right.inner_text()}. "
    assert moving.result().startswith(told)
    assert "xp-answer" in (right.get_attribute("class") or "") and not show.is_visible()
    # The right one, bet on now, needs no answer.
    moving.press(right, "Enter")
    assert ", is right. " in moving.result() and not show.is_visible()
    assert moving.root.locator(".xp-answer").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_move_shows_the_result_without_a_bet(plain: Page, name: str) -> None:
    moving = opened(plain, name)
    moving.press(moving.slider(SLIDERS[name]), "ArrowRight")
    assert moving.result() not in ("", BET_FIRST)


def test_why_a_bet_is_wrong_is_said(static: Page) -> None:
    static.reload()
    for name, bets in (
        ("LoaderPipeline", ("a long load holds up all behind it", "fewer would", "4 are enough")),
        ("Roofline", ("is the fixed cost of a call", "fixed cost", "Arithmetic is", "A narrower")),
    ):
        moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index(name)))
        for wager, reason in zip(moving.wagers(), bets, strict=False):
            moving.press(wager, "Enter")
            assert reason in moving.result()


def test_a_longer_queue_is_said_to_help_where_loads_are_uneven(blank: Page) -> None:
    model = Model(blank, "loader_pipeline")
    three = {**model.value("OPENS"), "workers": 3}
    assert "bridges" not in model("inWords", three)
    assert "the longer queue bridges part of it" in model("inWords", {**three, "prefetch": 8})
    one = {**three, "workers": 2, "load": 5, "uneven": 0}
    assert "One is enough" in model("inWords", one)


def test_a_bet_on_the_gpu_is_played_there(static: Page) -> None:
    """Its question names the machine, whatever the reader has tried meanwhile."""
    static.reload()
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index("Roofline")))
    machine = moving.root.locator("select")
    machine.select_option("avx2")
    moving.press(moving.root.get_by_label("bet: 512 wide", exact=True), "Enter")
    assert "is right. The dots are at width 512: there bf16 is 1.57×" in moving.result()
    assert machine.input_value() == "gpu8"


def test_two_of_one_kind_do_not_disturb_each_other(notebook: NotebookPage) -> None:
    first, second = on(notebook, NAMES.index("Roofline")), on(notebook, len(NAMES))
    still, before = first.shown(), second.shown()
    second.press(second.slider("width"), "End")
    second.root.locator("select").select_option("h100")
    notebook.page.wait_for_timeout(100)
    assert first.shown() == still
    assert second.shown() != before
    assert first.root.locator("select").input_value() == "gpu8"


def test_axe_finds_nothing(notebook: NotebookPage) -> None:
    every = notebook.page.locator(".course-explorable")
    assert every.count() > len(NAMES)
    assert in_both_themes(notebook, ".course-explorable") == []


def test_dark_theme_and_narrow_page(notebook: NotebookPage) -> None:
    ground = "node => getComputedStyle(node).backgroundColor"
    ink = "node => getComputedStyle(node.querySelector('text')).fill"
    every = [on(notebook, index) for index in range(len(NAMES))]
    assert [
        name for each, name in zip(every, NAMES, strict=True) if each.rows_of_buttons() > 1
    ] == []
    light = [(each.root.evaluate(ground), each.root.evaluate(ink)) for each in every]
    notebook.page.set_viewport_size({"width": 600, "height": 1000})
    notebook.set_theme("dark")
    try:
        for each, name, before in zip(every, NAMES, light, strict=True):
            now = each.root.evaluate(ground), each.root.evaluate(ink)
            assert now[0] != before[0] and now[1] != before[1], name
            # A browser draws anew only what is in sight, and a busy one some time later.
            each.root.scroll_into_view_if_needed()
            for _ in range(100):
                if each.overflow() <= 0:
                    break
                notebook.page.wait_for_timeout(100)
            assert each.overflow() <= 0, name
            notebook.screenshot(f"explorable-{name}-dark", each.root)
    finally:
        notebook.set_theme("light")
        notebook.page.set_viewport_size({"width": 1300, "height": 1000})


# ------------------------------------------------------------------------------------- on the site


@pytest.fixture(scope="module")
def static(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of the site with all explorables in it, opened as a file."""
    folder = tmp_path_factory.mktemp("site")
    source, out = folder / "source", folder / "out"
    source.mkdir()
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
    notebook.cells = [nbformat.v4.new_markdown_cell("# All explorables")]
    for name in NAMES:
        code = f"from course.explorables import {name}\n\n{name}()"
        notebook.cells.append(nbformat.v4.new_code_cell(code, metadata={"tags": ["explorable"]}))
    path = folder / "index.ipynb"
    nbformat.write(notebook, path)
    nbformat.write(page_of(path, source), source / "index.ipynb")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "-q"]
    command += ["-c", str(ROOT / "course" / "site"), str(source), str(out)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page(reduced_motion="reduce", viewport={"width": 1100, "height": 900})
    page.goto((out / "index.html").as_uri())
    yield page
    page.close()


def page_of(path: Path, folder: Path) -> nbformat.NotebookNode:
    return pages.notebook_page(path, path.stem, folder / "figures", set())


@pytest.mark.parametrize("name", NAMES)
def test_on_the_static_site_it_lives_without_a_kernel(static: Page, name: str) -> None:
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index(name)))
    before = moving.shown()
    moving.press(moving.slider(SLIDERS[name]), "ArrowRight")
    assert moving.shown() != before
    assert moving.overflow() <= 0


# Also where charts begin to stand beside each other.
@pytest.mark.parametrize("width", [360, 390, 600, 700, 752, 1400])
def test_at_any_width_nothing_is_cut_and_buttons_stand_in_one_row(static: Page, width: int) -> None:
    before = static.viewport_size
    assert before
    static.set_viewport_size({"width": width, "height": 900})
    try:
        for index, name in enumerate(NAMES):
            moving = Moving(static, static.locator(".course-explorable").nth(index))
            for key in ("Home", "End"):
                moving.press(moving.slider(SLIDERS[name]), key)
                # A busy browser draws anew some time later.
                for _ in range(50):
                    if moving.overflow() <= 0:
                        break
                    static.wait_for_timeout(100)
                assert moving.overflow() <= 0, (name, key)
            assert moving.rows_of_buttons() <= 1, name
    finally:
        static.set_viewport_size(before)


@pytest.mark.parametrize("width", [300, 390, 700, 1400])
def test_no_word_of_an_opening_lies_on_another(static: Page, width: int) -> None:
    before = static.viewport_size
    assert before
    static.set_viewport_size({"width": width, "height": 900})
    static.reload()
    try:
        openings = static.locator(".course-explorable")
        found = {
            name: pairs
            for index, name in enumerate(NAMES)
            if (pairs := Moving(static, openings.nth(index)).collisions())
        }
        assert not found
    finally:
        static.set_viewport_size(before)


def test_on_a_phone_in_jupyterlab_nothing_is_cut(static: Page) -> None:
    """Its side bars leave so little of 390 px."""
    before = static.viewport_size
    assert before
    static.set_viewport_size({"width": 300, "height": 900})
    static.reload()
    try:
        found = {}
        for index, name in enumerate(NAMES):
            moving = Moving(static, static.locator(".course-explorable").nth(index))
            if wagers := moving.wagers():
                moving.press(wagers[0], "Enter")
            for node in moving.root.locator("input.xp-range").all():
                moving.press(node, "End")
            if (over := moving.overflow()) > 0:
                found[name] = over
        assert not found
    finally:
        static.set_viewport_size(before)


def test_grips_are_dragged(static: Page) -> None:
    static.reload()
    for name, grip, *way in (
        ("Roofline", ".xp-grip", 60),
        ("LoaderPipeline", ".xp-grip.xp-time", 60),
        ("MemorySaw", ".xp-grip.xp-every", -60),
        ("MemorySaw", ".xp-grip.xp-time", 120),
        ("LossCliff", ".xp-grip", -60),
        ("BendTheRate", ".xp-grip.xp-grip2", 0, 40),
    ):
        moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index(name)))
        before = moving.shown()
        drag(moving, moving.root.locator(grip), *way)
        assert moving.shown() != before, name


def test_a_checkpoint_is_placed_by_a_click_and_by_a_key(static: Page) -> None:
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index("MemorySaw")))
    gate = moving.root.get_by_label("checkpoint before block 3", exact=True)
    pressed = gate.get_attribute("aria-pressed")
    gate.click()
    static.wait_for_timeout(100)
    assert gate.get_attribute("aria-pressed") != pressed
    assert "your own" in moving.root.inner_text()
    moving.press(gate, "Space")
    assert gate.get_attribute("aria-pressed") == pressed
    moving.press(gate, "ArrowRight")
    label = static.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == "checkpoint before block 4"


def test_the_best_equal_distance_can_be_beaten(static: Page) -> None:
    static.reload()
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index("MemorySaw")))
    every = moving.slider("every")
    moving.press(every, "Home")
    assert "Ends pile up: keep fewer of them." in moving.result()
    moving.press(every, "ArrowRight")
    assert "can you beat 18?" in moving.result()
    moving.press(every, "ArrowRight")
    assert "A piece that runs again is high: make it shorter." in moving.result()
    moving.press(every, "End")
    said = []
    for behind in (3, 6, 8, 10, 12, 14, 15):
        gate = moving.root.get_by_label(f"checkpoint before block {behind + 1}", exact=True)
        moving.press(gate, "Enter")
        said.append(moving.result())
    assert "To beat: 18" in said[0] and "You beat 18" in said[5]
    assert "★ 16 is the least: none of all 32,768 placements is lower." in said[6]
    assert moving.root.locator("svg text", has_text="peak 16 ★").count() == 1


@pytest.mark.parametrize("name", ["LoaderPipeline", "LossCliff"])
def test_play_moves_by_itself_and_stops(static: Page, name: str) -> None:
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index(name)))
    play = moving.root.locator("button.xp-play")
    play.click()
    play.filter(has_text="Pause").wait_for()
    before = moving.shown()
    static.wait_for_timeout(500)
    assert moving.shown() != before
    play.click()
    play.filter(has_text="Play").wait_for()
    still = moving.shown()
    static.wait_for_timeout(300)
    assert moving.shown() == still


@pytest.mark.parametrize("explorable", stills.every(), ids=lambda each: each.__name__)
def test_a_still_drawn_anew_has_the_shape_of_the_one_that_lies_there(
    browser: Browser, explorable: type[explorables.Explorable]
) -> None:
    """Places of letters differ by the machine's fonts; tags and classes do not."""
    drawn = stills.shape(stills.drawn(explorable, browser))
    stored = stills.path(explorable).read_text(encoding="utf-8")
    assert len(drawn) > 20
    assert drawn == stills.shape(stored), stills.COMMANDS


def test_the_walk_shows_nothing_before_it_happens(static: Page) -> None:
    static.reload()
    moving = Moving(static, static.locator(".course-explorable").nth(NAMES.index("LossCliff")))
    red = moving.root.locator("path.xp-line.xp-red")
    assert (red.get_attribute("d") or "").count("L") == 0
    moving.press(moving.slider("rate"), "ArrowRight")
    moving.press(moving.slider("rate"), "ArrowLeft")
    assert moving.result() == (
        "No step of the clipped ball will be longer than 0.1. Bet, or press Play."
    )
    moving.press(moving.slider("step"), "End")
    assert (red.get_attribute("d") or "").count("L") == 60
    assert "Step 44 throws the ball that is not clipped by 17 units." in moving.result()


def test_another_cell_tagged_explorable_is_refused(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("print(1)", metadata={"tags": ["explorable"]})
    notebook.cells = [cell]
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match="a: a cell tagged 'explorable' ends in one of"):
        page_of(path, tmp_path)


def test_a_bet_on_a_picture_reaches_the_kernel(lab_page: NotebookPage) -> None:
    lab_page.open(["from course.explorables import Roofline\n\nRoofline()"])
    assert lab_page.run_all() == []
    moving = Moving(lab_page.page, lab_page.page.locator(".course-explorable"))
    moving.press(moving.wagers()[0], "Enter")
    moving.root.locator(".xp-right, .xp-wrong").first.wait_for(timeout=15_000)
    ask = "from labkit.panel import guess; print([each.question for each in guess.SCORE.decided])"
    question = moving.root.locator(".xp-ask").inner_text()
    assert lab_page.execute(ask).strip() == repr([question])
    assert lab_page.console == []
