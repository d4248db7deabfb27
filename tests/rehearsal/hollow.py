"""A rehearsed card whose tensors are hollow: they have shapes, types and bytes, but no numbers.

The rehearsal computes on the CPU, which is out of the question at the sizes of a large card. Here
what claims to lie on a card is a ``meta`` tensor: a step of a network of any size takes
milliseconds, and the card's counters say what it would hold. So is what lies on the CPU and is
larger than `LARGE`, so that data sets and the weights of new networks cost nothing.

Where a number is asked for, it is 1, and a truth is true: a program runs on, as long as it does not
depend on what it computed. Nothing is compiled or captured: these run as they are.

Not counted: the work space of cuBLAS and cuDNN, the context, fragmentation; 16-bit copies that
autocast makes (it leaves meta tensors alone: all stays as large as without it).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx.experimental import _config as shapes
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_map

from tests.rehearsal import functions, install, operators, order, places
from tests.rehearsal.operators import state
from tests.rehearsal.places import CPU, place_of

T = torch.Tensor
# Numbers in a tensor on the CPU from which on it is hollow, too.
LARGE = 2**20
# Numbers from which on random values on the CPU are left out.
MANY = 2**12
RANDOM = {"uniform_", "normal_", "random_", "bernoulli_", "trunc_normal_"}
# What writes in place and changes the shape, too.
RESHAPING = {
    "as_strided_",
    "resize_",
    "set_",
    "squeeze_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "transpose_",
    "unsqueeze_",
}
FACTORIES = {
    torch.arange,
    torch.empty,
    torch.empty_strided,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.normal,
    torch.ones,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.randperm,
    torch.zeros,
}
CONVERSIONS = {torch.tensor, torch.as_tensor}


class Enough(Exception):
    """So many operators have run: what a loop holds shows in its first turns."""


class Turns:
    """How many operators may still run before `Enough` is raised."""

    def __init__(self) -> None:
        self.left = math.inf

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.left = math.inf
            raise Enough


turns = Turns()


def hollow_install() -> None:
    """From now on this process has one card, of hollow tensors. It cannot be taken back."""
    install(gigabytes=80)
    functions._create = create
    functions._copy = copy
    functions.SPECIAL.update(_values())
    operators.Operators.__torch_dispatch__ = dispatch  # type: ignore[method-assign]
    places.put, places.storage_of = put, storage_of
    order.used = order.queue = lambda *_, **__: None
    order.join = lambda *_: None
    T.device = property(_device)  # type: ignore[assignment]
    torch.equal = torch.allclose = lambda *_, **__: True
    torch.testing.assert_close = lambda *_, **__: None
    shapes.meta_nonzero_assume_all_nonzero = True
    # It looks at numbers to decide whether a step is taken: it is.
    torch.amp.GradScaler._maybe_opt_step = (  # type: ignore[method-assign]
        lambda self, optimizer, found, *args, **kwargs: optimizer.step(*args, **kwargs)
    )
    torch.cuda.set_per_process_memory_fraction = lambda *_: None
    known = _foreach_utils._get_foreach_kernels_supported_devices
    _foreach_utils._get_foreach_kernels_supported_devices = lambda: [*known(), "meta"]
    torch.compile = _as_it_is
    torch.cuda.graph = _not_captured
    torch.cuda.CUDAGraph.replay = lambda self: None  # type: ignore[method-assign]


def resize(gigabytes: int) -> None:
    """Let the card have this much memory from now on, and be as it was bought.

    Nothing is refused for that: more may be taken than there is, so that it is seen how much.
    """
    [card] = places.cards
    card.total, card.limit, card.peak = gigabytes * 10**9, math.inf, card.now


def _as_it_is(model: Any = None, **_: Any) -> Any:
    if model is None:
        return lambda function: function
    return model


@contextlib.contextmanager
def _not_captured(*_: Any, **__: Any) -> Iterator[None]:
    yield


def storage_of(tensor: T) -> torch.UntypedStorage | None:
    """As in `places`, and faster."""
    try:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


_true_device = torch._C.TensorBase.device


def _device(tensor: T) -> torch.device:
    if state.honest:
        return _true_device.__get__(tensor)
    place = place_of(tensor)
    if place is None or place == CPU:
        return torch.device("cpu")
    return torch.device("cuda", place)


def put(tree: object, place: int, *, again: bool = False) -> None:
    """As in `places`, of meta tensors as well."""
    for tensor in tensors_in(tree):
        storage = storage_of(tensor)
        if storage is not None:
            places.claim(storage, place, again)


def tensors_in(value: object) -> list[T]:
    """The tensors in arguments or results of an operator; faster than torch's own walk."""
    if isinstance(value, T):
        return [value]
    inner: Any = ()
    if isinstance(value, list | tuple):
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    found = []
    for each in inner:
        if isinstance(each, T):
            found.append(each)
        elif isinstance(each, list | tuple | dict):
            found += tensors_in(each)
    return found


