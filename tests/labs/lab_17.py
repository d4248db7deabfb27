"""17, debugging tools: what shows that each tool acts; answers to the exercise."""

from typing import Any

import torch

from course import exercises
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Anomaly mode reads every gradient, in one update or in all; a hook reads each result."""
    updates = names["UPDATES"]
    tools = ("off", "anomaly", names["ONCE"], "outputs", "deterministic")
    found = {tool: counters(names, tool=tool) for tool in tools}
    off = found["off"]
    assert off.host_reads == found["deterministic"].host_reads == 0
    reads = found["anomaly"].host_reads
    assert reads > 10 * updates and found[names["ONCE"]].host_reads * updates == reads
    assert found["anomaly"].launches > 1.3 * off.launches
    assert off.launches < found[names["ONCE"]].launches < 1.2 * off.launches
    boxes = len(names["network"](16))
    assert found["outputs"].host_reads == updates * boxes
    assert {each.flops for each in found.values()} == {off.flops}


def bad(values: Any) -> bool:
    if isinstance(values, torch.Tensor):
        return not values.isfinite().all()
    return isinstance(values, tuple | list) and any(map(bad, values))


def is_nan(values: Any) -> bool:
    if isinstance(values, torch.Tensor):
        return bool(values.isnan().any())
    return isinstance(values, tuple | list) and any(map(is_nan, values))


def tensors_only(values: Any) -> bool:
    return not values.isfinite().all() if isinstance(values, torch.Tensor) else False


def search(
    model: Any,
    inputs: Any,
    *,
    bad: Any = bad,
    asks_inputs: bool = True,
    given_counts: bool = True,
    place: int = 0,
) -> Any:
    """As the notebook's solution; the wrong answers change one part of it."""
    if asks_inputs and bad(inputs):
        return "inputs"
    found, handles = [], []
    for name, module in model.named_modules():

        def look(module, given, result, name=name):
            if bad(result) and not (given_counts and bad(given)):
                found.append(name)

        handles.append(module.register_forward_hook(look))
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[place] if found else None


def right(model, *inputs):
    return search(model, inputs)


def only_nan(model, *inputs):
    return search(model, inputs, bad=is_nan)


def no_tuples(model, *inputs):
    return search(model, inputs, bad=tensors_only)


def no_lists(model, *inputs):
    def bad(values):
        parts = values if isinstance(values, tuple) else (values,)
        return any(not part.isfinite().all() for part in parts)

    return search(model, inputs, bad=bad)


def the_last(model, *inputs):
    return search(model, inputs, given_counts=False, place=-1)


def ignores_what_was_given(model, *inputs):
    return search(model, inputs, given_counts=False)


def children_only(model, *inputs):
    """Names the container."""
    if bad(inputs):
        return "inputs"
    found, handles = [], []
    for name, module in model.named_children():

        def look(module, given, result, name=name):
            if bad(result) and not bad(given):
                found.append(name)

        handles.append(module.register_forward_hook(look))
    model(*inputs)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


def no_inputs(model, *inputs):
    return search(model, inputs, asks_inputs=False)


def first_input_only(model, *inputs):
    return "inputs" if bad(inputs[0]) else search(model, inputs, asks_inputs=False)


def in_order_of_definition(model, *inputs):
    """Keeps the last result of each module, and takes the first name of the innermost ones."""
    if bad(inputs):
        return "inputs"
    results, handles = {}, []
    for name, module in model.named_modules():

        def look(module, given, result, name=name):
            results[name] = bad(result)

        handles.append(module.register_forward_hook(look))
    model(*inputs)
    for handle in handles:
        handle.remove()
    names = [name for name, _ in model.named_modules() if results[name]]
    return max(names, key=lambda name: (name.count("."), name != ""), default=None)


def leaves_hooks(model, *inputs):
    found = []
    for name, module in model.named_modules():

        def look(module, given, result, name=name):
            if bad(result) and not bad(given):
                found.append(name)

        module.register_forward_hook(look)
    model(*inputs)
    return "inputs" if bad(inputs) else found[0] if found else None


def hooks_stay_after_an_error(model, *inputs):
    """No `finally`."""
    if bad(inputs):
        return "inputs"
    found, handles = [], []
    for name, module in model.named_modules():

        def look(module, given, result, name=name):
            if bad(result) and not bad(given):
                found.append(name)

        handles.append(module.register_forward_hook(look))
    model(*inputs)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


def swallows_the_error(model, *inputs):
    try:
        return search(model, inputs)
    except ZeroDivisionError:
        return None


def always_none(model, *inputs): ...


CHECK = exercises.check_17_first_bad
RIGHT = right
INNER = "0/0 in the module '1.1': yours says"
WRONG = (
    (always_none, "0/0 in the module '1.1': it is '1.1'; yours says None"),
    (children_only, f"{INNER} '1'; '1' contains '1.1'"),
    (the_last, f"{INNER} ''; the model itself contains '1.1'"),
    (only_nan, "the log of 0 in the module '1.1': yours says '2.0'"),
    (no_tuples, "'1' returns a tuple with a list in it"),
    (
        no_lists,
        "'1' returns a tuple with a list in it, as an LSTM does, and nan in that: yours ended",
    ),
    (no_inputs, "an input with nan in it: it is 'inputs'; yours says None"),
    (first_input_only, "a second input with nan in it: it is 'inputs'; yours says None"),
    (in_order_of_definition, "'root' is called twice"),
    (ignores_what_was_given, "'1' divides by zero between its modules '1.first' and '1.second'"),
    (leaves_hooks, "a model whose numbers are all finite: 7 hooks are left on the model"),
    (hooks_stay_after_an_error, "after an error in the model 7 hooks are left"),
    (swallows_the_error, "a model that ends in an error: let the error through"),
)
