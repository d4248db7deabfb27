"""A model as an ordered list of blocks, each a function from the tensors that cross into it to those that leave it.

Three ways, the first that fits: the children of a flattened ``nn.Sequential``; a ``torch.fx`` trace cut where few
values cross; or, where tracing fails, a run of modules each of which is fed by the one before.
"""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from sublinear.repeatable import attributes, changes, impure, refuse, undisturbed, untouched

State = tuple[Any, ...]  # what crosses from a block to the next

_WEIGHTED = {F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose2d, F.embedding, F.bilinear}
_IN_PLACE = {
    value
    for name, value in vars(operator).items()
    if name in operator.__all__ and name.startswith("i")
}
_IN_PLACE -= {
    operator.index,
    operator.indexOf,
    operator.inv,
    operator.invert,
    operator.is_,
    operator.is_not,
}
_IN_PLACE -= {operator.itemgetter}  # the others that begin with an i: iadd, imul, ...


@dataclass(frozen=True)
class Blocks:
    """The blocks of one model. They share its modules; nothing is copied.

    ``kind``: "sequential", "traced" or "wrapped"; ``note``: why no better kind was possible, in plain words.
    ``inside``: the names of the model's modules that each block runs. Of a wrapped model the blocks are some of its
    modules only, and what runs outside them is its own code.
    """

    model: nn.Module
    names: tuple[str, ...]
    inside: tuple[tuple[str, ...], ...]
    kind: str
    note: str
    programs: tuple[Callable[..., State], ...]
    training: tuple[bool, ...]  # of each module when the model was read: a trace has it built in
    extras: tuple[str, ...] = ()  # keywords that all modules of a wrapped run receive alike

    def __len__(self) -> int:
        return len(self.names)

    def run(self, i: int, *state: Any) -> State:
        """Run block ``i`` on what crosses into it; what crosses into the next, or the model's output alone."""
        return self.programs[i](*state)

    def run_all(self, *state: Any) -> State:
        """Run one block after the other."""
        for program in self.programs:
            state = program(*state)
        return state

    def modules(self, i: int) -> Iterator[nn.Module]:
        """The modules that block ``i`` runs."""
        return (self.model.get_submodule(name) for name in self.inside[i])

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> State:
        """What crosses into the first block when the model is called so. Not for wrapped models."""
        if self.kind == "sequential":
            if kwargs or len(args) != 1:
                raise TypeError(
                    f"a Sequential takes one input, not {len(args)} and the keywords {list(kwargs)}"
                )
            return args
        return _bind(self.model, args, kwargs)

    @contextmanager
    def standing_in(self, work: Callable[..., torch.Tensor]) -> Iterator[None]:
        """Let ``work``, called as the first wrapped module is, do what all of them do. Only for wrapped models.

        The others hand on its result. Raises RuntimeError where the model does not feed them to one another, or uses
        what they return for anything else.
        """
        modules = [self.model.get_submodule(name) for name in self.names]
        handed: list[torch.Tensor] = []  # by each module that was called so far, in this order
        result: list[torch.Tensor] = []

        def stand_in(i: int) -> Callable[..., torch.Tensor]:
            def forward(x: torch.Tensor, **extras: Any) -> torch.Tensor:
                if len(handed) != i or (i and x is not handed[-1]):
                    raise _NotARun(
                        f"{self.names[i]} was not fed by the module before it, as it was when the model was planned: "
                        "plan it with other modules"
                    )
                if not i:
                    result.append(work(x, **extras))
                handed.append(
                    result[0]
                    if i + 1 == len(modules)
                    else _Handed.of(self.names[i], self.names[i + 1])
                )
                return handed[-1]

            return forward

        try:
            for i, module in enumerate(modules):
                module.__dict__["forward"] = stand_in(i)
            yield
            if len(handed) != len(modules):
                raise _NotARun(
                    f"{self.names[len(handed)]} was not called, as it was when the model was planned"
                )
        finally:
            for module in modules:
                module.__dict__.pop("forward", None)

    def check_mode(self) -> None:
        """Raise RuntimeError if a module was switched between training and evaluation since the model was read."""
        if self.kind == "traced" and self.training != _modes(self.model):
            changed = [
                name or "the model"
                for (name, module), was in zip(
                    self.model.named_modules(), self.training, strict=True
                )
                if module.training != was
            ]
            raise RuntimeError(
                f"switched between training and evaluation since the model was planned: {', '.join(changed[:3])}; "
                "the plan holds what the model did then: profile and plan it anew, or switch back"
            )


