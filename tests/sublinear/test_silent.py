"""What a plan could hold without a word: it follows the plain model.

Each case changes one value after the model was planned. The next forward is the plain model's with
the new value. What no guard of the compiler watches is listed by `UNNOTICED`, and in the README.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import settings_elsewhere as elsewhere
import torch
from settings_elsewhere import Child, Dice, Holder, Hyper, Scale, remembered
from torch import Tensor, nn

from labkit.device import seed_all
from labkit.restore import restoring
from sublinear.apply import apply
from sublinear.fit import fit
from sublinear.planner import plan
from sublinear.profiling import profile
from sublinear.split import split

WIDTH = 6


def rows() -> Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(2))


class Layers(nn.Module):
    """Linear layers, and between them what a case gives; it is not part of any other module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:2]:
            x = layer(x).tanh()
        x = self.odd(x)
        for layer in self.layers[2:]:
            x = layer(x)
        return x

    def odd(self, x: Tensor) -> Tensor:
        return x


def planned(model: nn.Module, modules: list[str] | None = None) -> nn.Module:
    blocks = split(model, rows(), modules=modules)
    chain = profile(model, rows(), blocks=blocks, repeats=1)
    return apply(model, plan(chain, method="every"), blocks=blocks)


def follows(
    model: nn.Module, change: Callable[[], object], modules: list[str] | None = None
) -> bool:
    """Whether the planned model computes with what is changed."""
    by_plan, x = planned(model, modules), rows()
    before = by_plan(x)
    assert torch.equal(before, model(x))
    change()
    expected = model(x)
    assert not torch.equal(before, expected)
    found = by_plan(x)
    assert torch.equal(found, expected) or torch.equal(found, before)
    return torch.equal(found, expected)


# ----------------------------------------------------------------------- values that a loop changes


