"""05, batch size: what shows that the technique acts, and answers to the exercise."""

from typing import Any

import torch

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Eight times the operations in as many calls; the learning rate follows its rule."""
    small, large = counters(names), counters(names, batch_size="512")
    assert large.flops == 8 * small.flops
    assert large.launches == small.launches
    assert small.saved_bytes < large.saved_bytes / 7
    rate, base = names["learning_rate"], names["BASE"]
    assert [rate(512, rule) / base for rule in ("stays", "root", "linear")] == [1, 8**0.5, 8]
    assert rate(64, "linear") == base


def squares(gradient, size, draws):
    """Squared lengths of fresh gradients."""
    return torch.stack([gradient(size).square().sum() for _ in range(draws)])


def formulas(small, big, at_small, at_big):
    signal = (big * at_big - small * at_small) / (big - small)
    return (at_small - at_big) / (1 / small - 1 / big), signal


def noise_scale(gradient, small, big, draws):
    lengths = (squares(gradient, size, draws).mean().item() for size in (small, big))
    noise, signal = formulas(small, big, *lengths)
    if signal <= 0:
        raise ValueError("no signal: take more draws")
    return noise / signal


def empty(gradient, small, big, draws): ...


def mean_of_ratios(gradient, small, big, draws):
    noise, signal = formulas(
        small, big, squares(gradient, small, draws), squares(gradient, big, draws)
    )
    return (noise / signal).mean().item()


def no_square(gradient, small, big, draws):
    lengths = (squares(gradient, size, draws).sqrt().mean().item() for size in (small, big))
    noise, signal = formulas(small, big, *lengths)
    return noise / signal


def biased(gradient, small, big, draws):
    at_small, at_big = (squares(gradient, size, draws).mean().item() for size in (small, big))
    return formulas(small, big, at_small, at_big)[0] / at_big


def the_noise_alone(gradient, small, big, draws):
    lengths = (squares(gradient, size, draws).mean().item() for size in (small, big))
    return formulas(small, big, *lengths)[0]


def small_is_part_of_big(gradient, small, big, draws):
    at_small, at_big = 0.0, 0.0
    for _ in range(draws):
        part, rest = gradient(small), gradient(big - small)
        whole = (small * part + (big - small) * rest) / big
        at_small += part.square().sum().item() / draws
        at_big += whole.square().sum().item() / draws
    noise, signal = formulas(small, big, at_small, at_big)
    return noise / signal


def one_draw(gradient, small, big, draws):
    noise, signal = formulas(small, big, *(squares(gradient, size, 1) for size in (small, big)))
    return (noise / signal).item()


def negative_not_refused(gradient, small, big, draws):
    lengths = (squares(gradient, size, draws).mean().item() for size in (small, big))
    noise, signal = formulas(small, big, *lengths)
    return noise / signal


def both(gradient, small, big, draws):
    lengths = (squares(gradient, size, draws).mean().item() for size in (small, big))
    return formulas(small, big, *lengths)


CHECK = exercises.check_05_noise_scale
RIGHT = noise_scale
WRONG = (
    (empty, "return the noise scale, a number"),
    (both, "return the noise scale, a number, not ("),
    (mean_of_ratios, "a noise scale of 400 was planted"),
    (no_square, "a noise scale of 400 was planted"),
    (biased, "a noise scale of 400 was planted"),
    (the_noise_alone, "a noise scale of 400 was planted"),
    (small_is_part_of_big, "with small=4, big=64 and draws=1000"),
    (one_draw, "with small=4, big=64 and draws=1000"),
    (negative_not_refused, "where the signal is estimated as -0.56"),
)