def split(
    model: nn.Module,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    modules: list[str] | None = None,
    width: int = 6,
) -> Blocks:
    """Read ``model`` as blocks. ``args`` (a tensor or tuple) are example inputs, which only wrapped models need.

    ``modules`` chooses by name the modules to wrap. ``width``: how many values may cross a cut of a
    trace, as skips do. Raises ValueError, by name, for what would not train as before: hooks, other wrappers,
    attributes set in forward, in-place changes of the input.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r} is not an nn.Module")
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"width={width!r}: a whole number of values from 1 is accepted")
    refuse(model)
    inputs = None if args is None else args if isinstance(args, tuple) else (args,)
    if modules is not None:
        return _wrapped(model, inputs, kwargs or {}, modules, "the modules were chosen by name")
    if _is_plain_sequential(model):
        return _sequential(model)
    try:
        return _traced(model, inputs, kwargs or {}, width)
    except _CannotTrace as reason:
        return _wrapped(model, inputs, kwargs or {}, None, str(reason))


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in model.modules())


def _below(model: nn.Module, names: list[str]) -> tuple[str, ...]:
    """``names`` and all modules under them."""
    return tuple(
        name + ("." + inner if inner else "")
        for name in dict.fromkeys(names)
        for inner, _ in model.get_submodule(name).named_modules()
    )


def _name(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{parts[0]}..{parts[-1]}"


def _has_weights(module: nn.Module) -> bool:
    """Whether a module does real work. Blocks begin with one: it saves its input, which is then held only once.

    An activation in a block of its own would not need its input any more, and a plan would count it in vain.
    """
    return any(parameter.dim() > 1 for parameter in module.parameters())


# ---------------------------------------------------------------------------------------------------------- Sequential


def _is_plain_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _flatten(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in module._modules.items():  # not named_children, which hides repeats
        assert child is not None, "nn.Sequential holds modules only"
        if _is_plain_sequential(child):
            yield from _flatten(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def changes_input(module: nn.Module) -> bool:
    """Whether a module's own operator overwrites its input: ``nn.ReLU(inplace=True)`` and the like."""
    return bool(getattr(module, "inplace", False))


def _sequential(model: nn.Module) -> Blocks:
    groups: list[list[tuple[str, nn.Module]]] = []
    for name, module in _flatten(model):
        if not groups and changes_input(module):
            raise ValueError(_OVERWRITES.format(name=name))
        if groups and (changes_input(module) or not _has_weights(module)):
            groups[-1].append((name, module))
        else:
            groups.append([(name, module)])
    if not groups:
        raise ValueError("the model is an nn.Sequential without modules: there is nothing to plan")
    names = [[name for name, _ in group] for group in groups]
    return Blocks(
        model,
        tuple(_name(group) for group in names),
        tuple(_below(model, group) for group in names),
        "sequential",
        "",
        tuple(_one_after_the_other([module for _, module in group]) for group in groups),
        _modes(model),
    )


def _one_after_the_other(modules: list[nn.Module]) -> Callable[..., State]:
    def program(x: Any) -> State:
        for module in modules:
            x = module(x)
        return (x,)

    return program


_OVERWRITES = "{name} overwrites the model's input in place, so that nothing could be computed from it again: use inplace=False"

# -------------------------------------------------------------------------------------------------------------- tracing


class _CannotTrace(Exception):
    """Why torch.fx cannot follow a model."""


class _NotARun(RuntimeError):
    """Why wrapped modules are not what they were taken for: each fed by the one before, and used for nothing else."""


class _Proxy(fx.Proxy):
    """Keeps ``x += y`` what it is: torch.fx's own turns it into ``x = x + y``, which needs more memory and is another
    thing where a second name of ``x`` is used later."""


