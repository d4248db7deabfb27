"""MemoryMeter and StorageTracker against byte counts made by hand, and against the allocators
themselves.
"""

import gc
import json
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.checkpoint import checkpoint

from labkit.memory import MemoryMeter, StorageTracker, saved_bytes

# A float32 tensor of 250 numbers, the unit of the counts below.
KB = 1000
# Bytes of `network`'s parameters.
WEIGHTS = (8 * 16 + 16 + 16 * 4 + 4) * 4
BATCH = 32


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def training_step(
    model: nn.Module, inputs: torch.Tensor, optimizer: torch.optim.Optimizer | None = None
) -> Callable[[], None]:
    def step() -> None:
        model(inputs).sum().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return step


def tracked(run: Callable[[], Any]) -> tuple[int, int, int]:
    """(existing, most added, still there) in bytes; what `run` returns lives until the end."""
    with StorageTracker("cpu") as tracker:
        result = run()
    del result
    return tracker.existing, tracker.peak - tracker.existing, tracker.current - tracker.existing


# -------------------------------------------------------------------------------------------------
# counts made by hand


def test_intermediates_are_freed() -> None:
    x = torch.ones(250)
    # x + 1 and its double together, then the double and its square, then the square alone.
    assert tracked(lambda: ((x + 1) * 2).square()) == (KB, 2 * KB, KB)


def test_views_and_in_place_take_nothing() -> None:
    x = torch.ones(250)
    assert tracked(lambda: x[:3].view(3, 1).expand(3, 5)) == (KB, 0, 0)
    assert tracked(lambda: x.add_(1).relu_()) == (KB, 0, 0)
    # The view keeps all of the storage.
    assert tracked(lambda: torch.empty(250)[:1]) == (0, KB, KB)


def test_an_old_tensor_that_dies_lowers_the_current_figure() -> None:
    box = [torch.ones(250)]

    def run() -> torch.Tensor:
        # 1 KB more.
        double = box[0] * 2
        # 1 KB less.
        box.clear()
        # Again 1 KB more.
        return double + 1

    assert tracked(run) == (KB, KB, 0)


def test_forward_backward() -> None:
    model, x = network(), torch.ones(BATCH, 8)
    hidden, out = BATCH * 16 * 4, BATCH * 4 * 4
    # Forward: 2 hidden (before the ReLU and after), of which the second is saved; then the output
    # and its sum. Backward keeps that one while it makes, beside the gradients of the last layer
    # (16 * 4 + 4 numbers), the gradient of the hidden layer; then the ReLU's, with which the hidden
    # output can go; and last the first layer's gradients.
    after_last_layer = hidden + 4 + 4 + (16 * 4 + 4) * 4 + 2 * hidden
    with MemoryMeter("cpu") as memory:
        model(x).sum().backward()
    # Parameters and their gradients.
    assert memory.current == x.nbytes + 2 * WEIGHTS
    assert memory.saved_for_backward == x.nbytes + hidden
    assert memory.reserved is None
    assert memory.peak == x.nbytes + WEIGHTS + max(2 * hidden + out, after_last_layer)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_state(momentum: float) -> None:
    model, x = network(), torch.ones(BATCH, 8)
    step = training_step(model, x, torch.optim.SGD(model.parameters(), 0.1, momentum=momentum))
    for existing, kept in (
        (x.nbytes + WEIGHTS, bool(momentum) * WEIGHTS),
        (x.nbytes + WEIGHTS * (1 + bool(momentum)), 0),
    ):
        # The first step makes the buffers, the second finds them.
        assert tracked(step)[::2] == (
            existing,
            kept,
        )


def test_adam_state() -> None:
    model, x = network(), torch.ones(BATCH, 8)
    step = training_step(model, x, torch.optim.Adam(model.parameters(), foreach=False))
    # Two moments, and a step count for each of four tensors.
    state = 2 * WEIGHTS + 4 * 4
    assert tracked(step)[::2] == (x.nbytes + WEIGHTS, state)
    assert tracked(step)[::2] == (x.nbytes + WEIGHTS + state, 0)


