"""Blocks of a ``torch.fx`` trace, cut where few values cross.

A trace holds what the model did once. What it cannot hold is noticed while it is made
(`sublinear.blocks.noticing`): the innermost module that does it is kept whole and runs its own
code. What it holds as a constant is compared before each forward (`sublinear.blocks.baked`).

torch.fx turns ``x += y`` into ``x + y`` when it traces, which needs more memory, and is another
thing where a second name of ``x`` is used later. The tracer here keeps the in-place operator.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_leaves

from labkit.restore import preserve_rng
from sublinear.blocks.baked import Baked
from sublinear.blocks.blocks import (
    OVERWRITES_INPUT,
    Blocks,
    Keywords,
    Program,
    State,
    below,
    name_of,
)
from sublinear.blocks.cuts import crossing, cuts, is_heavy, overwritten, source
from sublinear.blocks.noticing import Lost, draws, noticing
from sublinear.repeatable import attributes, changes, impure, unmoved, untouched


class CannotTrace(Exception):
    """Why torch.fx cannot follow a model."""


@dataclass(frozen=True)
class TracedBlocks(Blocks):
    """Pieces of a trace, which holds what the model did in its mode.

    ``training``: the mode of each module when the model was read; ``baked``: the Python values that
    it read; ``constants``: the arguments that were no tensors. ``works``: see `work`.
    ``defaults``: of the arguments.
    """

    training: tuple[bool, ...] = ()
    works: tuple[Hashable, ...] = field(default=(), repr=False, compare=False)
    baked: Baked | None = field(default=None, repr=False, compare=False)
    constants: Keywords = field(default_factory=dict)
    defaults: tuple[tuple[str, Any], ...] = ()

    kind = "traced"

    @classmethod
    def read(
        cls, model: nn.Module, args: State | None, kwargs: Keywords, width: int | None
    ) -> TracedBlocks:
        """Raises `CannotTrace`, or ValueError if the model overwrites its input."""
        constants = _constants(model, args, kwargs)
        graph, baked = _trace(model, constants)
        placeholders, nodes, result = _sorted(graph)
        if not nodes:
            raise CannotTrace("its forward computes nothing that torch.fx sees")
        for node in nodes:
            for changed in overwritten(model, node):
                if source(model, changed) in placeholders:
                    raise ValueError(OVERWRITES_INPUT.format(name=node.name))
        names, inside, programs, reads, works = [], [], [], [], []
        start, here = 0, placeholders
        for end in [*cuts(model, nodes, placeholders, width), len(nodes)]:
            piece = nodes[start:end]
            after = crossing(nodes, placeholders, end)
            leaving: State = tuple(after)
            if end == len(nodes):
                leaving = (result,)
            works.append(_work(piece, here, leaving))
            programs.append(_program(model, piece, here, leaving))
            called = [str(node.target) for node in piece if node.op == "call_module"]
            names.append(name_of(called or [_main_node(model, piece).name]))
            inside.append(below(model, called))
            reads.append(tuple(str(node.target) for node in _own(piece, leaving)))
            start, here = end, after
        return cls(
            model,
            tuple(names),
            tuple(inside),
            tuple(programs),
            reads=tuple(reads),
            training=_modes(model),
            works=tuple(works),
            baked=baked,
            constants=constants,
            defaults=tuple((name, p.default) for name, p in _parameters(model).items()),
        )

    def work(self, i: int) -> Hashable:
        return self.works[i]

    def enter(self, args: State, kwargs: Keywords) -> State:
        """Raises RuntimeError, by name, for an argument of another kind than was planned for."""
        state = _bind(self.model, args, kwargs)
        for name, value in zip(_parameters(self.model), state, strict=True):
            if name in self.constants:
                was = self.constants[name]
                if type(value) is type(was) and value == was:
                    continue
                planned = f"{name}={was!r}"
            elif isinstance(value, _CONSTANTS):
                planned = f"a tensor as {name}"
            else:
                continue
            now = f"{name}={value!r}"
            if torch.is_tensor(value):
                now = f"a tensor as {name}"
            raise RuntimeError(
                f"the model was planned for {planned}, and is called with {now}: the plan holds "
                "what the model did then; plan it anew with such an argument"
            )
        return state

    def enter_plainly(self, args: State, kwargs: Keywords) -> State:
        if len(args) > len(self.defaults):
            raise TypeError(f"{len(args)} arguments, the model takes {len(self.defaults)}")
        state = list(args)
        for name, default in self.defaults[len(args) :]:
            state.append(kwargs.get(name, default))
        return tuple(state)

    def check_unchanged(self) -> None:
        super().check_unchanged()
        self._check_mode()
        if self.baked is not None:
            self.baked.check()

    def _check_mode(self) -> None:
        if self.training == _modes(self.model):
            return
        changed = []
        named = self.model.named_modules()
        for (name, module), was in zip(named, self.training, strict=True):
            if module.training != was:
                changed.append(name or "the model")
        raise RuntimeError(
            "switched between training and evaluation since the model was planned: "
            f"{', '.join(changed[:3])}; the plan holds what the model did then: profile and plan "
            "it anew, or switch back"
        )


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in model.modules())


def _sorted(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node], Any]:
    """The graph's inputs, what it computes, and its result."""
    placeholders, nodes, result = [], [], None
    for node in graph.nodes:
        if node.op == "placeholder":
            placeholders.append(node)
        elif node.op == "output":
            result = node.args[0]
        elif node.op != "get_attr":
            nodes.append(node)
    return placeholders, nodes, result