def create(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch: where it makes a tensor from nothing, a hollow one."""
    place = functions.index_of(kwargs.get("device"))
    sources = tensors_in((args, kwargs))
    kwargs.pop("pin_memory", None)
    if place is not None:
        kwargs.pop("device")
    if sources:
        result = func(*args, **kwargs)
        if place is None:
            return result
        return tree_map(lambda leaf: functions._at(leaf, place), result)
    if func not in FACTORIES | CONVERSIONS:
        if place is not None:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)
    if place is not None and place != CPU:
        state.wake()
    return _made(func, args, kwargs, CPU if place is None else place)


def _made(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: int) -> T:
    if place == CPU and func in CONVERSIONS:
        result = func(*args, **kwargs)
        put(result, CPU)
        return result
    given = {name: value for name, value in kwargs.items() if name not in ("generator", "out")}
    result = func(*args, **given | {"device": "meta"})
    if place == CPU and result.numel() < LARGE:
        result = func(*args, **kwargs)
    put(result, place, again=True)
    return result


def copy(source: T, place: int, *, non_blocking: bool) -> T:
    """A copy at another place: from a card ones, where they are few."""
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        if place == CPU and source.numel() < LARGE:
            result = torch.ones(source.shape).to(source.dtype)
        else:
            result = torch.empty_like(source, device="meta")
    put(result, place, again=True)
    state.wake()
    return result


def dispatch(
    self: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """An operator: on shapes alone where a tensor is hollow."""
    turns.spend()
    kwargs = kwargs or {}
    name = getattr(getattr(func, "_overloadpacket", func), "__name__", "")
    tensors = tensors_in((args, kwargs))
    at = [place_of(tensor) for tensor in tensors]
    cards = {place for place in at if place not in (None, CPU)}
    with torch._C.DisableTorchFunction():
        if any(tensor.is_meta for tensor in tensors):
            result = _of_shapes(func, name, args, kwargs)
        elif name in RANDOM and tensors[0].numel() > MANY:
            result = tensors[0]
        else:
            result = func(*args, **kwargs)
    if isinstance(result, T) and any(result is tensor for tensor in tensors):
        return result
    operators._claim(name, at, cards, result)
    return result


def _of_shapes(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if name == "_local_scalar_dense":
        # Asked for by torch itself: whether there is a nan, for example.
        return False if args[0].dtype == torch.bool else number(args[0])
    if name == "equal":
        return True
    if not func._schema.returns:
        # It writes in place, and numbers only: fused optimizers, most of `_foreach_..._`.
        return None
    if _writes_to_first(func) and name not in RESHAPING:
        return args[0]
    kwargs = {each: value for each, value in kwargs.items() if each not in ("device", "generator")}
    key = None
    if not any(result.alias_info for result in func._schema.returns):
        key = _key(func, args, kwargs)
    if key is None or key not in _known:
        result = _computed(func, args, kwargs)
        if key is None:
            return args[0] if _writes_to_first(func) else result
        _known[key] = tree_map(_layout, result)
    return tree_map(_fresh, _known[key], is_leaf=lambda leaf: isinstance(leaf, Layout))


class Layout(NamedTuple):
    """All that there is of a hollow tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


# What operators make of such layouts: torch works that out in Python, which is slow.
_known: dict[object, Any] = {}


def _key(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> object:
    key = func, _hashable(args), _hashable(kwargs)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: Any) -> object:
    if isinstance(value, T):
        return _layout(value)
    if isinstance(value, list | tuple):
        return tuple(_hashable(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    # 1, 1.0 and True are equal.
    return type(value), value


def _layout(leaf: Any) -> Any:
    if isinstance(leaf, T):
        return Layout(tuple(leaf.shape), leaf.stride(), leaf.dtype)
    return leaf


def _fresh(leaf: Any) -> Any:
    if isinstance(leaf, Layout):
        return torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device="meta")
    return leaf


def _computed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # What lies on the CPU and is small is not hollow: the operator gets its shape.
    args, kwargs = tree_map(_shape_of, (tuple(args), kwargs))
    # torch computes shapes in Python, where it asks tensors for their device.
    before, state.honest = state.honest, True
    try:
        return func(*args, **kwargs)
    finally:
        state.honest = before


def _writes_to_first(func: Any) -> bool:
    arguments = func._schema.arguments
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and alias.is_write


def _shape_of(leaf: Any) -> Any:
    if isinstance(leaf, T) and not leaf.is_meta:
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    return leaf


# ----------------------------------------------------------------------------------------- numbers


def number(tensor: T) -> Any:
    """What stands for the number in a hollow tensor."""
    if tensor.dtype == torch.bool:
        return True
    if tensor.dtype.is_floating_point:
        return 1.0
    return 1


def _numbers(tensor: T) -> T:
    return torch.ones(tensor.shape).to(tensor.dtype)


def _instead(method: Any, answer: Any) -> Any:
    def special(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args[0].is_meta:
            return answer(args[0], *args[1:], **kwargs)
        return method(*args, **kwargs)

    return special


def _values() -> dict[Any, Any]:
    """The methods of a tensor that ask for numbers, and what answers of a hollow one."""
    answers = {
        T.item: number,
        T.tolist: lambda tensor: _numbers(tensor).tolist(),
        T.numpy: lambda tensor, **_: _numbers(tensor).numpy(),
        T.__array__: lambda tensor, *_: _numbers(tensor).numpy(),
        T.__bool__: lambda tensor: True,
        T.__float__: lambda tensor: 1.0,
        T.__int__: lambda tensor: 1,
        T.__index__: lambda tensor: 1,
        T.__format__: lambda tensor, form: format(number(tensor), form) if form else "hollow",
        T.__repr__: lambda tensor, **_: f"hollow{tuple(tensor.shape)}",
        T.__deepcopy__: lambda tensor, memo: tensor.detach().clone(),
        T.equal: lambda *_: True,
        T.allclose: lambda *_, **__: True,
    }
    found = {method: _instead(method, answer) for method, answer in answers.items()}
    found[T.pin_memory] = lambda func, args, kwargs: args[0]
    return found
