"""Whatever a model does, `fit` trains it as the plain one does, or refuses by name; never silence.

Each case trains three steps of both from the same state and compares them bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planner_models import Encoder, Norms, Tied, images, tokens
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from labkit.device import seed_all
from sublinear.apply import apply
from sublinear.fit import fit
from sublinear.fitted import Fitted
from sublinear.plan import every_block
from sublinear.planner import plan
from sublinear.profiling import profile, training
from sublinear.proof import prove
from sublinear.split import split

WIDTH = 6


def rows() -> Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(2))


class Layers(nn.Module):
    """Linear layers, and something odd between them, by its own code."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        self.extra, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(self.odd(x.tanh()))

    def odd(self, x: Tensor) -> Tensor:
        return x


class Inside(nn.Module):
    """The same, but the odd code stands in a module of its own."""

    def __init__(self, odd: nn.Module, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        self.odd = odd
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.last(self.odd(x))


def step_of(model: nn.Module, args: tuple[Any, ...]) -> Tensor:
    output = model(*args)
    loss = output.float().square().mean() if output.is_floating_point() else output.abs().mean()
    loss.backward()
    return loss.detach()


def trained(
    model: nn.Module,
    args: tuple[Any, ...],
    between: Callable[[nn.Module], object] = lambda model: None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Any]:
    """All that three steps leave behind; ``between`` changes the model between two steps."""
    seed_all(7)
    seen: list[Any] = []
    for step in range(3):
        if step:
            between(model)
        with around():
            seen.append(step_of(model, args))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    grad = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                    seen.append(grad.clone())
                    parameter -= 0.1 * grad
                parameter.grad = None
    seen += [parameter.detach().clone() for parameter in model.parameters()]
    seen += [buffer.clone() for buffer in model.buffers()]
    seen += [random.random(), float(np.random.random()), torch.rand(2)]
    return seen


def same(one: list[Any], two: list[Any]) -> bool:
    if len(one) != len(two):
        return False
    for left, right in zip(one, two, strict=True):
        if torch.is_tensor(left):
            if left.dtype != right.dtype or not torch.equal(left, right):
                return False
        elif left != right:
            return False
    return True


def trains_as_plain(
    make: Callable[[], nn.Module],
    args: tuple[Any, ...] = (),
    *,
    after: Callable[[nn.Module], object] = lambda model: None,
    **options: Any,
) -> Fitted:
    """Fit one of two equal models with checkpoints in its plan, train both, and compare."""
    args = args or (rows(),)
    seed_all(3)
    plain = make()
    seed_all(3)
    model = make()
    fitted = fit(model, args, repeats=1, method="every")
    assert "(" in str(fitted.plan) and fitted.proof
    after(plain)
    after(model)
    assert same(trained(plain, args, **options), trained(fitted.model, args, **options)), fitted
    return fitted


# ---------------------------------------------------------- what a trace would lose, all at the top


class Reverse(torch.autograd.Function):
    """A gradient-reversal layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return -grad


class Sign(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.sign() * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.scale, None


reverse = Reverse.apply
ALPHA = 1.0


class Reversing(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return Reverse.apply(x)


class ReversingByName(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return reverse(x)


class Binary(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return Sign.apply(x, 0.5)


class Stopped(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = self.extra(x)
        return x - target


class Decorated(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x + self.target(x)

    @torch.no_grad()
    def target(self, x: Tensor) -> Tensor:
        return x.exp()


class Inference(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            scale = x.abs().max()
        return x * scale.clone()


class Lower(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.extra(x).float()


class NotLower(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.extra(x)


class Coin(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return -x if random.random() < 0.5 else x


class Numpy(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * float(np.random.rand())


class TorchCoin(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return -x if torch.rand([]) < 0.5 else x


class Constant(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x * torch.rand(WIDTH)


class Forked(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return F.dropout(x, 0.5)


class Checkpointed(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return checkpoint(lambda value: self.extra(value).tanh(), x, use_reentrant=False)


class Stored(Layers):
    def odd(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return x.exp().sin()


class Packed(Layers):
    """Saves tensors as something else, which changes the gradients."""

    def odd(self, x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
            return x.exp().sin()


class Hooked(Layers):
    def odd(self, x: Tensor) -> Tensor:
        y = x.sin()
        if y.requires_grad:
            y.register_hook(lambda grad: 2 * grad)
        return y


class Penalty(Layers):
    def odd(self, x: Tensor) -> Tensor:
        if not x.requires_grad:
            return x
        (grad,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        return x + grad


class Mapped(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: row * row.sum())(x)


class Functional(Layers):
    """Calls a layer with the weights of another one."""

    def odd(self, x: Tensor) -> Tensor:
        return torch.func.functional_call(self.extra, dict(self.last.named_parameters()), (x,))


class Typed(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x.sin() if isinstance(x, Tensor) else x.cos()


class Asking(Layers):
    def odd(self, x: Tensor) -> Tensor:
        return x.sin() if torch.is_tensor(x) else x.cos()


class OfABuffer(Layers):
    """Computes with a buffer alone, and the loop changes that buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))

    def odd(self, x: Tensor) -> Tensor:
        return x * self.temperature.exp()


