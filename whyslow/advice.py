"""What to try first for a cause of a report, in two lines that fit this machine."""

from __future__ import annotations

from labkit.busy import cores
from whyslow import lines, remedies, stacks

_LOOK = "whyslow.diagnose(step) tries precision, threads, layout and torch.compile on one step,\n"

_TEXTS = {
    # As for a finding of the same kind.
    lines.HOST: remedies.remedy(remedies.HOST),
    stacks.LOGGING: remedies.remedy(remedies.BESIDE),
    stacks.COMPILING: remedies.remedy(remedies.RECOMPILED),
    stacks.FORWARD: _LOOK + "and says what each of them saves. The line above is where to begin.",
    stacks.BACKWARD: _LOOK + "and says what each of them saves: backward mirrors forward.",
    stacks.UPDATE: "Give the optimizer fused=True: one operator for all weights.\n"
    "Updates and clipping in a loop of your own have functions of torch: torch._foreach_*.",
    stacks.VALIDATION: "Validate less often, or on a part; take a larger batch, since nothing is\n"
    "kept: with torch.inference_mode(): around the loop, model.eval() before it.",
    stacks.SAVING: "Save less often, or in a thread: copy the weights to the CPU first,\n"
    "then torch.save of the copies while the training goes on.",
    stacks.WAITING: "The program waits there for another thread or process.\n"
    "Whether that one does the work, `py-spy dump` of its process says.",
    stacks.START: "It is paid once: watch longer, or begin to watch behind it.",
    lines.OUTSIDE: "It is no training step: do it less often, or in another process.",
    lines.OWN: "These lines run outside of modules, loaders and optimizers. A loop over single\n"
    "elements becomes one operator on all; a line of whole tensors is as fast as its operators.",
}


def advice(cause: str) -> str:
    """The remedy to try first."""
    return _loading() if cause == stacks.LOADING else _TEXTS[cause]


def _loading() -> str:
    once = "decode and transform once, before the loop, and keep what fits into memory"
    if cores() == 1:
        return f"With one core no worker can help: {once}.\nTransform whole batches at once."
    return (
        f"DataLoader(..., num_workers={cores() - 1}) loads meanwhile, on {cores()} cores.\n"
        f"Or {once}."
    )