def test_gradients_left_from_the_last_step_count_until_they_are_freed() -> None:
    weight = torch.ones(250, requires_grad=True)
    weight.sum().backward()

    def step() -> None:
        # The old gradient lives: weight, gradient, product, sum.
        loss = (weight * 2).sum()
        weight.grad = None
        del loss

    assert tracked(step) == (2 * KB, KB + 4, -KB)


def test_checkpoint_keeps_inputs_and_computes_again() -> None:
    x, wide, block_bytes = torch.ones(BATCH, 8), BATCH * 100 * 4, (8 * 100 + 100 + 100 * 8 + 8) * 4

    def measure(depth: int, recompute: bool) -> tuple[int, int | None]:
        blocks = [
            nn.Sequential(nn.Linear(8, 100), nn.ReLU(), nn.Linear(100, 8)) for _ in range(depth)
        ]
        with MemoryMeter("cpu") as memory:
            hidden = x
            for each in blocks:
                # A snapshot of the RNG is made behind the dispatcher's back, so none is taken here.
                keep = {"use_reentrant": False, "preserve_rng_state": False}
                hidden = checkpoint(each, hidden, **keep) if recompute else each(hidden)
            hidden.sum().backward()
        assert memory.current - hidden.nbytes == x.nbytes + 2 * depth * block_bytes
        return memory.peak - x.nbytes - depth * block_bytes, memory.saved_for_backward

    alone, saved = measure(1, False)
    assert saved == x.nbytes + wide
    assert measure(1, True) == (alone, x.nbytes)
    # Each further block adds what it saves, at the end of the forward pass ...
    assert measure(4, False) == (alone + 3 * (wide + x.nbytes), 4 * (wide + x.nbytes))
    # ... or nothing but its gradients, at the end of the backward pass, when only one block is
    # there again.
    assert measure(4, True) == (alone + 3 * block_bytes, 4 * x.nbytes)


def test_reentrant_recomputation_is_seen() -> None:
    layer, x = nn.Linear(250, 250), torch.ones(1, 250, requires_grad=True)
    once = saved_bytes(lambda: layer(x * 2).relu().sum().backward())
    # The input of the layer and the output of the ReLU.
    assert once == KB + KB
    again = saved_bytes(
        lambda: checkpoint(lambda y: layer(y).relu(), x * 2, use_reentrant=True).sum().backward()
    )
    # The kept input, then also the ReLU's output, made again in the backward pass.
    assert again == 2 * KB


def test_saved_bytes() -> None:
    x, weight = torch.ones(10, 25), torch.ones(25, 25, requires_grad=True)
    # x, for the gradient of the weight; the weight is a parameter.
    assert saved_bytes(lambda: x @ weight) == KB
    # A view of a parameter is no new storage either.
    assert saved_bytes(lambda: (x @ weight.t()).relu()) == 2 * KB
    product = x * weight.sum()
    # Twice the same storage.
    assert saved_bytes(lambda: product * product) == KB
    # views: the storage in full.
    assert saved_bytes(lambda: product[:1] * product[1:2]) == KB
    # One graph at a time.
    assert saved_bytes(lambda: [(x * 2 @ weight).sum().backward() for _ in range(5)]) == KB
    with torch.no_grad():
        assert saved_bytes(lambda: x @ weight) == 0


# --------------------------------------------------------------------------------------------------
# unusual tensors


def test_a_forward_alone_leaves_nothing_behind() -> None:
    x = torch.randn(250, requires_grad=True)
    with MemoryMeter("cpu") as memory:
        output = x.tanh()
    assert memory.saved_for_backward == KB
    left = weakref.ref(output)
    del output
    gc.collect()
    assert left() is None


