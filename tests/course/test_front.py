"""The form of the front notebooks, their recipes, and that their techniques act.

The limits are functions in `course.front`. Here each is held on every front notebook and on the
template, and each is shown to find what it is there for.
"""

import contextlib
import re
import socket
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

import labkit
import whyslow
from course import anatomy, compiling, data, explorables, front
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
from labkit import seed_all
from labkit.restore import preserve_flags
from tests.labs import lab_of

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
    unseen, answers = torch.randn(16, 8), torch.randint(4, (16,))

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
        "unseen": unseen,
        "answers": answers,
    }


# How far the weights after a step may be apart, by what becomes of the numbers (metadata.map).
APART = {"same": 1e-6, "rounding": 1e-2}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What torchrun would say to a process without others; the group that it makes is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@each_front
@pytest.mark.usefixtures("alone")
def test_the_recipe_runs_and_learns_the_same(path: Path) -> None:
    blocks = front.recipe(read_notebook(path))
    if "torch.compile(" in blocks[-1] and (why := compiling.trouble()):
        pytest.skip(why)
    trained = []
    for block in blocks:
        names = reader()
        untrained = nn.utils.parameters_to_vector(names["model"].parameters()).detach().clone()
        with preserve_flags(), by_its_shape():
            exec(compile(block, f"recipe of {path.stem}", "exec"), names)
        weights = nn.utils.parameters_to_vector(names["model"].parameters()).detach()
        assert weights.isfinite().all()
        # Nothing is trained by what compares.
        put_back = "labkit.compare(" in block
        assert weights.equal(untrained) == put_back, "no step was taken, or not put back"
        trained.append(names["model"])
    result = about(path).get("map", {}).get("result")
    if result in APART:
        torch.testing.assert_close(*in_common(*trained), rtol=0, atol=APART[result])


@contextlib.contextmanager
def by_its_shape() -> Iterator[None]:
    """A linear layer that a recipe makes begins with weights that only its shape decides: a bias
    less before it changes no number of theirs.
    """
    reset = nn.Linear.reset_parameters

    def seeded(layer: nn.Linear) -> None:
        seed_all(layer.weight.numel())
        reset(layer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Linear, "reset_parameters", seeded)
        yield


def in_common(before: nn.Module, after: nn.Module) -> list[torch.Tensor]:
    """All weights of both, in one tensor each; where one has fewer, those that go by its names."""
    models = [dict(model.named_parameters()) for model in (before, after)]
    fewer = min(models, key=len)
    if len(models[0]) != len(models[1]):
        assert fewer.keys() < max(models, key=len).keys()
        models = [{name: model[name] for name in fewer} for model in models]
    return [nn.utils.parameters_to_vector(model.values()).detach() for model in models]


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


# By notebook: a counter that only the technique moves; those of `tests/labs` are not named here.
ALIVE: dict[str, Callable[[dict[str, Any]], None]] = {}


