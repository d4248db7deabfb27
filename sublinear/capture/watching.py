"""What the nodes of a graph make and change, seen in one run on fake tensors.

The compiler hands over a graph with fake tensors, which have shapes, storages and versions, but no
memory. Run on copies of them, each operator shows which storages its result lies in, and which it
writes into: nothing has to be known of the operators. Only norms write their running statistics
without a trace (`torch.nn.functional.batch_norm` counts no version), so they are known by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from labkit.restore import giving_back

# They write their running_mean and running_var where this argument says so.
_NORMS = {functional.batch_norm: "training", functional.instance_norm: "use_input_stats"}

_OUTSIDE = ("placeholder", "get_attr")

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)


class Unplannable(Exception):
    """Why a graph is run as it is."""


@dataclass
class Seen:
    """Of each node: the ``storages`` of its result, those that it has ``changed``, its ``value``.

    ``sizes``: bytes of each storage; ``statistics``: the inputs of the graph that only norms write,
    and nobody reads.
    """

    storages: dict[fx.Node, frozenset[int]] = field(default_factory=dict)
    changed: dict[fx.Node, frozenset[int]] = field(default_factory=dict)
    values: dict[fx.Node, object] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    statistics: frozenset[fx.Node] = frozenset()

    @property
    def outside(self) -> set[int]:
        """The storages that the graph does not make itself."""
        inputs = [storages for node, storages in self.storages.items() if node.op in _OUTSIDE]
        return set[int]().union(*inputs)


def name_of(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    if isinstance(node.target, str):
        return node.target
    name: str = getattr(node.target, "__name__", "")
    return name


def switches(nodes: list[fx.Node]) -> str:
    """The device of the autocast that nodes switch; empty where they switch no mode."""
    for node in nodes:
        if name_of(node) == "_enter_autocast":
            return str(node.args[0])
    others = {"_set_grad_enabled", "_vmap_increment_nesting"}
    return "cpu" if others & set(map(name_of, nodes)) else ""


def watch(gm: fx.GraphModule) -> Seen:
    """Raises `Unplannable` where the graph does not run on fake tensors."""
    fakes = []
    mode = None
    for node in gm.graph.find_nodes(op="placeholder"):
        fake = node.meta.get("example_value")
        if torch.is_tensor(fake):
            mode = mode or getattr(fake, "fake_mode", None)
        fakes.append(fake)
    if mode is None:
        raise Unplannable("it has no tensor as an input")
    watcher = _Watcher(gm)
    device = switches(list(gm.graph.nodes)) or "cpu"
    try:
        with mode, torch.no_grad(), giving_back(keeping_modes(device)):
            copies = [fake.clone() if torch.is_tensor(fake) else fake for fake in fakes]
            watcher.run(*copies)
    # Whatever an operator raises for a fake tensor.
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        kind = type(error).__name__
        raise Unplannable(f"it does not run on fake tensors ({kind}: {line})") from None
    seen = watcher.seen
    seen.statistics = frozenset(filter(_is_statistic, gm.graph.find_nodes(op="placeholder")))
    return seen


class _Watcher(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule) -> None:
        # All values stay alive, so that no two storages have the same identity.
        super().__init__(gm, garbage_collect_values=False)
        self.seen = Seen()

    def run_node(self, n: fx.Node) -> Any:
        given = tensors(fx.map_arg((n.args, n.kwargs), lambda node: self.env[node]))
        before = [tensor._version for tensor in given]
        known = n.meta.get("example_value")
        if n.op != "placeholder" and isinstance(known, _NUMBERS):
            # Of a tensor's number the compiler has made a symbol, which is not made twice.
            result: Any = known
        else:
            with torch.no_grad():
                result = super().run_node(n)
        changed = set()
        for tensor, version in zip(given, before, strict=True):
            if tensor._version != version:
                changed.add(identity(tensor))
        for value in fx.map_arg(_written(n), lambda node: self.env[node]):
            if torch.is_tensor(value):
                changed.add(identity(value))
        made = tensors(result)
        for tensor in made:
            size: Any = tensor.untyped_storage().nbytes()
            if isinstance(size, torch.SymInt):
                # What the compiler has seen for one that may vary; 0 if nothing.
                size = size.node.hint or 0
            self.seen.sizes[identity(tensor)] = int(size)
        self.seen.storages[n] = frozenset(map(identity, made))
        self.seen.changed[n] = frozenset(changed)
        self.seen.values[n] = result
        return result


def tensors(tree: object) -> list[torch.Tensor]:
    """All tensors in nested containers; of those of torch.func what they wrap."""
    return [_unwrapped(leaf) for leaf in tree_leaves(tree) if torch.is_tensor(leaf)]


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def identity(tensor: torch.Tensor) -> int:
    """That of the storage in which a tensor lies, as long as it lives."""
    return tensor.untyped_storage()._cdata


def _written(node: fx.Node) -> list[fx.Node]:
    """The running statistics that a norm writes."""
    function: Any = node.target
    if function not in _NORMS:
        return []
    given = inspect.signature(function).bind(*node.args, **node.kwargs)
    given.apply_defaults()
    if not given.arguments[_NORMS[function]]:
        return []
    found = [given.arguments[name] for name in ("running_mean", "running_var")]
    return [value for value in found if isinstance(value, fx.Node)]


def _is_statistic(node: fx.Node) -> bool:
    """Whether all that is done with an input is that norms write it."""
    for user in node.users:
        once = [*user.args, *user.kwargs.values()].count(node) == 1
        if not (once and node in _written(user)):
            return False
    return bool(node.users)


# -------------------------------------------------------------------------------------------- modes


def autocast_level() -> int:
    """How many contexts of autocast are open in this thread."""
    level: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return level


def keeping_modes(device: str) -> Callable[[], None]:
    """What puts autocast on a device, grad mode and levels of vmap back as they are now."""
    level, grad = autocast_level(), torch.is_grad_enabled()
    enabled, kind = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    cached = torch.is_autocast_cache_enabled()
    mapped = torch._C._functorch.get_dynamic_layer_stack_depth()

    def put_back() -> None:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(mapped)
        torch.set_grad_enabled(grad)
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, kind)
        torch.set_autocast_cache_enabled(cached)
        while autocast_level() > level:
            torch.autocast_decrement_nesting()
        if not level:
            torch.clear_autocast_cache()

    return put_back


@contextmanager
def ended_modes(device: str) -> Iterator[None]:
    """Where the block raises, modes that it has switched are as before it.

    A checkpoint leaves a piece by an exception as soon as backward has all that it needs. The
    graph's own call that would end autocast never comes: torch would keep 16-bit copies of weights
    for good.
    """
    put_back = keeping_modes(device)
    try:
        yield
    except BaseException:
        put_back()
        raise
