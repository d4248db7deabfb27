"""What holds for the project as a whole: style, types, layering, size, documents that agree with
each other.
"""

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Container, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import labkit
import sublinear
import whyslow
from course import index
from course.notebook_files import first_notebooks, place
from course.site import pages

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------- style and types


@pytest.mark.parametrize(
    "command",
    ["ruff check --output-format concise", "ruff format --check --diff"],
    ids=["lint", "format"],
)
def test_static(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types(types: Path) -> None:
    assert (types / "said").read_text(encoding="utf-8") == ""


# -------------------------------------------------------------------------------------- four rooms

# What each room may import of the others: it measures, finds, plans, or teaches.
ROOMS = {
    "labkit": set(),
    "whyslow": {"labkit"},
    "sublinear": {"labkit"},
    "course": {"labkit", "whyslow", "sublinear"},
}


def sources(room: str) -> dict[str, ast.Module]:
    """Every module of a room by its path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for path in sorted((ROOT / room).rglob("*.py"))
    }


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names of all that a module imports, wherever the import stands.

    Relative ones are not wanted here.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module if not node.level and node.module else "." * node.level


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_know_only_those_below(room: str) -> None:
    found = {
        (path, name)
        for path, tree in sources(room).items()
        for name in imports(tree)
        if name.split(".")[0] in set(ROOMS) - ROOMS[room] - {room}
    }
    assert not found, f"{room} may import {sorted(ROOMS[room])} only"


def arrows(room: str) -> dict[str, set[str]]:
    """Each module of a room, and those of the same room that it imports, also for types alone."""
    trees = {}
    for path, tree in sources(room).items():
        trees[path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = tree
    return {name: set(reached(tree, trees)) - {name} for name, tree in trees.items()}


def reached(tree: ast.Module, modules: Container[str]) -> Iterator[str]:
    """Which of these modules a module imports: of a package, the module in it that is meant."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in inner]
        yield from (name for name in names if name in modules)


def circles(graph: dict[str, set[str]]) -> set[str]:
    """The modules that lie on a circle: what leads nowhere, or comes from nowhere, is left out."""
    left = set(graph)
    while True:
        entered = {there for name in left for there in graph[name]}
        kept = {name for name in left if name in entered and graph[name] & left}
        if kept == left:
            return left
        left = kept


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_no_circle_in_a_room(room: str) -> None:
    assert circles(arrows(room)) == set()


def test_a_circle_is_found() -> None:
    straight = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert circles(straight) == set()
    assert circles(straight | {"c": {"b"}, "d": {"a"}}) == {"b", "c"}


PUBLIC = """
    Timer MemoryMeter lr_find plot_schedule measure compare race Lab Workload
    count pick pick_device seed_all
"""


def test_labkit_has_thirteen_names() -> None:
    assert sorted(labkit.__all__) == sorted(PUBLIC.split())
    assert len(labkit.__all__) == 13


@pytest.mark.parametrize("room", [labkit, whyslow], ids=lambda room: room.__name__)
def test_no_module_has_the_name_of_a_function(room: ModuleType) -> None:
    folder = Path(room.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert not modules & set(room.__all__)


def test_the_table_of_labkit_leads_to_each_name() -> None:
    """A row for each public name: the question, the name, and the file that defines it."""
    text = (ROOT / "labkit" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| .+ \| `([\w.]+)` \| \[.+\]\((.+)\) \|$", text, flags=re.M))
    assert set(labkit.__all__) <= set(rows)
    for name in labkit.__all__:
        found = inspect.getsourcefile(getattr(labkit, name))
        assert found == str(ROOT / "labkit" / rows[name]), name


def test_sublinear_uses_labkit_s_public_names() -> None:
    private = {
        f"{path}: {node.module}.{alias.name}"
        for path, tree in sources("sublinear").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit")
        for alias in node.names
        if f".{node.module}.{alias.name}".count("._")
    }
    assert not private


def test_labkit_knows_no_notebook() -> None:
    words = re.compile(r"\.ipynb|RESULTS\.md|notebooks/")
    found = {
        f"{path}: {node.value[:60]}"
        for path, tree in sources("labkit").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and words.search(node.value)
    }
    assert not found


def test_only_the_panel_imports_widgets() -> None:
    users = {
        Path(path).parent.name
        for path, tree in sources("labkit").items()
        if {name.split(".")[0] for name in imports(tree)} & {"anywidget", "ipywidgets"}
    }
    assert users == {"panel"}


# Names of techniques. A lab's technique stands in its notebook, where the reader can see and
# edit it.
TECHNIQUE = re.compile(
    r"""\b(autocast|GradScaler|channels_last|OneCycleLR|CyclicLR|CosineAnnealingLR|ReduceLROnPlateau|checkpoint
    |checkpoint_sequential|DataLoader|pin_memory|prefetch_factor|persistent_workers|set_to_none|foreach|fused
    |clip_grad_norm_|clip_grad_value_|make_graphed_callables|CUDAGraph|scaled_dot_product_attention|fuse_conv_bn
    |DistributedDataParallel|FullyShardedDataParallel|inference_mode|torch\.compile)\b""",
    flags=re.VERBOSE,
)


def named_techniques(tree: ast.Module) -> Iterator[str]:
    """Techniques among the names, attributes, arguments and strings of `tree`, not in its
    comments and docstrings.
    """
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        names: list[str | None] = []
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            names = [node.value]
        elif isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
            if node.attr == "compile" and not (
                isinstance(node.value, ast.Name) and node.value.id == "re"
            ):
                names.append("torch.compile")
        elif isinstance(node, ast.keyword | ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None), *(alias.name for alias in node.names)]
        for name in names:
            yield from (
                f"{match} (line {getattr(node, 'lineno', '?')})"
                for match in TECHNIQUE.findall(name or "")
            )


# Whether code can be compiled is tried; what a replayed graph does cannot be counted, so its replay
# is noticed.
ALLOWED = {
    "labkit/compiler.py": {"torch.compile"},
    "labkit/restore/reach.py": {"CUDAGraph", "DataLoader"},
}


def techniques_in_labkit() -> Iterator[tuple[str, str]]:
    """Each file and what it names, as in ("course/machine.py", "pin_memory (line 3)")."""
    for path, tree in sources("labkit").items():
        for text in named_techniques(tree):
            yield path, text


def test_labkit_names_no_technique() -> None:
    found = [
        f"{path}: {text}"
        for path, text in techniques_in_labkit()
        if text.split()[0] not in ALLOWED.get(path, ())
    ]
    assert found == []


def test_no_technique_is_allowed_that_nobody_names() -> None:
    named = {(path, text.split()[0]) for path, text in techniques_in_labkit()}
    allowed = {(path, name) for path, names in ALLOWED.items() for name in names}
    assert allowed - named == set()


def test_the_search_for_techniques_finds_them() -> None:
    source = '''
    """autocast in a docstring is fine"""  # and OneCycleLR in a comment
    import torch.utils.checkpoint
    model = torch.compile(model).to(memory_format=torch.channels_last)
    pattern = re.compile("a GradScaler in a string")
    def f(fused=True): "pin_memory in a docstring"
    f(foreach=1)
    '''
    tree = ast.parse("\n".join(line[4:] for line in source.splitlines()))
    found = {text.split()[0] for text in named_techniques(tree)}
    assert found == {
        "checkpoint",
        "torch.compile",
        "channels_last",
        "GradScaler",
        "fused",
        "foreach",
    }


def test_import_is_light() -> None:
    heavy = {
        "matplotlib",
        "ipywidgets",
        "anywidget",
        "d2l",
        "torchvision",
        "sklearn",
        "pandas",
        "PIL",
        "IPython",
    }
    code = f"import sys, labkit; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == []


# ------------------------------------------------------------------------ documents that must agree


def commands() -> list[str]:
    """The README's one-line commands for Linux and macOS: the first opens the course, the second
    passes all tests.
    """
    return re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE)


def test_readme_has_the_two_commands() -> None:
    course, tests = commands()
    assert course.endswith(
        "uv run jupyter lab --ServerApp.root_dir=. notebooks/00_start_here.ipynb"
    )
    assert tests.endswith("uv run pytest")
    # the same set-up
    assert course.split("/uv run ")[0] == tests.split("/uv run ")[0]


def test_ci_runs_the_readme_s_command() -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "run", "--show"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == commands()[1]


def test_github_s_workflow_calls_the_same_script() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    steps = [step.get("run") or step["uses"].split("@")[0] for step in job["steps"]]
    *before, sandbox, last = steps
    assert before == ["actions/checkout", "actions/setup-python"] and last == ".ci/run"
    assert "bubblewrap" in sandbox
    assert job["steps"][-1]["env"] == {"LABKIT_SANDBOX": "required"}
    assert job["runs-on"].startswith("ubuntu")
    assert job["timeout-minutes"] <= 90


def test_environment_yml_is_in_step() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    dependencies = yaml.safe_load(text)["dependencies"]
    assert f"python{PYPROJECT['project']['requires-python']}" in dependencies
    assert {"pip", "uv"} <= set(dependencies)
    assert len(dependencies) == 3, "libraries are named in pyproject.toml only"
    # What a conda user types: the same in the documents and in the file.
    guide = (ROOT / "course" / "installing.md").read_text(encoding="utf-8")
    installing = re.search(r"^conda env create(?:.*\n)+?(?=jupyter lab)", guide, flags=re.MULTILINE)
    assert installing, "the guide has no lines for conda"
    for line in installing[0].splitlines():
        assert f"#   {line}\n" in text
    for command in commands():
        assert f"#   {command.partition('uv run ')[2]}\n" in text


def test_a_bare_machine_gets_all_that_recording_needs() -> None:
    """The group "record": labkit's dependencies, what runs notebooks, what they import."""

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=~]", requirement)[0] for requirement in requirements}

    packed = names(PYPROJECT["dependency-groups"]["record"])
    runs, imported = {"ipykernel", "msgspec", "nbclient", "nbformat"}, {"pytorch-optimizer"}
    assert packed == (names(PYPROJECT["project"]["dependencies"]) - {"torch"}) | runs | imported