@pytest.mark.usefixtures("forked_python")
@each_front
def test_the_technique_acts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no data were ever downloaded: pictures have a stand-in, a text has none."""
    monkeypatch.setattr(data, "time_machine", lambda: "the time machine by h g wells " * 6000)
    with names_of(path) as names:
        (ALIVE.get(path.stem) or lab_of(path.stem).alive)(names)


@pytest.mark.usefixtures("forked_python")
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


def moved(notebook: nbformat.NotebookNode, tag: str, before: str) -> None:
    """The part of a tag stands right before another one."""
    part = cell(notebook, tag)
    notebook.cells.remove(part)
    notebook.cells.insert(notebook.cells.index(cell(notebook, before)), part)


def replaced(notebook: nbformat.NotebookNode, tag: str, text: str, new: str) -> None:
    assert text in cell(notebook, tag).source
    cell(notebook, tag).source = cell(notebook, tag).source.replace(text, new)


def test_a_plot_has_an_order_of_its_own(good: nbformat.NotebookNode) -> None:
    good.cells.remove(heading := good.cells[good.cells.index(cell(good, "board")) - 1])
    moved(good, "recipe", before="board")
    good.cells.insert(good.cells.index(cell(good, "board")), heading)
    assert said(good) == "has 'workload' before 'recipe'"
    good.metadata.labkit.plot = "detective"
    assert said(good) == ""
    good.metadata.labkit.plot = "soap opera"
    known = "duel, detective, puzzle, myth, build-up"
    assert f"has the plot 'soap opera'; use {known}, or none" in said(good)


def test_a_duel_opens_in_a_race(good: nbformat.NotebookNode) -> None:
    good.metadata.labkit.plot = "duel"
    moved(good, "recipe", before="saw")
    assert said(good) == "is a duel that opens in Time; LabPanel(opens='race')"
    replaced(good, "panel", "LabPanel(lab, ", 'LabPanel(lab, opens="race", ')
    assert said(good) == ""
    moved(good, "recipe", before="setup")
    assert said(good) == "has 'recipe' before 'panel'"


def test_a_puzzle_has_a_score(good: nbformat.NotebookNode) -> None:
    good.metadata.labkit.plot = "puzzle"
    fault = "is a puzzle without a score: noisy_timing.js says nowhere what is to beat"
    assert said(good) == fault
    replaced(good, "explorable", "NoisyTiming", "MemorySaw")
    assert said(good) == ""


def test_a_myth_is_stamped(good: nbformat.NotebookNode) -> None:
    good.metadata.labkit.plot = "myth"
    assert "is a myth without a stamp at its end" in said(good)
    stamp = 'stamp("it is faster", panel.history, rows=(1, 64))\n\nending('
    good.cells[-1].source = good.cells[-1].source.replace("ending(", stamp)
    assert said(good) == ""


def test_a_build_up_has_three_steps(good: nbformat.NotebookNode) -> None:
    good.metadata.labkit.plot = "build-up"
    assert said(good) == "is a build-up of 1 scenarios in Lab(scenarios={...}); 3 steps"
    more = 'scenarios={\n"4": {"rows": 4}, "16": {"rows": 16}, '
    replaced(good, "panel", "scenarios={", more)
    assert said(good) == ""


# Front notebooks that tell in the plain order; 18 is a duel as soon as its panel opens it.
PLAIN = {"_template", "00_start_here", "04_data_loading", "06_mixed_precision"}


def test_front_notebooks_name_their_plots() -> None:
    without = {path.stem for path in PATHS if not front.said(read_notebook(path), "plot")}
    assert without <= PLAIN


# ----------------------------------------------------------------------------- sentences of its own


def test_no_two_front_notebooks_share_a_sentence() -> None:
    found: dict[str, list[str]] = {}
    for path in set(PATHS) - {anatomy.TEMPLATE_FILE}:
        for sentence in set(front.sentences(read_notebook(path))):
            found.setdefault(sentence, []).append(path.stem)
    assert len(found) > 10 * len(PATHS)
    assert [(each, where) for each, where in found.items() if len(where) > 1] == []


def test_whole_sentences_are_found_in_text_alone(good: nbformat.NotebookNode) -> None:
    good.cells = good.cells[:1]
    good.cells[0].source = (
        "# A title is no sentence of the text at all, in fact\n\n"
        "25 minutes with the exercise, beginner. Six words are not too many.\n"
        "A *sentence* of more than six words,\nover [two lines](a.html), ends here. Short.\n\n"
        "```python\na = 1  # code has words too, and they are not counted\n```\n\n"
        "- What begins with a dash is one, too."
    )
    heading, sentence, item = front.sentences(good)
    assert heading == "# A title is no sentence of the text at all, in fact"
    assert sentence == "A sentence of more than six words, over two lines, ends here."
    assert item == "- What begins with a dash is one, too."


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
