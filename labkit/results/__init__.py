"""What goes into a measurement and what comes out of it: plain frozen values and their verdict."""

from labkit.results.comparison import Comparison
from labkit.results.measurement import Measurement
from labkit.results.race import RaceResult, RaceRun
from labkit.results.settings import ROLES, changed, same_value
from labkit.results.statistics import Estimate, estimate, median_interval, runs_of
from labkit.results.workload import Workload

__all__ = [
    "ROLES",
    "Comparison",
    "Estimate",
    "Measurement",
    "RaceResult",
    "RaceRun",
    "Workload",
    "changed",
    "estimate",
    "median_interval",
    "runs_of",
    "same_value",
]
