"""The form of the front notebooks, their recipes, and that their techniques act.

The limits are functions in `course.front`. Here each is held on every front notebook and on the
template, and each is shown to find what it is there for.
"""

import contextlib
import multiprocessing
import re
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

import labkit
import whyslow
from course import anatomy, data, explorables, front
from course import notebooks as tool
from course.notebook_files import (
    DEEPER,
    NOTEBOOKS,
    about,
    code_cells,
    course_notebooks,
    place,
    read_notebook,
    tags,
)
from labkit import MemoryMeter, count, seed_all
from labkit.restore import preserve_flags

PATHS = [path for path in tool.notebooks() if front.is_front(read_notebook(path))]
each_front = pytest.mark.parametrize("path", PATHS, ids=place)
DEEPER_ONES = [path for path in tool.notebooks() if path.parent.name == DEEPER]


@each_front
@pytest.mark.parametrize("limit", front.LIMITS, ids=lambda limit: limit.__name__)
def test_limit(path: Path, limit: Callable[[nbformat.NotebookNode], Iterator[str]]) -> None:
    assert list(limit(read_notebook(path))) == []


@each_front
def test_parts(path: Path) -> None:
    notebook, exempt = read_notebook(path), front.EXEMPT.get(path.stem, set())
    assert list(front.parts(notebook, exempt)) == []
    assert list(front.ending(notebook, path.stem)) == []


@each_front
def test_the_card_asks_what_the_picture_asks(path: Path) -> None:
    notebook = read_notebook(path)
    shown = re.findall(
        r"^from course.explorables import (\w+)$", code(notebook, "explorable"), re.M
    )
    (picture,) = shown
    # Texts that are broken over lines in the source.
    source = re.sub(r'"\s*\+\s*"', "", getattr(explorables, picture)._esm)
    (question,) = front.questions(notebook)
    assert f'"{question}"' in source


def code(notebook: nbformat.NotebookNode, tag: str) -> str:
    return "\n".join(cell.source for cell in code_cells(notebook, tag))


@pytest.mark.parametrize("path", DEEPER_ONES, ids=place)
def test_a_deeper_notebook_has_no_longer_cells(path: Path) -> None:
    assert list(front.longest_cell(read_notebook(path))) == []


def test_pictures_are_small_and_described() -> None:
    shown = {}
    for path in PATHS:
        for cell in front.texts(read_notebook(path)):
            found = re.findall(r"!\[([^\]]*)\]\(pictures/(\S+)\)", cell.source)
            shown |= {name: len(alt) for alt, name in found}
    there = {path.name: path.stat().st_size for path in (NOTEBOOKS / "pictures").iterdir()}
    assert shown.keys() == there.keys()
    assert max(there.values()) < 150_000
    assert min(shown.values()) > 20


def test_no_two_notebooks_have_one_title() -> None:
    """A submission is known by the title of its notebook."""
    titles = [about(path).title for path in course_notebooks()]
    assert len(set(titles)) == len(titles)


# ------------------------------------------------------------------------------------- the recipe