def test_gradients_of_gradients_are_the_same_under_a_meter() -> None:
    found = []
    for meter in (nullcontext(), MemoryMeter("cpu")):
        x = torch.linspace(0.1, 1, 5, requires_grad=True)
        with meter:
            (slope,) = torch.autograd.grad((x.tanh() * x.exp()).sum(), x, create_graph=True)
            slope.square().sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_resized_and_swapped_storages() -> None:
    assert tracked(lambda: torch.empty(10).resize_(250)) == (0, KB, KB)

    def by_hand() -> torch.Tensor:
        x = torch.empty(250)
        x.untyped_storage().resize_(0)
        # An operator uses it: now its size is known.
        return x.view(-1)

    assert tracked(by_hand) == (0, KB, 0)
    x = torch.ones(250)
    assert tracked(lambda: torch.ones(500).set_(x)) == (KB, 2 * KB, 0)


def test_tensors_from_python_numbers_are_new() -> None:
    def run() -> torch.Tensor:
        first = torch.tensor([1.0] * 250)
        del first
        return torch.tensor([2.0] * 250)

    assert tracked(run) == (0, KB, KB)


def test_sparse_tensors_count_their_parts() -> None:
    eye = torch.eye(100).to_sparse()
    assert tracked(lambda: eye * 2) == (100 * (16 + 4), 100 * (16 + 4), 100 * (16 + 4))
    assert tracked(lambda: eye.to_sparse_csr().values())[2] >= 100 * 4


def test_what_takes_no_memory_counts_nothing() -> None:
    assert tracked(lambda: torch.ones(250, device="meta") + 1) == (0, 0, 0)
    with StorageTracker("meta") as tracker:
        torch.ones(250)
        torch.ones(250, device="meta") + 1
    # On its own device only: what it would take.
    assert tracker.peak == 2 * KB


def test_wrappers_count_the_tensors_inside() -> None:
    nested = torch.nested.nested_tensor([torch.ones(100), torch.ones(150)], layout=torch.jagged)
    existing, added, kept = tracked(lambda: (nested * 2) * 3)
    assert (added, kept) == (2 * KB, KB)
    assert existing >= KB


def test_backward_in_a_thread_of_autograd() -> None:
    threads = set()

    class Deep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            threads.add(threading.get_ident())
            if ctx.depth:
                with torch.enable_grad():
                    Deep.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).sum().backward()
            else:
                kept.append(torch.ones(250))
            return grad, None

    kept: list[torch.Tensor] = []
    _, added, left = tracked(
        lambda: Deep.apply(torch.ones(1, requires_grad=True), 70).sum().backward()
    )
    # Beyond 60 backward passes inside each other, torch goes on in a new thread.
    assert len(threads) == 2
    assert left == KB
    assert KB < added < 2 * KB


# --------------------------------------------------------------------------------------------------
# using the meter


def test_meters_nest_and_can_be_read_inside() -> None:
    with MemoryMeter("cpu") as outer:
        x = torch.ones(250)
        with MemoryMeter("cpu") as inner:
            y = x + 1
            assert (inner.current, outer.current) == (2 * KB, 2 * KB)
        del y
        assert (inner.current, inner.peak, outer.current, outer.peak) == (
            2 * KB,
            2 * KB,
            KB,
            2 * KB,
        )
    assert (outer.current, outer.peak) == (KB, 2 * KB)


def test_a_meter_serves_twice_but_not_inside_itself() -> None:
    meter = MemoryMeter("cpu", saved=False)
    for _ in range(2):
        with meter:
            torch.ones(250)
        assert (meter.peak, meter.current, meter.saved_for_backward) == (KB, 0, None)
    with meter, pytest.raises(RuntimeError, match="in use"), meter:
        pass
    with meter:
        torch.ones(500)
    assert meter.peak == 2 * KB


def test_a_meter_tells_its_figures_in_a_line() -> None:
    with MemoryMeter("cpu") as memory:
        torch.ones(250)
    figures = "peak 1000 B, current 0 B, saved for backward 0 B"
    assert repr(memory) == f"MemoryMeter on cpu: {figures}"


