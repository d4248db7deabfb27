"""Whatever a block draws, switches, writes or raises is given back."""

import gc
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from labkit import seed_all
from labkit.restore import (
    collector,
    giving_back,
    preserve_flags,
    preserve_rng,
    preserve_state,
    restoring,
)
from labkit.restore.collector import frozen_heap, without_collector
from labkit.restore.switches import set_torch_flags, torch_flags


def draw():
    return (
        random.random(),
        np.random.rand(),
        torch.rand(1).item(),
        torch.nn.functional.dropout(torch.ones(8)).tolist(),
    )


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_preserve_rng(error):
    seed_all(3)
    expected = draw()
    seed_all(3)
    try:
        with preserve_rng():
            draw()
            seed_all(99)
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        assert error
    assert draw() == expected


def flip_everything():
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.mkldnn.enabled = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_default_device("meta")


def test_every_switch_is_given_back():
    before = torch_flags()
    with pytest.raises(RuntimeError), preserve_flags():
        flip_everything()
        changed = {name for name, value in torch_flags().items() if value != before[name]}
        assert {
            "num_threads",
            "cudnn.benchmark",
            "deterministic",
            "anomaly",
            "default_dtype",
            "grad_enabled",
            "default_device",
        } <= changed
        raise RuntimeError
    assert torch_flags() == before


@pytest.mark.parametrize("outside", [None, "cpu"])
@pytest.mark.parametrize("inside", [None, "meta"])
def test_the_default_device_is_given_back_and_costs_nothing_where_there_was_none(
    outside: str | None, inside: str | None
) -> None:
    assert torch.overrides._len_torch_function_stack() == 0
    torch.set_default_device(outside)
    try:
        with preserve_flags():
            torch.set_default_device(inside)
            assert torch.ones(1).device.type == (inside or "cpu")
        assert torch.ones(1).device.type == "cpu"
        # With a default device each call of torch goes through Python.
        assert torch.overrides._len_torch_function_stack() == (outside is not None)
    finally:
        torch.set_default_device(None)


def test_a_device_that_a_block_has_chosen_is_left_to_it() -> None:
    with torch.device("meta"):
        with preserve_flags():
            torch.set_default_device("cpu")
            assert torch.ones(1).device.type == "cpu"
        assert torch.ones(1).device.type == "meta"
    assert torch.ones(1).device.type == "cpu"
    assert torch.overrides._len_torch_function_stack() == 0


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def test_hooks_that_an_interrupt_left_on_saved_tensors_are_gone() -> None:
    """As torch's checkpoint does, interrupted while it leaves them: no later backward works."""
    top = torch._C._autograd._top_saved_tensors_default_hooks
    with torch.autograd.graph.saved_tensors_hooks(same, same):
        outside = top(False)
        with pytest.raises(KeyboardInterrupt), preserve_flags():
            for _ in range(2):
                torch.autograd.graph.saved_tensors_hooks(abs, abs).__enter__()
            assert top(False) != outside
            raise KeyboardInterrupt
        assert top(False) == outside
    assert top(False) is None


def test_contradicting_precision_switches_are_given_back_too():
    before = torch_flags()
    # torch now refuses to read the old switch.
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        mixed = torch_flags()
        assert "float32_matmul_precision" not in mixed
        with preserve_flags():
            torch.set_float32_matmul_precision("medium")
        assert torch_flags()["cuda.matmul.fp32_precision"] == "tf32"
    finally:
        set_torch_flags(before)
    assert torch_flags() == before


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_off_inside_and_as_it_was_after(on):
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(RuntimeError), without_collector():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()


def test_the_heap_is_frozen_inside_and_by_the_outermost_only():
    gc.unfreeze()
    for _ in range(2):
        with pytest.raises(RuntimeError), frozen_heap():
            frozen = gc.get_freeze_count()
            assert frozen > 10_000
            with frozen_heap():
                pass
            # what dies in between leaves the count, and nothing else does
            assert 0.9 * frozen < gc.get_freeze_count() <= frozen
            raise RuntimeError
        assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("accelerator", [None, "cuda"])
