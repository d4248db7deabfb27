"""What the notebooks would hold of a card at their full sizes: predicted, without computing.

    uv run python -m tests.rehearsal.sizes [NAME ...]    a table: notebooks and cards, in GB

Each notebook runs cell by cell on a hollow card (`tests.rehearsal.hollow`). What measures runs each
side twice, for gradients and the optimizer's state exist from the second step on; both sides are
alive, as in a comparison. A cell is left after `OPERATORS` operators. At the end each lab is taken
to the settings that need most, one control after the other, and both of its sides are built there.
Cells that cannot run without numbers are listed in `LEFT_OUT` with the reason; cells that need a
name of those are left out with them. Exercises, claims and what is counted on the CPU have no part
in it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import io
import json
import linecache
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.rehearsal import places
from tests.rehearsal.hollow import Enough, hollow_install, resize, turns

if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["LABKIT_SIZE"] = "full"
    # Before labkit is imported, which asks torch for its device.
    hollow_install()

import ipywidgets
import numpy as np
import torch

import course.small_gpu
import labkit
from course import data
from course.notebook_files import course_notebooks, notebook_path, place, read_notebook, tags
from labkit import Lab
from labkit.arm import LocalArm
from labkit.racing import RaceRun
from labkit.results import Comparison, Measurement
from labkit.stages import UNWATCHED, Stages

# By name: functions of the package have the names of some of them.
engine = import_module("labkit.comparing")
labs = import_module("labkit.lab")
lr_finder = import_module("labkit.lr_finder")
machine = import_module("course.machine")
races = import_module("labkit.racing")

CARDS = (8, 16, 24, 80)
# Bytes that CUDA, cuBLAS and cuDNN take in each process before torch allocates.
CONTEXT = 600_000_000
# Operators of a cell: a second or two.
OPERATORS = 10_000
# A chain is profiled block by block, in each way to keep it.
MORE_OPERATORS = {"deeper/12_sublinear_memory": 80_000}
# Cells that hold nothing of the card, or whose numbers decide.
APART = {
    "claims",
    "counters",
    "exercise",
    "nbval-check-output",
    "reference",
    "solution",
}

ON_CPU = "on the CPU"
WORKERS = "in processes of their own; with one GPU these are on the CPU"
# Cells that are not run: a piece of their text, and why.
LEFT_OUT: dict[str, dict[str, str]] = {
    "03_learning_rate_schedules": {"def trained(flat_cycle: bool": ON_CPU},
    "07_fp16_numerics": {"lists = {where: autocast_lists": "hollow tensors of its own"},
    "deeper/12_sublinear_memory": {
        "deep = sublinear.profile(": "planned for a card that is described, not used",
        "sheet = sublinear.profile(": "planned for a card that is described, not used",
    },
    "deeper/14_distributed_data_parallel": {
        "loss = F.cross_entropy(model(images[rows]), labels[rows])": ON_CPU,
        'launch(folder / "train.py"': WORKERS,
        "alone = new_model(": ON_CPU,
        "runs_in=(workers :=": WORKERS,
    },
    "21_normalization": {"torch.linalg.lstsq(x, goal)": "some hundred numbers, solved exactly"},
}

# Controls that stay at the baseline while a lab's largest settings are looked for, and why. A front
# notebook and its deeper one have the same.
PLANNED = "a plan needs less than the baseline, which keeps everything"
HELD: dict[str, dict[str, str]] = {
    "04_data_loading": {"num_workers": "workers do not touch the card"},
    "12_sublinear_memory": {"method": PLANNED, "budget": PLANNED},
}

# What a cell that is left out would need, by what is known without running it.
BY_HAND: dict[str, dict[str, Callable[[dict[str, Any]], int]]] = {
    # A process of its own may take as much as the card that it plays.
    "deeper/12_sublinear_memory": {"a trial": lambda names: names["CARD"].limit_bytes + CONTEXT},
}


@dataclass
class Prediction:
    """Bytes that a notebook would hold at most, on a card of ``gigabytes``; by cell and by lab.

    ``left_out``: cells and labs that did not come to their end, with the reason.
    """

    notebook: str
    gigabytes: int
    cells: dict[int, int] = field(default_factory=dict)
    labs: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """Bytes at the worst moment, with those of one context."""
        return max(0, *self.cells.values(), *self.labs.values()) + CONTEXT

    @property
    def where(self) -> str:
        """The lab or cell of the worst moment."""
        named = {f"cell {number}": needed for number, needed in self.cells.items()}
        for name, needed in self.labs.items():
            named[f"{name}({self.settings[name]})"] = needed
        return max(named, key=lambda name: named[name])


# -------------------------------------------------------------------------- instead of measuring


class Child(LocalArm):
    """A side in a process of its own: here it is in this one, and its context is counted."""

    held: torch.Tensor | None = None

    def start(self, stages: Stages = UNWATCHED) -> float:
        self.held = torch.empty(CONTEXT, dtype=torch.uint8, device="cuda")
        return super().start(stages)

    def close(self) -> None:
        self.held = None
        super().close()


def measured(arm: Any) -> Measurement:
    """What a measurement would return; every step took a second."""
    return Measurement(
        arm.label,
        arm.settings,
        times=(1.0,) * 8,
        samples=arm.samples,
        unit=arm.unit,
        cold=1.0,
        peak_bytes=2**20,
        reserved_bytes=2**20,
    )


def alternate(baseline: Any, candidate: Any, **_: Any) -> Comparison:
    """Both sides, alive at the same time, for two steps."""
    for side in (baseline, candidate):
        side.start()
    for side in (baseline, candidate):
        side.block(1)
    return Comparison(measured(baseline), measured(candidate), device="cuda")


def measure(step: Any, **_: Any) -> Measurement:
    """Two steps of one side."""
    side = engine.as_arm(step, "step")
    with contextlib.closing(side):
        side.start()
        side.block(1)
        return measured(side)


def train(race: Any, name: str, seed: int) -> RaceRun:
    """Two steps and one look; of the first seed, for the others need no more."""
    if seed == 0:
        with contextlib.closing(LocalArm(race.arms[name], name, seed=seed)) as side:
            side.enter()
            side.block(2)
            side.evaluate()
    return RaceRun(name, seed, ((race.steps, 1.0, race.target),), True)


def range_test(step: Any, optimizer: Any, lrs: Any, factor: float, bar: Any) -> Any:
    """Two steps of a learning-rate range test."""
    step()
    step()
    return np.linspace(2.0, 1.0, len(lrs)), None


class Panel:
    """In place of a panel: what a notebook may set on it."""

    def __init__(self, lab: Lab, **_: Any) -> None:
        self.modes = SimpleNamespace(value="Time")


made: list[tuple[int, Lab]] = []
_now = 0


def instead_of_measuring() -> None:
    """Let labkit build and run its sides, and time nothing."""
    places_of = {
        "alternate": (alternate, [engine, labs]),
        "measure": (measure, [engine, labkit]),
        "LabPanel": (Panel, [labkit]),
        "RemoteArm": (Child, [labs, course.small_gpu]),
        "_with_peaks": (lambda result, arms, stop: result, [labs]),
        "_sweep": (range_test, [lr_finder]),
        # Seconds that each rate of the machine is measured for.
        "_SECONDS": (1e-3, [machine]),
        "interact": (lambda *_, **__: None, [ipywidgets]),
        "warm_up": (lambda race: None, [races._Race]),
        "_train": (train, [races._Race]),
    }
    for name, (stand_in, owners) in places_of.items():
        for owner in owners:
            setattr(owner, name, stand_in)
    start = Lab.__init__

    def noted(self: Lab, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        made.append((_now, self))

    Lab.__init__ = noted  # type: ignore[method-assign]


def instead_of_data() -> None:
    """Data sets of the right size without numbers: the same with and without a network."""

    def cifar10(train: bool = True, size: int | None = None) -> tuple[Any, Any]:
        count = size or 50_000
        return torch.zeros(count, 3, 32, 32, dtype=torch.uint8), torch.zeros(count).long()

    def cifar10_jpeg(train: bool = True, size: int | None = None) -> tuple[Any, Any]:
        # Few: they lie on the CPU.
        file = data._encode(np.zeros((3, 32, 32), np.uint8))
        count = min(size or 512, 512)
        return np.array([file] * count), torch.zeros(count).long()

    def files(name: str) -> Any:
        raise ConnectionError(f"no {name} here")

    data.cifar10, data.cifar10_jpeg, data.files = cifar10, cifar10_jpeg, files
    data.time_machine = lambda: "the time machine by h g wells " * 6000


# ---------------------------------------------------------------------------------- the notebooks


def predict(name: str, gigabytes: int) -> Prediction:
    """Run a notebook on a hollow card."""
    found = Prediction(name, gigabytes)
    resize(gigabytes)
    made.clear()
    [card] = places.cards
    begin = card.now
    namespace: dict[str, Any] = {"__name__": "__main__", "display": lambda *_: None}
    run_cells(found, namespace, begin)
    for what, count in BY_HAND.get(name, {}).items():
        found.labs[what] = card.now - begin + count(namespace)
        found.settings[what] = "by hand"
    # Sides collect garbage when they close: what is there already need not be looked at.
    gc.collect()
    gc.freeze()
    run_labs(found, begin)
    made.clear()
    namespace.clear()
    gc.unfreeze()
    gc.collect()
    return found


def run_cells(found: Prediction, namespace: dict[str, Any], begin: int) -> None:
    """All cells that may hold something of the card."""
    global _now
    [card] = places.cards
    lost: dict[str, int] = {}
    for number, cell in enumerate(read_notebook(notebook_path(found.notebook)).cells):
        if cell.cell_type != "code":
            continue
        if APART & set(tags(cell)):
            imports(cell.source, namespace)
            lost |= dict.fromkeys(names_of(cell.source) - namespace.keys(), number)
            continue
        _now, card.peak = number, card.now
        reason = left_out(found.notebook, cell.source)
        if reason is None:
            turns.left = MORE_OPERATORS.get(found.notebook, OPERATORS)
            where = f"{found.notebook}[{number}]"
            reason = run_cell(where, cell.source, namespace, lost)
        bound = names_of(cell.source)
        if reason is None:
            lost = {each: lost[each] for each in lost.keys() - bound}
        else:
            found.left_out[str(number)] = reason
            lost |= dict.fromkeys(bound, number)
        found.cells[number] = card.peak - begin


def run_labs(found: Prediction, begin: int) -> None:
    """Each lab that the cells made, both sides at the settings that need most."""
    for number, lab in made:
        if isinstance(lab.make_workload, str):
            # In workers.
            continue
        key = f"{number} {lab.name}"
        try:
            settings = worst(lab, HELD.get(Path(found.notebook).name, {}))
            found.labs[key] = needed(lab, settings, settings) - begin
        except Exception as error:
            found.left_out[key] = failed(error)
            continue
        found.settings[key] = ", ".join(f"{each}={value}" for each, value in settings.items())


def imports(source: str, namespace: dict[str, Any]) -> None:
    """What a cell imports: others need it."""
    body = ast.parse(source).body
    wanted = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(wanted, []), "imports", "exec"), namespace)


def left_out(name: str, source: str) -> str | None:
    """Why this cell is not run."""
    for text, reason in LEFT_OUT.get(name, {}).items():
        if text in source:
            return reason
    return None


def run_cell(
    where: str, source: str, namespace: dict[str, Any], lost: dict[str, int]
) -> str | None:
    """None, or why the cell did not come to its end."""
    if source.startswith("%%"):
        return "written to a file: workers run it"
    # For inspect.getsource.
    linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)
    try:
        # Without its assertions, which look at numbers.
        exec(compile(source, where, "exec", optimize=1), namespace)
    except Enough:
        return "left after as many operators as a cell may run"
    except Exception as error:
        missing = sorted(lost.keys() & names_of(source, ast.Load))
        if missing:
            return f"needs {missing[0]} of cell {lost[missing[0]]}"
        return failed(error)
    finally:
        turns.left = float("inf")
    return None


def failed(error: Exception) -> str:
    """An error that nobody expected; its way with ``SIZES_TRACE=1``."""
    if os.environ.get("SIZES_TRACE"):
        traceback.print_exception(error, file=sys.__stderr__)
    return f"FAILED: {type(error).__name__}: {error}"


def names_of(source: str, use: type[ast.expr_context] = ast.Store) -> set[str]:
    """The names that a cell binds; with ``ast.Load`` those that it reads."""
    if source.startswith("%%"):
        return set()
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, use):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and use is ast.Store:
            found.add(node.name)
    return found


def worst(lab: Lab, held: dict[str, str]) -> dict[str, Any]:
    """The settings that need most, found by one control after the other."""
    chosen = lab.defaults
    most = needed(lab, chosen)
    for control, values in lab.controls.items():
        for value in () if control in held else extremes(values):
            if value == chosen[control] or lab.why_not(control, value) is not None:
                continue
            tried = needed(lab, chosen | {control: value})
            if tried > most:
                most, chosen = tried, chosen | {control: value}
    return chosen


def extremes(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of numbers the lowest and the highest; all of what else a control offers."""
    if all(isinstance(value, int | float) for value in values):
        return min(values), max(values)
    return values