def test_the_readme_is_short() -> None:
    # Without the badges of a fork (`python -m course badges --write`).
    own = re.sub(r"^\[!\[.*\n", "", README, flags=re.MULTILINE)
    assert len(own.encode()) <= 8 * 1024


def test_the_examples_of_compare_say_that_everything_is_as_before() -> None:
    measuring = (ROOT / "course" / "measuring.md").read_text(encoding="utf-8")
    for text in (README, measuring):
        example = text.split("labkit.compare(step_before, step_after")[1]
        assert "as before, bit for bit" in " ".join(example[:700].split())
        assert "deepcopy" not in text


def test_readme_indexes_exactly_the_notebooks() -> None:
    linked = re.findall(r"\]\(notebooks/([\w/]+)\.ipynb\)", README)
    there = [place(path) for path in first_notebooks()]
    assert linked == there
    assert index.readme(README) == README, "run `python -m course.notebooks index`"


def test_the_guide_says_what_the_notebooks_and_the_notes_for_teachers_say() -> None:
    guide = index.GUIDE.read_text(encoding="utf-8")
    assert index.guide(guide) == guide, "run `python -m course.notebooks index`"


def test_the_quick_tier_names_modules_that_are_there() -> None:
    text = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    named = text.split('QUICK = """')[1].split('"""')[0].split()
    assert len(named) == len(set(named)) > 20
    assert [name for name in named if not (ROOT / "tests" / f"{name}.py").exists()] == []


