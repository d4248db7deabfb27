"""The speedrun: one script, and every one of its switches acts."""

import math
import multiprocessing
import re
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from course import speedrun
from course.speedrun import train
from course.switches import SWITCHES, TASK, checked
from labkit.busy import cores
from labkit.restore import preserve_flags

# Two epochs of two steps (of one, with 128 images a step), each with one step of validation.
SMALL = TASK._replace(images=80, validation=16, target=2.0, epochs=2, cycle=2)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Anomaly Detection", "ignore:Creating a tensor", "ignore:This DataLoader will create"
)


@pytest.fixture(autouse=True)
def small_machine() -> Iterator[None]:
    """One thread, and torch's switches as they were."""
    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = benchmark


@cache
def losses(*switches: str, seed: int = 0) -> list[float]:
    return [loss for _, _, loss in train(switches, SMALL, seed)]


def test_the_script_is_short() -> None:
    lines = Path(speedrun.__file__).read_text(encoding="utf-8").splitlines()
    assert len(lines) < 205


def test_the_script_asks_for_every_switch_and_no_other() -> None:
    text = Path(speedrun.__file__).read_text(encoding="utf-8")
    asked = set(re.findall(r'"(\w+)" (?:not )?in on', text))
    assert asked == SWITCHES.keys()


def test_switches_belong_to_notebooks() -> None:
    folder = Path(speedrun.__file__).parents[1] / "notebooks"
    for name, switch in SWITCHES.items():
        assert list(folder.rglob(f"{switch.notebook:02}_*.ipynb")), name


@pytest.mark.parametrize("wrong", ["data_loadin", "amp"])
def test_an_unknown_switch_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"'{wrong}': no such switch; there are .*data_loading"):
        next(train([wrong], SMALL))


def test_a_single_word_is_no_list() -> None:
    with pytest.raises(TypeError, match=r"\['data_loading'\]"):
        checked("data_loading")


def test_the_seed_decides_and_the_target_ends() -> None:
    again = [loss for _, _, loss in train((), SMALL, seed=0)]
    assert losses(seed=0) == again != losses(seed=1)
    assert len(list(train((), SMALL._replace(target=0.0)))) == 1


# What each switch leaves alone: these change when and how, not what is computed.
SAME = (
    "vectorization",
    "data_loading",
    "decode_once",
    "host_device_transfers",
    "zeroing_gradients",
    "as_tensor",
    "debug_tools",
    "validation_without_grad",
    "activation_checkpointing",
    "sublinear_memory",
)


@pytest.mark.parametrize("switch", SAME)
def test_it_computes_the_same(switch: str) -> None:
    assert losses(switch) == pytest.approx(losses(), rel=1e-6)


@pytest.mark.parametrize(
    "switch",
    [
        *("minibatch_sgd", "learning_rate_schedules", "batch_size", "optimizers"),
        *("gradient_clipping", "normalization"),
    ],
)
def test_it_learns_otherwise(switch: str) -> None:
    assert SWITCHES[switch].learns
    below = {"normalization"} - {switch}
    assert losses(*below, switch) != pytest.approx(losses(*below), rel=1e-4)


# ------------------------------------------------------------------------- each switch is alive


