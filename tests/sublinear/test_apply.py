"""A planned model is the model: same parameters, same training, whatever the plan."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_models import Encoder, Norms, UNet, halved, images, kept, plans, tokens
from torch import Tensor, nn

from course import models
from labkit.device import seed_all
from sublinear import repeatable
from sublinear.apply import apply
from sublinear.plan import Checkpoint, Keep, Plan
from sublinear.split import split
from sublinear.verify import verify


def every(count: int) -> Plan:
    return Plan(tuple(Checkpoint((keep,)) for keep in kept(0, count)), "every")


def test_it_is_another_view_of_the_same_object() -> None:
    model = models.convnet(4)
    planned = apply(model, every(4))
    assert isinstance(planned, nn.Sequential) and list(planned.state_dict()) == list(
        model.state_dict()
    )
    assert [id(p) for p in planned.parameters()] == [id(p) for p in model.parameters()]
    planned.eval()
    assert not model.training and not model[0].training
    planned.extra = 3  # type: ignore[assignment]
    assert model.extra == 3
    del planned.extra
    planned.load_state_dict(models.convnet(4).state_dict())
    assert torch.equal(planned(images(2, 16)), model(images(2, 16)))


def test_plain_in_evaluation_and_without_gradients() -> None:
    model = models.convnet(4)
    planned = apply(model, every(4))
    planned(images(2, 16))
    assert planned.runs_by.calls == [1] * 4
    with torch.no_grad():
        planned(images(2, 16))
    planned.eval()(images(2, 16))
    assert planned.runs_by.calls == [1] * 4


def test_the_models_own_names_are_its_own() -> None:
    model = Encoder().eval()  # it has an attribute `blocks`
    planned = apply(model.train(), every(20)).eval()
    assert planned.blocks is model.blocks and torch.equal(planned(tokens()), model(tokens()))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_running_statistics_count_one_forward_at_any_depth(depth: int) -> None:
    torch.manual_seed(0)
    model = Norms()
    twin = copy.deepcopy(model)
    nodes: tuple = kept(0, 2)
    for _ in range(depth):
        nodes = (Checkpoint(nodes),)
    for network in (apply(model, Plan(nodes, "deep")), twin):
        network(images()).square().sum().backward()
    assert int(model.slow.num_batches_tracked) == 1 and int(model.shared.num_batches_tracked) == 2
    for one, two in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(one, two)
    assert model.slow.momentum is None


def test_frozen_batch_norm_reads_its_statistics_when_computed_again() -> None:
    model = models.convnet(4)
    with torch.no_grad():
        model[1].running_mean.fill_(3.0)
    model[1].eval()
    assert verify(model, every(4), images(4, 16)).passed


def test_a_copy_is_planned_and_separate() -> None:
    model = UNet()
    planned = apply(model, every(8))
    twin = copy.deepcopy(planned)
    with torch.no_grad():
        twin.head.weight.zero_()
    twin(images()).sum().backward()
    assert twin.runs_by.calls == [2] * 8 and twin.head.weight.grad is not None
    # The planned one did not run yet, and so its blocks were not seen.
    assert planned.runs_by.calls == []
    assert model.head.weight.grad is None and model.head.weight.abs().sum() > 0
    with pytest.raises(TypeError, match=r"state_dict.*apply\(\) again"):
        pickle.dumps(planned)


def test_recomputation_costs_what_the_plan_says() -> None:
    model = models.mlp([8] * 9)
    planned = apply(model, Plan(halved(0, 8), "halved"))
    planned(torch.randn(4, 8)).sum().backward()
    # Forward, then once more in each checkpoint around a block; a second half inside another is
    # spared one of them.
    assert planned.runs_by.calls == [4, 3, 3, 2, 4, 3, 3, 2]


@pytest.mark.parametrize(
    ("draw", "times"), [(float, 0), (random.random, 2), (np.random.rand, 2), (random.gauss, 2)]
)
def test_generators_are_put_back_where_something_was_drawn(monkeypatch, draw, times) -> None:
    put_back = []
    monkeypatch.setattr(repeatable, "_set_draws", put_back.append)
    run = repeatable.drawing_alike(draw)
    run()
    assert not put_back
    run()
    assert len(put_back) == times


def test_a_mode_may_be_switched_after_planning() -> None:
    model = Encoder()
    planned = apply(model, every(20), tokens())
    model.blocks[1].eval()
    for _ in range(2):
        seed_all(0)
        wanted = model(tokens())
        seed_all(0)
        found = planned(tokens())
        assert torch.equal(found, wanted)
        found.sum().backward()
        planned.train()
    assert min(planned.runs_by.calls) > 0


def test_a_plan_for_other_blocks_is_refused_at_the_first_forward() -> None:
    planned = apply(Encoder(), every(14))
    with pytest.raises(ValueError, match="the plan is for 14 blocks, the model has 20"):
        planned(tokens())


@pytest.mark.parametrize(
    ("plan", "error", "words"),
    [
        (Plan(kept(0, 3), ""), ValueError, "plan is for 3 blocks, the model has 4"),
        (
            Plan((*kept(0, 3), Keep(3, 7)), ""),
            ValueError,
            "options go from 0 to 1: save all",
        ),
        ("[0 1 2 3]", TypeError, "not a Plan"),
    ],
)
def test_bad_plans(plan, error, words) -> None:
    with pytest.raises(error, match=words):
        apply(models.convnet(4), plan)


def test_blocks_of_another_model_are_refused() -> None:
    with pytest.raises(ValueError, match="another model"):
        apply(models.convnet(4), every(4), blocks=split(models.convnet(4)))


# ------------------------------------------------------------------------------------ random graphs


class Graph(nn.Module):
    """A random graph: each node adds up to three earlier values and applies an operator."""

    def __init__(self, nodes: list[tuple[int, list[int]]]) -> None:
        super().__init__()
        self.nodes = nodes
        self.layers = nn.ModuleList(self.layer(kind) for kind, _ in nodes)

    @staticmethod
    def layer(kind: int) -> nn.Module:
        return [
            lambda: nn.Conv2d(3, 3, 3, padding=1),
            lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)),
            lambda: nn.Dropout(0.3),
            lambda: nn.BatchNorm2d(3),
            lambda: nn.GELU(),
        ][kind]()

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for (_, sources), layer in zip(self.nodes, self.layers, strict=True):
            total = values[sources[0] % len(values)] * 1.0
            for source in sources[1:]:
                total += values[source % len(values)]
            values.append(layer(total))
        return torch.cat(values[1:], dim=1)


node = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 9), min_size=1, max_size=3))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(node, min_size=2, max_size=8), st.integers(0, 6))
def test_random_graphs_keep_their_gradients_bitwise(nodes, number) -> None:
    torch.manual_seed(0)
    model = Graph([*nodes, (0, [len(nodes)]), (0, [len(nodes) + 1])])
    torch._dynamo.reset()
    blocks = split(model, images(2, 4))
    choices = list(plans(len(blocks)))
    report = verify(model, choices[number % len(choices)], images(2, 4), blocks=blocks)
    assert report.passed, report
