"""Chains of real models: their bytes against the exact tracker, and nothing left behind."""

import copy
import itertools
import random

import pytest
import torch
from planner_models import Encoder, Looks, Recurrent, UNet, images, kept, plans, tokens
from torch import nn

from course import models
from labkit.memory import StorageTracker
from labkit.restore.generators import rng_state
from sublinear import probe
from sublinear.apply import MENU, apply, checkpointed
from sublinear.chain import Block, Option, Rerun
from sublinear.plan import Plan, simulate
from sublinear.probe import Clock
from sublinear.profiling import Roofline, bench, profile, profiler
from sublinear.profiling.bench import Bench, BlockRun, _with_gradients
from sublinear.profiling.profiler import time_step
from sublinear.profiling.tensors import Place
from sublinear.profiling.training import mean_of_outputs, training
from sublinear.split import split
from tests.labkit.kept import Kept

CARD = Roofline("a small card", flops=5e12, bandwidth=300e9)

# Sizes at which activations outweigh what a model does not count: torch's random states, for one.
MODELS = {
    "mlp": (lambda: models.mlp([64] * 9), lambda: torch.randn(256, 64), 0.01),
    "convnet": (lambda: models.convnet(8), lambda: images(16, 32), 0.01),
    "u-net": (lambda: UNet(8, 3), lambda: images(4, 32), 0.11),
    "eager attention": (lambda: Encoder(64), lambda: tokens(64), 0.05),
    "transformer": (lambda: models.Transformer(11, 32, 2, 3, 8), lambda: tokens(64), 0.03),
    "gru": (Recurrent, lambda: torch.randn(64, 16, 6), 0.05),
}


def peak(model: nn.Module, x: torch.Tensor) -> int:
    with StorageTracker("cpu") as tracker:
        mean_of_outputs(model(x)).backward()
    model.zero_grad(set_to_none=True)
    return tracker.peak


@pytest.mark.parametrize("name", MODELS)
def test_predicted_peaks_are_those_of_the_tracker(name: str) -> None:
    make, inputs, tolerance = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    blocks = split(model, x)
    chain = profile(model, x, blocks=blocks, repeats=1)
    for plan in plans(len(chain)):
        if name == "gru" and (
            "1" in plan.method or "2" in plan.method or "selective" in plan.method
        ):
            continue
        measured = peak(apply(model, plan, blocks=blocks), x)
        error = simulate(chain, plan).peak_bytes / measured - 1
        assert abs(error) <= tolerance, f"{plan.method}: {error:+.1%} of {measured}"


def test_what_a_chain_says() -> None:
    model, x = models.mlp([8, 16, 4]), torch.randn(10, 8)
    chain = profile(model, x, repeats=1)
    first, last = chain.blocks
    assert (chain.source, chain.device, chain.batch_size, chain.input_bytes) == (
        "measured",
        "cpu",
        10,
        320,
    )
    assert chain.fixed_bytes == sum(parameter.nbytes for parameter in model.parameters())
    assert [block.name for block in chain.blocks] == ["0..1", "2"]
    assert [block.output_bytes for block in chain.blocks] == [640, 160]
    assert first.gradient_bytes == 4 * (8 * 16 + 16) and last.gradient_bytes == 4 * (16 * 4 + 4)
    assert (
        first.options[0].saved_bytes == 640
    )  # the linear layer keeps nothing but its input, the ReLU its output
    assert [option.name for option in first.options] == list(MENU)
    assert all(block.forward > 0 and block.options[0].backward > 0 for block in chain.blocks)


def test_storages_that_cross_several_cuts_have_one_number() -> None:
    chain = profile(UNet(), images(), repeats=1)
    numbers = [{number for number, _ in block.crossing} for block in chain.blocks]
    skips = numbers[0] & numbers[1]
    assert len(skips) == 1 and skips <= numbers[2], numbers
    assert [block.output_bytes for block in chain.blocks] == [
        sum(s for _, s in block.crossing) for block in chain.blocks
    ]


