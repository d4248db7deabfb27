"""Forward and backward passes: 16 bits, the order of images, gradients that nobody uses, what
compiling would save; and a batch so small that fixed costs dominate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from labkit.restore import giving_back, preserve_state
from whyslow import remedies
from whyslow.experiment import ALL, Experiment, forwards
from whyslow.observe import mapped, tensors_of
from whyslow.subject import Subject

_LAST = torch.channels_last


def precision(subject: Subject) -> Iterator[Experiment]:
    """The forward pass under autocast; weights, their state and batches in channels-last order."""
    seen = subject.seen
    kinds = {each.dtype for each in seen.parameters if each.is_floating_point()}
    if kinds == {torch.float32} and not (seen.lower_precision or seen.compiled):
        yield _lower(subject)
    layers = [each for root in seen.roots for each in root.modules()]
    if seen.images and any(map(_is_slow, layers)) and not seen.compiled:
        how = "model, optimizer state and batches in channels-last order"
        step = subject.serve([mapped(batch, _images_last) for batch in subject.batches])
        yield Experiment(remedies.LAYOUT, how, partial(_channels_last, subject), step)


def _is_slow(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d) or layer.in_channels == layer.groups:
        return False
    return not layer.weight.is_contiguous(memory_format=_LAST)


def _lower(subject: Subject) -> Experiment:
    seen = subject.seen
    dtype, rest = torch.bfloat16, "backward() and the update stay outside of it."
    if seen.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        dtype, rest = torch.float16, "scale the loss by torch.amp.GradScaler."

    def lowered(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
        with torch.autocast(seen.device, dtype):
            output = forward(*args, **keywords)
        return mapped(output, _as_float)

    name = str(dtype).removeprefix("torch.")
    return Experiment(
        remedies.PRECISION,
        f"the forward pass under autocast to {name}",
        partial(forwards, seen.roots, lowered),
        words={"device": seen.device, "dtype": name, "rest": rest},
    )


def _as_float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


@contextmanager
def _channels_last(subject: Subject) -> Iterator[None]:
    # Weights, and what the optimizers keep of them.
    kept = [dict(state) for each in subject.seen.optimizers for state in each.state.values()]
    tensors = [each for each in (*subject.seen.parameters, *tensors_of(kept)) if each.dim() == 4]
    with preserve_state(*tensors):
        for each in tensors:
            each.data, each.grad = each.data.to(memory_format=_LAST), None
        yield


def _images_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=_LAST) if tensor.dim() == 4 else tensor


def gradients(subject: Subject) -> Iterator[Experiment]:
    """No graph in evaluation mode; no gradients of what is not trained."""
    seen = subject.seen
    if seen.unused:
        roots = list({id(root): root for root in seen.unused}.values())
        how = "forward passes in evaluation mode under no_grad"
        change = partial(forwards, roots, _without_graph)
        yield Experiment(remedies.VALIDATION, how, change, part=ALL)
    groups = [group for optimizer in seen.optimizers for group in optimizer.param_groups]
    trained = {id(each) for group in groups for each in group["params"]}
    frozen = [each for each in seen.parameters if each.requires_grad and id(each) not in trained]
    if frozen and seen.optimizers and seen.backwards:
        how = f"requires_grad_(False) on {len(frozen)} tensors in no optimizer"
        yield Experiment(remedies.FROZEN, how, partial(_frozen, frozen))


def _without_graph(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
    with torch.set_grad_enabled(root.training and torch.is_grad_enabled()):
        return forward(*args, **keywords)


@contextmanager
def _frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    with preserve_state(*parameters):
        for each in parameters:
            each.grad = None
            each.requires_grad_(False)
        yield


# Seconds that a first compilation takes about, and more for each operator of a step.
FIRST, EACH = 25.0, 0.05


def compiling(subject: Subject) -> Iterator[Experiment]:
    """The forward passes of the models, and with them their backward passes, by torch.compile.

    Not where the program has compiled code of its own, which would be lost with what is made here.
    """
    seen = subject.seen
    if not seen.parameters or not seen.backwards or seen.compiled or codes() > 0:
        return
    compiled: dict[nn.Module, Any] = {}

    def by_compiler(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
        if root not in compiled:
            compiled[root] = torch.compile(forward)
        return compiled[root](*args, **keywords)

    yield Experiment(
        remedies.UNCOMPILED,
        "the models' forward passes by torch.compile",
        partial(forwards, seen.roots, by_compiler),
        # What was compiled is given up at the end: nothing else was there.
        whole=partial(giving_back, torch.compiler.reset),
        compiles=FIRST + EACH * seen.launches,
    )


def codes() -> int:
    """How many functions torch has compiled in this process; -1 while its compiler is not there."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return -1 if module is None else len(module.input_codes.seen)


def compilations() -> int:
    """How many times torch has compiled in this process, the same function for other shapes too."""
    module = sys.modules.get("torch._dynamo.utils")
    return 0 if module is None else int(module.counters["stats"]["unique_graphs"])


# A larger batch changes what is learned: it has to be worth it.
LEAST = 0.15
# Larger batches than that many times the present one are another question.
TIMES = (8, 2)


def larger_batch(subject: Subject) -> Iterator[Experiment]:
    """The same samples several times in one batch, as long as the memory lasts."""
    times = next((each for each in TIMES if subject.has_room(each)), 0)
    leaves = tree_leaves(subject.batches)
    # The first dimension is that of samples where all have it in common.
    whole = all(isinstance(each, torch.Tensor) and each.dim() for each in leaves)
    sizes = {len(each) for each in leaves} if whole else set()
    if not times or len(sizes) != 1:
        return
    [size] = sizes

    larger = [mapped(each, lambda tensor: torch.cat([tensor] * times)) for each in subject.batches]
    yield Experiment(
        remedies.BATCH,
        f"{times} times the batch, time per sample",
        step=subject.serve(larger),
        part=ALL,
        words={"larger": times * size, "size": size},
        samples=times,
        least=LEAST,
    )