def test_one_version() -> None:
    (stated,) = re.findall(
        r'^__version__ = "(.*)"$',
        (ROOT / "labkit" / "__init__.py").read_text(encoding="utf-8"),
        flags=re.M,
    )
    assert stated == PYPROJECT["project"]["version"]


def test_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(
        rf"^## {re.escape(PYPROJECT['project']['version'])}\b", changelog, flags=re.MULTILINE
    )


def test_the_changelog_is_short() -> None:
    """At most twenty lines a version: what a user notices."""
    _, *versions = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    for version in versions:
        assert len(version.strip().splitlines()) - 2 <= 20, version.splitlines()[0]


def test_the_tree_names_what_is_there() -> None:
    """Files and folders of the checkout; of the packages what they export."""
    packages = {"labkit/": labkit, "whyslow/": whyslow, "sublinear/": sublinear}
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = contributing.split("## Four rooms")[1].split("```")[1]
    room = ""
    missing = []
    for line in tree.strip("\n").splitlines():
        # The names stand in the first columns.
        for name in line[:22].strip().split(", "):
            if not line.startswith("  "):
                room = name
                found = (ROOT / name).exists()
            elif room in packages:
                found = hasattr(packages[room], name) or (ROOT / room / name).exists()
            else:
                found = (ROOT / room / name).exists()
            if not found:
                missing.append(f"{room}: {name}")
    assert missing == []


