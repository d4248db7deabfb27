"""An arm in other processes: one of its own, or the workers of a script.

Both are child processes that are asked one thing at a time. They differ where a child ends early:
of a process of its own that is a result (`labkit.arm.ArmDied`), of a worker an error
(`WorkerFailed`).

`children` starts them and asks, `serving` is their end of the link, `workers` runs a script as
``torchrun`` would, `arm` is the `labkit.arm.Arm`.
"""

from labkit.remote.arm import RemoteArm
from labkit.remote.serving import serve
from labkit.remote.workers import WorkerFailed, Workers, launch

__all__ = ["RemoteArm", "WorkerFailed", "Workers", "launch", "serve"]
