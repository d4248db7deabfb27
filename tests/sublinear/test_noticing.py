"""What is noticed while a model is traced, one by one, and that torch is as before afterwards."""

from __future__ import annotations

import builtins
import cProfile
import gc
import pstats
import random
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from sublinear.blocks import noticing as module
from sublinear.blocks.executed import watching
from sublinear.blocks.noticing import _NOTICED, Lost, noticing


def entered(context: object) -> object:
    with context as inside:  # type: ignore[attr-defined]
        return inside


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


found_before = Doubling.apply
X = torch.ones(3)
LAYER = nn.Linear(3, 3)


@torch.no_grad()
def decorated() -> None:
    pass


@torch.autocast("cpu")
def cast() -> None:
    pass


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "no_grad": (lambda: entered(torch.no_grad()), "switches gradients"),
    "decorated": (decorated, "switches gradients"),
    "set_grad_enabled": (lambda: torch.set_grad_enabled(False), "switches gradients"),
    "inference": (lambda: entered(torch.inference_mode()), "switches gradients"),
    "autocast": (lambda: entered(torch.autocast("cpu")), "autocast"),
    "no autocast": (lambda: entered(torch.autocast("cpu", enabled=False)), "autocast"),
    "autocast, decorated": (cast, "autocast"),
    "asks for autocast": (lambda: torch.is_autocast_enabled("cpu"), "autocast"),
    "checkpoint": (lambda: checkpoint(torch.sin, X, use_reentrant=False), "checkpoints by itself"),
    "reentrant": (lambda: checkpoint(torch.sin, X, use_reentrant=True), "checkpoints by itself"),
    "saved tensors": (lambda: entered(torch.autograd.graph.save_on_cpu()), "saved tensors"),
    "function mode": (lambda: entered(TorchFunctionMode()), "a mode that intercepts"),
    "default device": (lambda: entered(torch.device("cpu")), "a default device"),
    "dispatch mode": (lambda: entered(TorchDispatchMode()), "a mode that intercepts"),
    "apply, found before": (lambda: found_before(X), "custom autograd.Function"),
    "functional call": (
        lambda: torch.func.functional_call(LAYER, dict(LAYER.named_parameters()), (X,)),
        "swaps parameters",
    ),
    "torch's seed": (lambda: torch.manual_seed(0), "random generator"),
    "forked": (lambda: entered(torch.random.fork_rng(devices=[])), "random generator"),
    "Python's state": (lambda: random.setstate(random.getstate()), "random generator"),
    "NumPy's state": (lambda: np.random.set_state(np.random.get_state()), "random generator"),
    "NumPy's new generator": (lambda: np.random.default_rng(0), "random generator"),
    "torch draws": (lambda: torch.rand(3), r"constant \(rand\)"),
    "torch computes": (lambda: X * 2, r"constant \(mul\)"),
    "item": (lambda: X.sum().item(), "constant"),
}


@pytest.mark.parametrize("name", CASES)
def test_noticed(name: str) -> None:
    act, words = CASES[name]
    owners = []
    for owner, attribute, _ in _NOTICED:
        owners.append((owner, attribute, vars(owner).get(attribute)))
    with pytest.raises(Lost, match=words), noticing(lambda *args: None) as noticed:
        act()
    assert len(noticed) == 1
    for owner, attribute, before in owners:
        assert vars(owner).get(attribute) is before
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(Doubling.apply(X), 2 * X)


def test_the_same_grad_mode_is_no_change() -> None:
    with noticing(lambda *args: None) as noticed:
        entered(torch.enable_grad())
    assert not noticed


def test_functions_are_handed_over() -> None:
    with noticing(lambda *args: args) as noticed:
        assert Doubling.apply(1) == (Doubling, 1)
    assert not noticed


def test_who_asks_for_the_type_of_a_value() -> None:
    proxy = fx.Proxy(fx.Node(fx.Graph(), "x", "placeholder", "x", (), {}), fx.Tracer())
    for ask in (
        lambda: isinstance(proxy, torch.Tensor),
        lambda: torch.is_tensor(proxy),
        lambda: isinstance(proxy, (int, list)),
    ):
        with pytest.raises(Lost, match="asks for the type"), noticing(lambda *args: None):
            ask()
    with noticing(lambda *args: None) as noticed:
        assert isinstance(proxy, fx.Proxy) and not isinstance(X, int)
    assert not noticed and not torch.is_tensor(proxy)


def every_day() -> list[object]:
    """What another thread may do at any time, and what comes of it."""
    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad(), torch.autocast("cpu"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = torch.rand(3)
        inside = [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), drawn.tolist()]
    with torch.inference_mode():
        inside.append(torch.is_inference_mode_enabled())
    twice = checkpoint(torch.sin, weight, use_reentrant=False)
    (Doubling.apply(twice) + found_before(twice)).sum().backward()
    proxy = fx.Proxy(fx.Node(fx.Graph(), "x", "placeholder", "x", (), {}), fx.Tracer())
    return [inside, weight.grad.tolist(), np.random.default_rng(0).random(), torch.is_tensor(proxy)]


def test_other_threads_go_on_as_ever() -> None:
    expected, found = every_day(), []
    with noticing(lambda *args: None) as noticed:
        other = threading.Thread(target=lambda: found.append(every_day()))
        other.start()
        other.join()
    assert found == [expected] and not noticed


def test_an_interrupt_leaves_nothing_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn:
        """The interrupt comes as the function is put back."""

        def __setattr__(self, name: str, value: object) -> None:
            if vars(self).setdefault("writes", 0) == 1:
                vars(self)["writes"] = 2
                raise KeyboardInterrupt
            vars(self)["writes"] += 1
            vars(self)[name] = value

    stubborn = Stubborn()
    vars(stubborn)["act"] = before = len
    kind = isinstance
    monkeypatch.setattr(module, "_NOTICED", (*_NOTICED, (stubborn, "act", "acts")))
    with pytest.raises(KeyboardInterrupt), noticing(lambda *args: None):
        assert vars(stubborn)["act"] is not before and builtins.isinstance is not kind
    assert vars(stubborn)["act"] is before and builtins.isinstance is kind


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
