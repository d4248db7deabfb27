"""`course new`: what it makes, what it refuses, and that a new lab runs.

The last tests try one of each plot in a copy of the checkout.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from course import front, new
from course.cli import main
from course.notebook_files import ROOT, notebook_text, read_notebook
from tests.labs.copies import LABS, SHORT, copy_with_labs, pytest_in, run_in

pytestmark = pytest.mark.usefixtures("forked_python")
LAB = "24_my_idea"
FIRST = next(iter(LABS))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the folders that a lab needs."""
    for name in ("notebooks/deeper", "course/explorables", "course/exercises", "course/claims"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("course/teaching", "tests/labs", "tests/browser"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


@pytest.mark.parametrize("plot", front.PLOTS)
@pytest.mark.parametrize("short", [False, True])
def test_a_new_notebook_has_its_form(checkout: Path, plot: str, short: bool) -> None:
    notebook = new.fresh(new.Lab(LAB, checkout), plot, short=short)
    # Its picture lies in the new checkout.
    problems = [each for each in front.check_front(notebook, LAB) if "my_idea.js" not in each]
    assert problems == []
    assert notebook.metadata.labkit.plot == plot
    assert notebook.metadata.labkit.get("short", False) == short
    text = notebook_text(notebook)
    assert "_template" not in text and 'technique"' not in text and "My idea" in text


def test_all_files_have_the_lab_s_names(checkout: Path) -> None:
    lab = new.Lab("31_my_idea", checkout)
    paths = new.make(lab, "puzzle")
    assert sorted(paths) == files(checkout)
    assert len(paths) == 1 + len(new.FILES)
    for path in paths:
        text = (checkout / path).read_text(encoding="utf-8")
        assert "technique" not in path and "24_my" not in text and "check_template" not in text
    assert (checkout / "course/explorables/my_idea.js").read_text().startswith("// 31: a batch")
    assert "def check_31_my_idea(" in (checkout / "course/exercises/lab_31.py").read_text()
    assert "CHECK = exercises.check_31_my_idea" in (checkout / "tests/labs/lab_31.py").read_text()
    assert 'Model(page, "my_idea")' in (checkout / "tests/browser/test_explorable_31.py").read_text(
        encoding="utf-8"
    )


def test_a_front_keeps_what_its_long_notebook_has(checkout: Path) -> None:
    (checkout / "notebooks/deeper/24_my_idea.ipynb").write_text("{}")
    (checkout / "course/claims/24_my_idea.toml").write_text("# mine")
    paths = new.make(new.Lab(LAB, checkout), "myth")
    assert "course/exercises/front_24.py" in paths
    assert "course/claims/24_my_idea.toml" not in paths
    assert (checkout / "course/claims/24_my_idea.toml").read_text() == "# mine"


@pytest.mark.parametrize("name", ["my_idea", "24", "24_", "24_My_Idea", "24-my-idea", "../24_a"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a lab; use one like 24_my_technique"):
        new.Lab(name)


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ("notebooks/24_my_idea.ipynb", "24_my_idea.ipynb is there already. A long notebook"),
        ("notebooks/24_other.ipynb", "24_other has the number 24: take another one"),
        ("notebooks/deeper/24_other.ipynb", "24_other has the number 24: take another one"),
        ("course/explorables/my_idea.js", "my_idea.js is there already: take another name"),
        ("tests/labs/lab_24.py", "tests/labs/lab_24.py is there already: take another name"),
    ],
)
def test_what_is_there_is_refused_and_nothing_made(checkout: Path, there: str, says: str) -> None:
    (checkout / there).write_text("{}")
    with pytest.raises(ValueError, match=says):
        new.make(new.Lab(LAB, checkout), "duel")
    assert files(checkout) == [there]


def test_an_unknown_plot_is_refused_and_nothing_made(checkout: Path) -> None:
    with pytest.raises(ValueError, match="'opera' is no plot; use duel, detective, puzzle, myth"):
        new.make(new.Lab(LAB, checkout), "opera")
    assert files(checkout) == []


def test_what_cannot_be_written_leaves_nothing_half_made(checkout: Path) -> None:
    (checkout / "course/teaching").rmdir()
    with pytest.raises(FileNotFoundError):
        new.make(new.Lab(LAB, checkout), "duel")
    assert files(checkout) == []


def test_the_command_says_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "15_zeroing_gradients", "--plot", "myth"]) == 2
    assert "course new: notebooks/15_zeroing_gradients.ipynb is th" in capsys.readouterr().err
    assert main(["new", "99_my_idea", "--plot", "opera"]) == 2
    assert "course new: 'opera' is no plot" in capsys.readouterr().err


