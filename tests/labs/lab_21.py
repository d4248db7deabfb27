"""21, normalization: what shows that the technique acts, and answers to the exercise."""

from typing import Any

import torch
from torch import nn

from course.exercises import check_21_own_batch_norm
from labkit import seed_all
from tests.labs import counters

# Whether one image changes the outputs of others.
REACH = {"no norm": False, "batch norm": True, "group norm": False, "layer norm": False}


def alive(names: dict[str, Any]) -> None:
    """A norm keeps more bytes and no more FLOPs; what it is of shows in a neighbour's output."""
    plain, *normed = (counters(names, norm=norm) for norm in REACH)
    for each in normed:
        assert each.flops == plain.flops
        assert 1.2 < each.saved_bytes / plain.saved_bytes < 2.2
    images, forms = names["images"], names["FORMS"]
    torch.testing.assert_close(forms["0 to 255"](images), 255 * forms["0 to 1"](images))
    standard = forms["standardized"](images)
    torch.testing.assert_close(standard.mean((0, 2, 3)).cpu(), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(standard.std((0, 2, 3)).cpu(), torch.ones(3), rtol=0, atol=1e-3)
    reach = {}
    for norm in REACH:
        seed_all(0)
        net = names["make_net"](names["NORMS"][norm])
        some = standard[:4].clone()
        before = net(some)
        # The first image is another one: do the answers for the others change?
        some[0] = standard[4]
        reach[norm] = not torch.allclose(net(some)[1:], before[1:], rtol=0, atol=1e-4)
    assert reach == REACH


class Right(nn.Module):
    eps = 1e-5

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.keep("running_mean", torch.zeros(channels))
        self.keep("running_var", torch.ones(channels))

    def keep(self, name, value):
        self.register_buffer(name, value)

    def statistics(self, x):
        return x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)

    def divide(self, x, mean, var):
        return (x - mean) / (var + self.eps).sqrt()

    @torch.no_grad()
    def update(self, x):
        self.running_mean.lerp_(x.mean((0, 2, 3)), 0.1)
        self.running_var.lerp_(x.var((0, 2, 3)), 0.1)

    def forward(self, x):
        shape = (1, -1, 1, 1)
        if self.training:
            mean, var = self.statistics(x)
            self.update(x)
        else:
            mean, var = self.running_mean.view(shape), self.running_var.view(shape)
        return self.divide(x, mean, var) * self.weight.view(shape) + self.bias.view(shape)


class Stub(nn.Module):
    def __init__(self, channels):
        super().__init__()
        raise NotImplementedError("your turn")


class NoModule:
    def __init__(self, channels): ...


class NoForward(Right):
    def forward(self, x):
        raise NotImplementedError("your turn")


class Detached(Right):
    @torch.no_grad()
    def statistics(self, x):
        return super().statistics(x)


class NoGradient(Right):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class BiasedAverage(Right):
    @torch.no_grad()
    def update(self, x):
        self.running_mean.lerp_(x.mean((0, 2, 3)), 0.1)
        self.running_var.lerp_(x.var((0, 2, 3), correction=0), 0.1)


class UnbiasedBatch(Right):
    def statistics(self, x):
        return x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)


class EpsOutsideTheRoot(Right):
    def divide(self, x, mean, var):
        return (x - mean) / (var.sqrt() + self.eps)


class NoEps(Right):
    eps = 0


class NoRoot(Right):
    def divide(self, x, mean, var):
        return (x - mean) / (var + self.eps)


class AveragesMoveInEval(Right):
    def forward(self, x):
        y = super().forward(x)
        if not self.training:
            self.update(x)
        return y


class BatchInEval(Right):
    def forward(self, x):
        training, self.training = self.training, True
        kept = self.running_mean.clone(), self.running_var.clone()
        y = super().forward(x)
        if not training:
            self.running_mean.copy_(kept[0])
            self.running_var.copy_(kept[1])
        self.training = training
        return y


class MeanOverImagesOnly(Right):
    def statistics(self, x):
        return x.mean(0, keepdim=True), x.var(0, correction=0, keepdim=True)


class MeanOfEachImage(Right):
    def statistics(self, x):
        return x.mean((2, 3), keepdim=True), x.var((2, 3), correction=0, keepdim=True)


class NoScale(Right):
    def forward(self, x):
        super().forward(x)
        return self.divide(x, *self.statistics(x))


class AveragesAsParameters(Right):
    def keep(self, name, value):
        setattr(self, name, nn.Parameter(value))


class AveragesNotRegistered(Right):
    def keep(self, name, value):
        setattr(self, name, value)


class AveragesBeginAtZero(Right):
    def keep(self, name, value):
        super().keep(name, torch.zeros_like(value))


class MomentumReversed(Right):
    @torch.no_grad()
    def update(self, x):
        self.running_mean.lerp_(x.mean((0, 2, 3)), 0.9)
        self.running_var.lerp_(x.var((0, 2, 3)), 0.9)


class AveragesDoNotMove(Right):
    def update(self, x): ...


class GraphKept(Right):
    def update(self, x):
        self.running_mean = 0.9 * self.running_mean + 0.1 * x.mean((0, 2, 3))
        self.running_var = 0.9 * self.running_var + 0.1 * x.var((0, 2, 3))


class InputChanged(Right):
    def divide(self, x, mean, var):
        y = super().divide(x, mean, var)
        with torch.no_grad():
            x += 1
        return y


class WeightNotTrained(Right):
    def __init__(self, channels):
        super().__init__(channels)
        del self.weight
        self.weight = torch.ones(channels)


TRAINING = "training, input of shape (4, 3, 3, 5): "
CHECK = check_21_own_batch_norm
RIGHT = Right
WRONG = [
    (Stub, "write it, then run this cell again"),
    (NoModule, "BatchNorm is no class of the kind nn.Module"),
    (NoForward, "write it, then run this cell again"),
    (WeightNotTrained, "self.weight is no nn.Parameter"),
    (Detached, "outputs are right, gradients of x are not"),
    (NoGradient, "no gradient goes through forward"),
    (BiasedAverage, "running_var: average the variance times n / (n - 1), here 60 / 59"),
    (UnbiasedBatch, f"{TRAINING}divide by n, not by n - 1, in the variance of a batch"),
    (EpsOutsideTheRoot, f"{TRAINING}eps is added to the variance, under the root"),
    (NoEps, f"{TRAINING}eps is missing"),
    (NoRoot, f"{TRAINING}the root of the variance is missing"),
    (AveragesMoveInEval, "running_mean moves in eval()"),
    (BatchInEval, "in eval() forward still uses the mean of the batch"),
    (MeanOverImagesOnly, f"{TRAINING}one mean per channel, over images and pixels"),
    (MeanOfEachImage, f"{TRAINING}the outputs differ from torch's"),
    (NoScale, f"{TRAINING}weight and bias are missing"),
    (AveragesAsParameters, "self.running_mean is a parameter"),
    (AveragesNotRegistered, "self.running_mean is no buffer"),
    (AveragesBeginAtZero, "self.running_var begins as [0.0, 0.0, 0.0]"),
    (MomentumReversed, "running_mean: 0.9 of the old one and 0.1 of the batch"),
    (AveragesDoNotMove, "running_mean does not move in training"),
    (GraphKept, "self.running_mean keeps a graph"),
    (InputChanged, "forward changes its input x"),
]
