"""Check functions of the exercises, a module a notebook: each prints ``✓`` or ``not yet``, and
returns which.
"""

from course.exercises.front_04 import check_04_prefetch
from course.exercises.front_10 import check_10_device
from course.exercises.front_11 import check_11_recompute
from course.exercises.front_15 import check_15_flat_gradients
from course.exercises.front_18 import check_18_clip
from course.exercises.front_23 import check_23_find
from course.exercises.lab_00 import check_00_speedup
from course.exercises.lab_01 import check_01_blocked_product
from course.exercises.lab_02 import check_02_largest_rate
from course.exercises.lab_03 import check_03_one_cycle_lr
from course.exercises.lab_04 import check_04_enough_workers
from course.exercises.lab_05 import check_05_fastest_batch
from course.exercises.lab_06 import check_06_mixed_linear
from course.exercises.lab_07 import check_07_kahan_add
from course.exercises.lab_08 import check_08_adamw
from course.exercises.lab_09 import check_09_steps_until_it_pays
from course.exercises.lab_10 import check_10_one_read
from course.exercises.lab_11 import check_11_best_segments
from course.exercises.lab_12 import check_12_lowest_peak
from course.exercises.lab_13 import check_13_one_update
from course.exercises.lab_14 import check_14_one_reduction
from course.exercises.lab_15 import check_15_clip
from course.exercises.lab_16 import check_16_to_float32
from course.exercises.lab_17 import check_17_replay
from course.exercises.lab_18 import check_18_clip_to_usual
from course.exercises.lab_19 import check_19_drop_bias
from course.exercises.lab_20 import check_20_validate
from course.exercises.lab_21 import check_21_recalibrate
from course.exercises.lab_22 import check_22_one_graph
from course.exercises.lab_23 import check_23_idle
from course.exercises.lab_template import check_template_blocks
from course.exercises.tell import attempt

__all__ = [
    "attempt",
    "check_00_speedup",
    "check_01_blocked_product",
    "check_02_largest_rate",
    "check_03_one_cycle_lr",
    "check_04_enough_workers",
    "check_04_prefetch",
    "check_05_fastest_batch",
    "check_06_mixed_linear",
    "check_07_kahan_add",
    "check_08_adamw",
    "check_09_steps_until_it_pays",
    "check_10_device",
    "check_10_one_read",
    "check_11_best_segments",
    "check_11_recompute",
    "check_12_lowest_peak",
    "check_13_one_update",
    "check_14_one_reduction",
    "check_15_clip",
    "check_15_flat_gradients",
    "check_16_to_float32",
    "check_17_replay",
    "check_18_clip",
    "check_18_clip_to_usual",
    "check_19_drop_bias",
    "check_20_validate",
    "check_21_recalibrate",
    "check_22_one_graph",
    "check_23_find",
    "check_23_idle",
    "check_template_blocks",
]
