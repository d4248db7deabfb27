"""The exercise's check of notebook 20: the stub, wrong answers, the solution."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course import exercises

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def stub(net: nn.Module, batches: Batches) -> float: ...


def own_modes_afterwards(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Gives each layer back in the mode in which it came."""

    @functools.wraps(answer)
    def wrapped(net: nn.Module, batches: Batches) -> Any:
        modes = {module: module.training for module in net.modules()}
        result = answer(net.eval(), batches)
        for module, training in modes.items():
            module.training = training
        return result

    return wrapped


def recording(net: nn.Module, batches: Batches) -> float:
    losses = [F.cross_entropy(net(x), y, reduction="sum") for x, y in batches]
    return (sum(losses) / sum(len(y) for _, y in batches)).item()  # type: ignore[union-attr]


solution = own_modes_afterwards(torch.no_grad()(recording))
in_inference_mode = own_modes_afterwards(torch.inference_mode()(recording))
forgets_no_grad = own_modes_afterwards(recording)


def wakes_the_frozen(net: nn.Module, batches: Batches) -> float:
    training = net.training
    result = torch.no_grad()(recording)(net.eval(), batches)
    net.train(training)
    return result


@torch.no_grad()
def forgets_eval(net: nn.Module, batches: Batches) -> float:
    return (
        torch.cat([F.cross_entropy(net(x), y, reduction="none") for x, y in batches]).mean().item()
    )


@torch.no_grad()
def leaves_it_in_eval(net: nn.Module, batches: Batches) -> float:
    net.eval()
    return (
        torch.cat([F.cross_entropy(net(x), y, reduction="none") for x, y in batches]).mean().item()
    )


def always_train_afterwards(net: nn.Module, batches: Batches) -> float:
    result = leaves_it_in_eval(net, batches)
    net.train()
    return result


@torch.no_grad()
def mean_of_means(net: nn.Module, batches: Batches) -> float:
    training = net.training
    net.eval()
    losses = [F.cross_entropy(net(x), y).item() for x, y in batches]
    net.train(training)
    return sum(losses) / len(losses)


@torch.no_grad()
def returns_a_tensor(net: nn.Module, batches: Batches) -> torch.Tensor:
    return torch.tensor(solution(net, batches))


def first_batch_only(net: nn.Module, batches: Batches) -> float:
    return solution(net, list(batches)[:1])


@pytest.mark.parametrize("answer", [solution, in_inference_mode])
def test_solutions_pass(answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert exercises.check_20_validate(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (stub, "return the mean loss"),
        (lambda net, batches: None, "return the mean loss"),
        (lambda net, batches: 1.0, "never called"),
        (forgets_eval, "called in training mode"),
        (forgets_no_grad, "was recording"),
        (leaves_it_in_eval, "was True before and is False afterwards"),
        (always_train_afterwards, "frozen by eval() before"),
        (mean_of_means, "too much weight"),
        (
            wakes_the_frozen,
            "a layer that was frozen by eval() before is in training mode afterwards",
        ),
        (returns_a_tensor, "a Tensor came back"),
        (first_batch_only, "the mean loss is"),
    ],
)
def test_wrong_answers(
    answer: Callable[..., Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.check_20_validate(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert says in printed


def test_random_state_and_grad_mode_are_untouched() -> None:
    state = torch.get_rng_state()
    exercises.check_20_validate(solution)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_a_reader_s_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        exercises.check_20_validate(lambda net, batches: len(batches) // 0)
