"""What holds for the project as a whole: style, types, layering, size, documents that agree with each other."""

import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import notebooks as notebook_tool

ROOT = Path(__file__).resolve().parent.parent
LABKIT = ROOT / "labkit"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------- style and types


@pytest.mark.parametrize(
    "command",
    ["ruff check --output-format concise", "ruff format --check --diff", "mypy"],
    ids=["lint", "format", "types"],
)
def test_static(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------------------------------------------- labkit's layers


def modules() -> dict[str, ast.Module]:
    """Every module of labkit by its dotted name without the package's, e.g. 'measure' or 'checkpointing.planner'."""
    trees = {}
    for path in sorted(LABKIT.rglob("*.py")):
        parts = path.relative_to(LABKIT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"
        trees[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return trees


MODULES = modules()
PACKAGES = {".".join(path.parent.relative_to(LABKIT).parts) or "__init__" for path in LABKIT.rglob("__init__.py")}


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Dotted names of all modules that `tree` imports, wherever the import stands; relative ones made absolute."""
    package = ["labkit", *(() if name == "__init__" else name.split("."))]
    package = package if name in PACKAGES else package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield module
            yield from (
                f"{module}.{alias.name}" for alias in node.names
            )  # a module, perhaps: `from labkit import plots`


def internal(name: str) -> set[str]:
    """The modules of labkit that the module `name` imports."""
    wanted = {module.removeprefix("labkit.") for module in imports(name, MODULES[name]) if module.startswith("labkit.")}
    return {module for module in wanted if module in MODULES}


def test_only_the_panel_imports_widgets() -> None:
    users = {
        name
        for name, tree in MODULES.items()
        if {m.split(".")[0] for m in imports(name, tree)} & {"ipywidgets", "anywidget"}
    }
    assert users <= {"panel"}


# From the ground up: a module imports only from rows above its own.
LAYERS = [
    ["device", "units"],
    ["timing", "memory", "results"],
    ["counters"],
    ["arms"],
    ["isolate"],
    ["measure"],
    ["race"],
    ["records.files"],
    ["plots"],
    ["records.beside"],
    ["records.claims"],
    ["records"],
    ["lab"],
    ["lr_finder", "schedule", "records.results"],
    ["panel", "machine"],
    ["records.recording"],
    ["course.judge", "course.files", "course.overview"],
    ["course.build", "course.slices"],
    ["course.check"],
    ["course"],
    ["cli"],
]
FREE = ("data", "models", "exercises", "distributed", "checkpointing", "__init__", "__main__")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_run_one_way(name: str) -> None:
    level = {module: depth for depth, row in enumerate(LAYERS) for module in row}
    if name.split(".")[0] in FREE:
        return
    assert name in level, f"labkit/{name}.py has no place in LAYERS: give it one"
    upward = {module for module in internal(name) if module in level and level[module] >= level[name]}
    assert not upward, f"labkit/{name}.py imports from its own layer or above: {sorted(upward)}"


def test_results_do_not_draw_themselves() -> None:
    users = {name for name in MODULES if "plots" in internal(name)}
    drawing = {"panel", "schedule", "lr_finder", "records.beside", "records.results", "__init__"}
    assert users <= drawing | {"checkpointing.pareto", "checkpointing.draw"}


# Names of techniques. A lab's technique stands in its notebook, where the reader can see and edit it.
TECHNIQUE = re.compile(
    r"""\b(autocast|GradScaler|channels_last|OneCycleLR|CyclicLR|CosineAnnealingLR|ReduceLROnPlateau|checkpoint
    |checkpoint_sequential|DataLoader|pin_memory|prefetch_factor|persistent_workers|set_to_none|foreach|fused
    |clip_grad_norm_|clip_grad_value_|make_graphed_callables|CUDAGraph|scaled_dot_product_attention|fuse_conv_bn
    |DistributedDataParallel|FullyShardedDataParallel|inference_mode|torch\.compile)\b""",
    flags=re.VERBOSE,
)


def named_techniques(tree: ast.Module) -> Iterator[str]:
    """Techniques among the names, attributes, arguments and strings of `tree`, not in its comments and docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        names: list[str | None] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names = [node.value]
        elif isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
            if node.attr == "compile" and not (isinstance(node.value, ast.Name) and node.value.id == "re"):
                names.append("torch.compile")
        elif isinstance(node, ast.keyword | ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None), *(alias.name for alias in node.names)]
        for name in names:
            yield from (f"{match} (line {getattr(node, 'lineno', '?')})" for match in TECHNIQUE.findall(name or ""))


ALLOWED = {"machine": {"pin_memory"}}  # the machine card measures copies from page-locked memory


@pytest.mark.parametrize("name", sorted(MODULES))
def test_labkit_names_no_technique(name: str) -> None:
    if name.split(".")[0] in ("checkpointing", "distributed", "exercises"):
        return
    found = [text for text in named_techniques(MODULES[name]) if text.split()[0] not in ALLOWED.get(name, ())]
    assert found == []


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
    assert found == {"checkpoint", "torch.compile", "channels_last", "GradScaler", "fused", "foreach"}


def lines_of_code(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings, which make reading faster, not slower."""
    source = path.read_text(encoding="utf-8")
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_labkit_can_be_read_in_an_hour() -> None:
    lines = {str(path.relative_to(LABKIT)): lines_of_code(path) for path in LABKIT.rglob("*.py")}
    kept = {name: number for name, number in lines.items() if name.startswith("records/")}
    teach = {name: number for name, number in lines.items() if name.startswith("course/")}
    apart = ("records/", "checkpointing/", "course/", "exercises/", "distributed.py")  # exercises grow with the course
    kit = {name: number for name, number in lines.items() if not name.startswith(apart)}
    assert sum(kit.values()) <= 2800, kit
    assert sum(kept.values()) <= 960, kept
    assert sum(teach.values()) <= 600, teach


def test_import_is_light() -> None:
    heavy = {"matplotlib", "ipywidgets", "anywidget", "d2l", "torchvision", "sklearn", "pandas", "PIL", "IPython"}
    code = f"import sys, labkit; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == []


# ----------------------------------------------------------------------------------------- documents that must agree


def commands() -> list[str]:
    """The README's one-line commands for Linux and macOS: the first opens the course, the second passes all tests."""
    return re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE)


def test_readme_has_the_two_commands() -> None:
    course, tests = commands()
    assert course.endswith("uv run jupyter lab --ServerApp.root_dir=. notebooks/00_start_here.ipynb")
    assert tests.endswith("uv run pytest")
    assert course.split("/uv run ")[0] == tests.split("/uv run ")[0]  # the same set-up


def test_ci_runs_the_readme_s_command() -> None:
    done = subprocess.run([ROOT / ".ci" / "run", "--show"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == commands()[1]


def test_environment_yml_is_in_step() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    dependencies = yaml.safe_load(text)["dependencies"]
    assert f"python{PYPROJECT['project']['requires-python']}" in dependencies
    assert {"pip", "uv"} <= set(dependencies)
    assert len(dependencies) == 3, "libraries are named in pyproject.toml only"
    for command in commands():
        install = command[command.index("uv run ") :]
        assert f"#   {install}\n" in text


def test_a_bare_machine_gets_all_that_recording_needs() -> None:
    """.ci/wheels packs the group "record": labkit's dependencies but torch, what runs notebooks, what they import."""

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=~]", requirement)[0] for requirement in requirements}

    packed = names(PYPROJECT["dependency-groups"]["record"])
    runs, imported = {"ipykernel", "nbclient", "nbformat"}, {"pytorch-optimizer"}
    assert packed == (names(PYPROJECT["project"]["dependencies"]) - {"torch"}) | runs | imported
    assert "--group record" in (ROOT / ".ci" / "wheels").read_text(encoding="utf-8")


def test_readme_indexes_exactly_the_notebooks() -> None:
    linked = re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", README)
    there = [path.stem for path in notebook_tool.notebooks() if not path.stem.startswith("_")]
    assert linked == there
    assert notebook_tool.index(README) == README, "run `python tests/notebooks.py index`"


def test_one_version() -> None:
    (stated,) = re.findall(r'^__version__ = "(.*)"$', (LABKIT / "__init__.py").read_text(encoding="utf-8"), flags=re.M)
    assert stated == PYPROJECT["project"]["version"]


def test_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(PYPROJECT['project']['version'])}\b", changelog, flags=re.MULTILINE)


def test_relative_links_lead_somewhere() -> None:
    documents = (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "RESULTS.md",
        "data/reference/README.md",
        "docs/teaching.md",
    )
    for document in (*documents, "tests/tested-versions.md"):
        text = re.sub(r"`[^`\n]*`", "", (ROOT / document).read_text(encoding="utf-8"))  # code holds examples
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"


# ------------------------------------------------------------------------------------------------ nothing of a machine


def project_files() -> list[Path]:
    """The files that git tracks or would add; without git (an unpacked archive) all but those in hidden folders."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    ignored = {"cache", "screenshots", "__pycache__"}
    found = (path for path in ROOT.rglob("*") if path.is_file())
    return [
        p for p in found if not any(part.startswith(".") or part in ignored for part in p.relative_to(ROOT).parts[:-1])
    ]


# Written so that they do not match themselves.
HOME = re.compile(r"(?<![\w.])/(?:ro[o]t|ho[m]e/\w+|Us[e]rs/\w+|wo[r]k)/|[A-Z]:\\Us[e]rs\\", flags=re.ASCII)
HOST = re.compile(
    r"pypi\.o[r]g|python[h]osted\.|npm[j]s\.|download\.pyt[o]rch\.|(?:index|registry)(?:-url)? ?= ?\S*ht[t]p"
)


def test_no_lock_file_is_tracked() -> None:
    if not ((ROOT / ".git").exists() and shutil.which("git")):
        return  # an archive holds what was tracked, and uv puts its lock file beside it
    names = {path.name for path in project_files()}
    assert not [
        n for n in names if n in ("uv.lock", "poetry.lock", "package-lock.json", "yarn.lock") or n.startswith("pylock")
    ]


@pytest.mark.parametrize("pattern", [HOME, HOST], ids=["home-path", "registry-host"])
def test_no_file_names_a_machine(pattern: re.Pattern[str]) -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []


def test_the_search_for_machines_finds_them() -> None:
    paths = ["/ro" + "ot/x", "see /ho" + "me/me/file", '"/wo' + 'rk/main"', "C:\\Us" + "ers\\me", "/Us" + "ers/me/x"]
    assert all(HOME.search(path) for path in paths)
    assert not any(HOME.search(text) for text in ("notebooks/wo" + "rk/x", "https://a.b/home/", "./ro" + "ot/"))
    hosts = ["https://py" + "pi.org/simple", "files.python" + "hosted.org", "index-url = ht" + "tps://x"]
    assert all(HOST.search(host) for host in hosts)