def test_a_new_lab_s_cells_and_files_are_told_until_they_are_written(tmp_path: Path) -> None:
    lab = new.Lab("24_my_idea", tmp_path)
    notebook = new.fresh(lab, "myth")
    (tmp_path / "course" / "claims").mkdir(parents=True)
    for path, text in new.files(lab):
        if path.startswith("course/claims"):
            (tmp_path / path).write_text(text)
    left = list(new.unchanged(notebook, lab.name, tmp_path))
    assert left[0] == "cell 0 (card) is still the template's"
    assert left[-2:] == [
        "metadata.labkit.map is still the template's",
        "has course/claims/24_my_idea.toml, which is still the template's",
    ]
    assert len(left) == len(notebook.cells) - len(new.FINISHED) + 2
    for each in notebook.cells:
        each.source += " "
    notebook.metadata.labkit.map.cost = "little"
    (tmp_path / "course" / "claims" / "24_my_idea.toml").write_text("")
    assert list(new.unchanged(notebook, lab.name, tmp_path)) == []


# ---------------------------------------------------------------------- one of each plot, in a copy


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    copy_with_labs(folder)
    return folder


def made_notebooks(folder: Path) -> Iterator[tuple[Path, nbformat.NotebookNode]]:
    for name in LABS:
        path = folder / "notebooks" / f"{name}.ipynb"
        yield path, read_notebook(path)


def test_the_tool_says_what_is_left_and_nothing_else(copy: Path) -> None:
    done = run_in(copy, "-m", "course.notebooks", "check", *LABS)
    assert done.returncode == 1
    told = done.stderr.splitlines()
    for name in LABS:
        own = [line.removeprefix(f"{name}: ") for line in told if line.startswith(f"{name}: ")]
        assert own[0] == "cell 0 (card) is still the template's"
        assert len(own) > len(new.FILES) + 10
    assert [line for line in told if not line.endswith("still the template's")] == []


def test_ruff_and_mypy_have_nothing_to_say(copy: Path, types: Path) -> None:
    made = [path for lab in LABS for path in copy.rglob(f"*{lab[:2]}*") if path.is_file()]
    read = [str(path) for path in made if path.suffix in (".py", ".ipynb")]
    assert len(read) == 4 * len(LABS)
    for command in (("check", "-q"), ("format", "--check", "-q")):
        done = run_in(copy, "-m", "ruff", *command, *read)
        assert (done.returncode, done.stdout) == (0, "")
    modules = [f"course/exercises/lab_{name[:2]}.py" for name in LABS]
    # What mypy has read already: all but the labs.
    shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    done = run_in(copy, "-m", "mypy", "--cache-dir", ".mypy_cache", *modules)
    assert done.returncode == 0, done.stdout


@pytest.mark.notebook
def test_a_new_lab_runs_and_prints_what_is_stored(copy: Path) -> None:
    """Executed anew, a notebook's file is as it was made: the plots have the same cells."""
    before = {path: notebook_text(notebook) for path, notebook in made_notebooks(copy)}
    done = run_in(copy, "-m", "course.notebooks", "refresh", FIRST, SHORT)
    assert "Traceback" not in done.stderr
    ran = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert ran == [FIRST, SHORT], done.stderr
    assert {path: notebook_text(notebook) for path, notebook in made_notebooks(copy)} == before


@pytest.mark.notebook
def test_a_new_lab_passes_the_tests_of_front_notebooks(copy: Path) -> None:
    chosen = f"{FIRST} or {SHORT} or check_9"
    tests = ("tests/course/test_front.py", "tests/course/test_exercises_labs.py")
    done = pytest_in(copy, *tests, "-k", chosen)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count("passed") == 1