AT_THE_TOP = [
    Reversing,
    ReversingByName,
    Binary,
    Stopped,
    Decorated,
    Inference,
    Lower,
    NotLower,
    Coin,
    Numpy,
    TorchCoin,
    Constant,
    Forked,
    Checkpointed,
    Stored,
    Packed,
    Hooked,
    Penalty,
    Mapped,
    Functional,
    Typed,
    Asking,
    OfABuffer,
]
# What the compiler does not capture, or captures in a single piece.
WRAPPED = {Inference, Hooked, Penalty}


@pytest.mark.parametrize("make", AT_THE_TOP)
def test_odd_code_of_the_model_itself(make: type[Layers]) -> None:
    fitted = trains_as_plain(make)
    assert fitted.kind == ("wrapped" if make in WRAPPED else "captured"), fitted


class Odd(nn.Module):
    """The odd code of one of the models above as a module."""

    def __init__(self, make: type[Layers]) -> None:
        super().__init__()
        self.code = make.odd
        self.extra = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.code(self, x)

    def target(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.exp()


# The compiler captures a module's code as if it stood in the model; what it does not is wrapped.
INSIDE = [Coin, Numpy, Forked, Checkpointed, Inference, Hooked]


@pytest.mark.parametrize("make", INSIDE)
def test_odd_code_in_a_module(make: type[Layers]) -> None:
    fitted = trains_as_plain(lambda: Inside(Odd(make)))
    assert fitted.kind == ("wrapped" if make in WRAPPED else "captured"), fitted
    assert len(fitted.plan) >= (2 if make in WRAPPED else 4)


def test_gradient_reversal_inside_a_sequential() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), Odd(Reversing), nn.Linear(WIDTH, WIDTH))

    assert trains_as_plain(make).kind == "sequential"


@pytest.mark.parametrize("make", [Coin, Numpy, TorchCoin])
def test_random_code_in_a_sequential_draws_the_same_again(make: type[Layers]) -> None:
    trains_as_plain(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), Odd(make), nn.Linear(WIDTH, 3)))


# --------------------------------------------------------------------- values that the loop changes


class Annealed(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.unread = 1.0, 1.0
        self.config = SimpleNamespace(alpha=1.0, names=["a"])
        self.gates = [True, False]

    def odd(self, x: Tensor) -> Tensor:
        y = x * self.alpha * self.config.alpha * ALPHA
        return y.sin() if self.gates[0] else y.cos()


def anneal(model: Any) -> None:
    model.alpha *= 0.5


def anneal_config(model: Any) -> None:
    model.config.alpha *= 0.5


def close_gate(model: Any) -> None:
    model.gates[0] = False


@pytest.mark.parametrize("change", [anneal, anneal_config, close_gate])
def test_a_value_that_forward_reads_may_change(change: Callable[[Any], None]) -> None:
    assert trains_as_plain(Annealed, between=change).kind == "captured"


def test_a_global_may_change_and_an_attribute_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ALPHA", 1.0)
    fitted = fit(Annealed(), rows(), max_overhead=100.0, repeats=1)
    first = fitted.model(rows())
    assert torch.equal(first, fitted.original(rows()))
    monkeypatch.setitem(globals(), "ALPHA", 0.5)
    second = fitted.model(rows())
    assert torch.equal(second, fitted.original(rows())) and not torch.equal(first, second)
    del fitted.original.alpha
    with pytest.raises(AttributeError, match="alpha"):
        fitted.model(rows())


def test_a_value_in_a_module_that_runs_its_own_code_may_change() -> None:
    class Own(nn.Module):
        alpha = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.alpha if x.sum() > -1e9 else x

    def between(model: nn.Module) -> None:
        model.odd.alpha *= 0.5

    trains_as_plain(lambda: Inside(Own()), between=between)


def test_a_temperature_in_a_buffer_may_change() -> None:
    trains_as_plain(OfABuffer, between=lambda model: model.temperature.mul_(0.5))


class Masked(Layers):
    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        y = super().forward(x) * scale
        return y if mask is None else y * mask


@pytest.mark.parametrize(
    ("given", "now"),
    [((), (torch.ones(WIDTH),)), ((torch.ones(WIDTH),), ()), ((None, 2.0), (None, 3.0))],
)
def test_arguments_of_another_kind(given: tuple[Any, ...], now: tuple[Any, ...]) -> None:
    fitted = fit(Masked(), (rows(), *given), max_overhead=100.0, repeats=1)
    for arguments in (given, now, given):
        found = fitted.model(rows(), *arguments)
        assert torch.equal(found, fitted.original(rows(), *arguments))


def test_a_part_in_evaluation_mode() -> None:
    def make() -> nn.Module:
        model = Norms()
        model.shared.eval()
        return model

    trains_as_plain(make, (images(),), between=lambda model: model.shared.train())


def test_a_module_that_is_replaced() -> None:
    def another(model: nn.Module) -> None:
        model.last = nn.Linear(WIDTH, WIDTH)

    trains_as_plain(Layers, between=another)
    fitted = fit(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), rows(), repeats=1)
    fitted.original[0] = nn.Linear(6, 6)
    with pytest.raises(RuntimeError, match=r"0.* was replaced"):
        fitted.model(rows())


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook"])
def test_hooks_that_come_later(kind: str) -> None:
    def double(module: nn.Module, given: Any, *result: Any) -> Any:
        return 2 * (result or given)[0]

    def hook(model: nn.Module) -> None:
        getattr(model.layers[1], f"register_{kind}")(double)

    trains_as_plain(Layers, between=hook)
    layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    fitted = fit(layers, rows(), max_overhead=100.0, repeats=1)
    handle = getattr(layers[1], f"register_{kind}")(double)
    with pytest.raises(RuntimeError, match=r"1 has .*hooks since the model was planned"):
        fitted.model(rows())
    handle.remove()
    fitted.model(rows())