def test_what_was_dropped_is_searched_for_only_beside_an_accelerator(monkeypatch, accelerator):
    searched = []
    monkeypatch.setattr(gc, "collect", lambda: searched.append(gc.get_freeze_count()))
    monkeypatch.setattr(collector, "accelerator_in_use", lambda: accelerator)
    gc.unfreeze()
    with frozen_heap():
        pass
    assert searched == [0] * (accelerator is not None)


def test_a_second_interrupt_leaves_nothing_half_restored() -> None:
    class Stubborn(dict[str, float]):
        interrupts = 1

        def __delitem__(self, key: str) -> None:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            super().__delitem__(key)

    stubborn, plain = Stubborn(a=1.0), [1.0, torch.ones(2)]
    with pytest.raises(KeyboardInterrupt), preserve_state(plain, stubborn, {"tail": plain}):
        stubborn["a"], stubborn["b"] = 2.0, 3.0
        plain[1].zero_()
        plain.append(3.0)
    assert stubborn == {"a": 1.0} and len(plain) == 2 and torch.equal(plain[1], torch.ones(2))


@pytest.mark.parametrize(
    "generator",
    [
        torch.Generator(),
        np.random.default_rng(0),
        np.random.Generator(np.random.MT19937(0)),
        np.random.RandomState(0),
        random.Random(0),
    ],
    ids=lambda each: type(each).__module__ + "." + type(each).__name__,
)
def test_generators_of_ones_own_go_on_as_if_nothing_was_drawn(generator: Any) -> None:
    def draw_one() -> Any:
        if isinstance(generator, torch.Generator):
            return torch.rand((), generator=generator).item()
        return generator.random()

    draw_one()
    with preserve_state({"of a dataset": [generator]}):
        first = draw_one()
        draw_one()
    assert draw_one() == first


def test_arrays_and_sets_are_as_before_in_place() -> None:
    array, fixed, names = np.arange(6.0).reshape(2, 3), np.arange(2), {"a", "b"}
    mixed = np.array([[1], {2}, None], dtype=object)
    fixed.flags.writeable = False
    tensor = torch.ones(2)
    held = {"array": array, "view": array[:, ::2], "inner": [names, mixed, {tensor}]}
    inner = list(mixed)
    with preserve_state(array, fixed, held):
        array *= 2
        held["view"][...] = 7
        tensor += 1
        names.add("c")
        names.remove("a")
        inner[0].append(3)
        inner[1].clear()
        mixed[2] = "new"
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]] and fixed.tolist() == [0, 1]
    assert names == {"a", "b"} and held["array"] is array
    assert tensor.tolist() == [1, 1]
    assert mixed.tolist() == [[1], {2}, None]
    assert mixed[0] is inner[0] and mixed[1] is inner[1]


class Frozen(OrderedDict[str, Any]):
    """Refuses changes, as the configs of some model libraries do; `clear` works."""

    def _refuse(self, *args: Any) -> None:
        raise TypeError("frozen")

    __delitem__ = setdefault = pop = update = popitem = _refuse  # type: ignore[assignment]

    def __setitem__(self, key: str, value: Any) -> None:
        if getattr(self, "frozen", False):
            self._refuse()
        super().__setitem__(key, value)

    @classmethod
    def of(cls, **values: Any) -> "Frozen":
        made = cls(values)
        made.frozen = True
        return made


def test_what_is_as_before_is_not_written() -> None:
    class Watched(dict[str, Any]):
        writes = 0

        def _count(self, *args: Any) -> None:
            self.writes += 1

        __setitem__ = __delitem__ = update = clear = pop = _count  # type: ignore[assignment]

    frozen, watched = Frozen.of(width=64, inner=[1]), Watched(a=torch.ones(1), b=math.nan)
    array, tensor = np.array([math.nan, -0.0]), torch.tensor([math.nan, -0.0])
    with preserve_state(frozen, watched, array, tensor, deque([1], maxlen=1)):
        # What cannot be written any more must not be written.
        array.flags.writeable = False
    assert dict(frozen) == {"width": 64, "inner": [1]} and watched.writes == 0