class WithToken(nn.Module):
    """As a vision transformer: beside the first products crosses a view of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.embed = nn.Linear(8, 16)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in "abc"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.token.expand(len(x), -1, -1)
        return self.layers(torch.cat([tokens, self.embed(x)], 1))


def test_a_view_of_a_weight_takes_no_memory_where_it_crosses() -> None:
    model = WithToken()
    chain = profile(model, torch.randn(4, 7, 8), repeats=1)
    embedded = 4 * 7 * 16 * 4
    assert sorted(size for _, size in chain.blocks[0].crossing) == [0, embedded]
    assert chain.blocks[0].output_bytes == embedded


def test_a_small_batch_tells_the_bytes_of_a_large_one() -> None:
    torch.manual_seed(0)
    for make, inputs in (
        (lambda: models.convnet(8), lambda n: images(n, 32)),
        (lambda: Encoder(64), tokens),
    ):
        model = make()
        small, large = (profile(model, inputs(batch), repeats=1) for batch in (8, 64))
        for plan in plans(len(small)):
            predicted = simulate(small.at_batch(64), plan).peak_bytes
            assert predicted == pytest.approx(simulate(large, plan).peak_bytes, rel=0.05), (
                plan.method
            )


def test_optimizer_state_counts_and_is_put_back() -> None:
    model, x = models.mlp([8, 8, 2]), torch.randn(4, 8)
    optimizer = torch.optim.Adam(model.parameters())
    before = copy.deepcopy(model.state_dict())
    chain = profile(model, x, optimizer=optimizer, repeats=1)
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    assert (
        3 * parameters <= chain.fixed_bytes <= 3 * parameters + 4 * 8
    )  # two moments, and a counter each
    assert not optimizer.state
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model(x).sum().backward()
    optimizer.step()
    again = profile(model, x, optimizer=optimizer, repeats=1)
    assert again.fixed_bytes == chain.fixed_bytes and len(optimizer.state) == 4


@pytest.mark.parametrize("device", [None, CARD], ids=["measured", "estimated"])
def test_everything_is_given_back(device) -> None:
    model, x = nn.Sequential(models.convnet(4), nn.Dropout(0.5)), images(2, 16)
    model[0][4].eval()
    model[0][0].weight.grad = torch.ones_like(model[0][0].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    begin = rng_state()["torch"].clone()
    profile(model, x, device=device, repeats=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(rng_state()["torch"], begin)
    assert not model[0][4].training and model[0][1].training
    assert torch.equal(model[0][0].weight.grad, torch.ones_like(model[0][0].weight))
    assert model[0][4].weight.grad is None and x.grad is None


@pytest.mark.parametrize("name", ["mlp", "convnet", "u-net", "eager attention"])
def test_an_estimate_has_the_measured_bytes(name: str) -> None:
    make, inputs, _ = MODELS[name]
    model, x = make(), inputs()
    measured, estimated = profile(model, x, repeats=1), profile(model, x, device=CARD)
    assert (
        estimated.source == "estimated"
        and "a small card" in estimated.device
        and "assumed" in estimated.device
    )
    for one, two in zip(measured.blocks, estimated.blocks, strict=True):
        assert (one.name, one.output_bytes, one.crossing) == (
            two.name,
            two.output_bytes,
            two.crossing,
        )
        assert two.options[0].saved_bytes == pytest.approx(
            one.options[0].saved_bytes, rel=0.05, abs=4096
        )
    plain = Plan(kept(0, len(measured)), "none")
    one, two = simulate(measured, plain), simulate(estimated, plain)
    assert two.peak_bytes == pytest.approx(one.peak_bytes, rel=0.05)


class Unfused(nn.Module):
    """Attention that the fused kernel does not take.

    Without heads, or with fewer of them for keys and values.
    """

    def __init__(self, heads: bool) -> None:
        super().__init__()
        self.q, self.kv, self.heads = nn.Linear(16, 16), nn.Linear(16, 8 if heads else 16), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, kv = self.q(x), self.kv(x)
        if self.heads:
            q, kv = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in (q, kv))
        return nn.functional.scaled_dot_product_attention(q, kv, kv, enable_gqa=self.heads)


@pytest.mark.parametrize("heads", [False, True])
def test_an_estimate_of_other_attention_is_torch_s_own(heads: bool) -> None:
    chain = profile(nn.Sequential(Unfused(heads)), torch.randn(4, 32, 16), device=CARD)
    scores = 4 * (2 if heads else 1) * 32 * 32 * 4  # bytes
    assert chain.blocks[0].options[0].saved_bytes > scores


def test_an_estimate_needs_no_memory_for_the_model() -> None:
    with torch.device("meta"):
        model = models.mlp([50_000, 50_000, 50_000, 10])  # 20 GB of weights
    chain = profile(model, torch.empty(64, 50_000, device="meta"), device=CARD)
    flops = 2 * 64 * 50_000 * 50_000
    assert chain.blocks[1].forward == pytest.approx(
        max(flops / CARD.flops, 10**10 / CARD.bandwidth), rel=0.02
    )


def test_selective_options_that_lose_what_they_keep_are_not_offered() -> None:
    overwritten = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
    )
    for model, x, block in (
        (overwritten, images(2, 8), 0),
        (Recurrent(), torch.randn(2, 64, 6), 0),
    ):
        options = profile(model, x, repeats=1).blocks[block].options
        assert len(options) == len(MENU)
        assert all(option.saved_bytes == options[0].saved_bytes for option in options[1:]), options
    # A norm between them is computed again from what is kept: cheaper than to keep both.
    longer = nn.Sequential(*overwritten, nn.Conv2d(4, 2, 1))
    good = profile(longer, images(2, 8), repeats=1).blocks[1].options
    assert good[1].saved_bytes < good[0].saved_bytes


def test_what_runs_again_is_beside_the_gradients_of_a_step_not_those_of_the_bench() -> None:
    option = Option("all", 10, 1.0, 2.0, 10, 5)
    block = Block("b", 10, (option,), 0, 10, 1.0, rerun=Rerun(28 - 10, 30 - 10))
    # The bench made a gradient of 10 bytes for what leaves the block; in a step it is a part of 25.
    # The loss has made one for the block's parameter, to which a second one of 4 is added.
    run = BlockRun(block, (), {1: 4}, (None,), (frozenset(), frozenset()))
    (found,) = _with_gradients([block], [run], {1}, [Place("of the loss", 25)])
    assert (found.gradient_bytes, found.cotangent_bytes) == (0, 25)
    assert found.options[0].backward_peak == 5 + 4
    assert found.cotangent_bytes + found.rerun.backward == 30 + 4 + 25 - 10
    assert found.cotangent_bytes + found.rerun.forward == 28 + 25 - 10


class Stack(nn.Module):
    """Needs much more while it runs forward than in its backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x] * 16).sum(0).tanh()


