"""Above autograd, at every function of torch: take ``device="cuda"`` out of the arguments,
and answer for moves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from tests.rehearsal import order, places
from tests.rehearsal.operators import state
from tests.rehearsal.places import CPU, on_card, place_of, tensors_of

T = torch.Tensor
HOST_ONLY = {T.numpy, T.__array__}


def index_of(device: Any) -> int | None:
    """The card that a device names, `CPU`,
    or None for others (``meta``) and for what is no device.
    """
    if isinstance(device, bool) or device is None:
        return None
    if isinstance(device, int):
        return device
    if not isinstance(device, str | torch.device):
        return None
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return CPU
    if kind != "cuda":
        return None
    index = int(number) if number else state.device
    if index >= len(places.cards):
        raise RuntimeError(f"CUDA error: invalid device ordinal: {device} (rehearsed)")
    return index


class Functions(TorchFunctionMode):
    """The mode that sees every call of torch's Python API."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        special = SPECIAL.get(func)
        if special is not None:
            return special(func, args, kwargs)
        named = index_of(kwargs.get("device"))
        if isinstance(func, torch._ops.OpOverload) and named in (None, CPU):
            # A dispatch mode calls on what C++ called, which names the device it sees: the CPU.
            return func(*args, **kwargs)
        return _create(func, args, kwargs)


def _create(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    place = index_of(kwargs.get("device"))
    sources = tensors_of((args, kwargs))
    pinned = bool(kwargs.get("pin_memory")) and not sources
    if place is not None:
        kwargs["device"] = torch.device("cpu")
    if pinned:
        kwargs["pin_memory"] = False
    if place is not None and place != CPU:
        state.wake()
        _same_generator(kwargs.get("generator"))
    making = None if sources else place
    with places.as_out_of_memory(place not in (None, CPU)), state.making_at(making):
        result = func(*args, **kwargs)
    if pinned:
        places.pin(result)
    elif place is None:
        if not sources:
            places.put(result, CPU)
    elif sources:
        result = tree_map(lambda leaf: _at(leaf, place), result)
    else:
        places.put(result, place, again=True)
        _note_creation(result, place)
    return result


def _note_creation(result: Any, place: int) -> None:
    if place == CPU or state.capturing is not None:
        return
    order.queue(state.stream)
    for leaf in tensors_of(result):
        order.used(leaf, state.stream, writes=True, what="creation")


def _same_generator(generator: Any) -> None:
    if generator is not None and generator.device.type != "cuda":
        raise RuntimeError(
            "Expected a 'cuda' device type for generator but found 'cpu' (rehearsed)"
        )


def _at(leaf: Any, place: int) -> Any:
    """A copy at this place where the tensor lies elsewhere: ``as_tensor(x, device="cuda")``."""
    if not isinstance(leaf, torch.Tensor) or place_of(leaf) == place:
        return leaf
    return _copy(leaf, place, non_blocking=False)


# ------------------------------------------------------------------------------------------- moves


def _copy(source: torch.Tensor, place: int, *, non_blocking: bool) -> torch.Tensor:
    """A copy of the tensor at another place, in the order of streams."""
    came_from = place_of(source)
    with state.making_at(place):
        result = torch.ops.aten._to_copy.default(source, non_blocking=non_blocking)
    if state.capturing is not None:
        state.capturing.append((torch.ops.aten.clone.default, (source,), {}, result))
    places.put(result, place, again=True)
    if place == CPU and came_from in (None, CPU):
        return result
    state.wake()
    stream = state.stream
    order.queue(stream)
    order.used(source, stream, writes=False, what="a copy")
    order.used(result, stream, writes=True, what="a copy")
    if place == CPU:
        if non_blocking:
            # torch makes it page-locked, so that the host need not wait.
            places.pin(result)
        else:
            state.host_waits("a copy to the CPU")
    elif came_from in (None, CPU) and not (non_blocking and places.is_pinned(source)):
        # From pageable memory: the host goes on when the source has been read.
        order.join(order.HOST, order.clock(stream))
    return result


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    place, wanted, non_blocking = _read_to(rest, kwargs)
    if place == "meta":
        return func(*args, **kwargs)
    result = T.to(tensor, **wanted) if wanted else tensor
    return _moved(tensor, result, place, non_blocking)


def _moved(tensor: T, result: T, place: int | None, non_blocking: bool) -> T:
    if place is None or place == place_of(tensor) or (place == CPU and not on_card(tensor)):
        return result
    return _Move.apply(result, place, non_blocking)


class _Move(torch.autograd.Function):
    """A copy to another place whose gradient goes back to where it came from."""

    @staticmethod
    def forward(ctx: Any, source: T, place: int, non_blocking: bool) -> T:
        ctx.came_from = place_of(source)
        return _copy(source.detach(), place, non_blocking=non_blocking)

    @staticmethod
    def backward(ctx: Any, gradient: T) -> tuple[T, None, None]:
        back = CPU if ctx.came_from is None else ctx.came_from
        return _copy(gradient, back, non_blocking=False), None, None


def _read_to(rest: list[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], bool]:
    """What ``tensor.to(...)`` was asked for: place, dtype and the like, and whether to wait."""
    given = dict(kwargs)
    if rest and isinstance(rest[0], torch.Tensor):
        other = rest.pop(0)
        given |= {"dtype": other.dtype, "device": other.device}
    elif rest and not isinstance(rest[0], torch.dtype):
        given["device"] = rest.pop(0)
    if rest and (isinstance(rest[0], torch.dtype) or rest[0] is None):
        given["dtype"] = rest.pop(0)
    for name, value in zip(("non_blocking", "copy"), rest, strict=False):
        given[name] = value
    device = given.pop("device", None)
    place = "meta" if str(device) == "meta" else index_of(device)
    non_blocking = bool(given.pop("non_blocking", False))
    wanted = {name: value for name, value in given.items() if value not in (None, False)}
    return place, wanted, non_blocking


def _cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    device = kwargs.pop("device", rest[0] if rest else None)
    place = index_of(device)
    return _moved(
        tensor, tensor, state.device if place is None else place, bool(kwargs.get("non_blocking"))
    )


def _cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _moved(args[0], args[0], CPU, False)


def _host_only(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if on_card(args[0]):
        raise TypeError(
            f"can't convert cuda:{place_of(args[0])} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first. (rehearsed)"
        )
    order.used(args[0], order.HOST, writes=False, what="numpy()")
    return func(*args, **kwargs)


def _pin(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if on_card(args[0]):
        raise RuntimeError(
            "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned (rehearsed)"
        )
    if places.is_pinned(args[0]):
        return args[0]
    result = args[0].clone()
    places.pin(result)
    return result


def _is_pinned(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return places.is_pinned(args[0])


def _deepcopy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = func(*args, **kwargs)
    place = place_of(args[0])
    if place is not None and place != CPU and isinstance(result, torch.Tensor):
        places.put(result, place, again=True)
    return result


def _get_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    place = place_of(args[0])
    return CPU if place is None else place


def _as_it_is(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


SPECIAL: dict[Any, Any] = {
    T.to: _to,
    T.cuda: _cuda,
    T.cpu: _cpu,
    T.pin_memory: _pin,
    T.is_pinned: _is_pinned,
    T.numpy: _host_only,
    T.__array__: _host_only,
    T.__deepcopy__: _deepcopy,
    T.get_device: _get_device,
    T.type: _as_it_is,
}
