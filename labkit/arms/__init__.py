"""Where one side of a comparison lives: in this process, in one of its own, or in several workers.

`LocalArm`, `labkit.arms.process.ProcessArm` and `labkit.arms.workers.WorkersArm` follow one
protocol, `Arm`. The last two ask child processes (`labkit.arms.children`), which answer in one loop
(`labkit.arms.serve`) and there keep a `LocalArm` each.
"""

from labkit.arms.local import LocalArm
from labkit.arms.protocol import Arm, ArmDied, Counts, Peak

__all__ = ["Arm", "ArmDied", "Counts", "LocalArm", "Peak"]