def test_precision_and_frozen_layers_may_change() -> None:
    trains_as_plain(Layers, after=lambda model: model.layers.requires_grad_(False))
    seed_all(3)
    plain = Layers()
    seed_all(3)
    fitted = fit(Layers(), rows(), max_overhead=100.0, repeats=1)
    plain.double()
    fitted.model.double()
    assert same(trained(plain, (rows().double(),)), trained(fitted.model, (rows().double(),)))


def test_autocast_around_the_step() -> None:
    trains_as_plain(Layers, around=partial(torch.autocast, "cpu", torch.bfloat16))


# -------------------------------------------------------------------------------- kinds of models


class InPlace(Layers):
    def odd(self, x: Tensor) -> Tensor:
        y = self.layers[0](x)
        y += x
        y.mul_(2).clamp_(-1)
        return F.relu(y, inplace=True)


class Views(Layers):
    def odd(self, x: Tensor) -> Tensor:
        left, right = self.layers[0](x).chunk(2, dim=-1)
        left = left.t()
        y = self.layers[1](torch.cat([left.t(), right], -1))
        return y + torch.cat([right, left.t()], -1)


class Fourier(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def odd(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=WIDTH)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH, sparse=True)
        self.layers = Layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.embedding(x))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = kind(WIDTH, WIDTH), kind(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.first(x)
        y, _ = self.second(y)
        return self.last(y)


def weight_norm(add: Callable[[nn.Module], nn.Module]) -> nn.Module:
    model = Layers()
    add(model.layers[1])
    return model


class Counting(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def odd(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return x


class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.generator.random()


KINDS = {
    "tied and shared": (partial(Tied, WIDTH, nn.LayerNorm), None),
    "in-place": (InPlace, None),
    "views": (Views, None),
    "complex": (Fourier, None),
    "sparse gradients": (Sparse, tokens),
    "lstm": (lambda: Recurrent(nn.LSTM), None),
    "batch norm, cumulative": (Norms, images),
    "dropout, tied, a buffer": (Encoder, tokens),
    "weight norm": (lambda: weight_norm(parametrizations.weight_norm), None),
    "orthogonal": (lambda: weight_norm(parametrizations.orthogonal), None),
    "spectral norm": (lambda: weight_norm(parametrizations.spectral_norm), None),
    "a buffer": (Counting, None),
    "own generator": (lambda: Inside(OwnGenerator()), None),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_models(name: str) -> None:
    make, inputs = KINDS[name]
    trains_as_plain(make, (inputs(),) if inputs else ())


def test_the_best_plan_of_a_recurrent_model() -> None:
    fitted = fit(Recurrent(nn.LSTM), rows(), max_overhead=100.0, repeats=1)
    assert fitted.proof


class Hooked(Layers):
    """One layer's output is doubled, and noted, by a hook that was there before the plan."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []
        self.layers[1].register_forward_hook(self._double)

    def _double(self, layer: nn.Module, given: Any, output: Tensor) -> Tensor:
        self.outputs.append(output)
        return 2 * output


def test_forward_hooks_are_captured_and_run_once() -> None:
    """As those of transformers, which install them at a first forward that collects outputs."""
    fitted = trains_as_plain(Hooked)
    assert fitted.kind == "captured"
    counted = len(fitted.original.outputs)
    fitted.model(rows()).sum().backward()
    assert len(fitted.original.outputs) == counted + 1
    # Modules that are wrapped would run them again.
    with pytest.raises(ValueError, match=r"layers\.1 has forward hooks, which would run again"):
        fit(Hooked(), rows(), modules=["layers.0", "layers.1"], repeats=1)


def compiled(inside: bool) -> nn.Module:
    model = Layers()
    if inside:
        model.odd = torch.compile(nn.Linear(WIDTH, WIDTH), backend="eager")
    else:
        model.compile(backend="eager")
    return model


def with_own_forward() -> nn.Module:
    model = Layers()
    model.forward = lambda x: x
    return model


REFUSED = {
    "spectral norm, old": (lambda: weight_norm(nn.utils.spectral_norm), "has forward pre hooks"),
    "weight norm, old": (lambda: weight_norm(nn.utils.weight_norm), "has forward pre hooks"),
    "own generator": (
        lambda: nn.Sequential(nn.Linear(6, 6), OwnGenerator(), nn.Linear(6, 6)),
        r"generator of its own \(1\.generator",
    ),
    "compiled before, inside": (lambda: compiled(True), "odd is a OptimizedModule: it is compiled"),
    "compiled before, in place": (lambda: compiled(False), "compiled in place"),
    "a forward of its own": (with_own_forward, "has a forward of its own"),
    "data parallel inside": (lambda: Inside(nn.DataParallel(nn.Linear(6, 6))), "plan the module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.warns() if name in ("weight norm, old",) else nullcontext():
        model = make()
    with pytest.raises(ValueError, match=words):
        fit(model, rows(), max_overhead=100.0, repeats=1)
    assert not getattr(model, "outputs", [])


# ------------------------------------------------------------------------------- around the planned


def test_distributed_data_parallel_around(tmp_path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        seed_all(3)
        plain = Binary()
        seed_all(3)
        model = Binary()
        inner = nn.parallel.DistributedDataParallel(Layers())
        with pytest.raises(ValueError, match="DistributedDataParallel: plan the module inside"):
            fit(inner, rows(), max_overhead=100.0, repeats=1)
        del plain.extra, model.extra
        planned = nn.parallel.DistributedDataParallel(
            fit(model, rows(), max_overhead=100.0, repeats=1).model
        )
        assert same(trained(plain, (rows(),)), trained(planned, (rows(),)))
    finally:
        dist.destroy_process_group()


def test_compiled_afterwards() -> None:
    seed_all(3)
    plain = Layers()
    seed_all(3)
    model = torch.compile(
        fit(Layers(), rows(), max_overhead=100.0, repeats=1).model, backend="eager"
    )
    assert same(trained(plain, (rows(),)), trained(model, (rows(),)))


# ------------------------------------------------------------------------------------------ a proof


class Exact(Layers):
    """Is another function of what stands in for a tensor."""

    def odd(self, x: Tensor) -> Tensor:
        return x.sin() if type(x) is Tensor else x.cos()


class Short(nn.Module):
    """The same, with nothing that could be wrapped."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(x.sin() if type(x) is Tensor else x.cos())


def test_code_that_asks_for_the_type_of_a_tensor() -> None:
    for make in (Exact, Short):
        assert trains_as_plain(make).kind == "captured"


def test_the_proof_leaves_everything_as_it_was() -> None:
    model, x = Layers(), rows().requires_grad_()
    model.last.weight.grad = torch.ones_like(model.last.weight)
    optimizer = torch.optim.Adam(model.parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seed_all(1)
    numbers = torch.get_rng_state()
    fitted = fit(model, x, optimizer=optimizer, max_overhead=100.0, repeats=1)
    assert "bit by bit" in fitted.proof and "proven: one step" in str(fitted)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers) and not optimizer.state
    assert torch.equal(model.last.weight.grad, torch.ones_like(model.last.weight))
    assert model.layers[0].weight.grad is None


def test_a_step_that_does_not_fit_is_proven_on_a_part() -> None:
    class Large(Layers):
        most = 2

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > self.most:
                raise torch.OutOfMemoryError("pretends")
            return super().forward(x)

    model, x = Large(), torch.randn(4, WIDTH)
    model.most = 4
    chain = profile(model, x, repeats=1)
    planned = apply(model, every_block(chain), x)
    model.most, target = 2, torch.zeros(4, WIDTH)

    def loss(output: Tensor) -> Tensor:
        return (output - target).square().mean()

    proof = prove(model, planned, training(x, loss=loss), 4)
    assert proof.partial and not proof.differences
    assert "on the first 2 samples: all of them do not fit" in proof.how
    model.most = 1
    nothing = prove(model, planned, training(x, loss=loss), 4)
    assert nothing.partial and nothing.how.startswith("not proven")


def test_a_step_that_never_repeats_is_compared_within_its_spread() -> None:
    model, x = Layers(), rows()
    chain = profile(model, x, repeats=1)
    noise = iter(range(1000))

    def loss(output: Tensor) -> Tensor:
        return output.square().mean() * (1 + 1e-4 * next(noise))

    blocks = split(model, x)
    proof = prove(model, apply(model, every_block(chain), blocks=blocks), training(x, loss=loss), 5)
    assert not proof.differences and "within its own spread" in proof.how
    with torch.no_grad():
        model.last.weight.fill_(0.3)
    plain = Layers()
    proof = prove(plain, apply(model, every_block(chain), blocks=blocks), training(x, loss=loss), 5)
    assert proof.differences


class NoisyBias(nn.Module):
    """The gradient of the bias is another one in each step; ``sign`` is that of the weight's."""

    noise = iter(range(1, 1000))

    def __init__(self, layer: nn.Linear, sign: float = 1.0) -> None:
        super().__init__()
        self.layer, self.sign = layer, sign

    def forward(self, x: Tensor) -> Tensor:
        weight = self.layer.weight
        weight = self.sign * weight + (1 - self.sign) * weight.detach()
        return F.linear(x, weight) + self.layer.bias * next(self.noise)


def test_the_spread_of_one_gradient_excuses_no_other() -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    nn.init.zeros_(layer.bias)
    model, same, reversed_ = NoisyBias(layer), NoisyBias(layer), NoisyBias(layer, -1.0)
    task = training(rows())
    assert not prove(model, same, task, 5).differences
    (difference,) = prove(model, reversed_, task, 5).differences
    assert difference.startswith("gradient of layer.weight: differs by")


def test_random_states_have_no_spread() -> None:
    model, x = Layers(), rows()
    noise = iter(range(1000))

    def loss(output: Tensor) -> Tensor:
        return output.square().mean() * (1 + 1e-4 * next(noise))

    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.rand(())
            return model(x)

    (difference,) = prove(model, Draws(), training(x, loss=loss), 5).differences
    assert difference.startswith("random state of")


# ---------------------------------------------------------------------------------------- arguments


def test_limits_are_checked_before_anything_runs() -> None:
    class Never(Layers):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("it ran")

    bad = [
        ({"budget": "6 apples"}, ValueError, r"budget='6 apples': .*'6 GB'.*'6 GiB'"),
        ({"budget": "6 iB"}, ValueError, "budget='6 iB'"),
        ({"budget": -1}, ValueError, "budget=-1"),
        ({"max_overhead": float("nan")}, ValueError, "max_overhead=nan"),
        ({"method": "best"}, ValueError, "method='best'"),
    ]
    for options, error, words in bad:
        with pytest.raises(error, match=words):
            fit(Never(), rows(), **options)


def test_a_budget_in_words_and_inputs_by_name() -> None:
    mask = torch.ones(WIDTH)
    fitted = fit(Masked(), {"x": rows(), "mask": mask}, budget="1 MB", repeats=1)
    assert fitted.predicted.peak_bytes <= 10**6 and fitted.proof
    assert torch.equal(fitted.model(x=rows(), mask=mask), fitted.original(rows(), mask))


def test_an_impossible_budget_says_what_would_fit() -> None:
    x = torch.randn(400, WIDTH)
    chain = profile(Layers(), x, repeats=1)
    half = plan(chain, batch_size=200).costs.peak_bytes
    with pytest.raises(ValueError, match=r"floor of method .* samples would fit") as refused:
        fit(Layers(), x, budget=half, repeats=1)
    found = int(str(refused.value).partition(" samples would fit")[0].split()[-1])
    assert 195 <= found <= 205
    for words in ("accumulated gradients", "autocast", "largest block ('"):
        assert words in str(refused.value)
    with pytest.raises(
        ValueError, match=r"not even one sample fits: .* do not depend on the batch"
    ):
        fit(Layers(), x, budget="10 B", repeats=1)
