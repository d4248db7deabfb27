"""Gradients of the reader's own runs over the comb of their format: notebook 07's picture."""

import math
import xml.etree.ElementTree as ET

import pytest
import torch

from course.low_precision import FORMATS, small_pictures
from course.measured import window
from course.measured.updates import Updates, last_updates
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


def trained(notes, gradients):
    """A weight whose looks count these gradients: a look, and the weight."""
    weights = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weights], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def backward():
        weights.grad = torch.ones(1)
        notes.gradient(gradients)

    return notes.beside(lambda: 0.5, backward, scaler, optimizer), weights


def test_gradients_are_counted_by_powers_of_two_beside_an_evaluation():
    notes = Notes(torch.float16)
    some = torch.tensor([1.0, 1.9, -0.5, 0.0, 2.0**-30, math.inf, math.nan, 1e30])
    look, weights = trained(notes, some)
    notes.gradient(some)
    assert not any(notes.counts), "a step's own gradients are left alone: a clock runs"
    assert look() == 0.5 and weights.grad is None
    counts = dict(enumerate(notes.counts, window.LOW))
    found = {power: count for power, count in counts.items() if count}
    assert found == {0: 2, -1: 1, -30: 1, window.HIGH - 1: 3}
    shares = notes.shares()
    assert shares == pytest.approx(
        {"zero": 1 / 7, "fewer digits": 0, "kept": 3 / 7, "too large": 3 / 7}
    )
    assert shares.keys() == FATES.keys()


def test_only_the_first_looks_of_each_run_are_counted():
    notes = Notes(torch.float32)
    for _ in range(2):
        look, _ = trained(notes, torch.ones(2))
        for _ in range(window.FIRST + 2):
            look()
    assert sum(notes.counts) == 2 * 2 * window.FIRST


def test_an_error_while_gradients_are_counted_ends_the_count():
    notes = Notes(torch.float32)

    def fails():
        raise RuntimeError("no loss")

    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    look = notes.beside(lambda: 0.5, fails, torch.amp.GradScaler("cpu", enabled=False), optimizer)
    with pytest.raises(RuntimeError, match="no loss"):
        look()
    notes.gradient(torch.ones(1))
    assert not any(notes.counts)


def adam(values, gradients, rate=1e-3):
    """An optimizer after steps with these gradients; its weights before the last one."""
    weights = torch.nn.Parameter(torch.tensor(values))
    optimizer = torch.optim.Adam([weights], lr=rate, eps=1e-15)
    for gradient in gradients:
        before = weights.detach().clone()
        weights.grad = torch.tensor(gradient)
        optimizer.step()
    return optimizer, weights, before


def test_the_last_update_is_what_adam_did():
    optimizer, weights, before = adam([1.0, -2.0], [[0.1, 3.0], [0.2, -1.0], [0.5, 0.25]])
    found, moved = last_updates(optimizer)
    assert torch.equal(found, weights.detach())
    torch.testing.assert_close(moved, weights.detach() - before, rtol=1e-3, atol=1e-7)
    for each in last_updates(torch.optim.Adam([weights])):
        assert len(each) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_an_update_is_lost_where_torch_rounds_it_away(dtype):
    torch.manual_seed(0)
    # Away from powers of two, where the spacing below is another.
    weights = (1.1 + 0.8 * torch.rand(2000)) * 2.0 ** torch.randint(-6, 3, (2000,))
    weights = weights.to(dtype).float()
    moves = weights * 2.0 ** -(6 + 8 * torch.rand(2000))
    stays = ((weights + moves).to(dtype).float() == weights).float().mean().item()
    updates = Updates(dtype)
    updates.add(weights, moves)
    assert updates.lost == pytest.approx(stays, abs=0.002) and 0.1 < stays < 0.9


def test_updates_without_a_size_are_not_counted():
    updates = Updates(torch.bfloat16)
    updates.add(torch.zeros(0), torch.zeros(0))
    assert math.isnan(updates.lost)
    updates.add(torch.tensor([1.0, math.nan, 1.0]), torch.tensor([0.0, 1.0, math.inf]))
    assert math.isnan(updates.lost)


