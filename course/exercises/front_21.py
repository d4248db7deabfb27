"""The exercise of the front notebook 21: batch norm for images, with its running averages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng

CHANNELS = 3
SHAPES = ((4, CHANNELS, 3, 5), (2, CHANNELS, 4, 4))
# Mean and deviation of each channel: where the deviation is small, it shows where eps is added.
MEANS, DEVIATIONS = (2.0, -1.0, 0.0), (1.0, 3.0, 0.003)
PER_CHANNEL = (1, CHANNELS, 1, 1)
PARAMETERS, BUFFERS = ("weight", "bias"), ("running_mean", "running_var")
OVER, EPS, MOMENTUM = (0, 2, 3), 1e-5, 0.1


@check("training, gradients, averages and eval(): all as torch.nn.BatchNorm2d", judged="inside")
def check_21_own_batch_norm(answer: Callable[[int], nn.Module]) -> None:
    """`answer(channels)` is an nn.Module for (N, C, H, W) that does what nn.BatchNorm2d does.

    Two training steps of different sizes with their gradients, then `eval()`.
    """
    with preserve_rng():
        made = attempt(answer, CHANNELS)
    if not isinstance(made, nn.Module):
        raise NotYet("BatchNorm is no class of the kind nn.Module")
    _has_its_tensors(made)
    own, torchs = made.double(), nn.BatchNorm2d(CHANNELS).double()
    with torch.no_grad():
        for norm in (own, torchs):
            norm.get_parameter("weight").copy_(torch.tensor([2.0, 0.5, -1.0]))
            norm.get_parameter("bias").copy_(torch.tensor([0.1, -3.0, 1.0]))
    for number, shape in enumerate(SHAPES):
        x = _images(shape, number)
        before = _kept(own)
        _trains(own, torchs, x)
        _averages(own, torchs, x, before)
    _evaluates(own.eval(), torchs.eval(), _images(SHAPES[0], 2))


def _images(shape: tuple[int, ...], seed: int) -> Tensor:
    """Random images, float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    mean, deviation = (torch.tensor(each).view(PER_CHANNEL) for each in (MEANS, DEVIATIONS))
    return x * deviation + mean