class Seen:
    """What a training did, counted at the functions of torch that it calls."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def add(self, name: str, much: float = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + much

    def __getitem__(self, name: str) -> float:
        return self.counts.get(name, 0)


def counted(patch: pytest.MonkeyPatch, seen: Seen, owner: Any, name: str, label: str) -> None:
    """Count the calls of ``owner.name``."""
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        seen.add(label)
        return original(*arguments, **options)

    patch.setattr(owner, name, call)


def watched(*switches: str) -> Seen:
    """Train one epoch of three steps, and count."""
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, seen, speedrun, "decode", "decoded")
        counted(patch, seen, speedrun, "flip_and_scale", "flips")
        counted(patch, seen, torch.Tensor, "item", "items")
        counted(patch, seen, speedrun, "checkpoint", "checkpoints")
        counted(patch, seen, nn.utils, "clip_grad_norm_", "clipped")
        watch_copies(patch, seen)
        watch_model(patch, seen)
        watch_optimizer(patch, seen)
        list(train(switches, SMALL._replace(epochs=1, cycle=1)))
    return seen


def watch_copies(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    """Count lists that are made into tensors number by number."""
    original = torch.tensor

    def call(content: Any, **options: Any) -> torch.Tensor:
        seen.add("copied", isinstance(content, list))
        return original(content, **options)

    patch.setattr(torch, "tensor", call)


def watch_model(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    """Count forward passes, their sizes, types, layouts, modes; and parameters."""
    make = speedrun.resnet

    def hook(model: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        (x,) = inputs
        seen.add("images", len(x))
        seen.add("training" if model.training else "validating")
        seen.add("anomaly", model.training and torch.is_anomaly_enabled())
        seen.add("low", output.dtype == torch.bfloat16)
        seen.add("channels last", x.is_contiguous(memory_format=torch.channels_last))
        seen.add("graphs in validation", not model.training and output.requires_grad)

    def watched_make(*arguments: Any) -> nn.Module:
        model = make(*arguments)
        model.register_forward_hook(hook)
        biases = [m.bias for m in model.modules() if isinstance(m, nn.Conv2d)]
        seen.add("biases", sum(bias is not None for bias in biases))
        seen.add("norms", sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()))
        return model

    patch.setattr(speedrun, "resnet", watched_make)


def watch_optimizer(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    """Count updates, fused ones, those at other rates, and gradients left as zeros."""
    step, clear = speedrun.SGD.step, speedrun.SGD.zero_grad

    def watched_step(self: Any, *arguments: Any) -> Any:
        (group,) = self.param_groups
        seen.add("updates")
        seen.add("fused", bool(group["fused"]))
        seen.add("nesterov", group["nesterov"])
        seen.add("other rates", not math.isclose(group["lr"], 0.01))
        seen.counts["highest rate"] = max(seen["highest rate"], group["lr"])
        return step(self, *arguments)

    def watched_clear(self: Any, set_to_none: bool) -> None:
        clear(self, set_to_none=set_to_none)
        (group,) = self.param_groups
        seen.add("zeros", sum(p.grad is not None for p in group["params"]))

    patch.setattr(speedrun.SGD, "step", watched_step)
    patch.setattr(speedrun.SGD, "zero_grad", watched_clear)


@pytest.fixture(scope="module")
def slow() -> Seen:
    return watched()


# What is counted, with the switch off and on; of 80 images in steps of 64, and 16 unseen ones.
ALIVE = {
    # Each image alone; then two batches and one of validation.
    "vectorization": ("flips", 96, 3),
    # In worker processes, where nobody counts.
    "data_loading": ("decoded", 96, 0),
    "learning_rate_schedules": ("other rates", 0, 2),
    # Of 16 images, not of 64; then of 128.
    "minibatch_sgd": ("updates", 2, 5),
    "batch_size": ("updates", 2, 1),
    "mixed_precision": ("low", 0, 3),
    "optimizers": ("fused", 0, 2),
    "cudnn_benchmark": ("channels last", 0, 3),
    # Two losses; each loader of images draws a seed of its own.
    "host_device_transfers": ("items", 4, 2),
    # Three blocks, in three passes.
    "activation_checkpointing": ("checkpoints", 0, 9),
    "gradient_accumulation": ("training", 2, 8),
    "as_tensor": ("copied", 3, 0),
    "debug_tools": ("anomaly", 2, 0),
    "gradient_clipping": ("clipped", 0, 2),
    # Behind each convolution.
    "normalization": ("norms", 0, 10),
    "validation_without_grad": ("graphs in validation", 1, 0),
}


@pytest.mark.parametrize("switch", ALIVE)
def test_it_acts(switch: str, slow: Seen) -> None:
    what, off, on = ALIVE[switch]
    assert (slow[what], watched(switch)[what]) == (off, on)


def test_the_rate_follows_the_batch(slow: Seen) -> None:
    """Twice the batch, twice the rate."""
    assert slow["highest rate"] == 0.01
    for more in ([], ["optimizers"]):
        assert watched("batch_size", *more)["highest rate"] == 0.02


def test_small_batches_keep_the_rate_and_a_larger_batch_doubles_both() -> None:
    small, both = watched("minibatch_sgd"), watched("minibatch_sgd", "batch_size")
    assert (small["updates"], small["highest rate"]) == (5, 0.01)
    # 80 images, 32 at a time.
    assert (both["updates"], both["highest rate"]) == (3, 0.02)


def test_biases_go_where_batch_norm_takes_them_away() -> None:
    """Without batch norm they stay, whatever the switch says."""
    counts = []
    for below in ([], ["normalization"]):
        for switches in (below, [*below, "bias_before_batchnorm"]):
            counts.append(watched(*switches)["biases"])
    assert counts == [10, 10, 10, 0]
    assert losses("bias_before_batchnorm") == losses()


def test_zeroing_gradients_acts(slow: Seen) -> None:
    assert slow["zeros"] > 0 and watched("zeroing_gradients")["zeros"] == 0


def test_nesterov_acts(slow: Seen) -> None:
    assert (slow["nesterov"], watched("optimizers")["nesterov"]) == (0, 2)


def test_decode_once_decodes_once() -> None:
    """In two epochs: each image once, or twice."""
    counts = []
    for switches in ([], ["decode_once"]):
        seen = Seen()
        with pytest.MonkeyPatch.context() as patch:
            counted(patch, seen, speedrun, "decode", "decoded")
            list(train(switches, SMALL))
        counts.append(seen["decoded"])
    assert counts == [2 * 96, 96]


def test_compile_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    counted(monkeypatch, seen, nn.Module, "compile", "compiled")
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    for switches in ([], ["compile"]):
        next(train(switches, SMALL))
    assert seen["compiled"] == 1


def test_the_planner_plans_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    counted(monkeypatch, seen, speedrun.sublinear, "fit", "planned")
    counted(monkeypatch, seen, speedrun.sublinear, "apply", "applied")
    speedrun.plan.cache_clear()
    # Twice by one plan: it is searched for once.
    for switches in ([], ["sublinear_memory"], ["sublinear_memory"]):
        next(train(switches, SMALL))
    assert (seen["planned"], seen["applied"]) == (1, 2)


def test_products_round_inside() -> None:
    """They stay of fp32; where the hardware does not round, the losses are the same."""
    plain, precisions = losses(), []
    for switches in ([], ["fp16_numerics"]):
        with preserve_flags():
            next(train(switches, SMALL))
            backends: Any = torch.backends
            for each in (backends.mkldnn, backends.cudnn):
                precisions.append(each.conv.fp32_precision)
    assert precisions[0] != "bf16" and precisions[2:] == ["bf16", "tf32"]
    with preserve_flags():
        assert losses("fp16_numerics") == pytest.approx(plain, rel=0.02)


def test_every_switch_is_proven_alive() -> None:
    alone = {"zeroing_gradients", "decode_once", "compile", "bias_before_batchnorm"}
    alone |= {"fp16_numerics", "sublinear_memory"}
    assert ALIVE.keys() | alone == SWITCHES.keys()


def test_clipping_limits_the_norm() -> None:
    """The gradients of a first step are larger than 1."""
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.weight)
    optimizer = speedrun.SGD(model.parameters(), lr=0.0)
    x, y = 100 * torch.ones(4, 4), torch.zeros(4, dtype=torch.int64)
    norms = []
    for on in (frozenset[str](), frozenset({"gradient_clipping"})):
        kept: list[torch.Tensor] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                optimizer,
                "step",
                lambda kept=kept: kept.extend(p.grad.clone() for p in model.parameters()),
            )
            speedrun.learn(on, model, optimizer, x, y)
        norms.append(float(nn.utils.get_total_norm(kept)))
        model.zero_grad()
    assert norms[0] > 1.5 and norms[1] == pytest.approx(1, rel=1e-3)


def test_workers_end_with_the_training_and_leave_nothing() -> None:
    """Also where it is given up after an epoch, as a measurement does."""
    before, threads = set(multiprocessing.active_children()), set(threading.enumerate())
    run = train(["data_loading"], SMALL)
    next(run)
    workers = set(multiprocessing.active_children()) - before
    # Of the images to train on, and of those to validate.
    assert len(workers) == 2 * min(4, max(1, cores() - 1))
    run.close()
    # On a busy machine a queue's thread ends a moment later.
    end = time.monotonic() + 20
    while time.monotonic() < end and set(threading.enumerate()) - threads:
        time.sleep(0.05)
    assert not set(threading.enumerate()) - threads
    assert not workers & set(multiprocessing.active_children())


@pytest.mark.parametrize(("found", "workers"), [(1, 1), (2, 1), (4, 3), (64, 4)])
def test_one_core_is_left_to_the_training(
    monkeypatch: pytest.MonkeyPatch, found: int, workers: int
) -> None:
    monkeypatch.setattr(speedrun, "cores", lambda: found)
    files = np.array([b"a", b"b"])
    made = [speedrun.loader(frozenset(names), files) for names in ([], ["data_loading"])]
    assert [each.num_workers for each in made] == [0, workers]


def test_both_ways_of_flipping_agree() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    labels, flips = torch.arange(5), np.array([True, False, True, True, False])
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speedrun, "decode", lambda image: image)
        for names in ({"decode_once"}, {"decode_once", "vectorization"}):
            on = frozenset(names)
            read = speedrun.loader(on, images)
            ((x, y),) = speedrun.batches(on, read, labels, np.arange(5), flips)
            assert y.tolist() == [0, 1, 2, 3, 4]
            found.append(x)
    assert torch.equal(*found)
    expected = images[0, :, :, ::-1].astype(np.float32) / 127.5 - 1
    assert np.array_equal(found[0][0].numpy(), expected)