def _main_node(model: nn.Module, piece: list[fx.Node]) -> fx.Node:
    """The node after which a piece without modules is named."""
    for node in piece:
        if is_heavy(model, node):
            return node
    return piece[0]


# -------------------------------------------------------------------------------------- the tracer


class _Proxy(fx.Proxy):
    """Keeps ``x += y`` what it is."""


def _augmented(function: Callable[..., Any]) -> Callable[[fx.Proxy, object], fx.Proxy]:
    def operate(self: fx.Proxy, other: object) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return operate


for _name in ("iadd", "isub", "imul", "itruediv", "ipow", "imod"):
    setattr(_Proxy, f"__{_name}__", _augmented(getattr(operator, _name)))


# They look into the graph of autograd, or change it.
_ASKING_AUTOGRAD = {
    torch.autograd.grad,
    torch.autograd.backward,
    "backward",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
}


class _Tracer(fx.Tracer):
    """Keeps whole the modules whose own forward cannot be followed, as if it looks at its data.

    ``entered``: the modules in whose forward it is, also after an error.
    """

    # Else what is computed from a buffer alone would be a constant.
    proxy_buffer_attributes = True

    def __init__(self, opaque: set[str], baked: Baked) -> None:
        super().__init__()
        self.opaque, self.baked, self.entered = opaque, baked, list[str]()
        self.functions: dict[type, Callable[..., Any]] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # Norms of any library: their running statistics are exchanged where a block runs again.
        if module_qualified_name in self.opaque or isinstance(m, _NormBase):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        name = self.path_of_module(m)
        self._raise_lost()
        self.entered.append(name)
        follows = not self.is_leaf_module(m, name)
        before = draws()
        if follows:
            self.baked.forward(m)
        result = super().call_module(m, forward, args, kwargs)
        self._raise_lost()
        if follows and draws() != before:
            raise Lost(_DRAWS)
        self.entered.pop()
        return result

    def _raise_lost(self) -> None:
        """Raise `Lost` if the module that it is in reads what cannot be compared."""
        if self.baked.lost:
            raise Lost(self.baked.lost[0])

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, fx.Proxy):
            return a.node
        if isinstance(a, torch.Tensor) and not self._has(a):
            raise Lost("uses a tensor that is no parameter, buffer or attribute of a module")
        return super().create_arg(a)

    def create_proxy(self, kind: str, target: Any, *args: Any, **options: Any) -> Any:
        if target in _ASKING_AUTOGRAD:
            name = target if isinstance(target, str) else target.__name__
            raise Lost(f"works on autograd's graph ({name})")
        return super().create_proxy(kind, target, *args, **options)

    def keep_function(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A node for a call of a custom ``autograd.Function``."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return function.apply(*args, **kwargs)

        call.__name__ = f"{function.__name__}_apply"
        kept = self.functions.setdefault(function, call)
        return self.create_proxy("call_function", kept, args, kwargs)

    def _has(self, tensor: torch.Tensor) -> bool:
        known = [*self.root.parameters(), *self.root.buffers(), *self.tensor_attrs]
        return any(tensor is other for other in known)


_DRAWS = "draws random numbers by Python's random or by NumPy"


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def _bind(model: nn.Module, args: State, kwargs: Keywords) -> State:
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _constants(model: nn.Module, args: State | None, kwargs: Keywords) -> Keywords:
    """Arguments of ``forward`` that are no tensors: the trace is for these values."""
    parameters = _parameters(model)
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        raise CannotTrace("its forward takes *args or **kwargs")
    values: Keywords = {}
    if args is not None:
        values = dict(zip(parameters, _bind(model, args, kwargs), strict=True))
    else:
        for name, parameter in parameters.items():
            if parameter.default is not parameter.empty:
                values[name] = parameter.default
    return {name: value for name, value in values.items() if isinstance(value, _CONSTANTS)}


def _trace(model: nn.Module, constants: Keywords) -> tuple[fx.Graph, Baked]:
    """The graph, and the Python values that it was made with."""
    # Code that no proxy reaches, such as a loop over parameters, runs as it is.
    with unmoved(model):
        return _trace_again(model, constants)


def _trace_again(model: nn.Module, constants: Keywords) -> tuple[fx.Graph, Baked]:
    """Trace until all modules that cannot be followed are kept whole."""
    opaque: set[str] = set()
    while True:
        baked = Baked(model)
        tracer = _Tracer(opaque, baked)
        try:
            with untouched(model), preserve_rng():
                before = attributes(model.modules())
                graph = _traced_once(tracer, model, constants)
                changed = changes(before)
        # torch.fx raises whatever the model's code raises when it meets a proxy.
        except Exception as error:
            where = next((name for name in reversed(tracer.entered) if name not in opaque), None)
            if where is None:
                raise CannotTrace(_why(error)) from None
            opaque.add(where)
            continue
        if changed:
            raise ValueError(impure("the model", changed))
        return graph, baked


def _traced_once(tracer: _Tracer, model: nn.Module, constants: Keywords) -> fx.Graph:
    before = draws()
    with noticing(tracer.keep_function) as noticed, tracer.baked.reading():
        tracer.baked.forward(model)
        graph = tracer.trace(model, constants or None)
    noticed += tracer.baked.lost
    if draws() != before:
        noticed.append(_DRAWS)
    if noticed:
        # The model's own code has caught it.
        raise Lost(noticed[0])
    return graph


def _why(error: Exception) -> str:
    if isinstance(error, Lost):
        return f"a trace of the model would not train as it does: its forward {error}"
    kind, *lines = type(error).__name__, *str(error).splitlines(), ""
    return f"torch.fx cannot follow its forward ({kind}: {lines[0]})"


# -------------------------------------------------------------------------------- code for a piece


def _work(piece: list[fx.Node], here: list[fx.Node], result: State) -> Hashable:
    """What a piece does, with numbers for its values, and for the model's modules and tensors."""
    numbers: dict[object, int] = {}

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    def text(arguments: Any) -> str:
        return str(fx.map_arg(arguments, lambda node: f"%{number(node)}"))

    rows: list[Hashable] = [text(tuple(here))]
    for node in piece:
        target: object = node.target
        if node.op == "call_module":
            target = number(target)
        elif node.op == "call_function":
            target = f"{getattr(target, '__module__', '')}.{target!r}"
        rows.append((node.op, target, text(node.args), text(node.kwargs)))
        number(node)
    rows.append(text(result))
    return tuple(rows)


def _own(piece: list[fx.Node], result: State) -> list[fx.Node]:
    """The model's own tensors that a piece reads, or that it returns as they are."""
    read: dict[fx.Node, None] = {}
    for step in piece:
        read |= dict.fromkeys(step.all_input_nodes)
    for leaf in tree_leaves(result):
        if isinstance(leaf, fx.Node):
            read[leaf] = None
    return [node for node in read if node.op == "get_attr"]


def _program(model: nn.Module, piece: list[fx.Node], here: list[fx.Node], result: State) -> Program:
    """Code for a piece of the graph: from the values that cross into it to ``result``.

    Parameters and buffers that the model's own code reads are looked up at each call, since moving
    a model to another device replaces its buffers.
    """
    own = _own(piece, result)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in [*here, *own]:
        copies[node] = graph.placeholder(node.name)
    for node in piece:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(fx.map_arg(result, copies.__getitem__))
    code = fx.GraphModule(model, graph).forward
    paths = [str(node.target).split(".") for node in own]

    def program(*state: Any) -> State:
        # Not operator.attrgetter, which torch.compile cannot follow.
        read = []
        for path in paths:
            value: Any = model
            for name in path:
                value = getattr(value, name)
            read.append(value)
        leaving: State = code(*state, *read)
        return leaving

    return program
