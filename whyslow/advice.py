"""What to try first for a cause, in two lines that fit this machine."""

from __future__ import annotations

from labkit.busy import cores
from whyslow.lines import HOST, OUTSIDE, OWN
from whyslow.stacks import (
    BACKWARD,
    COMPILING,
    FORWARD,
    LOADING,
    LOGGING,
    SAVING,
    START,
    UPDATE,
    VALIDATION,
    WAITING,
)

_LOOK = "whyslow.diagnose(step) tries precision, threads, layout and torch.compile on one step,\n"

_TEXTS = {
    HOST: "The program waits there until the device is done: read the loss every hundred steps,\n"
    "keep sums on the device with .detach(), copy with non_blocking=True from pinned memory.",
    FORWARD: _LOOK + "and says what each of them saves. The line above is where to begin.",
    BACKWARD: _LOOK + "and says what each of them saves: backward mirrors what forward does.",
    UPDATE: "Give the optimizer fused=True: one operator for all weights, not one a weight.\n"
    "Updates and clipping in a loop of your own have functions of torch: torch._foreach_*.",
    LOGGING: "Write every hundred steps, and not in every one.\n"
    "What is logged and comes from the device is waited for, too.",
    SAVING: "Save less often, or in a thread: copy the weights to the CPU first,\n"
    "then torch.save of the copies while the training goes on.",
    VALIDATION: "Validate less often, or on a part; take a larger batch, since nothing is kept:\n"
    "with torch.inference_mode(): around the loop, model.eval() before it.",
    COMPILING: "Compiling is paid once for each shape: pad to few sizes, or mark what varies,\n"
    "torch._dynamo.mark_dynamic(x, 0). TORCH_LOGS=recompiles says why it starts anew.",
    WAITING: "The program waits there for another thread or process.\n"
    "Whether that one does the work, `py-spy dump` of its process says.",
    START: "It is paid once: watch longer, or begin to watch behind it.",
    OUTSIDE: "It is no training step: do it less often, or in another process.",
    OWN: "These lines run outside of modules, loaders and optimizers. A loop over single elements\n"
    "becomes one operator on all of them; a line of whole tensors is as fast as its operators.",
}


def advice(cause: str) -> str:
    """The remedy to try first."""
    if cause == LOADING:
        return _loading()
    return _TEXTS[cause]


def _loading() -> str:
    once = "decode and transform once, before the loop, and keep what fits into memory"
    if cores() == 1:
        return f"With one core no worker can help: {once}.\nTransform whole batches at once."
    return (
        f"DataLoader(..., num_workers={cores() - 1}) loads meanwhile, on {cores()} cores.\n"
        f"Or {once}."
    )
