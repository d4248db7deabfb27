"""From a model to its chain: blocks on the bench, estimates from a roofline, whole steps."""

from sublinear.profiling.estimate import Roofline
from sublinear.profiling.profiler import profile
from sublinear.profiling.training import Inputs, Loss, Training, restored, training

__all__ = [
    "Inputs",
    "Loss",
    "Roofline",
    "Training",
    "profile",
    "restored",
    "training",
]