class Lazy(OrderedDict[str, Any]):
    """As transformers' mappings of models: nothing is in it until it is asked for."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.loaded.append(key)
        return object()

    def keys(self) -> list[str]:  # type: ignore[override]
        return ["a", "b"]

    def values(self) -> list[Any]:  # type: ignore[override]
        return [self[key] for key in self.keys()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.keys()


def test_a_mapping_that_loads_what_it_is_asked_for_is_not_asked() -> None:
    lazy = Lazy()
    with preserve_state(lazy), restoring(lambda: len(lazy)):
        pass
    assert lazy.loaded == []


def test_a_mapping_that_cannot_be_put_back_is_an_error_and_is_not_emptied() -> None:
    frozen, last = Frozen.of(width=64, height=32), [1]
    words = pytest.raises(RuntimeError, match=r"cannot put back a Frozen.*frozen")
    with words, preserve_state(last, frozen):
        OrderedDict.__setitem__(frozen, "width", 128)
        last.append(2)
    assert dict(frozen) == {"width": 128, "height": 32}
    # What else there is, is put back all the same.
    assert last == [1]


def test_containers_of_all_kinds_are_as_before_with_their_order() -> None:
    table, counts = {"a": 1, "b": 2, "c": 3}, Counter(x=2, y=5)
    ordered, lists = OrderedDict(one=1, two=2), defaultdict(list, k=[1])
    rows, recent, names = [1, 2, 3], deque([1, 2], maxlen=2), {"a", "b"}
    held = [table, counts, ordered, lists, rows, recent, names]
    with preserve_state(*held):
        table["a"] = table.pop("a")
        table["d"] = 4
        counts["x"] += 1
        ordered.move_to_end("one")
        lists["new"].append(2)
        rows.reverse()
        recent.append(3)
        names.symmetric_difference_update({"a", "c"})
    assert list(table.items()) == [("a", 1), ("b", 2), ("c", 3)]
    assert counts == {"x": 2, "y": 5} and list(ordered) == ["one", "two"]
    assert lists == {"k": [1]} and rows == [1, 2, 3]
    assert list(recent) == [1, 2] and names == {"a", "b"}


def test_the_sign_of_a_zero_and_what_is_no_number_are_put_back() -> None:
    for value in (0.0, math.nan):
        array, tensor = np.array([value]), torch.tensor([value])
        with preserve_state(array, tensor):
            array[0], tensor[0] = -0.0, -0.0
        assert array.tobytes() == np.array([value]).tobytes()
        assert torch.equal(tensor.view(torch.int32), torch.tensor([value]).view(torch.int32))


def test_objects_that_refer_to_each_other() -> None:
    a: dict[str, Any] = {"x": torch.zeros(1)}
    a["self"] = a
    with preserve_state(a):
        a["x"] += 1
        del a["self"]
    assert a["self"] is a and a["x"].item() == 0


def test_a_graph_built_before_still_works() -> None:
    """What the block left alone is not counted as modified: autograd would refuse it."""
    model = nn.Linear(2, 1)
    mask = torch.ones(2)
    model.register_buffer("mask", mask)
    x = torch.ones(1, 2, requires_grad=True)
    loss = (x * model.mask).sum()
    with preserve_state(model):
        pass
    loss.backward()
    assert torch.equal(x.grad, torch.ones(1, 2))


def test_a_heap_that_was_frozen_before_stays_so() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with frozen_heap():
            pass
        assert 0.9 * before < gc.get_freeze_count() <= before
    finally:
        gc.unfreeze()


def test_a_context_that_an_interrupt_left_open_ends_before_things_are_put_back() -> None:
    order = []

    @contextmanager
    def opened() -> Iterator[None]:
        try:
            yield
        finally:
            order.append("closed")

    def body() -> None:
        context = opened()
        context.__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), giving_back(lambda: order.append("put back")):
        body()
    assert order == ["closed", "put back"]


def test_modes_that_an_interrupt_left_open_are_left() -> None:
    """As where it strikes at the call of their `__exit__`."""
    outer, inner = (torch.utils._python_dispatch.TorchDispatchMode() for _ in range(2))
    function = torch.overrides.BaseTorchFunctionMode()
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    before = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    with outer:
        with pytest.raises(KeyboardInterrupt), preserve_flags():
            for mode in (inner, function, hooks):
                mode.__enter__()
            raise KeyboardInterrupt
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is outer
    after = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    assert after == before
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
