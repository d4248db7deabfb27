"""Moving pictures, one for each notebook: ``from course.explorables import Roofline``.

Each answers one question in the browser alone, and says in its caption what is simulated.
"""

from course.explorables.explorable import Explorable, alive, module

__all__ = [
    "Explorable",
    "KeepTheTankFull",
    "LoaderPipeline",
    "LossCliff",
    "MemorySaw",
    "NoisyTiming",
    "Pages",
    "ReadTimeline",
    "Roofline",
    "alive",
]


class NoisyTiming(Explorable):
    """Two programs on a machine that drifts, timed one after the other and in turn."""

    number, script = "00", "noisy_timing"
    _esm = module(script)


class LoaderPipeline(Explorable):
    """Batches on their way from loading to training."""

    number, script = "04", "loader_pipeline"
    _esm = module(script)


class Roofline(Explorable):
    """A linear layer under the roofs of fp32, bf16 and fp16."""

    number, script = "06", "roofline"
    _esm = module(script)


class KeepTheTankFull(Explorable):
    """A tank of work between host and device; a read, the reader's too, lets it run dry."""

    number, script = "10", "keep_the_tank_full"
    _esm = module(script)


class MemorySaw(Explorable):
    """Memory over the time of a step, with checkpoints that the reader places."""

    number, script = "11", "memory_saw"
    _esm = module(script)


class Pages(Explorable):
    """The memory of gradients, page by page: filled with zeros, or freed."""

    number, script = "15", "pages"
    _esm = module(script)


class LossCliff(Explorable):
    """SGD at a cliff of the loss, with clipped gradients and without."""

    number, script = "18", "loss_cliff"
    _esm = module(script)


class ReadTimeline(Explorable):
    """The lanes of host and device, with a fault that the reader guesses."""

    number, script = "23", "read_timeline"
    _esm = module(script)
