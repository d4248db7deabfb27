"""20, validation without gradients: what shows that the technique acts, and answers."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course import exercises
from labkit import MemoryMeter, seed_all
from tests.labs import counters, nothing

CHECK = exercises.check_20_validate
Batches = Iterable[tuple[Tensor, Tensor]]


def alive(names: dict[str, Any]) -> None:
    """The same arithmetic; of four graphs two live, then none. Lamps follow the switches."""
    steps = {}, names["one"], names["two"], names["two"] | {"layers": "eval()"}
    four, two, none, same = (counters(names, **step) for step in steps)
    assert four.flops == two.flops == none.flops
    peaks = [peak(names, **step) for step in steps]
    assert 0.45 < peaks[1] / peaks[0] < 0.7
    assert peaks[2] < 0.4 * peaks[1]
    assert none.saved_bytes == same.saved_bytes == 0
    lit = [[green for green, _ in lamps_of(names, **step).lamps] for step in steps]
    assert lit == [
        [False, False, False, False],
        [False, True, False, False],
        [True, True, False, False],
        [True, True, True, True],
    ]


def peak(names: dict[str, Any], **settings: Any) -> int:
    """Bytes of a step's peak."""
    seed_all(0)
    step = names["make_workload"](**names["lab"].settings(settings)).step
    step()
    with MemoryMeter(saved=False) as memory:
        step()
    assert memory.peak is not None
    return memory.peak


def lamps_of(names: dict[str, Any], **settings: Any) -> Any:
    """What the picture says of a workload with these settings."""
    chosen = names["lab"].settings(settings)
    names["lab"].make_workload(**chosen)
    return names["lamps"].habits(chosen)


# ------------------------------------------------------------------------- answers to the exercise


@contextmanager
def each_in_its_mode(net: nn.Module):
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def mean_of(net: nn.Module, batches: Batches) -> Tensor:
    return torch.cat([F.cross_entropy(net(x), y, reduction="none") for x, y in batches]).mean()


@torch.inference_mode()
def validation_loss(net, batches):
    with each_in_its_mode(net):
        return mean_of(net, batches).item()


def not_called(net, batches):
    return 1.0


def records(net, batches):
    with each_in_its_mode(net):
        return mean_of(net, batches).item()


@torch.no_grad()
def dropout_on(net, batches):
    return mean_of(net, batches).item()


@torch.no_grad()
def left_in_eval(net, batches):
    return mean_of(net.eval(), batches).item()


@torch.no_grad()
def train_at_the_end(net, batches):
    loss = mean_of(net.eval(), batches).item()
    net.train()
    return loss


@torch.no_grad()
def wakes_the_frozen(net, batches):
    training = net.training
    loss = mean_of(net.eval(), batches).item()
    net.train(training)
    return loss


@torch.no_grad()
def lost_after_an_error(net, batches):
    modes = {module: module.training for module in net.modules()}
    loss = mean_of(net.eval(), batches).item()
    for module, training in modes.items():
        module.training = training
    return loss


@torch.no_grad()
def frozen_lost_after_an_error(net, batches):
    training = net.training
    try:
        return validation_loss(net, batches)
    except ValueError:
        net.train(training)
        raise


def swallows_the_error(net, batches):
    try:
        return validation_loss(net, batches)
    except ValueError:
        return float("nan")


@torch.no_grad()
def mean_of_means(net, batches):
    with each_in_its_mode(net):
        losses = [F.cross_entropy(net(x), y).item() for x, y in batches]
    return sum(losses) / len(losses)


@torch.no_grad()
def a_tensor(net, batches):
    with each_in_its_mode(net):
        return mean_of(net, batches)


def the_first_batch(net, batches):
    return validation_loss(net, batches[:1])


RIGHT: Callable[..., Any] = validation_loss
ALSO_RIGHT = (torch.no_grad()(records),)
WRONG = (
    (nothing, "return the mean loss over all samples"),
    (not_called, "net was never called"),
    (dropout_on, "net was called in training mode: dropout strikes out"),
    (records, "autograd was recording while net was called: each batch made a graph"),
    (a_tensor, "a Tensor came back: return a plain number"),
    (mean_of_means, "the mean loss is …too much weight"),
    (the_first_batch, "the mean loss is "),
    (left_in_eval, "net.training was True before and is False afterwards"),
    (train_at_the_end, "layer 2 had training=False before and has True afterwards"),
    (wakes_the_frozen, "layer 2 had training=False before and has True afterwards"),
    (lost_after_an_error, "net.training was True before and is False after an error"),
    (frozen_lost_after_an_error, "layer 2 had training=False before and has True after an error"),
    (swallows_the_error, "a batch has 8 inputs and 3 targets: its error is to reach the caller"),
)
