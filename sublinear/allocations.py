"""Bytes of a step of compiled code on a CPU, which hands what it makes to no operator."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

from labkit.memory import StorageTracker

Step = Callable[[], object]


def most_allocated(step: Step) -> int:
    """The most bytes that a step holds on the CPU beyond those before it, by torch's allocator.

    Work space of operators is seen too. RuntimeError while another profiler runs.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        step()
    events = [each for each in seen.profiler.kineto_results.events() if each.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


def peak_of_compiled(plain: Step, compiled: Step) -> int:
    """Bytes of a compiled step: what it allocates, and older tensors that the plain one uses."""
    with StorageTracker("cpu") as tracker:
        plain()
    return tracker.existing + most_allocated(compiled)