def test_threads_that_the_block_starts_are_counted() -> None:
    kept: list[torch.Tensor] = []

    def work() -> None:
        kept.append(torch.ones(250) + 1)

    class Worker(threading.Thread):
        def run(self) -> None:
            work()

    start = threading.Thread.start
    with MemoryMeter("cpu") as memory:
        for thread in (threading.Thread(target=work), Worker()):
            thread.start()
            thread.join()
        # One made, one kept; then both kept beside the next.
        assert (memory.current, memory.peak) == (2 * KB, 3 * KB)
        with MemoryMeter("cpu") as inner, ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()
        kept.clear()
    assert (inner.current, inner.peak) == (KB, 2 * KB)
    assert (memory.current, memory.peak) == (0, 4 * KB)
    assert threading.Thread.start is start and "run" not in vars(thread)


def test_a_thread_that_outlives_the_block_is_left_alone() -> None:
    ended, done = threading.Event(), []
    # A flag of the whole process: other code may have left it set.
    before = is_in_torch_dispatch_mode(include_infra_modes=True)

    def work() -> None:
        done.append(torch.ones(250))
        ended.wait(10)
        done.append(torch.ones(500))
        done.append(torch._C._len_torch_dispatch_stack())

    with MemoryMeter("cpu") as memory:
        thread = threading.Thread(target=work)
        thread.start()
        while not done:
            thread.join(0.01)
    assert memory.peak == memory.current == KB
    ended.set()
    thread.join()
    assert done[2] == 1 and memory.peak == memory.current == KB
    assert is_in_torch_dispatch_mode(include_infra_modes=True) == before


def test_an_older_thread_is_not_counted_as_the_docstring_says() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with MemoryMeter("cpu") as memory:
            kept = pool.submit(torch.ones, 250).result()
        assert memory.peak == 0 and kept.nbytes == KB
    words = " ".join((MemoryMeter.__doc__ or "").split())
    assert "tensors that a thread makes which ran before the block are not" in words


def test_errors_come_through_and_nothing_stays() -> None:
    meter, seen = MemoryMeter("cpu"), []
    modes = torch._C._len_torch_dispatch_stack()
    with pytest.raises(ZeroDivisionError), meter:
        x = torch.ones(250, requires_grad=True) * 2
        raise ZeroDivisionError
    assert meter.peak == 2 * KB
    assert torch._C._len_torch_dispatch_stack() == modes
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: seen.append(tensor), lambda _: None
    ):
        x.exp()
    # The hooks set further out are the innermost ones again.
    assert len(seen) == 1
    with meter:
        torch.ones(250)
    assert meter.peak == KB


def test_where_autograd_refuses_hooks_the_meter_does_too() -> None:
    meter = MemoryMeter("cpu")
    modes = torch._C._len_torch_dispatch_stack()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks in here"):
        with pytest.raises(RuntimeError, match="no hooks in here"), meter:
            pass
        assert torch._C._len_torch_dispatch_stack() == modes
        with MemoryMeter("cpu", saved=False) as lean:
            torch.ones(250)
    with meter:
        torch.ones(250)
    assert meter.peak == lean.peak == KB


def test_results_do_not_change() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    x = torch.randn(2, 3, 8, 8)
    model(x)
    gradients = []
    for metered in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        if metered:
            with MemoryMeter("cpu"):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_compiled_code_stays_compiled() -> None:
    runs = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            runs.append(1)
            return module(*args)

        return run

    step = torch.compile(lambda x: x * 2 + 1, backend=backend)
    x = torch.ones(250)
    step(x)
    with MemoryMeter("cpu", saved=False) as memory:
        step(x)
    assert len(runs) == 2
    assert memory.peak == 3 * KB


