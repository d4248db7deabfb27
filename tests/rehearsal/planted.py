"""Mistakes of programs for a GPU, each beside the same program without it. ``python -m
tests.rehearsal.planted``.

Prints a JSON object: name -> [what the wrong one raised, or null; what the right one raised, or
null].
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

Program = Callable[[bool], object]
PLANTED: dict[str, Program] = {}


def planted(program: Program) -> Program:
    """Add a program, which is called with True to make its mistake and with False to avoid it."""
    PLANTED[program.__name__.replace("_", " ")] = program
    return program


def batch(device: str = "cuda") -> torch.Tensor:
    """A few small images, (4, 3, 8, 8)."""
    return torch.randn(4, 3, 8, 8, device=device)


def network() -> nn.Module:
    """A small network on the card for `batch`."""
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    return nn.Sequential(*layers).to("cuda")


# -------------------------------------------------------------------------------- where tensors lie


@planted
def target_on_the_CPU(wrong: bool) -> None:
    target = torch.zeros(4, dtype=torch.long, device="cpu" if wrong else "cuda")
    F.cross_entropy(network()(batch()), target).backward()


@planted
def inputs_on_the_CPU(wrong: bool) -> None:
    network()(batch("cpu" if wrong else "cuda"))


@planted
def CPU_tensor_indexed_from_the_card(wrong: bool) -> None:
    index = torch.tensor([0, 1], device="cuda" if wrong else "cpu")
    _ = torch.ones(5)[index]


@planted
def embedding_of_CPU_numbers(wrong: bool) -> None:
    table = nn.Embedding(10, 4, device="cuda")
    table(torch.tensor([1, 2], device="cpu" if wrong else "cuda"))


@planted
def mask_on_the_CPU(wrong: bool) -> None:
    x = batch()
    mask = torch.ones(4, 3, 8, 8, dtype=torch.bool, device="cpu" if wrong else "cuda")
    torch.where(mask, x, -x)


@planted
def out_on_the_CPU(wrong: bool) -> None:
    x = batch()
    torch.add(x, x, out=torch.empty(4, 3, 8, 8, device="cpu" if wrong else "cuda"))


@planted
def attribute_that_does_not_move(wrong: bool) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if wrong:
                self.scale = torch.full((8,), 2.0)
            else:
                self.register_buffer("scale", torch.full((8,), 2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    Scale().to("cuda")(batch())


@planted
def momentum_on_the_CPU(wrong: bool) -> None:
    weight = torch.ones(8, device="cuda")
    momentum = torch.zeros(8) if wrong else torch.zeros_like(weight)
    momentum.mul_(0.9).add_(weight)


@planted
def constant_of_a_backward_on_the_CPU(wrong: bool) -> None:
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * torch.ones(8, device="cpu" if wrong else "cuda")

    x = batch().requires_grad_()
    Masked.apply(x).sum().backward()


@planted
def hook_that_adds_a_CPU_tensor(wrong: bool) -> None:
    x = batch().requires_grad_()
    x.register_hook(lambda gradient: gradient + torch.ones(8, device="cpu" if wrong else "cuda"))
    x.sum().backward()


@planted
def two_cards_in_one_product(wrong: bool) -> None:
    a = torch.ones(4, 4, device="cuda:0")
    b = torch.ones(4, 4, device="cuda:1" if wrong else "cuda:0")
    a @ b


@planted
def a_card_that_is_not_there(wrong: bool) -> None:
    torch.zeros(2, device="cuda:7" if wrong else "cuda:1")


@planted
def generator_of_the_CPU(wrong: bool) -> None:
    generator = torch.Generator(device="cpu" if wrong else "cuda").manual_seed(1)
    torch.rand(2, device="cuda", generator=generator)


@planted
def permutation_by_the_wrong_generator(wrong: bool) -> None:
    generator = torch.Generator(device="cpu" if wrong else "cuda")
    torch.randperm(8, device="cuda", generator=generator)


@planted
def numpy_of_the_card(wrong: bool) -> None:
    x = batch()
    (x if wrong else x.cpu()).numpy()


@planted
def numpy_array_of_the_card(wrong: bool) -> None:
    x = batch()
    np.asarray(x if wrong else x.cpu())


@planted
def pinning_what_is_on_the_card(wrong: bool) -> None:
    batch("cuda" if wrong else "cpu").pin_memory()


# ------------------------------------------------------------------------------------------ memory


@planted
def more_than_the_card_holds(wrong: bool) -> None:
    torch.empty((20 if wrong else 1) * 10**9, dtype=torch.uint8, device="cuda")


@planted
def history_that_is_kept(wrong: bool) -> None:
    kept = []
    for _ in range(30):
        x = torch.empty(10**9, dtype=torch.uint8, device="cuda")
        kept.append(x if wrong else x.numel())


# -------------------------------------------------------------------------- order of streams, waits


@planted
def side_stream_that_is_not_joined(wrong: bool) -> None:
    x, side = batch(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    if not wrong:
        torch.cuda.current_stream().wait_stream(side)
    y.sum()


@planted
def side_stream_that_starts_too_early(wrong: bool) -> None:
    side, x = torch.cuda.Stream(), batch()
    if not wrong:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2


@planted
def overwritten_while_another_stream_reads(wrong: bool) -> None:
    side, x = torch.cuda.Stream(), batch()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x * 2
    if not wrong:
        torch.cuda.current_stream().wait_event(side.record_event())
    x.zero_()


@planted
def read_before_the_copy_has_arrived(wrong: bool) -> None:
    arrived = batch().to("cpu", non_blocking=True)
    if not wrong:
        torch.cuda.synchronize()
    arrived.sum()


@planted
def pinned_batch_overwritten_while_it_is_copied(wrong: bool) -> None:
    buffer = torch.ones(1000).pin_memory()
    buffer.to("cuda", non_blocking=True)
    if not wrong:
        torch.cuda.current_stream().synchronize()
    buffer.zero_()


@planted
def reading_the_loss_where_waits_are_errors(wrong: bool) -> None:
    loss = batch().sum()
    torch.cuda.set_sync_debug_mode("error")
    try:
        _ = loss.item() if wrong else loss.detach()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@planted
def choosing_by_a_mask_where_waits_are_errors(wrong: bool) -> None:
    x = batch()
    torch.cuda.set_sync_debug_mode("error")
    try:
        _ = x[x > 0] if wrong else x.clamp(min=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@planted
def event_that_was_not_recorded(wrong: bool) -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if not wrong:
        begin.record()
    end.record()
    end.synchronize()
    begin.elapsed_time(end)


@planted
def event_without_timing(wrong: bool) -> None:
    begin, end = torch.cuda.Event(enable_timing=not wrong), torch.cuda.Event(enable_timing=True)
    begin.record()
    end.record()
    end.synchronize()
    begin.elapsed_time(end)


@planted
def time_read_before_the_event(wrong: bool) -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    batch()
    end.record()
    if not wrong:
        end.synchronize()
    begin.elapsed_time(end)


# ------------------------------------------------------------------------------------------ graphs


@planted
def capture_of_a_step_that_reads_its_loss(wrong: bool) -> None:
    x = batch()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        loss = (x * x).mean()
        if wrong:
            loss.item()


@planted
def capture_that_synchronizes(wrong: bool) -> None:
    x = batch()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x * 2
        if wrong:
            torch.cuda.synchronize()


@planted
def replay_of_nothing(wrong: bool) -> None:
    graph, x = torch.cuda.CUDAGraph(), batch()
    if not wrong:
        with torch.cuda.graph(graph):
            x * 2
    graph.replay()


@planted
def capture_within_a_capture(wrong: bool) -> None:
    x = batch()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x * 2
        if wrong:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                x * 3


# --------------------------------------------------------------------------------------- processes


class Images(Dataset[torch.Tensor]):
    """Images that are made on a device, in whatever process asks for them."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(3, device=self.device)


@planted
def card_used_in_a_forked_worker(wrong: bool) -> None:
    batch()
    loader = DataLoader(
        Images("cuda" if wrong else "cpu"), num_workers=1, multiprocessing_context="fork"
    )
    list(loader)


@planted
def tensor_of_the_card_in_a_forked_process(wrong: bool) -> None:
    x = batch("cuda" if wrong else "cpu")
    torch.cuda.init()
    child = os.fork()
    if child == 0:
        try:
            x * 2
        except RuntimeError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError("the forked process could not use it")


def outcome(program: Program, wrong: bool) -> str | None:
    """What the program raised, in words, or None."""
    try:
        program(wrong)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".strip()
    finally:
        torch.cuda.synchronize()
    return None


def main() -> int:
    found = {
        name: [outcome(program, True), outcome(program, False)] for name, program in PLANTED.items()
    }
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
