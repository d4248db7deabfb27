"""The solver of the compiler's memory budget: never over it, and never worse with more room."""

import itertools
import math
import random

import pytest
import torch
from torch import nn
from torch._functorch import config

from sublinear.knapsack import PARTS, Knapsack, most_saved


def instance(seed):
    """Sizes and seconds of up to 60 values, as a graph has them: a few large ones, many small."""
    draw = random.Random(seed)
    count = draw.randint(1, 60)
    sizes = [2.0 ** draw.randint(0, 12) * draw.random() for _ in range(count)]
    return sizes, [draw.choice([1.0, 5.0, size]) * draw.random() for size in sizes]


@pytest.mark.parametrize("seed", range(30))
def test_it_keeps_to_every_budget_and_gains_by_each_larger_one(seed):
    sizes, seconds = instance(seed)
    gained = 0.0
    for step in range(20):
        room = math.fsum(sizes) * (step / 19)
        saved = most_saved(sizes, seconds, room)
        assert len(set(saved)) == len(saved)
        assert math.fsum(sizes[item] for item in saved) <= room
        now = math.fsum(seconds[item] for item in saved)
        assert now >= gained * (1 - 1e-12)
        gained = now
    assert gained == pytest.approx(math.fsum(seconds))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_as_good_as_trying_all_with_a_little_less_room(seed):
    draw = random.Random(seed)
    sizes = [draw.randint(1, 50) for _ in range(10)]
    seconds = [draw.random() for _ in range(10)]
    room = 0.4 * sum(sizes)
    # What rounding may cost.
    less = room - len(sizes) * sum(sizes) / PARTS
    best = max(
        math.fsum(seconds[item] for item in chosen)
        for number in range(11)
        for chosen in itertools.combinations(range(10), number)
        if sum(sizes[item] for item in chosen) <= less
    )
    found = most_saved(sizes, seconds, room)
    assert math.fsum(seconds[item] for item in found) >= best * (1 - 1e-12)


@pytest.mark.parametrize(
    ("sizes", "room", "saved"), [([], 1.0, []), ([0.0, 0.0], 0.0, [0, 1]), ([1.0], 0.0, [])]
)
def test_ends(sizes, room, saved):
    assert most_saved(sizes, [1.0] * len(sizes), room) == saved


def test_the_compiler_asks_it_and_gradients_stay(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)))
    x, asked = torch.randn(16, 32), []
    model(x).square().mean().backward()
    plain = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    call = Knapsack.__call__

    def told(solver, memory, *rest):
        saved, again = call(solver, memory, *rest)
        asked.append((len(memory), sorted(saved + again)))
        return saved, again

    monkeypatch.setattr(Knapsack, "__call__", told)
    settings = {"activation_memory_budget": 0.4, "activation_memory_budget_solver": Knapsack()}
    torch._dynamo.reset()
    with config.patch(settings):
        compiled = torch.compile(model, backend="aot_eager_decomp_partition")
        compiled(x).square().mean().backward()
    torch._dynamo.reset()
    assert asked and all(numbers == list(range(count)) for count, numbers in asked)
    for own, before in zip(model.parameters(), plain, strict=True):
        torch.testing.assert_close(own.grad, before)