def test_unknown_devices() -> None:
    with pytest.raises(RuntimeError, match="abacus"):
        MemoryMeter("abacus")
    with pytest.raises(TypeError):
        MemoryMeter(3.5)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"cuda.*no CUDA device.*use 'cpu'"):
            MemoryMeter("cuda")


# -------------------------------------------------------------------------------------------
# against the allocators


def allocator_peak(run: Callable[[], Any], path: Path) -> int:
    """The most bytes that torch's CPU allocator held beyond those at the start, from its own
    events.
    """
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events = [
        event
        for event in json.loads(path.read_text())["traceEvents"]
        if event["name"] == "[memory]"
    ]
    held = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    assert held == 0, "the step must free what it allocates"
    return peak


@pytest.mark.parametrize("recompute", [False, True])
def test_tracker_against_the_cpu_allocator(recompute: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(50, 80), nn.BatchNorm1d(80), nn.GELU(), nn.Dropout(0.3))
    second = nn.Sequential(
        nn.LayerNorm(80), nn.Linear(80, 60), nn.ReLU(inplace=True), nn.Linear(60, 10)
    )
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1, momentum=0.9)
    x = torch.randn(64, 50)

    def step() -> None:
        hidden = first(x)
        out = (
            checkpoint(second, hidden, use_reentrant=False, preserve_rng_state=False)
            if recompute
            else second(hidden)
        )
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    # The momentum buffers.
    step()
    truth = allocator_peak(step, tmp_path / "trace.json")
    assert tracked(step)[1] == truth
    with MemoryMeter("cpu") as memory:
        step()
    with StorageTracker("cpu") as tracker:
        step()
    # Counting what is saved changes nothing.
    assert memory.peak == tracker.peak == tracker.existing + truth


def test_nested_meters_share_the_one_peak_of_a_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookkeeping alone, with an allocator that this test plays."""
    held = {
        "memory_allocated": 5,
        "memory_reserved": 10,
        "max_memory_allocated": 90,
        "max_memory_reserved": 100,
    }

    def use(current: int, peak: int) -> None:
        held.update(memory_allocated=current, max_memory_allocated=peak)
        held.update(memory_reserved=2 * current, max_memory_reserved=2 * peak)

    for name in held:
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: held[name])
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda _: use(*[held["memory_allocated"]] * 2)
    )
    monkeypatch.setattr("labkit.memory._resolve", lambda _: torch.device("cuda", 0))
    with MemoryMeter() as outer:
        use(current=10, peak=70)
        with MemoryMeter() as inner:
            use(current=20, peak=30)
            assert (inner.peak, outer.peak) == (20, 65)
        use(current=12, peak=40)
    use(current=0, peak=1000)
    # Beyond the 5 that were there, and the 10 when the inner one began.
    assert (inner.peak, inner.current, inner.reserved) == (20, 10, 40)
    assert (outer.peak, outer.current, outer.reserved) == (65, 7, 130)


@pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no CUDA device: the tracker is checked against torch.cuda there",
)
def test_tracker_against_the_cuda_allocator() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device())
    widths = (512, 2048, 2048, 512)
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(512, 512)).to(device)
    x = torch.randn(4096, 512, device=device)
    step = training_step(model, x, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    # cuBLAS takes its work space, the optimizer its buffers.
    step()
    gc.collect()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    with StorageTracker(device) as tracker:
        step()
    allocated = torch.cuda.max_memory_allocated(device) - before
    used = x.nbytes + 2 * sum(parameter.nbytes for parameter in model.parameters())
    assert tracker.existing == used
    assert tracker.peak == pytest.approx(tracker.existing + allocated, rel=0.01)
    # What else lies on the device is no part of what the step needs.
    unused = torch.zeros(2**22, device=device)
    with MemoryMeter(device) as outer:
        with MemoryMeter(device) as inner:
            step()
        torch.empty(1, device=device)
    assert inner.peak == outer.peak == used + allocated
    assert inner.reserved is not None
    assert inner.peak <= inner.reserved
    assert unused.is_cuda
