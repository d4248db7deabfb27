"""Moving pictures, one for each notebook: ``from course.explorables import Roofline``.

Each answers one question in the browser alone, and says in its caption what is simulated.
"""

from course.explorables.explorable import Explorable, alive, module

__all__ = [
    "Explorable",
    "LoaderPipeline",
    "LossCliff",
    "MemorySaw",
    "NoisyTiming",
    "ReadTimeline",
    "Roofline",
    "alive",
]


class NoisyTiming(Explorable):
    """00: two programs on a machine that drifts, timed one after the other and in turn."""

    _esm = module("noisy_timing")


class LoaderPipeline(Explorable):
    """04: batches on their way from loading to training."""

    _esm = module("loader_pipeline")


class Roofline(Explorable):
    """06: a linear layer under the roofs of fp32, bf16 and fp16."""

    _esm = module("roofline")


class MemorySaw(Explorable):
    """11: memory over the time of a step, with checkpoints that the reader places."""

    _esm = module("memory_saw")


class LossCliff(Explorable):
    """18: SGD at a cliff of the loss, with clipped gradients and without."""

    _esm = module("loss_cliff")


class ReadTimeline(Explorable):
    """23: the lanes of host and device, with a fault that the reader guesses."""

    _esm = module("read_timeline")