def needed(lab: Lab, *settings: dict[str, Any]) -> int:
    """Bytes on the card while sides with these settings are alive, and run two steps.

    0 for settings that the lab refuses.
    """
    [card] = places.cards
    card.peak = card.now
    with contextlib.ExitStack() as stack:
        sides = [lab._arm("side", each) for each in settings]
        for side in sides:
            stack.callback(side.close)
        try:
            for side in sides:
                side.start()
            for side in sides:
                side.block(1)
        except ValueError:
            return 0
    return card.peak


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what the notebooks print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def prepare() -> None:
    """Once in a process that `hollow_install` was called in before labkit was imported."""
    instead_of_measuring()
    instead_of_data()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="notebooks; all of them without a name")
    parser.add_argument("--cards", nargs="+", type=int, default=list(CARDS), help="gigabytes")
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument("--details", action="store_true", help="each lab, and what was left out")
    arguments = parser.parse_args()
    prepare()
    if not arguments.json:
        print(f"{'GB of a card of':32}" + "".join(f"{card:8}" for card in arguments.cards))
    for name in arguments.names or map(place, course_notebooks()):
        row = []
        for gigabytes in arguments.cards:
            with quietly():
                row.append(predict(name, gigabytes))
        if arguments.json:
            write(row)
        else:
            show(row, arguments.details)


def write(row: list[Prediction]) -> None:
    """A line of JSON for each card."""
    for found in row:
        told = asdict(found) | {"most": found.most, "where": found.where}
        print(json.dumps(told), flush=True)


def show(row: list[Prediction], details: bool) -> None:
    """A line for a notebook; with details all of its cells and labs."""
    shown = "".join(f"{found.most / 1e9:8.1f}" for found in row)
    print(f"{row[0].notebook:32}{shown}   {row[-1].where}", flush=True)
    for found in row if details else ():
        print(f"  a card of {found.gigabytes} GB")
        for number, taken in found.cells.items():
            print(f"    cell {number}: {taken / 1e9:.2f}  {found.left_out.get(str(number), '')}")
        for name, taken in found.labs.items():
            print(f"    lab of cell {name}: {taken / 1e9:.2f}  {found.settings[name]}")


if __name__ == "__main__":
    main()
