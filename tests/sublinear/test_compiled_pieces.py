"""A plan whose pieces Inductor compiles: the same training within rounding, within the budget."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import sublinear
from labkit.compiler import trouble_with_compiling
from labkit.memory import StorageTracker
from sublinear.probe import most_allocated, peak_of_compiled
from sublinear.profiling import training
from sublinear.proof import prove

WIDTH, ROWS = 32, 256


@pytest.fixture(scope="module")
def compiler() -> None:
    if trouble := trouble_with_compiling("cpu"):
        pytest.skip(f"nothing can be compiled here: {trouble}")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Biases before batch norm, whose gradients are rounding alone, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(4))
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nn.functional.dropout(norm(layer(x)).tanh(), 0.2)
        return x * self.scale


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def rows() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH)


def trained(model: nn.Module, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """What steps leave behind: losses, parameters and statistics."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    left = []
    for x in batches:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        left.append(loss.detach())
    left.append(torch.rand(3))
    return [*left, *(value.clone() for value in model.state_dict().values())]


def compiled_graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.usefixtures("compiler")
def test_it_trains_as_the_plain_one_and_keeps_to_its_budget() -> None:
    model, x = net(), rows()
    plain = copy.deepcopy(model)
    batches = [rows() for _ in range(4)]
    fitted = sublinear.fit(model, x, budget="60 %", repeats=1, compile=True)
    assert fitted.compiled and "within the rounding of compiled code" in fitted.proof
    assert fitted.measured_bytes is not None
    assert fitted.measured_bytes <= 0.6 * fitted.peak_of(fitted.original)
    assert fitted.plan.depth and "/" not in str(fitted.plan)
    for own, other in zip(trained(fitted.model, batches), trained(plain, batches), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("compiler")
def test_each_piece_is_compiled_once_and_none_where_that_is_not_asked_for() -> None:
    x = rows()
    counted = {}
    for asked in (False, True):
        torch._dynamo.reset()
        by_plan = sublinear.backend(max_overhead=100.0, repeats=1, compile=asked)
        model = torch.compile(net(), backend=by_plan)
        before = compiled_graphs()
        for _ in range(3):
            model(x).sum().backward()
        counted[asked] = compiled_graphs() - before
        pieces = len(by_plan.main_plan)
    # The compiler's own trial is one more.
    assert counted[True] - counted[False] == pieces + 1 > 3


@pytest.mark.usefixtures("compiler")
def test_a_spot_check_allows_rounding_and_nothing_else() -> None:
    fitted = sublinear.fit(
        net(), rows(), max_overhead=100.0, repeats=1, compile=True, check_every=2
    )
    for _ in range(4):
        fitted.model(rows()).sum().backward()
    # As if the compiler had missed it.
    plain = type(fitted.original).forward
    try:
        type(fitted.original).forward = lambda model, x: plain(model, x) * 1.01
        fitted.model(rows())
        with pytest.raises(RuntimeError, match="forward 6: the planned model no longer trains"):
            fitted.model(rows())
    finally:
        type(fitted.original).forward = plain


@pytest.mark.parametrize(("factor", "compiled", "same"), [(1e-5, True, True), (1e-5, False, False)])
def test_rounding_passes_only_where_pieces_are_compiled(
    factor: float, compiled: bool, same: bool
) -> None:
    model, other = net(), net()
    other.scale = 1 + factor
    other.load_state_dict(model.state_dict())
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        two.data = one.data
    proof = prove(model, Twin(model, 1 + factor), training(rows()), ROWS, compiled=compiled)
    assert (not proof.differences) is same


@pytest.mark.parametrize("factor", [1.01, 0.9])
def test_what_is_no_rounding_is_found(factor: float) -> None:
    model = net()
    proof = prove(model, Twin(model, factor), training(rows()), ROWS, compiled=True)
    assert proof.differences


class Twin(nn.Module):
    """The same model, with its output a little different."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x) * self.factor


def test_without_a_compiler_it_is_refused_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The module, which the function of the same name hides.
    module = sys.modules["sublinear.backend"]
    monkeypatch.setattr(module, "trouble_with_compiling", lambda device: f"no g++ for {device}")
    model, x = net(), rows()
    before = copy.deepcopy(model.state_dict())
    numbers = torch.get_rng_state()
    words = r"compile=True: PyTorch cannot compile for cpu here \(no g\+\+ for cpu\): install"
    with pytest.raises(ValueError, match=words):
        sublinear.fit(model, x, repeats=1, compile=True)
    assert torch.equal(torch.get_rng_state(), numbers)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    planned = torch.compile(model, backend=sublinear.backend(compile=True))
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            planned(x)


def test_modules_by_name_are_no_pieces() -> None:
    with pytest.raises(ValueError, match=r"compile=True and modules=\['layers.0'\]: choose one"):
        sublinear.fit(net(), rows(), modules=["layers.0"], compile=True)


def test_the_allocator_sees_what_operators_make() -> None:
    x, held = rows(), []

    def step() -> None:
        one = x * 2
        held.append(one + 1)
        del one
        held.append(held[0].sum())
        held.clear()

    with StorageTracker("cpu") as tracker:
        step()
    assert tracker.peak - tracker.existing == 2 * x.nbytes
    # The sum's own work space is seen as well.
    assert 2 * x.nbytes <= most_allocated(step) < 2 * x.nbytes + 64


@pytest.mark.usefixtures("compiler")
def test_and_what_compiled_code_makes() -> None:
    x = rows()

    @torch.compile(dynamic=False)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.sin() @ x.T

    step(x)
    size = ROWS * ROWS * x.element_size()
    assert peak_of_compiled(lambda: x.sin(), lambda: step(x)) == 2 * x.nbytes + size
