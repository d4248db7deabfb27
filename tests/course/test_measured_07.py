"""Gradients of the reader's own runs over the comb of their format: notebook 07's picture."""

import math

import pytest
import torch

from course.low_precision import FORMATS, small_pictures
from course.measured import window
from course.measured.window import FATES, Notes, Window, fate
from labkit import Lab, Workload


@pytest.mark.parametrize("name", FORMATS)
def test_a_fate_is_what_torch_makes_of_the_number(name):
    dtype = FORMATS[name]
    for power in range(-60, 40):
        exact = 1.4 * 2.0**power
        stored = torch.tensor(exact).to(dtype).double().item()
        wanted = "kept"
        if stored == 0:
            wanted = "zero"
        elif not math.isfinite(stored) or (exact > 1 and stored < exact / 1.3):
            wanted = "too large"
        elif exact < torch.finfo(dtype).smallest_normal:
            wanted = "fewer digits"
        assert fate(dtype, power) == wanted, (name, power)


def test_gradients_are_counted_by_powers_of_two():
    notes = Notes(torch.float16)
    assert notes.counts == [] and math.isnan(notes.still)
    notes.gradient(torch.tensor([1.0, 1.9, -0.5, 0.0, 2.0**-30, math.inf, math.nan, 1e30]))
    counts = dict(enumerate(notes.counts, window.LOW))
    found = {power: count for power, count in counts.items() if count}
    assert found == {0: 2, -1: 1, -30: 1, window.HIGH - 1: 3}
    shares = notes.shares()
    assert shares == pytest.approx(
        {"zero": 1 / 7, "fewer digits": 0, "kept": 3 / 7, "too large": 3 / 7}
    )
    assert shares.keys() == FATES.keys()


def test_weights_that_stay_are_counted_within_a_run():
    notes = Notes(torch.float32)
    for values in ([1.0, 2.0], [1.0, 3.0], [1.0, 3.0]):
        notes.weights(iter([torch.tensor(values)]))
    assert notes.still == 3 / 4
    notes.begin()
    # Of another run: these are no step after those.
    notes.weights(iter([torch.tensor([1.0, 3.0])]))
    assert notes.still == 3 / 4


def test_only_the_first_steps_are_counted():
    notes = Notes(torch.float32)
    for _ in range(window.FIRST + 5):
        notes.gradient(torch.ones(2))
        notes.weights(iter([torch.ones(1)]))
    assert sum(notes.counts) == 2 * window.FIRST


def lab_of(seen):
    """Its gradients are 1, or 2**-40, by the situation."""

    def make(stored, small):
        notes = seen.notes(FORMATS[stored])
        state = {"steps": 0}

        def step():
            state["steps"] += 1
            notes.gradient(torch.full((4,), 2.0**-40 if small else 1.0))
            notes.weights(iter([torch.zeros(2)]))

        lost = stored == "fp16" and small

        def evaluate():
            return 0.0 if lost else state["steps"] / 3

        return Workload(step, 1, "steps", evaluate)

    options = {"target": 0.9, "metric": "accuracy", "steps": 4, "every": 1, "seeds": 3}
    return Lab(
        seen.watch(make), stored=["fp32", "fp16"], situation={"small": [False, True]}, race=options
    )


def test_a_race_is_drawn_with_the_baseline_first_and_kept_for_the_stamp():
    seen = Window()
    lab = lab_of(seen)
    for small, zero in ((False, "0 %"), (True, "100 %")):
        result = lab.race({"stored": "fp16", "small": small})
        drawn = seen(result)
        first, second = drawn.index("baseline: 0 % become zero"), drawn.index("stored=")
        assert first < second and f"{zero} become zero" in drawn[second:]
    assert list(seen.races.values())[-1].arrived("stored='fp16'") == 0
    assert len(seen.races) == 1, "the name of a situation that is none of notebook 07's is left out"


def test_a_comparison_is_drawn_and_anything_else_is_not():
    seen = Window()
    result = lab_of(seen).run(stored="fp16", small=True, seconds=0.05)
    assert "100 % become zero" in seen(result)
    assert seen("a sweep") == "" and Window()(result) == ""


def test_outside_a_lab_notes_are_new():
    seen = Window()
    first = seen.notes(torch.float16)
    assert seen.notes(torch.float32).dtype == torch.float32 and first.dtype == torch.float16


def test_of_another_race_nothing_is_drawn():
    """Its sides are not those that ran last."""
    seen = Window()
    lab = lab_of(seen)
    result = lab.race({"stored": "fp16"})
    other = Window()
    lab_of(other).race({"stored": "fp32", "small": True})
    assert other(result) == "" and other.races == {}


def test_pictures_are_small():
    pixels, labels = small_pictures(train=False, size=16)
    assert pixels.shape == (16, 192) and labels.shape == (16,)
    assert pixels.abs().max() <= 2.3