class OfAModule(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * elsewhere.ALPHA


class OfAClassInAModule(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * elsewhere.Hyper.alpha


class OfAClass(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * Hyper.alpha


class OfABaseClass(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * Child.alpha


class OfItsOwnClass(Layers):
    alpha = 1.0

    def odd(self, x: Tensor) -> Tensor:
        return x * type(self).alpha


class ByAMethod(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * self.settings().alpha

    def settings(self) -> type:
        return Hyper


class ByAnotherName(Layers):
    def odd(self, x: Tensor) -> Tensor:
        settings = elsewhere
        return x * getattr(settings, "ALPHA")  # noqa: B009


class ByAHelper(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return elsewhere.scaled(x)


class ByAnImport(Layers):
    def odd(self, x: Tensor) -> Tensor:
        from settings_elsewhere import ALPHA

        return x * ALPHA


class ByACache(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * remembered().alpha


class ByAContext(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * elsewhere.WITHIN.get()


class OptionalInAModule(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * getattr(elsewhere, "MISSING", 1.0)


class Optional(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * self.later if hasattr(self, "later") else x


class ByTheEnvironment(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * float(os.environ.get("SUBLINEAR_ALPHA", "1"))


class ByTheEnvironmentShorter(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * float(os.getenv("SUBLINEAR_ALPHA", "1"))


DECORATED = {"alpha": 1.0}


class Decorated(Layers):
    @elsewhere.by(DECORATED)
    def odd(self, x: Tensor) -> Tensor:
        return x * 2


# The model, and what to change.
GLOBALS: dict[str, tuple[type[Layers], Callable[[pytest.MonkeyPatch], object]]] = {
    "a module": (OfAModule, lambda p: p.setattr(elsewhere, "ALPHA", 3.0)),
    "a class in a module": (OfAClassInAModule, lambda p: p.setattr(Hyper, "alpha", 3.0)),
    "a class": (OfAClass, lambda p: p.setattr(Hyper, "alpha", 3.0)),
    "a base class": (OfABaseClass, lambda p: p.setattr(Hyper, "alpha", 3.0)),
    "its own class": (OfItsOwnClass, lambda p: p.setattr(OfItsOwnClass, "alpha", 3.0)),
    "a method's class": (ByAMethod, lambda p: p.setattr(Hyper, "alpha", 3.0)),
    "a module, renamed": (ByAnotherName, lambda p: p.setattr(elsewhere, "ALPHA", 3.0)),
    "a helper's global": (ByAHelper, lambda p: p.setattr(elsewhere, "READ_BY_HELPER", 3.0)),
    "an import inside": (ByAnImport, lambda p: p.setattr(elsewhere, "ALPHA", 3.0)),
    "a cache": (ByACache, lambda p: p.setattr(remembered(), "alpha", 3.0, raising=False)),
    "a context variable": (ByAContext, lambda p: elsewhere.WITHIN.set(3.0)),
    "a decorator's settings": (Decorated, lambda p: p.setitem(DECORATED, "alpha", 3.0)),
    "missing in a module": (
        OptionalInAModule,
        lambda p: p.setattr(elsewhere, "MISSING", 3.0, raising=False),
    ),
    "the environment": (ByTheEnvironment, lambda p: p.setenv("SUBLINEAR_ALPHA", "3")),
    "the environment, shorter": (
        ByTheEnvironmentShorter,
        lambda p: p.setenv("SUBLINEAR_ALPHA", "3"),
    ),
}
# No guard of the compiler watches these, of all cases here.
UNNOTICED = {"missing in a module", "the environment", "the environment, shorter"}


@pytest.mark.parametrize("name", GLOBALS)
def test_a_value_outside_the_model_is_never_the_old_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, change = GLOBALS[name]
    try:
        assert follows(make(), lambda: change(monkeypatch)) == (name not in UNNOTICED)
    finally:
        elsewhere.WITHIN.set(1.0)


class Held(Layers):
    """Reads its settings by a function of the case."""

    def __init__(self, settings: object, read: Callable[[Any], float]) -> None:
        super().__init__()
        self.settings, self.read = settings, read

    def odd(self, x: Tensor) -> Tensor:
        return x * self.read(self.settings)


def deep() -> Any:
    return SimpleNamespace(v={"a": {"b": {"c": {"d": 1.0}}}})


def tenfold() -> list[Any]:
    inner: list[Any] = [1.0]
    for _ in range(10):
        inner = [inner]
    return inner


def innermost(settings: list[Any]) -> list[Any]:
    while isinstance(settings[0], list):
        settings = settings[0]
    return settings


def around() -> Any:
    settings = SimpleNamespace(alpha=1.0)
    settings.self = settings
    return settings


def set_deep(settings: Any) -> None:
    settings.v["a"]["b"]["c"]["d"] = 3.0


def set_innermost(settings: list[Any]) -> None:
    innermost(settings)[0] = 3.0


def set_first(settings: Any) -> None:
    settings[0] = 3.0


def set_alpha(settings: Any) -> None:
    settings.alpha = 3.0


def call_with(settings: Any) -> float:
    return float(settings(torch.ones(())))


def unregistered() -> list[nn.Module]:
    module = nn.Linear(1, 1)
    module.alpha = 1.0
    return [module]


CONTENTS: dict[str, tuple[Callable[[], Any], Callable[[Any], float], Callable[[Any], None]]] = {
    "five containers deep": (deep, lambda s: s.v["a"]["b"]["c"]["d"], set_deep),
    "ten lists deep": (tenfold, lambda s: innermost(s)[0], set_innermost),
    "a structure with a circle": (around, lambda s: s.self.self.alpha, set_alpha),
    "a deque": (lambda: deque([1.0]), lambda s: s[0], set_first),
    "an object that can be called": (Scale, lambda s: s.alpha, set_alpha),
    "a partial function": (
        lambda: partial(lambda held: held[0], [1.0]),
        lambda s: s(),
        lambda s: set_first(s.args[0]),
    ),
    "a module kept in a list": (unregistered, lambda s: s[0].alpha, lambda s: set_alpha(s[0])),
    "a property": (
        elsewhere.ByProperty,
        lambda s: s.alpha,
        lambda s: setattr(elsewhere, "READ_BY_HELPER", 3.0),
    ),
    "the class of an object": (
        Holder,
        lambda s: s.alpha,
        lambda s: setattr(Holder, "alpha", 3.0),
    ),
    "a class as an attribute": (
        lambda: Hyper,
        lambda s: s.alpha,
        lambda s: setattr(Hyper, "alpha", 3.0),
    ),
    "a module as an attribute": (
        lambda: elsewhere,
        lambda s: s.ALPHA,
        lambda s: setattr(elsewhere, "ALPHA", 3.0),
    ),
    "a class in a dict": (
        lambda: {"of": Hyper},
        lambda s: s["of"].alpha,
        lambda s: setattr(Hyper, "alpha", 3.0),
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_settings_of_the_model_are_never_the_old_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, attribute in (
        (elsewhere, "ALPHA"),
        (elsewhere, "READ_BY_HELPER"),
        (Hyper, "alpha"),
        (Holder, "alpha"),
    ):
        monkeypatch.setattr(owner, attribute, 1.0)
    settings, read, change = CONTENTS[name]
    model = Held(settings(), read)
    assert follows(model, lambda: change(model.settings))


def test_an_attribute_that_was_missing_may_come() -> None:
    model = Optional()
    assert follows(model, lambda: setattr(model, "later", 3.0))


def test_a_setting_may_be_named_as_a_method_of_modules() -> None:
    class Typed(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.type = 1.0

        def odd(self, x: Tensor) -> Tensor:
            return x * self.type

    model = Typed()
    assert follows(model, lambda: setattr(model, "type", 3.0))


@pytest.mark.parametrize("kind", ["buffer", "parameter"])
def test_a_tensor_that_was_none_may_come(kind: str) -> None:
    class Masked(Layers):
        def __init__(self) -> None:
            super().__init__()
            getattr(self, f"register_{kind}")("m", None)

        def odd(self, x: Tensor) -> Tensor:
            return x if self.m is None else x * self.m

    model = Masked()

    def change() -> None:
        tensor = torch.full((WIDTH,), 3.0)
        model.m = nn.Parameter(tensor) if kind == "parameter" else tensor

    assert follows(model, change)


def test_settings_without_end_are_followed() -> None:
    class Long(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.all = list(range(100_000))

        def odd(self, x: Tensor) -> Tensor:
            return x * (1 + self.all[0])

    model = Long()
    assert follows(model, lambda: model.all.insert(0, 3))


@pytest.mark.parametrize("name", GLOBALS)
def test_values_follow_where_modules_run_their_own_code(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, change = GLOBALS[name]
    try:
        chosen = ["layers.2", "layers.3"]
        assert follows(make(), lambda: change(monkeypatch), modules=chosen)
        monkeypatch.undo()
        elsewhere.WITHIN.set(1.0)
        inside = nn.Sequential(linear(), make(), linear())
        assert follows(inside, lambda: change(monkeypatch))
    finally:
        elsewhere.WITHIN.set(1.0)


# -------------------------------------------------------------------------- generators of one's own


class Draws(nn.Module):
    """Linear, and now and then twice as much, as ``chance`` says."""

    def __init__(self, chance: Callable[[], float], held: object = None, p: float = 0.5) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.chance, self.held, self.p = chance, held, p

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return 2 * x if self.chance() < self.p else x


def own(generator: Any) -> Callable[[], nn.Module]:
    return lambda: Draws(generator.random, generator)


def hidden(generator: Any) -> Callable[[], nn.Module]:
    return lambda: Draws(lambda: float(generator.random()))


def by_torch(generator: torch.Generator) -> Callable[[], nn.Module]:
    return lambda: Draws(lambda: float(torch.rand((), generator=generator)), {"of": [generator]})


class Plain(nn.Module):
    """Draws only if something rare happens, so that no try of two steps would find it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rng = nn.Linear(WIDTH, WIDTH), np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.rng.random() if x.sum() > 1e9 else self.layer(x)


GENERATORS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "Python": (own(random.Random(0)), r"1\.chance, a Random"),
    "NumPy": (own(np.random.default_rng(0)), r"1\.chance, a Generator"),
    "NumPy, old": (own(np.random.RandomState(0)), r"1\.chance, a RandomState"),
    "torch": (by_torch(torch.Generator()), r"1\.chance, a Generator"),
    "in a closure": (hidden(random.Random(0)), r"1\.chance, a Random"),
    "in an object": (
        lambda: Draws(elsewhere.Noise().draw),
        r"1\.chance, a Random",
    ),
    "not drawn from in this step": (Plain, r"1\.rng, a Generator"),
    "of another file": (
        lambda: Draws(lambda: float(elsewhere.RNG.random())),
        r"1\.chance, a Generator",
    ),
    "of another file, by a helper": (
        lambda: Draws(elsewhere.drawn),
        r"1\.chance, a Generator",
    ),
    "of another file, torch's": (
        lambda: Draws(lambda: float(torch.rand((), generator=elsewhere.TORCH_RNG))),
        r"1\.chance, a Generator",
    ),
    "of a class": (lambda: Draws(lambda: Dice.rng.random()), r"1\.chance, a Random"),
}


def linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


class Around(nn.Module):
    """The modules in question behind others, in a forward of its own."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(linear() for _ in range(4))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        x = self.parts[0](x).tanh()
        return x if len(self.parts) < 2 else self.parts[1](x)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_a_module_that_is_captured_draws_once(name: str) -> None:
    make, _ = GENERATORS[name]
    model = Around(make())
    by_plan = fit(model, rows(), method="every", repeats=1).model
    seen = []
    for each in (model, by_plan):
        with restoring(lambda each=each: each(rows())):
            for _ in range(20):
                each.zero_grad()
                each(rows()).square().mean().backward()
                seen.append([parameter.grad.clone() for parameter in each.parameters()])
    for one, two in zip(seen[:20], seen[20:], strict=True):
        assert all(map(torch.equal, one, two))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_a_module_in_a_sequential_is_refused(name: str) -> None:
    make, words = GENERATORS[name]
    model = nn.Sequential(linear(), make(), linear())
    with pytest.raises(ValueError, match=words) as refused:
        fit(model, rows(), max_overhead=100.0, repeats=1)
    assert "draw from torch's, NumPy's or Python's own" in str(refused.value)


class Outside(Layers):
    """Draws where nothing runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(0)

    def forward(self, x: Tensor, **options: object) -> Tensor:
        x = self.layers[1](self.layers[0](x))
        return self.layers[2](x * (1 + self.rng.random()))


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
def test_rare_events_of_the_global_generators_are_drawn_alike(p: float) -> None:
    def make() -> nn.Module:
        seed_all(3)
        return Around(Draws(random.random, p=p), Draws(rng_of_numpy, p=p))

    plain, model = make(), make()
    by_plan = planned(model)
    for step in range(60):
        seen = []
        for each in (plain, by_plan):
            seed_all(step)
            each.zero_grad()
            each(rows()).square().mean().backward()
            seen.append([parameter.grad.clone() for parameter in each.parameters()])
        assert all(map(torch.equal, *seen)), step


def rng_of_numpy() -> float:
    return float(np.random.random())


def test_a_generator_outside_the_planned_modules_is_no_matter() -> None:
    model = Outside()
    blocks = split(model, rows(), modules=["layers.0", "layers.1"])
    profile(model, rows(), blocks=blocks, repeats=1)


# ------------------------------------------------------------------------------------ other weights


def other(model: nn.Module, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    parameters = {}
    for name, parameter in model.named_parameters():
        parameters[name] = make((2 * parameter).detach()).requires_grad_()
    return parameters


def gradients(model: nn.Module, parameters: dict[str, Tensor]) -> list[Tensor]:
    loss = torch.func.functional_call(model, parameters, (rows(),)).square().mean()
    return list(torch.autograd.grad(loss, list(parameters.values())))


KINDS: dict[str, tuple[Callable[[], nn.Module], list[str] | None]] = {
    "captured": (Layers, None),
    "wrapped": (Layers, ["layers.2", "layers.3"]),
    "sequential": (lambda: nn.Sequential(*three()), None),
}


def three() -> list[nn.Module]:
    return [linear(), linear(), linear()]


@pytest.mark.parametrize("kind", KINDS)
def test_functional_call_with_other_tensors_runs_plain(kind: str) -> None:
    make, modules = KINDS[kind]
    model = make()
    by_plan = planned(model, modules)
    parameters = other(model, Tensor.clone)
    one, two = gradients(model, parameters), gradients(by_plan, parameters)
    assert all(map(torch.equal, one, two))
    own = dict(model.named_parameters())
    assert all(map(torch.equal, gradients(model, own), gradients(by_plan, own)))
    assert not by_plan.runs_by.calls.count(0)


@pytest.mark.parametrize("kind", KINDS)
def test_functional_call_with_other_parameters(kind: str) -> None:
    make, modules = KINDS[kind]
    model = make()
    by_plan = planned(model, modules)
    parameters = other(model, nn.Parameter)
    if kind == "captured":
        one, two = gradients(model, parameters), gradients(by_plan, parameters)
        assert all(map(torch.equal, one, two))
        return
    with pytest.raises(RuntimeError, match=r"weight.* another one in the forward pass"):
        gradients(by_plan, parameters)


def test_a_parameter_that_is_replaced_for_good_still_trains_by_the_plan() -> None:
    model = Layers()
    by_plan = planned(model)
    model.layers[1].weight = nn.Parameter(torch.eye(WIDTH))
    grads = []
    for each in (model, by_plan):
        each.zero_grad()
        each(rows()).square().mean().backward()
        grads.append([parameter.grad.clone() for parameter in each.parameters()])
    assert all(map(torch.equal, *grads))
