"""Put it back: whatever a block draws, switches, writes or trains is as before at its end.

- `restoring`: all that given steps reach, with generators and switches.
- `preserve_state`: models, optimizers, tensors, containers and what else holds a state.
- `preserve_rng`: the random generators of Python, NumPy and torch.
- `preserve_flags`: torch's process-wide switches, with the number of threads.
- `giving_back`: whatever else can be put back by a call.
"""

from labkit.restore.generators import preserve_rng
from labkit.restore.steps import Restoration, preserve_state, restoring
from labkit.restore.switches import preserve_flags
from labkit.restore.undo import giving_back

__all__ = [
    "Restoration",
    "giving_back",
    "preserve_flags",
    "preserve_rng",
    "preserve_state",
    "restoring",
]