DOCUMENTS = ("README.md", "labkit/README.md", "sublinear/README.md", *pages.DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_lead_somewhere(document: str) -> None:
    # Code holds examples of links, which lead nowhere.
    text = re.sub(r"`[^`\n]*`", "", (ROOT / document).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
        assert (ROOT / document).parent.joinpath(target).exists(), f"it links to {target}"


def anchors(path: Path) -> set[str]:
    """The headings of a document as a link names them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_to_headings_find_them(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*\.md|)#([^)\s]+)\)", text):
        there = (ROOT / document).parent / target if target else ROOT / document
        assert anchor in anchors(there), f"{target}#{anchor}"


# ----------------------------------------------------------------------------- nothing of a machine


def project_files() -> list[Path]:
    """The files that git tracks or would add.

    Without git (an unpacked archive) all but those in hidden folders.
    """
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    ignored = {"cache", "screenshots", "__pycache__"}
    found = (path for path in ROOT.rglob("*") if path.is_file())
    return [
        p
        for p in found
        if not any(
            part.startswith(".") or part in ignored for part in p.relative_to(ROOT).parts[:-1]
        )
    ]


# Written so that they do not match themselves.
HOME = re.compile(
    r"(?<![\w.])/(?:ro[o]t|ho[m]e/\w+|Us[e]rs/\w+|wo[r]k)/|[A-Z]:\\Us[e]rs\\", flags=re.ASCII
)
HOST = re.compile(
    r"pypi\.o[r]g|python[h]osted\.|npm[j]s\.|download\.pyt[o]rch\."
    r"|(?:index|registry)(?:-url)? ?= ?\S*ht[t]p"
)


def test_no_lock_file_is_tracked() -> None:
    if not ((ROOT / ".git").exists() and shutil.which("git")):
        # an archive holds what was tracked, and uv puts its lock file beside it
        return
    names = {path.name for path in project_files()}
    assert not [
        n
        for n in names
        if n in ("uv.lock", "poetry.lock", "package-lock.json", "yarn.lock")
        or n.startswith("pylock")
    ]


@pytest.mark.parametrize("pattern", [HOME, HOST], ids=["home-path", "registry-host"])
def test_no_file_names_a_machine(pattern: re.Pattern[str]) -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            # an image
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []


def test_the_search_for_machines_finds_them() -> None:
    paths = [
        "/ro" + "ot/x",
        "see /ho" + "me/me/file",
        '"/wo' + 'rk/main"',
        "C:\\Us" + "ers\\me",
        "/Us" + "ers/me/x",
    ]
    assert all(HOME.search(path) for path in paths)
    assert not any(
        HOME.search(text) for text in ("notebooks/wo" + "rk/x", "https://a.b/home/", "./ro" + "ot/")
    )
    hosts = [
        "https://py" + "pi.org/simple",
        "files.python" + "hosted.org",
        "index-url = ht" + "tps://x",
    ]
    assert all(HOST.search(host) for host in hosts)