def _augmented(function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return operate


for _function in (
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ipow,
    operator.imod,
):
    setattr(_Proxy, f"__{_function.__name__}__", _augmented(_function))


class _Tracer(fx.Tracer):
    """Keeps whole the modules whose own forward cannot be followed, such as those that look at their data."""

    def __init__(self, opaque: set[str]) -> None:
        super().__init__()
        self.opaque, self.entered = opaque, list[str]()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.opaque or super().is_leaf_module(
            m, module_qualified_name
        )

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        self.entered.append(self.path_of_module(m))
        result = super().call_module(m, forward, args, kwargs)
        self.entered.pop()  # stays after an error: tells where it happened
        return result


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def _bind(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> State:
    bound = inspect.signature(model.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


def _trace(model: nn.Module, args: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> fx.Graph:
    if any(
        parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in _parameters(model).values()
    ):
        raise _CannotTrace("its forward takes *args or **kwargs")
    if args is None:
        values = {
            name: p.default for name, p in _parameters(model).items() if p.default is not p.empty
        }
    else:
        values = dict(zip(_parameters(model), _bind(model, args, kwargs), strict=True))
    fixed = {
        name: value
        for name, value in values.items()
        if isinstance(value, (bool, int, float, str, type(None)))
    }
    opaque: set[str] = set()
    while True:
        tracer = _Tracer(opaque)
        try:
            with untouched(model):
                before = attributes(model.modules())
                graph = tracer.trace(model, fixed or None)
                changed = changes(before)
        except (
            Exception
        ) as error:  # torch.fx raises whatever the model's code raises when it meets a proxy
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            where = next((name for name in reversed(tracer.entered) if name not in opaque), None)
            if where is None:
                raise _CannotTrace(f"torch.fx cannot follow its forward ({reason})") from None
            opaque.add(where)
            continue
        if changed:
            raise ValueError(impure("the model", changed))
        return graph


def _traced(
    model: nn.Module, args: tuple[Any, ...] | None, kwargs: dict[str, Any], width: int
) -> Blocks:
    graph = _trace(model, args, kwargs)
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    if not nodes:
        raise _CannotTrace("its forward computes nothing that torch.fx sees")
    for node in nodes:
        for source in _overwritten(model, node):
            if _source(source) in inputs:
                raise ValueError(_OVERWRITES.format(name=node.name))
    ends = _cuts(model, nodes, inputs, width)
    pieces = [nodes[start:end] for start, end in zip([0, *ends], [*ends, len(nodes)], strict=True)]
    crossing = [inputs, *(_crossing(nodes, inputs, end) for end in ends)]
    programs, names, inside = [], [], []
    for piece, here, after in zip(pieces, crossing, [*crossing[1:], None], strict=True):
        programs.append(
            _program(model, piece, here, (output.args[0],) if after is None else tuple(after))
        )
        called = [str(node.target) for node in piece if node.op == "call_module"]
        names.append(
            _name(called or [next((node for node in piece if _heavy(model, node)), piece[0]).name])
        )
        inside.append(_below(model, called))
    return Blocks(model, tuple(names), tuple(inside), "traced", "", tuple(programs), _modes(model))


def _heavy(model: nn.Module, node: fx.Node) -> bool:
    return (
        _has_weights(model.get_submodule(str(node.target)))
        if node.op == "call_module"
        else node.target in _WEIGHTED
    )


def _overwritten(model: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The inputs that a node changes in place."""
    if node.op == "call_module":
        in_place = changes_input(model.get_submodule(str(node.target)))
    else:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        in_place = node.target in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        in_place = in_place or _argument(node, "inplace") is True or name == "setitem"
        if (
            name.startswith("__i")
            and name.endswith("__")
            and name not in ("__index__", "__invert__")
        ):
            in_place = True
    out = node.kwargs.get("out")
    return ([node.all_input_nodes[0]] if in_place and node.all_input_nodes else []) + (
        [out] if isinstance(out, fx.Node) else []
    )


def _argument(node: fx.Node, name: str) -> Any:
    """What a call of a function of torch's in Python passes as ``name``."""
    if name in node.kwargs or node.op != "call_function" or not inspect.isfunction(node.target):
        return node.kwargs.get(name)
    return (
        inspect.signature(node.target).bind_partial(*node.args, **node.kwargs).arguments.get(name)
    )


_VIEWS = {
    "view",
    "reshape",
    "flatten",
    "transpose",
    "permute",
    "squeeze",
    "unsqueeze",
    "expand",
    "chunk",
    "split",
    "t",
}
_VIEWS |= {"getitem", "narrow", "select", "unbind", "movedim", "contiguous", "unflatten"}


def _source(node: fx.Node) -> fx.Node:
    """The value whose memory a node may share: through views and in-place operators."""
    while node.all_input_nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if name not in _VIEWS and not (node.op == "call_function" and node.target in _IN_PLACE):
            break
        node = node.all_input_nodes[0]
    return node


def _crossing(nodes: list[fx.Node], inputs: list[fx.Node], end: int) -> list[fx.Node]:
    """The values made before node ``end`` that it or a later one uses, in the order they were made."""
    later = {*nodes[end:]}
    made = [*inputs, *nodes[:end]]
    return [
        node for node in made if any(user in later or user.op == "output" for user in node.users)
    ]


def _cuts(model: nn.Module, nodes: list[fx.Node], inputs: list[fx.Node], width: int) -> list[int]:
    """Where to cut: between two nodes with weights where the fewest values cross, and if they are few; as late as
    possible, and sooner than right before the second node only for fewer values than cross there.

    The node after a cut must use the result of the one before. Between parallel branches a value would wait that nobody
    saves for backward, and so would the input of a node that does not save it.
    """
    place = {node: i for i, node in enumerate(nodes)}
    crossing = [0] + [
        len(_crossing(nodes, [], end)) for end in range(1, len(nodes))
    ]  # inputs are there anyway
    allowed = [False] + [before in after.all_input_nodes for before, after in pairwise(nodes)]
    for i, node in enumerate(nodes):
        for changed in _overwritten(model, node):
            while changed.all_input_nodes and not _heavy(model, changed):
                changed = changed.all_input_nodes[0]  # may share memory with it
            made = place.get(changed, -1)
            allowed[made + 1 : i + 1] = [False] * (
                i - made
            )  # neither side of a cut may change what crosses it
    heavy = [i for i, node in enumerate(nodes) if _heavy(model, node)]
    cuts = []
    for before, after in pairwise(heavy):
        fewer = max(1, crossing[after] - 1)
        narrow = [
            end
            for end in range(before + 1, after + 1)
            if allowed[end] and (end == after or crossing[end] <= fewer)
        ]
        narrow = [end for end in narrow if crossing[end] <= width]
        if narrow:
            cuts.append(min(narrow, key=lambda end: (crossing[end], -end)))
    return cuts


def _program(
    model: nn.Module, piece: list[fx.Node], here: list[fx.Node], result: Any
) -> Callable[..., State]:
    """Code for a piece of the graph: from the values that cross into it to ``result``.

    Parameters and buffers that the model's own code reads are looked up at each call, since moving a model to another
    device replaces its buffers.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {node: graph.placeholder(node.name) for node in here}
    used = [node for step in piece for node in step.all_input_nodes] + [
        node for node in tree_leaves(result) if isinstance(node, fx.Node)
    ]
    attributes = [node for node in dict.fromkeys(used) if node.op == "get_attr"]
    copies |= {node: graph.placeholder(node.name) for node in attributes}
    for node in piece:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(
        fx.map_arg(result, copies.__getitem__)
        if isinstance(result, tuple)
        else (fx.map_arg(result, copies.__getitem__),)
    )
    code = fx.GraphModule(model, graph).forward
    fetch = [operator.attrgetter(str(node.target)) for node in attributes]

    def program(*state: Any) -> State:
        return code(*state, *(get(model) for get in fetch))

    return program


# ------------------------------------------------------------------------------------------------------------- wrapping


def _wrapped(
    model: nn.Module,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any],
    chosen: list[str] | None,
    reason: str,
) -> Blocks:
    if args is None:
        raise ValueError(
            f"{reason}; modules can be wrapped instead, which needs example inputs to see how they are fed"
        )
    calls = _record(model, args, kwargs, chosen)
    run = _longest_run(calls, chosen)
    if not run:
        raise ValueError(
            f"{reason}; and no two modules of the model feed one another directly, so that nothing can be wrapped: "
            "choose modules by name, or write the part to be planned as an nn.Sequential"
        )
    names = [call.name for call in run]
    keywords = tuple(run[0].kwargs)
    modules = [model.get_submodule(name) for name in names]
    programs = tuple(_call_with(module.forward, keywords) for module in modules)
    note = f"{reason}: planned are {len(names)} modules, {names[0]} to {names[-1]}; what runs outside them stays as it is"
    inside = tuple(_below(model, [name]) for name in names)
    blocks = Blocks(model, tuple(names), inside, "wrapped", note, programs, _modes(model), keywords)
    with undisturbed(model), torch.no_grad():
        try:
            with blocks.standing_in(lambda x, **extras: blocks.run_all(x, *extras.values())[0]):
                model(*args, **kwargs)
        except _NotARun as error:
            raise ValueError(
                f"{reason}; and {names[0]} to {names[-1]} cannot be wrapped: {error}"
            ) from None
    return blocks


class _Handed(torch.Tensor):
    """What a module whose work another does hands to the next one: no one may look into it."""

    words = ""

    @classmethod
    def of(cls, maker: str, reader: str) -> torch.Tensor:
        handed: _Handed = torch.Tensor._make_subclass(cls, torch.empty(0))  # type: ignore[attr-defined]
        handed.words = f"the model uses what {maker} returns, and not only to feed {reader}"
        return handed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        raise _NotARun(f"{used.words}: plan it with other modules")


@dataclass(frozen=True)
class _Call:
    """A call of a module: with what, and which earlier call's result its only argument was."""

    name: str
    single: bool  # one tensor in, one out
    fed_by: str | None
    kwargs: dict[str, Any]


def _record(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], chosen: list[str] | None
) -> list[_Call]:
    """Run the model once and note each call of a module, or of the chosen ones, in the order in which they end."""
    calls: list[_Call] = []
    named = dict(model.named_modules())
    if unknown := [name for name in chosen or [] if name not in named]:
        raise ValueError(
            f"modules={unknown!r}: the model has no such module; it has {', '.join(list(named)[1:12])}, ..."
        )

    results: dict[
        int, tuple[str, weakref.ref[Any]]
    ] = {}  # the model's activations are not kept alive for this

    def listen(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def listening(*inner: Any, **options: Any) -> Any:
            maker, made = results.get(id(inner[0]) if inner else 0, (None, lambda: None))
            fed_by = maker if inner and made() is inner[0] else None
            result = forward(*inner, **options)
            if torch.is_tensor(result):
                results[id(result)] = name, weakref.ref(result)
            calls.append(_Call(name, torch.is_tensor(result) and len(inner) == 1, fed_by, options))
            return result

        return listening

    with undisturbed(model), torch.no_grad():
        for name in chosen or list(named)[1:]:
            named[name].forward = listen(name, named[name].forward)
        model(*args, **kwargs)
    return calls


def _longest_run(calls: list[_Call], chosen: list[str] | None) -> list[_Call]:
    """The longest sequence of sibling modules, each called once and fed by the one before with nothing in between."""
    families: dict[str, list[_Call]] = {}
    for call in calls:
        families.setdefault("" if chosen else call.name.rpartition(".")[0], []).append(call)
    runs: list[list[_Call]] = [[]]
    for family in families.values():
        times = [call.name for call in family]
        runs.append([])
        for call in family:
            last = runs[-1][-1] if runs[-1] else None
            if not (call.single and times.count(call.name) == 1):
                runs.append([])
            elif last is None or _feeds(last, call):
                runs[-1].append(call)
            else:
                runs.append([call])
    best = max(runs, key=lambda run: (len(run), -run[0].name.count(".") if run else 0))
    if chosen and len(best) < len(chosen):
        missing = [name for name in chosen if name not in {call.name for call in best}]
        raise ValueError(
            f"modules={chosen!r}: each must be called once, with one tensor that the one before it returned, and give "
            f"one tensor; that is not so from {missing[0]} on"
        )
    return best if len(best) > 1 or chosen else []


def _feeds(one: _Call, two: _Call) -> bool:
    same = one.kwargs.keys() == two.kwargs.keys() and all(
        one.kwargs[key] is two.kwargs[key] for key in one.kwargs
    )
    return one.name == two.fed_by and same


def _call_with(forward: Callable[..., Any], keywords: tuple[str, ...]) -> Callable[..., State]:
    def program(x: Any, *extras: Any) -> State:
        return forward(x, **dict(zip(keywords, extras, strict=True))), *extras

    return program