def _kept(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Copies of the running averages."""
    mean, var = (norm.get_buffer(name).detach().clone() for name in BUFFERS)
    return mean, var


def _has_its_tensors(made: nn.Module) -> None:
    """NotYet where a parameter or an average is missing, is of the wrong kind, or starts wrong."""
    parameters, buffers = dict(made.named_parameters()), dict(made.named_buffers())
    for name in PARAMETERS:
        if name not in parameters:
            raise NotYet(f"self.{name} is no nn.Parameter: nothing would train it")
    for name in BUFFERS:
        if name in parameters:
            raise NotYet(
                f"self.{name} is a parameter: the optimizer would change it; "
                f"use self.register_buffer({name!r}, ...)"
            )
        if name not in buffers:
            raise NotYet(
                f"self.{name} is no buffer: .to(device) and state_dict() would leave it behind; "
                f"use self.register_buffer({name!r}, ...)"
            )
    for name, value in nn.BatchNorm2d(CHANNELS).state_dict().items():
        found = (parameters | buffers).get(name)
        # torch counts its batches, too.
        if (
            found is not None
            and value.ndim
            and not (found.shape == value.shape and torch.equal(found, value))
        ):
            raise NotYet(f"self.{name} begins as {found.tolist()}, in torch as {value.tolist()}")


def _same(found: Tensor, wanted: Tensor) -> bool:
    """Whether two tensors agree, shapes and all."""
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-7, atol=1e-9)


def _run(norm: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of a sum of it, each with a factor of its own."""
    given = x.clone().requires_grad_()
    output = attempt(norm, given)
    if not isinstance(output, Tensor):
        raise NotYet(f"forward returns {type(output).__name__}; a tensor like x")
    if not torch.equal(given, x):
        raise NotYet("forward changes its input x; the layer before still needs it")
    if output.shape != x.shape:
        raise NotYet(f"forward returns the shape {tuple(output.shape)} for {tuple(x.shape)}")
    factors = _images(tuple(x.shape), 9)
    if not output.requires_grad:
        raise NotYet("no gradient goes through forward: no_grad() is for the averages only")
    (output * factors).sum().backward()
    assert given.grad is not None
    return output.detach(), given.grad


def _trains(own: nn.Module, torchs: nn.Module, x: Tensor) -> None:
    """NotYet where outputs or gradients of a training step are others than torch's."""
    output, gradient = _run(own, x)
    wanted, slope = _run(torchs, x)
    if not _same(output, wanted):
        where = f"training, input of shape {tuple(x.shape)}"
        off = (output - wanted).abs().max().item()
        raise NotYet(f"{where}: {_mistake(own, x, output)} (off by up to {off:.2g})")
    if not _same(gradient, slope):
        raise NotYet(
            "outputs are right, gradients of x are not: is the mean or the variance computed "
            "under no_grad() or detached? Training goes through both"
        )


def _mistake(own: nn.Module, x: Tensor, output: Tensor) -> str:
    """What makes such outputs in training."""
    weight, bias = (own.get_parameter(name).detach().view(PER_CHANNEL) for name in PARAMETERS)
    mean, var = x.mean(OVER, keepdim=True), x.var(OVER, correction=0, keepdim=True)
    of_images = x.mean(0), x.var(0, correction=0)
    unbiased = x.var(OVER, keepdim=True)
    found = {
        "eps is added to the variance, under the root": (x - mean) / (var.sqrt() + EPS),
        "eps is missing": (x - mean) / var.sqrt(),
        "divide by n, not by n - 1, in the variance of a batch": (x - mean)
        / (unbiased + EPS).sqrt(),
        "one mean per channel, over images and pixels": (x - of_images[0])
        / (of_images[1] + EPS).sqrt(),
        "the root of the variance is missing": (x - mean) / (var + EPS),
    }
    for words, value in found.items():
        if _same(output, weight * value + bias):
            return words
    if _same(output, (x - mean) / (var + EPS).sqrt()):
        return "weight and bias are missing"
    return "the outputs differ from torch's"


def _averages(own: nn.Module, torchs: nn.Module, x: Tensor, before: tuple[Tensor, Tensor]) -> None:
    """NotYet where the running averages after a training step are others than torch's."""
    for name in BUFFERS:
        if own.get_buffer(name).requires_grad:
            raise NotYet(f"self.{name} keeps a graph of each step: update it under no_grad()")
    (old_mean, old_var), n = before, x.numel() // CHANNELS
    (own_mean, own_var), (mean, var) = _kept(own), _kept(torchs)
    if not _same(own_mean, mean):
        batch = x.mean(OVER)
        if _same(own_mean, old_mean):
            raise NotYet("running_mean does not move in training")
        if _same(own_mean, (1 - MOMENTUM) * batch + MOMENTUM * old_mean):
            raise NotYet("running_mean: 0.9 of the old one and 0.1 of the batch, not the reverse")
        raise NotYet("running_mean differs from torch's after a training step")
    if not _same(own_var, var):
        biased = old_var.lerp(x.var(OVER, correction=0), MOMENTUM)
        if _same(own_var, biased):
            raise NotYet(
                f"running_var: average the variance times n / (n - 1), here {n} / {n - 1}; "
                "the batch itself is divided by the one without that factor"
            )
        raise NotYet("running_var differs from torch's after a training step")


def _evaluates(own: nn.Module, torchs: nn.Module, x: Tensor) -> None:
    """NotYet where eval() uses the batch, or moves the averages."""
    kept = _kept(own)
    output, _ = _run(own, x)
    for name, before in zip(BUFFERS, kept, strict=True):
        if not torch.equal(own.get_buffer(name), before):
            raise NotYet(f"{name} moves in eval(): only training may move it")
    if _same(output, torchs(x)):
        return
    # As torch, in training.
    if _same(output, torchs.train()(x)):
        raise NotYet("in eval() forward still uses the mean of the batch: ask self.training")
    raise NotYet("eval() differs from torch's: it uses running_mean and running_var, as they are")
