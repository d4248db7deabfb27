"""What containers hold: as it is now, whether it still is, and how to put back what differs."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

# A dict, list, deque, set or buffer, of any subclass.
Container = Any
CONTAINERS = (dict, list, deque, set)
# Of plain numbers.
BUFFERS = (bytearray, array)


def contents(container: Container) -> Container:
    """A copy of what a container holds; plain, as subclasses may refuse to be copied."""
    if isinstance(container, dict):
        return stored(container)
    if isinstance(container, BUFFERS):
        return container[:]
    return set(container) if isinstance(container, set) else list(container)


def stored(mapping: dict[Any, Any]) -> dict[Any, Any]:
    """What a dict itself holds, in its order.

    Its class may answer otherwise, and load what it is asked for: transformers' mappings of models
    import all of them.
    """
    kind = OrderedDict if isinstance(mapping, OrderedDict) else dict
    return dict(kind.items(mapping))


def as_before(container: Container, before: Container) -> bool:
    """Whether a container holds the same objects as ``before``, in the same order."""
    if isinstance(container, dict):
        now = stored(container)
        return _alike(now, before) and _alike(now.values(), before.values())
    if isinstance(container, BUFFERS):
        return bytes(container) == bytes(before)
    if isinstance(container, set):
        return set(map(id, container)) == set(map(id, before))
    return _alike(container, before)


def refill(container: Container, before: Container) -> None:
    """Put back what differs from ``before``, and nothing else; nothing is emptied for it.

    RuntimeError for a container that has changed and refuses to be changed back.
    """
    if as_before(container, before):
        return
    try:
        _write(container, before)
    # A container's own class may raise anything.
    except Exception as error:
        raise RuntimeError(
            f"cannot put back a {type(container).__name__}: it has changed and refuses to be "
            f"changed back ({type(error).__name__}: {error})"
        ) from error


def keeping(container: Container) -> Callable[[], None]:
    """What puts a container back as it is now; once more does no harm."""
    return partial(refill, container, contents(container))


def _alike(some: Any, others: Any) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(one is two for one, two in pairs)


def _write(now: Container, before: Container) -> None:
    if isinstance(now, dict):
        _write_dict(now, before)
    elif isinstance(now, set):
        now.update(before)
        now.intersection_update(before)
    elif isinstance(now, deque):
        now.extend(before)
        for _ in range(len(now) - len(before)):
            now.popleft()
    else:
        now[:] = before


def _write_dict(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    held, missing = stored(now), object()
    for key in [key for key in held if key not in before]:
        del now[key]
    for key in [key for key, value in before.items() if held.get(key, missing) is not value]:
        now[key] = before[key]
    if not _alike(stored(now), before):
        for key, value in before.items():
            del now[key]
            now[key] = value