def reader() -> dict[str, Any]:
    """What a recipe may use: a small model of the reader's, its data, and the usual imports."""
    seed_all(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(16, 8), torch.randint(4, (16,))

    def step() -> None:
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    def train(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return {
        "train": train,
        "labkit": labkit,
        "whyslow": whyslow,
        "time": time,
        "step": step,
        "new_step": step,
        "torch": torch,
        "nn": nn,
        "F": F,
        "DataLoader": torch.utils.data.DataLoader,
        "device": torch.device("cpu"),
        "model": model,
        "optimizer": optimizer,
        "loss_function": nn.CrossEntropyLoss(),
        "dataset": torch.utils.data.TensorDataset(inputs, targets),
        "inputs": inputs,
        "targets": targets,
    }


# How far the weights after a step may be apart, by what becomes of the numbers (metadata.map).
APART = {"same": 1e-6, "rounding": 1e-2}


@each_front
def test_the_recipe_runs_and_learns_the_same(path: Path) -> None:
    blocks = front.recipe(read_notebook(path))
    trained = []
    for block in blocks:
        names = reader()
        untrained = nn.utils.parameters_to_vector(names["model"].parameters()).detach().clone()
        exec(compile(block, f"recipe of {path.stem}", "exec"), names)
        weights = nn.utils.parameters_to_vector(names["model"].parameters()).detach()
        assert weights.isfinite().all()
        # Nothing is trained by what compares.
        put_back = "labkit.compare(" in block
        assert weights.equal(untrained) == put_back, "no step was taken, or not put back"
        trained.append(weights)
    result = about(path).get("map", {}).get("result")
    if result in APART:
        torch.testing.assert_close(*trained, rtol=0, atol=APART[result])


# ------------------------------------------------------------------------ the technique is alive


@contextlib.contextmanager
def names_of(path: Path, *others: str) -> Iterator[dict[str, Any]]:
    """What the cells up to the panel define, and those with other tags."""
    names: dict[str, Any] = {}
    with preserve_flags():
        for tag in ("setup", "workload", "panel", *others):
            for cell in code_cells(read_notebook(path), tag):
                exec(compile(cell.source, f"{path.stem}, {tag}", "exec"), names)
        yield names


def counters(names: dict[str, Any], **settings: Any) -> Any:
    """What a step with these settings does."""
    seed_all(0)
    workload = names["make_workload"](**names["lab"].settings(settings))
    try:
        return count(workload.step)
    finally:
        if workload.close:
            workload.close()


def fewer_bytes_are_kept(names: dict[str, Any]) -> None:
    plain, cast = counters(names), counters(names, precision="bf16")
    assert cast.saved_bytes < 0.75 * plain.saved_bytes
    assert cast.flops == plain.flops


def fewer_calls(names: dict[str, Any]) -> None:
    one_by_one, at_once = counters(names), counters(names, rows=names["rows_in_all"])
    assert at_once.launches < one_by_one.launches / 10
    assert at_once.flops == one_by_one.flops


def less_work_is_done(names: dict[str, Any]) -> None:
    assert counters(names).flops == 64 * counters(names, rows=1).flops


def workers_load(names: dict[str, Any]) -> None:
    """Workers are processes, which last as long as they are kept; without them training loads."""
    # Workers and whether they are kept; then who loaded an epoch, and who is there after it.
    for workers, loader, loaded, kept in (
        (0, "DataLoader", 0, 0),
        (2, "DataLoader", 2, 2),
        (2, "new workers", 2, 0),
    ):
        settings = names["lab"].defaults | {"num_workers": workers, "loader": loader}
        workload = names["make_workload"](**settings)
        workload.step()
        assert len(names["epochs"].of(settings).loaders) == loaded
        assert len(multiprocessing.active_children()) == kept
        del workload
        assert not multiprocessing.active_children()


def entrances_are_kept(names: dict[str, Any]) -> None:
    plain, whole, pieces = (counters(names, pieces=number) for number in (0, 1, 8))
    assert pieces.saved_bytes < 0.3 * plain.saved_bytes
    # A second forward pass of all blocks, but for the last product of a piece, which nobody needs.
    assert 1.25 < pieces.flops / plain.flops < 4 / 3
    assert pieces.flops <= whole.flops < 4 / 3 * plain.flops
    # One piece keeps little as well, until all of it is computed again.
    peaks = []
    for number in (0, 1, 8):
        step = names["make_workload"](**names["lab"].settings({"pieces": number})).step
        step()
        with MemoryMeter(saved=False) as memory:
            step()
        peaks.append(memory.peak)
    assert peaks[1] > 0.95 * peaks[0]
    assert peaks[2] < 0.5 * peaks[0]


def gradients_are_dropped(names: dict[str, Any]) -> None:
    """Filling with zeros runs an operator for each of 16 gradients, and keeps them."""
    zeros, none = counters(names), counters(names, way="none")
    assert zeros.launches == none.launches + 16
    assert zeros.flops == none.flops


def no_gradient_is_longer(names: dict[str, Any]) -> None:
    norms = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        norms.append(nn.utils.get_total_norm([weight.grad for weight in weights]).item())

    hook = register_optimizer_step_pre_hook(note)
    try:
        for max_norm in ("off", 0.01):
            counters(names, max_norm=max_norm)
    finally:
        hook.remove()
    off, clipped = norms
    assert off > 0.1
    assert clipped == pytest.approx(0.01, rel=1e-3)


def remedies_do_less(names: dict[str, Any]) -> None:
    """Fewer operators without anomaly mode and with a fused update, fewer bytes kept in bf16."""
    counted = {}
    for mended in ({}, {"tools_off": True}, {"fused": True}, {"tools_off": True, "bf16": True}):
        # Also where bf16 is withheld, because it is slow.
        step = names["make_workload"](**names["lab"].defaults | mended).step
        step()
        counted[tuple(mended)] = count(step)
    slow = counted[()]
    assert counted["tools_off",].launches < 0.8 * slow.launches
    assert counted["fused",].launches < 0.8 * slow.launches
    kept = counted["tools_off", "bf16"].saved_bytes
    assert 0 < kept < counted["tools_off",].saved_bytes


def values_are_read_once_a_round(names: dict[str, Any]) -> None:
    every, once = (counters(names, read_every=number).host_reads for number in (1, 16))
    assert (every, once) == (16, 1)


# By notebook: a counter that only the technique moves.
ALIVE: dict[str, Callable[[dict[str, Any]], None]] = {
    "_template": fewer_calls,
    "00_start_here": less_work_is_done,
    "04_data_loading": workers_load,
    "06_mixed_precision": fewer_bytes_are_kept,
    "10_host_device_transfers": values_are_read_once_a_round,
    "11_activation_checkpointing": entrances_are_kept,
    "15_zeroing_gradients": gradients_are_dropped,
    "18_gradient_clipping": no_gradient_is_longer,
    "23_find_the_bottleneck": remedies_do_less,
}


@each_front
def test_the_technique_acts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no data were ever downloaded: pictures have a stand-in, a text has none."""
    monkeypatch.setattr(data, "time_machine", lambda: "the time machine by h g wells " * 6000)
    with names_of(path) as names:
        ALIVE[path.stem](names)


@each_front
def test_every_scenario_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are offered later."""
    monkeypatch.setattr(data, "time_machine", lambda: "the time machine by h g wells " * 6000)
    with names_of(path, "breaks", "solution", "raced") as names:
        panel, lab = names["panel"], names["lab"]
        for number, name in enumerate(lab.scenarios, 1):
            panel.choose(name)
            assert panel.scenario == name
            panel.run(wait=True)
            assert len(panel.history) == number
    offered = set(lab.scenarios) - scenarios_at_first(path)
    assert len(offered) >= 1 + ("raced" not in front.EXEMPT.get(path.stem, ()))


def scenarios_at_first(path: Path) -> set[str]:
    with names_of(path) as names:
        return set(names["lab"].scenarios)


# ----------------------------------------------------------------- each limit finds its own fault


@pytest.fixture
def good() -> nbformat.NotebookNode:
    return read_notebook(anatomy.TEMPLATE_FILE)


def cell(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if tag in tags(cell))


def said(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(front.check_front(notebook, "_template"))


def test_the_template_is_in_form(good: nbformat.NotebookNode) -> None:
    assert said(good) == ""


@pytest.mark.parametrize("tag", [tag for tag, _, _ in front.PARTS])
def test_a_missing_part_is_named(good: nbformat.NotebookNode, tag: str) -> None:
    good.cells = [each for each in good.cells if tag not in tags(each)]
    assert f"no cell tagged {tag!r}" in said(good)


def test_each_limit_finds_its_fault(good: nbformat.NotebookNode) -> None:
    def problems(tag: str, source: str) -> str:
        notebook = deepcopy(good)
        cell(notebook, tag).source += source
        return said(notebook)

    many = deepcopy(good)
    many.cells += [nbformat.v4.new_code_cell("1")] * front.MOST[0]
    assert "cells; at most 17" in said(many)
    short = deepcopy(good)
    short.metadata.labkit.short = True
    cell(short, "saw").source += "\nword" * 300
    assert "words of text; at most 400" in said(short)
    assert "words of text; at most 700" in problems("more", "\nword" * 700)
    wordy = deepcopy(good)
    cell(wordy, "saw").source = "word " * 150 + cell(wordy, "saw").source
    assert "words what was seen; at most 150" in said(wordy)
    assert "lines of code; at most 110" in problems("setup", "\npass" * 110)
    assert "a cell of" in problems("breaks", "\npass" * 25)
    assert "columns; at most 100" in problems("setup", "\n# " + 100 * "x")
    assert "blocks of Python in its recipe" in problems("recipe", "\n```python\npass\n```\n")
    assert "has a make_workload of" in problems("workload", "\n    pass" * 8)
    assert "asks 2 questions in italics" in problems("card", "\n\n*And why?*")
    assert "times without a budget: lab.run(" in problems("breaks", "\nlab.run()")
    assert "times for 50 s" in problems("breaks", "\nlab.run(seconds=pick(cpu=50, test=1))")
    assert "budget: images_per_second()" in problems("breaks", "\nimages_per_second()")


def test_the_recipe_is_short(good: nbformat.NotebookNode) -> None:
    recipe = cell(good, "recipe")
    recipe.source = recipe.source.replace("```python\n", "```python\n" + "pass\n" * 10, 1)
    assert "lines; at most 10" in said(good)


def test_what_is_missing_is_said(good: nbformat.NotebookNode) -> None:
    def without(tag: str, text: str) -> str:
        notebook = deepcopy(good)
        assert text in cell(notebook, tag).source
        cell(notebook, tag).source = cell(notebook, tag).source.replace(text, "other")
        return said(notebook)

    assert "has no still on its card" in without("card", "still-00.svg")
    assert "asks 0 questions" in without("card", "?*")
    assert "'breaks' without panel.offer" in without("breaks", "panel.offer")
    assert "'raced' without panel.offer" in without("raced", "panel.offer")
    assert "does not say 'You can now'" in without("more", "You can now")
    open_ = deepcopy(good)
    cell(open_, "setup").metadata.pop("jupyter")
    assert "tagged 'setup' that is not folded" in said(open_)
    bare = deepcopy(good)
    bare.cells = [each for each in bare.cells if "Your speedrun" not in each.source]
    assert "no heading above its board" in said(bare)
    assert "does not end in ending" in "\n".join(front.check_front(good, "24_other"))


def test_a_plot_has_an_order_of_its_own(good: nbformat.NotebookNode) -> None:
    recipe = cell(good, "recipe")
    good.cells.remove(recipe)
    good.cells.insert(good.cells.index(cell(good, "board")) - 1, recipe)
    assert said(good) == "has 'workload' before 'recipe'"
    good.metadata.labkit.plot = "detective"
    assert said(good) == ""
    good.metadata.labkit.plot = "soap opera"
    assert "has the plot 'soap opera'; use detective" in said(good)


def test_the_panel_is_early_and_the_order_holds(good: nbformat.NotebookNode) -> None:
    panel = cell(good, "panel")
    good.cells.remove(panel)
    late = deepcopy(good)
    late.cells.append(panel)
    assert "stands among the first 6" in said(late)
    assert "has 'saw' before 'panel'" in said(late)
    good.cells.insert(0, panel)
    assert "does not begin with its card" in said(good)


def test_code_links_and_formulas_are_no_words() -> None:
    text = "Two [words](https://a.b/c)\n\n```python\nx = 1\n```\n\n$$a + b$$\n\n<b>more</b>"
    assert front.count_words(text) == 3
