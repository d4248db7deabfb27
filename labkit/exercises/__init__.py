"""Check functions of the exercises, a module a notebook: each prints ``✓`` or ``not yet``, and returns which."""

from .lab_00 import check_00_speedup
from .lab_01 import check_01_blocked_product
from .lab_03 import check_03_one_cycle_lr
from .lab_04 import check_04_enough_workers
from .lab_06 import check_06_clip_order
from .lab_11 import check_11_best_segments
from .lab_12 import check_12_lowest_peak
from .lab_14 import check_14_one_reduction
from .tell import attempt, verdict

__all__ = [
    "attempt",
    "check_00_speedup",
    "check_01_blocked_product",
    "check_03_one_cycle_lr",
    "check_04_enough_workers",
    "check_06_clip_order",
    "check_11_best_segments",
    "check_12_lowest_peak",
    "check_14_one_reduction",
    "verdict",
]
