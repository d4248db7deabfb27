"""What to do about each cause, of a finding or of a line: two lines, and the only list of all.

Words in braces are filled in by the check that knows them.
"""

from __future__ import annotations

from labkit.busy import cores
from whyslow import stacks

WAITS = "waits for data"
RESTARTS = "loader workers started again every epoch"
LOOP = "optimizer loops over parameters"
BESIDE = "work beside forward, backward and update"
ANOMALY = "anomaly mode left on"
PROFILER = "profiler left on"
DETERMINISTIC = "deterministic algorithms left on"
NO_SEARCH = "cuDNN does not search for its fastest plans"
RECOMPUTED = "checkpointing that is not needed"
FEW_THREADS = "too few CPU threads"
MANY_THREADS = "too many CPU threads"
SMALL_WORK = "threads for work that is too small"
PRECISION = "fp32 where 16 bits are faster"
LAYOUT = "images not in channels-last order"
RECOMPILED = "compiled again for other shapes"
UNCOMPILED = "operators that torch.compile would join"
VALIDATION = "validation with gradients"
# An accelerator, and memory. A larger batch changes what is learned.
HOST = "the host waits for the device"
PAGEABLE = "copies from pageable memory"
GROWTH = "memory grows with every step"
BATCH = "batch too small for the fixed costs of a step"

REMEDIES = {
    WAITS: "{loader}\n"
    "Or decode and transform once, before the loop, or a whole batch at a time with tensors.",
    RESTARTS: "DataLoader(..., persistent_workers=True), made once before the first epoch:\n"
    "its workers live on, and load ahead for the next epoch.",
    LOOP: "torch.optim.{kind}(..., fused=True):\n"
    "one pass over all parameters instead of several operators for each.",
    BESIDE: "A loop over samples becomes one operator on the batch, or work for the loader's\n"
    "workers; one over gradients, clip_grad_norm_; log and compute metrics every 100th step.",
    ANOMALY: "Remove torch.autograd.set_detect_anomaly(True) and detect_anomaly():\n"
    "switch it on only to search for a nan.",
    PROFILER: "Profile a few steps, with torch.profiler.schedule(wait, warmup, active),\n"
    "and leave the with-block, or call stop().",
    DETERMINISTIC: "torch.use_deterministic_algorithms(False) and cudnn.deterministic = False:\n"
    "seeds alone repeat a run closely enough for most purposes.",
    NO_SEARCH: "torch.backends.cudnn.benchmark = True, before the first step;\n"
    "it pays where the shapes of the batches stay the same.",
    RECOMPUTED: "Call the block itself instead of torch.utils.checkpoint.checkpoint(block, ...):\n"
    "there is memory to keep its activations.",
    PRECISION: "with torch.autocast({device!r}, torch.{dtype}): around forward pass and loss;\n"
    "{rest}",
    LAYOUT: "model.to(memory_format=torch.channels_last), once;\n"
    "images.to(device, memory_format=torch.channels_last) for each batch.",
    RECOMPILED: "Pad batches to one length, or to a few: compiled code is kept for each shape;\n"
    "or torch.compile(model, dynamic=True).",
    UNCOMPILED: "model = torch.compile(model), before the first step; batches of one shape,\n"
    "since each new one is compiled again.",
    VALIDATION: "with torch.no_grad(): around the validation, or @torch.no_grad() above it;\n"
    "model.eval() alone still records every operator for backward.",
    HOST: "total += loss.detach() on the device, and .item() once every 100 steps;\n"
    "no print(loss), no `if loss > ...` and no boolean mask in the step.",
    PAGEABLE: "DataLoader(..., pin_memory=True), and in the step\n"
    "batch.to(device, non_blocking=True).",
    GROWTH: "Keep numbers, not tensors with a graph: losses.append(loss.item()) or loss.detach();\n"
    "no retain_graph=True where each graph is used once.",
    BATCH: "A batch of {larger} instead of {size} samples: it changes what is learned, and needs\n"
    "another learning rate. Where it must stay small, torch.compile or a CUDA graph helps.",
    FEW_THREADS: "torch.set_num_threads({threads}), or OMP_NUM_THREADS={threads}, at the top:\n"
    "only where nothing else computes: threads that wait for a core hold up the others.",
    stacks.FORWARD: "whyslow.diagnose(step) tries precision, threads, layout, torch.compile,\n"
    "and says what each of them saves. Forward is where to begin: backward mirrors it.",
    stacks.UPDATE: "Give the optimizer fused=True: one operator for all weights.\n"
    "Updates and clipping in a loop of your own have functions of torch: torch._foreach_*.",
    stacks.VALIDATION: "Validate less often, or on a part; take a larger batch, since nothing is\n"
    "kept: with torch.inference_mode(): around the loop, model.eval() before it.",
    stacks.WAITING: "The program waits there for another thread or process.\n"
    "Whether that one does the work, `py-spy dump` of its process says.",
    stacks.START: "It is paid once, as imports and first calls are: watch longer, to see the rest.",
    stacks.OUTSIDE: "It is no training step: do it less often, or in another process.",
    stacks.OWN: "These lines run outside of modules, loaders and optimizers. A loop over single\n"
    "elements becomes one operator on all; a line of whole tensors is as fast as its operators.",
}
# Causes of lines for which the same helps as for a finding.
_SAME = {
    stacks.LOADING: WAITS,
    stacks.BACKWARD: stacks.FORWARD,
    stacks.HOST: HOST,
    stacks.LOGGING: BESIDE,
    stacks.COMPILING: RECOMPILED,
    MANY_THREADS: FEW_THREADS,
    SMALL_WORK: FEW_THREADS,
}
REMEDIES |= {cause: REMEDIES[name] for cause, name in _SAME.items()}


def loader(workers: int = 0) -> str:
    """What to try with a DataLoader that has so many worker processes, on this machine."""
    if workers:
        more = f"num_workers={min(cores(), workers + 1)}"
        return f"DataLoader(..., {more}, persistent_workers=True); or 0 for what is quickly made."
    if cores() == 1:
        return "With one core no worker can help: keep what fits into memory as tensors."
    meanwhile = f"DataLoader(..., num_workers={cores() - 1}) loads meanwhile, on {cores()} cores"
    return f"{meanwhile}: it saves this at most."
