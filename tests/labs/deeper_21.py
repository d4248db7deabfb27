"""Deeper 21, answers to the exercise: averages of the weights as they are now."""

from functools import partial

import torch
from torch import nn

from course import exercises
from tests.labs import nothing


def right(
    net,
    batches,
    *,
    reset=True,
    plain=True,
    dropout=False,
    all_norms=True,
    give_back=True,
    modes=True,
):
    """The solution, and with a switch turned a typical wrong answer."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta, training = [norm.momentum for norm in norms], net.training
    net.train(dropout)
    for norm in norms if all_norms else norms[:1]:
        if reset:
            norm.reset_running_stats()
        norm.momentum = None if plain else norm.momentum
        norm.train()
    with torch.no_grad():
        for batch in batches:
            net(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum if give_back else norm.momentum
    if modes:
        net.train(training)


def trains_too(net, batches):
    right(net, batches)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.99)


def only_last_batch(net, batches):
    right(net, batches[-1:])


CHECK = exercises.check_21_recalibrate
RIGHT = right
RAISES = [(lambda net, batches: net.moduls(), AttributeError, "moduls")]
WRONG = [
    (nothing, "…still the old ones"),
    (partial(right, reset=False), "…plain average"),
    (partial(right, plain=False), "…plain average"),
    (only_last_batch, "…plain average"),
    (partial(right, dropout=True), "…a later one is not"),
    (partial(right, all_norms=False), "…a later one is not"),
    (partial(right, give_back=False), "momentum was 0.1 and is None"),
    (partial(right, modes=False), "training=True before, but afterwards not in"),
    (trains_too, "weights have changed"),
]