def lab_of(seen, scales=(1.0,)):
    """Its gradients are 1, or 2**-40, by the situation; its weights in bf16 hardly move."""

    def make(stored, small, weights="fp32"):
        notes = seen.notes(FORMATS[stored], FORMATS[weights])
        state = {"steps": 0}
        optimizer, _, _ = adam([1.0, 2.0, 3.0], [[1.0, 1.0, 1.0]])

        class Scaler:
            def scale(self, loss):
                return loss * scales[min(state["steps"], len(scales)) - 1]

        def step():
            state["steps"] += 1

        def backward():
            notes.gradient(torch.full((4,), 2.0**-40 if small else 1.0))

        lost = stored == "fp16" and small

        def evaluate():
            return 0.0 if lost else state["steps"] / 3

        look = notes.beside(evaluate, backward, Scaler(), optimizer)
        return Workload(step, 1, "steps", look)

    options = {"target": 0.9, "metric": "accuracy", "steps": 4, "every": 1, "seeds": 3}
    return Lab(
        seen.watch(make),
        stored=["fp32", "fp16"],
        weights=["fp32", "bf16"],
        situation={"small": [False, True]},
        race=options,
    )


def words_of(drawn):
    return ET.fromstring(drawn).get("aria-label")


def classes_of(drawn):
    return [each.get("class") for each in ET.fromstring(drawn).iter()]


def test_a_race_is_drawn_with_the_baseline_first_and_kept_for_the_stamp():
    seen = Window()
    lab = lab_of(seen)
    for small, zero in ((False, "0 %"), (True, "100 %")):
        result = lab.race({"stored": "fp16", "small": small})
        words = words_of(seen(result))
        first, second = words.index("baseline: 0 % become zero"), words.index("stored=")
        assert first < second and f"{zero} become zero" in words[second:]
    assert list(seen.races.values())[-1].arrived("stored='fp16'") == 0
    assert len(seen.races) == 1, "the name of a situation that is none of notebook 07's is left out"


def test_the_race_stays_to_be_seen_beside_what_explains_it():
    seen = Window()
    result = lab_of(seen).race({"stored": "fp16", "small": True})
    drawn = seen(result)
    kinds = classes_of(drawn)
    assert kinds.count("k-line k-thin k-baseline") == kinds.count("k-line k-thin k-candidate") == 3
    # Those that arrived, and the legend's.
    assert kinds.count("k-dots k-end k-baseline") == 3 + 1
    assert "3 of 3 arrive, after 3 steps" in drawn and "0 of 3 arrive" in drawn
    assert "the loss scale by step" not in drawn


def test_a_scale_that_changes_has_a_course_over_the_whole_run():
    seen = Window()
    drawn = seen(lab_of(seen, scales=(2.0**10, 2.0**11, 2.0**12)).race({"stored": "fp16"}))
    assert "the loss scale by step" in drawn and "2¹¹" in drawn
    kinds = classes_of(drawn)
    assert kinds.count("k-line k-thin k-candidate") == 2 * 3


def test_where_weights_are_rounded_updates_are_drawn_beside_their_spacing():
    seen = Window()
    drawn = seen(lab_of(seen).race({"weights": "bf16"}))
    words = words_of(drawn)
    assert "baseline: 0 % of the updates are rounded away" in words
    assert "weights='bf16': 100 % of the updates are rounded away" in words
    assert "2 gets 0.001, the next number is 0.0078 on: stays" in drawn
    assert "the next number is 1.2e-07 on: moves" in drawn
    assert "gradients by size" not in drawn


def test_only_a_race_is_drawn():
    seen = Window()
    lab = lab_of(seen)
    assert seen(lab.run(stored="fp16", small=True, seconds=0.05)) == ""
    assert seen("a sweep") == ""


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
