"""Deeper 05, answers to the exercise: the batch size that reaches the target first."""

from course import exercises
from tests.labs import nothing


def right(c, s, noise_scale):
    return (noise_scale * c / s) ** 0.5


def rounded(c, s, noise_scale):
    return round(right(c, s, noise_scale))


def searched(c, s, noise_scale):
    return min(range(1, 10_000), key=lambda size: (c + s * size) * (1 + noise_scale / size))


CHECK = exercises.check_05_fastest_batch
RIGHT = right
ALSO_RIGHT = [rounded, searched]
WRONG = [
    (nothing, "return a batch size\n"),
    # the knee alone
    (lambda c, s, noise: c / s, "…a batch of 4000 takes 1.53 times"),
    # the noise scale alone
    (lambda c, s, noise: noise, "…a batch of 100 takes 1.53 times"),
    (lambda c, s, noise: c / s + noise, "…a batch of 4100 takes"),
    # the arithmetic mean
    (lambda c, s, noise: (c / s + noise) / 2, "…a batch of 2050 takes"),
    # no root
    (lambda c, s, noise: noise * c / s, "…a batch of 400000 takes"),
    # upside down
    (lambda c, s, noise: (noise * s / c) ** 0.5, "…a batch of 0.158114 takes"),
    (lambda c, s, noise: right(c, s, noise) + 2, "…takes 1 times"),
    (lambda c, s, noise: (c * s * noise) ** 0.5, "…takes"),
    (lambda c, s, noise: 0, "…gave 0: a positive number is wanted"),
    (lambda c, s, noise: float("nan"), "…gave nan: a positive number is wanted"),
    (lambda c, s, noise: float("inf"), "…gave inf: a positive number is wanted"),
    (lambda c, s, noise: "632", "…gave '632': a positive number is wanted"),
]
