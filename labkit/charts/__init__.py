"""The one picture of each result, as SVG, of plain values: results give their own.

A panel shows it live, the output of a cell keeps it, pages show the same. Each function takes what
there is so far, too, and gives its kind of picture the same height from the start: nothing jumps.
Pictures are as wide as there is room; ink and paper are those of the page. What other machines
recorded is muted. ``words`` say what a picture shows, for who does not see it.
"""

from labkit.charts.races import Curve, race
from labkit.charts.rows import bars
from labkit.charts.steps import Step, memory
from labkit.charts.strips import pairs, ratios

__all__ = ["Curve", "Step", "bars", "memory", "pairs", "race", "ratios"]
