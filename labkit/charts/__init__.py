"""The one picture of each result, as SVG.

A panel shows it live, the output of a cell keeps it, pages show the same. Each function takes a
partial result, too, and gives its kind of picture the same height from the start: nothing jumps.
Pictures are as wide as there is room; ink and paper are those of the page. ``recorded`` are
results of other machines, each with its label: they are muted.
"""

from labkit.charts.pairs import comparison
from labkit.charts.races import race
from labkit.charts.steps import memory
from labkit.charts.svg import themed
from labkit.charts.sweeps import sweep

__all__ = ["comparison", "memory", "race", "sweep", "themed"]
