"""A bias that the batch norm behind it takes away again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whyslow.experiment import Experiment
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The same layers without their bias."""
    layers = subject.seen.biased
    if not layers or subject.seen.compiled:
        return

    @contextmanager
    def without() -> Iterator[None]:
        before = [layer.bias for layer in layers]
        for layer in layers:
            layer.register_parameter("bias", None)
        try:
            yield
        finally:
            for layer, bias in zip(layers, before, strict=True):
                layer.bias = bias

    yield Experiment(
        "bias before batch norm",
        f"by experiment: {len(layers)} layers before a batch norm without their bias",
        "nn.Conv2d(..., bias=False) where a batch norm follows:\n"
        "it subtracts the mean, and the bias with it.",
        "19_bias_before_batchnorm",
        without,
    )
