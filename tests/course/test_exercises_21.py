"""The exercise's check of notebook 21: the stub, wrong answers, the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course import exercises


def recalibrate(
    net: nn.Module,
    batches: list[torch.Tensor],
    *,
    reset: bool = True,
    plain: bool = True,
    dropout: bool = False,
    all_norms: bool = True,
    give_back: bool = True,
    modes: bool = True,
) -> None:
    """The solution, and with a switch turned a typical wrong answer."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta, training = [norm.momentum for norm in norms], net.training
    net.train(dropout)
    for norm in norms if all_norms else norms[:1]:
        if reset:
            norm.reset_running_stats()
        norm.momentum = None if plain else norm.momentum
        norm.train()
    with torch.no_grad():
        for batch in batches:
            net(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum if give_back else norm.momentum
    if modes:
        net.train(training)


def stub(net: nn.Module, batches: list[torch.Tensor]) -> None: ...


def trains_too(net: nn.Module, batches: list[torch.Tensor]) -> None:
    recalibrate(net, batches)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.99)


def only_last_batch(net: nn.Module, batches: list[torch.Tensor]) -> None:
    recalibrate(net, batches[-1:])


def but(**changes: bool) -> Callable[..., None]:
    return lambda net, batches: recalibrate(net, batches, **changes)


def test_the_solution_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_21_recalibrate(recalibrate) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (stub, "still the old ones"),
        (lambda net, batches: None, "still the old ones"),
        (but(reset=False), "plain average"),
        (but(plain=False), "plain average"),
        (only_last_batch, "plain average"),
        (but(dropout=True), "a later one is not"),
        (but(all_norms=False), "a later one is not"),
        (but(give_back=False), "momentum was 0.1 and is None"),
        (but(modes=False), "training=True before, but afterwards not in"),
        (trains_too, "weights have changed"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_21_recalibrate(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_random_state_and_grad_mode_are_untouched() -> None:
    state = torch.get_rng_state()
    exercises.check_21_recalibrate(but(dropout=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(AttributeError, match="moduls"):
        exercises.check_21_recalibrate(lambda net, batches: net.moduls())