def test_the_backward_of_a_run_again_does_not_count_what_its_forward_needed() -> None:
    model = nn.Sequential(nn.Linear(64, 64), Stack(), nn.Linear(64, 2))
    blocks = profile(model, torch.randn(256, 64), repeats=1).blocks
    peaks = [[block.cotangent_bytes + peak for peak in block.rerun] for block in blocks]
    assert any(2 * backward < forward for forward, backward in peaks)


def test_a_run_again_hands_gradients_on_without_a_copy() -> None:
    tried = Bench(split(models.mlp([4, 4, 4])), torch.device("cpu"), Clock(), 1, False)
    x = torch.randn(1000, requires_grad=True)
    # The gradient of a sum is one number, seen a thousand times; a leaf would write them out.
    _, rerun = tried._rerun(lambda x: (x.sum(),), (x,))
    assert rerun.backward <= 16


class Told(Clock):
    """Says the seconds that a test has put there."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


class Disturbed(Clock):
    """Goes on by a millisecond at each look; one look in three comes up to half a second late."""

    def __init__(self, seed: int) -> None:
        self.draw, self.seconds = random.Random(seed), 0.0

    def now(self) -> float:
        self.seconds += 0.001
        if self.draw.random() < 1 / 3:
            self.seconds += 0.5 * self.draw.random()
        return self.seconds


@pytest.mark.parametrize("seed", range(5))
def test_computing_again_is_never_predicted_to_be_faster(seed: int) -> None:
    model, x = models.convnet(4), images(2, 16)
    task = training(x)
    for repeats in (1, 3):
        clock = Disturbed(seed)
        chain = Bench(split(model), torch.device("cpu"), clock, repeats, True).chain(task)
        plain = simulate(chain, Plan(kept(0, len(chain)), "none")).seconds
        for plan in plans(len(chain)):
            assert simulate(chain, plan).seconds >= plain * (1 - 1e-9), plan.method


def test_a_disturbed_time_is_taken_again() -> None:
    blocks = {}
    for repeats in (1, 3):
        clock = Disturbed(0)
        tried = Bench(split(models.mlp([4, 5, 6, 2])), torch.device("cpu"), clock, repeats, False)
        chain = tried.chain(training(torch.randn(3, 4)))
        options = [block.options[0] for block in chain.blocks]
        blocks[repeats] = [option.forward + option.backward for option in options]
    assert max(blocks[3]) < 0.01 < max(blocks[1])


def test_times_agree_or_are_taken_again_within_a_bound() -> None:
    taken = iter([(9.0, 1.0), (2.0, 1.0), (5.0, 1.0), (2.1, 1.0), (0.1, 1.0)])
    assert probe.fastest(lambda: next(taken), 2) == (2.0, 1.0)
    assert next(taken) == (0.1, 1.0)
    count = itertools.count(1)
    # They never agree.
    assert probe.fastest(lambda: (0.5 ** next(count),), 3) == (0.5 ** (3 * probe.MORE),)
    assert probe.fastest(lambda: (next(count),), 1) == (3 * probe.MORE + 1,)
    # What is small beside the rest need not agree.
    small = iter([(10.0, 0.1), (10.0, 0.5)])
    assert probe.fastest(lambda: next(small), 2) == (10.0, 0.1)


def test_seconds_of_a_checkpoint_are_no_part_of_its_blocks(monkeypatch) -> None:
    clock = Told()

    def slow(*args):
        clock.seconds += 5
        return checkpointed(*args)

    model, x = models.mlp([8, 8, 2]), torch.randn(4, 8)
    monkeypatch.setattr(bench, "checkpointed", slow)
    task = training(x)
    chain = Bench(split(model), torch.device("cpu"), clock, 2, False).chain(task)
    assert clock.seconds >= 5 * len(chain)
    assert [block.forward for block in chain.blocks] == [0, 0]


def test_a_step_is_timed_at_least_twice(monkeypatch) -> None:
    # Of a clock that stands still all times agree.
    monkeypatch.setattr(profiler, "Clock", Told)
    ran = Kept()

    class Counts(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.put(1)
            return super().forward(x)

    model, task = Counts(4, 2), training(torch.randn(3, 4))
    for repeats, calls in ((1, 2), (3, 3)):
        before = ran.qsize()
        assert time_step(model, task, repeats) == (0, 0, 0)
        assert ran.qsize() - before == calls


def test_wrapped_modules_and_the_rest_of_their_model() -> None:
    model, x = Looks(), torch.randn(512, 5)
    chosen = [f"layers.{i}" for i in range(4)]
    blocks = split(model, x, modules=chosen)
    chain = profile(model, x, blocks=blocks, repeats=1)
    assert [block.name for block in chain.blocks] == chosen
    assert chain.input_bytes == 512 * (5 + 8) * 4
    for plan in plans(4):
        measured = peak(apply(model, plan, blocks=blocks), x)
        error = simulate(chain, plan).peak_bytes / measured - 1
        # Torch ends a recomputation within the last block, before its dropout's output: less than a
        # block, not counted.
        most = 0.01 if plan.method in ("none", "every") else 0.13
        assert -0.01 <= error <= most, f"{plan.method}: {error:+.1%}"


class Tagger(nn.Module):
    """Wrapped: an embedding before the blocks, a norm and a large head behind them."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.tokens, self.norm, self.head = (
            nn.Embedding(500, 32),
            nn.LayerNorm(32),
            nn.Linear(32, 500),
        )
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32)) for _ in range(4)
        )
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) * 2
        if x.sum() > 1e9:
            return x
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: Tagger(tied=False), lambda: torch.randint(0, 500, (16, 16))),
        (lambda: Tagger(tied=True), lambda: torch.randint(0, 500, (16, 16))),
        (lambda: models.mlp([64] * 5 + [500]), lambda: torch.randn(256, 64)),
    ],
    ids=["wrapped", "tied", "sequential"],
)
def test_a_large_loss_counts_once_and_where_it_is(make, inputs) -> None:
    torch.manual_seed(0)
    model, x = make(), inputs()

    def loss(output: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(
            output.flatten(0, -2), torch.zeros(256, dtype=torch.long)
        )

    chain = profile(model, x, loss=loss, repeats=1, options=False)
    for name, plan in [
        (plan.method, plan) for plan in plans(len(chain)) if "option" not in plan.method
    ]:
        if "selective" in name:
            continue
        planned = apply(model, plan, x)
        with StorageTracker("cpu") as tracker:
            loss(planned(x)).backward()
        model.zero_grad(set_to_none=True)
        error = simulate(chain, plan).peak_bytes / tracker.peak - 1
        assert abs(error) <= 0.01, f"{name}: {error:+.1%}"
    assert chain.at_batch(2 * chain.batch_size).after.peak_bytes == 2 * chain.after.peak_bytes


def test_blocks_are_profiled_where_a_plain_step_does_not_fit(monkeypatch) -> None:
    def too_large(*args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sublinear.profiling.profiler.time_step", too_large)
    model, x = models.mlp([8, 8, 2]), torch.randn(4, 8)
    chain = profile(model, x, optimizer=torch.optim.Adam(model.parameters()), repeats=1)
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    assert chain.extra_seconds == 0 and chain.fixed_bytes >= 3 * parameters


def test_under_autocast() -> None:
    model, x = models.mlp([64] * 5), torch.randn(256, 64)
    with torch.autocast("cpu", torch.bfloat16):
        half = profile(model, x, repeats=1)
    assert half.blocks[1].output_bytes == profile(model, x, repeats=1).blocks[1].output_bytes // 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m, x: profile(m, x, repeats=0), ValueError, "repeats=0"),
        (lambda m, x: profile(m, "x"), TypeError, "inputs='x'"),
        (lambda m, x: profile(m, x, device="cuda"), TypeError, "device='cuda'.*Roofline"),
        (lambda m, x: profile(m, x, loss=3), TypeError, "loss=3"),
        (lambda m, x: profile(m, x, optimizer="sgd"), TypeError, "optimizer='sgd'"),
        (
            lambda m, x: apply(m, Plan(kept(0, 2), ""), blocks=split(models.mlp([4, 4, 4]))),
            ValueError,
            "another model",
        ),
    ],
)
def test_bad_arguments(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(models.mlp([4, 4, 4]), torch.randn(2, 4))
