"""Methods to learn from, by which plans were made before: each gives one plan, whatever the budget.

To import this package adds them to those of the planner, which takes them by name, for comparison:
``sublinear.plan(chain, method="grid")``. `rotor` is the exact nested program as its paper has it.
"""

from course.searches import genetic, grid, recursive, segments
from sublinear.planner import METHODS

METHODS["sqrt"] = segments.sqrt_segments
METHODS["grid"] = grid.grid
METHODS["genetic"] = genetic.genetic
METHODS["recursive"] = recursive.recursive
