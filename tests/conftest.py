"""What holds for every test: the small sizes, no window, no internet."""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import psutil
import pytest

from tests.forked import ONE, Forks, forking

ROOT = Path(__file__).resolve().parent.parent

# before labkit or any kernel starts: both read it
os.environ["LABKIT_SIZE"] = "test"
os.environ["MPLBACKEND"] = "Agg"
# Two tests run at a time: threads that spin while they wait for work would take the cores from
# each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rehearse",
        choices=("few", "all"),
        default="few",
        help="notebooks on rehearsed GPUs: a few on one card, or all of them on three",
    )
    parser.addoption(
        "--labs",
        choices=("few", "all"),
        default="few",
        help="notebooks in the browser: the front ones to their first number, or all, whole",
    )
    parser.addoption(
        "--twice",
        choices=("few", "all"),
        default="few",
        help="notebooks that nbval runs twice in a row: the front ones and a few deeper, or all",
    )


# Modules for a first look, by `pytest -m quick`: nothing that trains, waits or starts a kernel.
QUICK = """
    test_project
    course/test_abilities course/test_causes course/test_claims course/test_coverage
    course/test_data_commands course/test_ending course/test_front course/test_kernels
    course/test_machine course/test_minutes course/test_models course/test_notebook_files
    course/test_overview course/test_prose course/test_records course/test_results_page
    course/test_sources_page course/test_stills
    labkit/test_charts labkit/test_counters labkit/test_device labkit/test_memory
    labkit/test_panel_bets labkit/test_plots labkit/test_progress labkit/test_results
    labkit/test_schedule labkit/test_show labkit/test_timing
    sublinear/test_budget sublinear/test_cost sublinear/test_figures sublinear/test_knapsack
    sublinear/test_pareto sublinear/test_plan sublinear/test_probe
    whyslow/test_compile_experiment
"""
# In these modules what takes seconds: types, and what runs the cells of notebooks.
SLOW = "test_types", "test_the_technique_acts", "test_every_scenario_runs"


# Each process gets as many tests, and later takes over from the others. Each begins with long
# ones, in about equal parts; the quick ones come last, so that all end at the same time.
LONG = (
    ("browser/",),
    ("course/test_notebooks", "course/test_new", "course/test_record"),
    ("rehearsal/", "course/test_classroom", "test_fault_matrix", "test_project"),
)
# Bytes of memory from which on there are three.
ROOMY = 12 * 2**30


def pytest_xdist_auto_num_workers() -> int:
    """Three on two cores, where they have room: in the browser one often waits."""
    return 3 if psutil.virtual_memory().total >= ROOMY else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these modules and of the exercises as quick, and put all in order."""
    quick = set(QUICK.split())
    long: list[list[pytest.Item]] = [[] for _ in LONG]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    others: list[pytest.Item] = []
    last: list[pytest.Item] = []
    for item in items:
        place = item.path.relative_to(ROOT / "tests").with_suffix("").as_posix()
        fast = place in quick or place.startswith("course/test_exercises")
        fast = fast and not item.name.startswith(SLOW)
        if fast:
            item.add_marker("quick")
        among = [part for part, begins in zip(long, LONG, strict=True) if place.startswith(begins)]
        (among or [last if fast else others])[0].append(item)
    others += last
    each = len(items) // workers
    items.clear()
    for begin in range(workers):
        items += chain.from_iterable(long[begin::workers])
        room = max(0, (begin + 1) * each - len(items))
        items += others[:room]
        del others[:room]
    items += others


def variables() -> dict[str, str]:
    """The environment, without what pytest and torch set for themselves."""
    theirs = ("PYTEST", "TORCH", "_TORCHINDUCTOR", "TRITON", "KINETO", "KMP")
    return {name: text for name, text in os.environ.items() if not name.startswith(theirs)}


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A test that leaves variables behind changes those after it."""
    before = variables()
    yield
    assert variables() == before


@pytest.fixture(autouse=True)
def no_network(same_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections that leave this machine, so that no test passes or fails with a far
    server.
    """
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address):
            raise OSError(f"tests use no network, but something connects to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(autouse=True)
def undisturbed(
    same_environment: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """What a measurement says must not depend on what else runs on the tests' machine."""
    if request.path.stem != "test_busy":
        from labkit.busy import Others  # reads the sizes above

        monkeypatch.setattr(Others, "taken", lambda self: 0.0)


@pytest.fixture(autouse=True)
def quick_collections(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Each measurement collects garbage: let it not search all of torch and of the tests each
    time. Tests import more of torch, so that once for a module is not enough.
    """
    gc.collect()
    gc.freeze()
    if request.path.stem != "test_restore":
        # Each measurement asks for it, and Python counts all that is frozen one by one.
        monkeypatch.setattr(gc, "get_freeze_count", lambda: sys.maxsize)


def pytest_sessionfinish() -> None:
    """Let Python take apart at its end what was frozen: else extensions tell of leaks."""
    gc.unfreeze()


def is_loopback(address: object) -> bool:
    return isinstance(address, tuple) and (
        str(address[0]).startswith("127.") or address[0] in ("::1", "localhost")
    )


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` that ``make`` filled, for all processes of this run of the tests: the
    first makes it.
    """
    shared = (
        factory.getbasetemp().parent
        if "PYTEST_XDIST_WORKER" in os.environ
        else factory.getbasetemp()
    )
    folder, done = shared / name, shared / f"{name}.done"
    try:
        folder.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + 600
        while not done.exists():
            assert time.monotonic() < deadline, f"another process did not finish {name}"
            time.sleep(0.2)
        assert not (why := done.read_text(encoding="utf-8")), why
        return folder
    why = "it failed in the process that made it"
    try:
        make(folder)
        why = ""
    finally:
        done.write_text(why, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Processes and kernels that have torch from their start."""
    with forking(tmp_path_factory.mktemp("jupyter")) as started:
        yield started


@pytest.fixture
def forked_python(
    request: pytest.FixtureRequest, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Python that a test, or what it tests, starts is a fork with one thread, unless it is
    marked as fresh; a child of `labkit.remote` has as many threads as its parent.
    """
    if not request.node.get_closest_marker("fresh"):
        monkeypatch.setattr(subprocess, "Popen", forks.popen())
        for name, text in (forks.variables | ONE).items():
            monkeypatch.setenv(name, text)


@pytest.fixture(scope="session")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what mypy says of the checkout, in ``said``: nothing if all is well. What it
    has read it keeps in the checkout's `.mypy_cache`.
    """

    def read(folder: Path) -> None:
        command = [sys.executable, "-m", "mypy", "--cache-dir", ".mypy_cache"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        said = done.stdout + done.stderr if done.returncode else ""
        (folder / "said").write_text(said, encoding="utf-8")

    return once(tmp_path_factory, "types", read)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's site, built by the documented command; a warning ends it."""

    def build(out: Path) -> None:
        command = [sys.executable, "-m", "course.site.build", out]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr

    return once(tmp_path_factory, "site", build)
