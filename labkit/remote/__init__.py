"""An arm in other processes: one of its own, or the workers of a script.

Both are the same: child processes that are asked one thing at a time. A process of its own is one
worker without a script. They differ where a child ends early: of a process of its own that is a
result (`labkit.arm.ArmDied`), of a worker an error (`WorkerFailed`).

`labkit.remote.children` starts children and asks them, `labkit.remote.serving` is a child's end of
the link, `labkit.remote.workers` runs a script as ``torchrun`` would, `labkit.remote.arm` is the
`labkit.arm.Arm`.
"""

from labkit.remote.arm import RemoteArm
from labkit.remote.serving import serve
from labkit.remote.workers import WorkerFailed, Workers, launch

__all__ = ["RemoteArm", "WorkerFailed", "Workers", "launch", "serve"]
