"""torch.compile as an experiment: what it costs is told, and nothing of it stays."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from labkit.results import Comparison, Measurement
from tests.whyslow.parts import Program, full, looked_at, mlp, row_batches, trainer
from whyslow import experiments, session
from whyslow.remedies import UNCOMPILED


@pytest.fixture
def subject(monkeypatch):
    """A small program; the compiler only traces."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    yield looked_at(Program(trainer(mlp(8, 1, 4), precision=full), row_batches(8, 4, 2)))
    torch.compiler.reset()


def test_what_was_compiled_is_given_up_and_the_models_are_as_before(subject):
    [experiment] = experiments.compiling(subject)
    [root] = subject.seen.roots
    before = experiments.compilations()
    result = experiment.run(subject.serve(), 1.0, pairs=2)
    assert experiments.compilations() > before and experiments.codes() == 0
    assert "forward" not in vars(root) and result.pairs == 2


def test_it_is_not_tried_where_the_program_has_compiled_code(subject):
    other = torch.compile(nn.Linear(4, 2))
    other(torch.zeros(3, 4))
    assert not list(experiments.compiling(subject))


def test_it_is_not_tried_where_compiling_takes_longer_than_what_is_left(subject):
    [experiment] = experiments.compiling(subject)
    told = session.Session(print, seconds=5.0)
    told.subject.step_seconds = 0.001
    told.restoration = SimpleNamespace(items=())
    assert experiment.compiles > 5 and told._experiment(experiment, 1) == 0.0
    assert "seconds=" in told.checked[UNCOMPILED]


@pytest.mark.parametrize(
    ("after", "words"), [(0.5, "compiling took 30.0 s, which pays after 60 steps"), (1.5, "")]
)
def test_what_compiling_costs_stands_beside_the_gain(subject, after, words):
    [experiment] = experiments.compiling(subject)
    sides = [Measurement("a", times=(1.0,) * 4), Measurement("b", times=(after,) * 4, cold=30.0)]
    found = experiment.finding(Comparison(*sides, "cpu"))
    assert words in found.how and ("pays after" in found.how) is bool(words)
