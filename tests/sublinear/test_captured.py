"""What torch's compiler captures trains by a plan as it does plainly, bit by bit.

Also after something that the plan does not know has changed: the compiler's guards see it, and
capture anew.
"""

from __future__ import annotations

import copy
import gc
import inspect
import random
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import settings_elsewhere as elsewhere
import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

import sublinear
from labkit.restore.generators import rng_state
from sublinear import budget, together
from sublinear.backend import Backend, captured
from sublinear.capture import watching
from sublinear.capture.watching import autocast_level, name_of
from sublinear.equal import Seen, copied, differences
from sublinear.nodes import Checkpoint, Keep
from sublinear.plan import Plan

WIDTH = 16
ROWS = 256

Change = Callable[[], object]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Layers(nn.Module):
    """Linear layers, with what a case gives between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:3]:
            x = layer(x).tanh()
        x = self.odd(x)
        for layer in self.layers[3:]:
            x = layer(x).sigmoid()
        return x

    def odd(self, x: Tensor) -> Tensor:
        return x


class Normed(Layers):
    """Batch norm, whose statistics move once a step, and an activation in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.relu = nn.BatchNorm1d(WIDTH), nn.ReLU(inplace=True)

    def odd(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.relu(self.norm(layer(x)))
        return x


class Dropping(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layers[0](x), 0.5) + torch.rand_like(x)


class Averaging(Layers):
    """A buffer that forward writes and reads, and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.zeros(()))

    def odd(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.count += 1
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        x = self.layers[0](x).tanh() + self.mean
        return self.layers[1](x).tanh() * self.count


class InPlace(Layers):
    """Changes what an earlier piece has made, and a view of it."""

    def odd(self, x: Tensor) -> Tensor:
        y = self.layers[0](x)
        z = self.layers[1](x)
        y += z
        y[:, 0].mul_(2)
        return self.layers[2](y)


class Casting(Layers):
    """Modes that are switched on and off within."""

    def odd(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.layers[1](self.layers[0](x).tanh()).float()
        with torch.no_grad():
            z = self.layers[1](self.layers[0](x))
        return self.layers[2](y + z)


class ByRow(Layers):
    """Under vmap, whose tensors have no storage of their own."""

    def odd(self, x: Tensor) -> Tensor:
        layer = self.layers[0]
        return torch.vmap(lambda row: layer(row).tanh() + layer.bias.square())(x)


class Broken(Layers):
    """Two graphs: the compiler cannot follow what lies between."""

    def odd(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x


class Moving(Layers):
    """A momentum encoder: forward writes parameters that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def odd(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.slow.weight.mul_(0.9).add_(self.layers[0].weight, alpha=0.1)
        return self.layers[0](x) - self.slow(x)


class Auxiliary(Layers):
    """Leaves a loss behind as an attribute."""

    def odd(self, x: Tensor) -> Tensor:
        self.aux = x.square().mean()
        return x


class OwnGenerator(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def odd(self, x: Tensor) -> Tensor:
        return x * float(self.rng.random())


class GlobalGenerators(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * random.random()


KINDS = [
    Layers,
    Normed,
    Dropping,
    Averaging,
    InPlace,
    Casting,
    ByRow,
    Broken,
    Moving,
    Auxiliary,
    OwnGenerator,
    GlobalGenerators,
]


def rows(count: int = ROWS) -> Tensor:
    return torch.randn(count, WIDTH)


def trained(run: nn.Module, model: nn.Module, sizes: tuple[int, ...]) -> Seen:
    """Copies of what steps on batches of these sizes leave behind."""
    torch.manual_seed(1)
    random.seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen: Seen = {}
    for step, size in enumerate(sizes):
        loss = run(rows(size)).square().mean()
        loss.backward()
        seen[f"loss {step}"] = copied(loss)
        for name, parameter in model.named_parameters():
            seen[f"gradient of {name} {step}"] = copied(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        seen[name] = copied(tensor)
    for kind, state in rng_state().items():
        seen[f"random state of {kind}"] = state
    return seen


def every() -> Backend:
    """Each piece in a checkpoint."""
    return sublinear.backend(method="every", max_overhead=100.0, repeats=1)


def saved_bytes(run: Callable[[Tensor], Tensor], x: Tensor) -> int:
    held: dict[int, int] = {}
    keep = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not isinstance(tensor, nn.Parameter):
            keep.append(tensor)
            held[storage._cdata] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run(x)
    return sum(held.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_captured_trains_as_it_does_plainly(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    other = copy.deepcopy(model)
    by_plan = every()
    wanted = trained(model, model, (ROWS, ROWS, ROWS // 2))
    found = trained(torch.compile(other, backend=by_plan), other, (ROWS, ROWS, ROWS // 2))
    assert not differences(wanted, found)
    assert by_plan.planned and all(len(graph.plan) > 1 for graph in by_plan.planned)
    if kind is Broken:
        assert len(by_plan.planned) > 1


def test_a_plain_training_is_the_same_after_one_that_switches_autocast_in_a_piece() -> None:
    """A checkpoint may end between the switches: autocast must not stay open, and keep weights."""
    torch.manual_seed(0)
    before, planned, after = (Casting() for _ in range(3))
    for other in (planned, after):
        other.load_state_dict(before.state_dict())
    wanted = trained(before, before, (ROWS, ROWS // 2))
    trained(torch.compile(planned, backend=every()), planned, (ROWS, ROWS // 2))
    assert autocast_level() == 0
    assert not differences(wanted, trained(after, after, (ROWS, ROWS // 2)))


def test_an_error_under_vmap_leaves_no_level_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(node: fx.Node) -> list[fx.Node]:
        if name_of(node) == "tanh" and torch._C._functorch.get_dynamic_layer_stack_depth():
            raise ValueError("not under vmap")
        return []

    monkeypatch.setattr(watching, "_written", fails)
    model, by_plan = ByRow(), every()
    planned = torch.compile(model, backend=by_plan)
    x = rows()
    assert torch.equal(planned(x), model(x))
    assert not by_plan.planned and "not under vmap" in str(by_plan)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_less_is_saved() -> None:
    model = Normed()
    by_plan = every()
    planned = torch.compile(model, backend=by_plan)
    planned(rows()).sum().backward()
    assert saved_bytes(planned, rows()) < 0.7 * saved_bytes(model, rows())


def test_in_evaluation_and_without_gradients_it_runs_plainly() -> None:
    model = Layers()
    by_plan = every()
    planned = torch.compile(model, backend=by_plan)
    x = rows()
    with torch.no_grad():
        assert torch.equal(planned(x), model(x))
    assert not by_plan.graphs
    assert str(by_plan).startswith("no graph was captured yet")


# ---------------------------------------------------------------------- what changes is never other


class OfAModule(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * elsewhere.ALPHA


class OfAClass(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * elsewhere.Hyper.alpha


class OfAnotherFile(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return elsewhere.twice_removed(x)


class Deep(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.settings = {"a": [{"b": {"c": 1.0}}]}

    def odd(self, x: Tensor) -> Tensor:
        return x * self.settings["a"][0]["b"]["c"]


class ByAMethod(Layers):
    def settings(self) -> type[elsewhere.Hyper]:
        return elsewhere.Hyper

    def odd(self, x: Tensor) -> Tensor:
        return x * self.settings().alpha


class NoneBuffer(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", None)

    def odd(self, x: Tensor) -> Tensor:
        return x if self.scale is None else x * self.scale


def _deep(model: nn.Module) -> None:
    model.settings["a"][0]["b"]["c"] = 3.0


def _buffer(model: nn.Module) -> None:
    model.scale = torch.tensor(3.0)


SILENT = {
    "a constant of a module": (OfAModule, lambda model, patch: patch(elsewhere, "ALPHA", 3.0)),
    "an attribute of a class": (
        OfAClass,
        lambda model, patch: patch(elsewhere.Hyper, "alpha", 3.0),
    ),
    "a global of another file": (
        OfAnotherFile,
        lambda model, patch: patch(elsewhere, "READ_BY_HELPER", 3.0),
    ),
    "four containers deep": (Deep, lambda model, patch: _deep(model)),
    "a class that a method gives": (
        ByAMethod,
        lambda model, patch: patch(elsewhere.Hyper, "alpha", 3.0),
    ),
    "a buffer that was None": (NoneBuffer, lambda model, patch: _buffer(model)),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_changes_later_is_captured_anew(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, change = SILENT[case]
    model = kind()
    by_plan = every()
    planned, x = torch.compile(model, backend=by_plan), rows()
    before = planned(x)
    assert torch.equal(before, model(x))
    change(model, monkeypatch.setattr)
    after = planned(x)
    assert torch.equal(after, model(x)) and not torch.equal(before, after)
    assert len(by_plan.planned) == 2


@pytest.mark.parametrize("kind", [Tensor.clone, nn.Parameter])
def test_functional_call_computes_with_what_it_is_given(kind: Callable[[Tensor], Tensor]) -> None:
    model = Layers()
    planned, x = captured(model, every()), rows()
    planned(x).sum().backward()
    other = {}
    for name, parameter in model.named_parameters():
        other[name] = kind(2 * parameter.detach()).requires_grad_()
    grads = []
    for each in (model, planned):
        loss = torch.func.functional_call(each, other, (x,)).square().mean()
        grads.append(torch.autograd.grad(loss, list(other.values())))
    assert all(map(torch.equal, *grads))


# ------------------------------------------------------------------------------------------ budgets


def test_a_share_of_the_plain_peak() -> None:
    model = Odd()
    by_plan = sublinear.backend("75 %", repeats=1)
    torch.compile(model, backend=by_plan)(rows(1024)).sum().backward()
    [graph] = by_plan.planned
    peak = together.plain(by_plan.chains()).peak_bytes
    assert graph.plan.costs.peak_bytes <= 0.75 * peak
    assert f"{len(graph.plan)} pieces" in str(by_plan)


def test_a_budget_that_no_plan_keeps_is_refused_at_each_call() -> None:
    planned = torch.compile(Layers(), backend=sublinear.backend(1000, repeats=1))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"budget=1000 bytes .* is too small"):
            planned(rows())


def test_several_graphs_share_a_budget() -> None:
    by_plan = sublinear.backend("90 %", repeats=1)
    model = Broken()
    planned = torch.compile(model, backend=by_plan)
    planned(rows(1024)).sum().backward()
    chains = by_plan.chains()
    assert len(chains) == 2
    limit = 0.9 * together.plain(by_plan.chains()).peak_bytes
    assert by_plan.plan(limit).peak_bytes <= limit < together.plain(by_plan.chains()).peak_bytes


# ---------------------------------------------------------------------------------------------- fit


class Odd(Normed):
    """Takes any keywords, and no module feeds another one: neither traced nor wrapped."""

    def forward(self, x: Tensor, **options: object) -> Tensor:
        y = x
        for layer in self.layers:
            x = y + layer(x + 1).tanh()
        return self.odd(x)

    def odd(self, x: Tensor) -> Tensor:
        return 2 * self.norm(x * 2).relu()


def test_fit_lets_the_compiler_capture_what_it_cannot_read() -> None:
    model, x = Odd(), rows(1024)
    before = copy.deepcopy(model.state_dict())
    fitted = sublinear.fit(model, x, max_overhead=5.0, repeats=1)
    assert fitted.kind == "captured" and "captured blocks on cpu" in str(fitted)
    assert fitted.proof == "one step is the plain one bit by bit"
    assert fitted.predicted.peak_bytes < 0.9 * fitted.plain.peak_bytes
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    plain = copy.deepcopy(model)
    wanted, found = trained(plain, plain, (1024,) * 3), trained(fitted.model, model, (1024,) * 3)
    assert not differences(wanted, found)
    fitted.model.eval()
    assert torch.equal(fitted.model(x), model(x))


def test_fit_keeps_to_a_budget_by_a_real_step() -> None:
    model, x = Odd(), rows(4096)
    fitted = sublinear.fit(model, x, budget=0.75, repeats=1)
    assert fitted.measured_bytes is not None
    assert fitted.measured_bytes <= 0.75 * fitted.plain.peak_bytes
    assert fitted.predicted.peak_bytes < fitted.plain.peak_bytes


@pytest.mark.parametrize("way", ["fit", "apply", "backend"])
def test_no_batch_stays_alive(way: str) -> None:
    model, x = Layers(), rows()
    if way == "fit":
        planned = sublinear.fit(model, x, max_overhead=5.0, repeats=1).model
    elif way == "apply":
        plan = Plan(tuple(Checkpoint((Keep(number),)) for number in range(6)), "every")
        planned = sublinear.apply(model, plan, x)
    else:
        planned = torch.compile(model, backend=sublinear.backend(repeats=1))
    planned(x).sum().backward()
    batch = weakref.ref(x)
    del x
    gc.collect()
    assert batch() is None
    planned(rows()).sum().backward()


class Filling(Layers):
    """Fills a list: once a forward, though its pieces run again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def odd(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().mean())
        return x


def test_a_list_that_forward_fills_is_filled_once() -> None:
    model, x = Filling(), rows()
    fitted = sublinear.fit(model, x, method="every", max_overhead=100.0, repeats=1)
    assert not model.seen
    fitted.model(x).sum().backward()
    assert len(model.seen) == 1
    assert "torch's compiler captures 2 graphs, 1 planned" in fitted.note


def test_a_fitted_graph_is_not_profiled_again(monkeypatch) -> None:
    def again(*args: object) -> None:
        raise AssertionError("it is profiled again")

    monkeypatch.setattr(Backend, "_profile", again)
    fitted = sublinear.fit(Layers(), rows(), max_overhead=5.0, repeats=1)
    fitted.model(rows()).sum().backward()


@pytest.mark.parametrize("kind", [Odd, Layers])
def test_a_planned_model_has_the_name_and_the_signature_of_its_own(kind: type[nn.Module]) -> None:
    model = kind()
    planned = sublinear.fit(model, rows(), max_overhead=5.0, repeats=1).model
    assert isinstance(planned, kind) and type(planned).__name__ == kind.__name__
    assert inspect.signature(planned.forward) == inspect.signature(model.forward)


class Nested(nn.Module):
    """Modules in a list and in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in "12")
        self.last = nn.ModuleDict({"a": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last["a"](x)


@pytest.mark.parametrize("way", ["compile", "fit"])
def test_pieces_have_the_names_of_modules(way: str) -> None:
    by_plan = Backend(budget.Budget(), 100.0, "menu", 1)
    model = Nested()
    planned = captured(model, by_plan)
    if way == "compile":
        planned = torch.compile(model, backend=by_plan)
    planned(torch.randn(ROWS, WIDTH)).sum().backward()
    names = [block.name for block in by_plan.main_plan.known_chain.blocks]
    assert names == ["layers.0.0", "layers.1.0", "last.a.0"]
    assert set(names) <= dict(model.named_modules()).keys()
