"""Walls around a student's process: bubblewrap, a container, or, where the teacher says so, trust.

Inside there is no network and one folder that can be written, ``BOX``. Of the course it has what
answers import: neither the notebooks, nor a site with their solutions, nor what others handed in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from course.classroom.files import CourseError
from course.notebook_files import ROOT

BOX, GIVEN = Path("/box"), Path("/given")
# what answers import; a setup cell imports records
IMPORTED = (
    "course/__init__.py",
    "course/causes.py",
    "course/compiling.py",
    "course/data.py",
    "course/data_sources.json",
    "course/data_sources.py",
    "course/kernels.py",
    "course/low_precision.py",
    "course/machine.py",
    "course/models.py",
    "course/networks.py",
    "course/notebook_files.py",
    "course/planning.py",
    "course/probe.py",
    "course/stand_in.py",
    "course/written.py",
    "course/classroom",
    "course/exercises",
    "course/measured",
    "course/programs",
    "course/ranks",
    "course/records",
    "course/searches",
    "labkit",
    "sublinear",
    "whyslow",
)
IMAGE = "speed-lab-class"
ENGINES = ("docker", "podman")
NOBODY = "65534:65534"
# the program inside; to search what it imports for garbage would take a tenth of its start
QUICKLY = "import gc; gc.disable(); from course.classroom import answerer; answerer.main()"
PROGRAM = ["-P", "-c", QUICKLY]
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/sbin")
# of the rest of /etc much is secret
ETC = (
    # Debian's compilers and BLAS are links through it
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/ssl/certs",
)
# variables by which an engine finds its images, its daemon and its own files
ENGINE_S = (
    "PATH",
    "HOME",
    "TMPDIR",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
MB = 2**20

REFUSED = """no sandbox here: what students handed in would run with your rights, on your files.
{tried}
Install bubblewrap 0.7 or newer (`apt install bubblewrap`, `dnf install bubblewrap`), or build the
image of course/classroom/Dockerfile for docker or podman. Where bwrap is there and not permitted,
see "Where it runs" in course/teaching.md. If you trust the submissions, say so with
--trust-submissions: then only Python's own calls are kept from changing your files."""


class Limits(NamedTuple):
    """What one exercise may use."""

    # from the end of the imports
    seconds: float = 60.0
    # MB of memory, of all its processes together
    memory: int = 4096
    # MB in its folder
    disk: int = 256
    processes: int = 64


class Wall(Protocol):
    """A way to run a program that cannot reach further than it should."""

    @property
    def name(self) -> str:
        """What the table says of it."""

    def places(self, box: Path) -> tuple[Path, Path]:
        """The submission's folder and the one that can be written, as the program sees them."""

    def command(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        """The command line; ``box/given`` holds the submission's folder."""

    def environment(self) -> dict[str, str]:
        """The environment of the command itself, which an answer may be able to read."""

    def end(self, box: Path) -> None:
        """End what killing the command line leaves alive."""


@dataclass(frozen=True)
class Bubblewrap:
    """Namespaces of the Linux kernel, by the program `bwrap`."""

    # whether an answer can make namespaces of its own; before 0.8 `bwrap` cannot forbid it
    nested: bool = False
    name: ClassVar = "bubblewrap"

    def places(self, box: Path) -> tuple[Path, Path]:
        return GIVEN, BOX

    def command(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        return [*self.walls(box, environment, limits), sys.executable, *PROGRAM]

    def environment(self) -> dict[str, str]:
        return {}

    def walls(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        """The command line without the program."""
        bound: list[str] = []
        for place in readable():
            bound += ["--ro-bind", place, place]
        variables = environment | {"PYTHONPATH": _python_path()}
        for name, value in variables.items():
            bound += ["--setenv", name, value]
        return [
            "bwrap",
            "--unshare-all",
            *([] if self.nested else ["--unshare-user", "--disable-userns"]),
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
            "--clearenv",
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(limits.disk * MB), "--tmpfs", "/dev/shm"),
            *bound,
            *("--ro-bind", str(box / "given"), str(GIVEN)),
            *("--size", str(limits.disk * MB), "--tmpfs", str(BOX)),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(BOX), "--"),
        ]

    def end(self, box: Path) -> None:
        """Nothing: the first process of its namespace dies with the command, and all with it."""


@dataclass(frozen=True)
class Container:
    """An image that holds the course's libraries; the course itself comes from here."""

    # one of ENGINES
    name: str
    image: str = IMAGE

    @property
    def _nothing_else(self) -> list[str]:
        """Podman leaves /tmp and others to be written, of any size."""
        return ["--read-only-tmpfs=false"] if self.name == "podman" else []

    def places(self, box: Path) -> tuple[Path, Path]:
        return GIVEN, BOX

    def command(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        return [*self.walls(box, environment, limits), "python", *PROGRAM]

    def environment(self) -> dict[str, str]:
        return _of_caller(*ENGINE_S)

    def walls(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        """The command line without the program."""
        # root could write to /dev
        user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else NOBODY
        bound = [f"--volume={box / 'given'}:{GIVEN}:ro"]
        bound += [f"--volume={ROOT / place}:/course/{place}:ro" for place in IMPORTED]
        variables = environment | {"PYTHONPATH": "/course"}
        # the image has its own
        variables.pop("PATH", None)
        if data := variables.get("LABKIT_DATA"):
            bound.append(f"--volume={data}:/data:ro")
            variables["LABKIT_DATA"] = "/data"
        return [
            *(self.name, "run", "--rm", "--interactive", "--init", f"--name={box.name}"),
            *("--network=none", "--read-only", *self._nothing_else, "--cap-drop=ALL"),
            "--security-opt=no-new-privileges",
            f"--user={user}",
            *(f"--memory={limits.memory}m", f"--memory-swap={limits.memory}m"),
            f"--pids-limit={limits.processes}",
            f"--shm-size={limits.disk}m",
            f"--tmpfs={BOX}:rw,size={limits.disk}m,mode=1777",
            *bound,
            *(f"--env={name}={value}" for name, value in variables.items()),
            *(f"--workdir={BOX}", self.image),
        ]

    def end(self, box: Path) -> None:
        # killing the command line would leave the container running
        command = [self.name, "kill", box.name]
        subprocess.run(command, capture_output=True, env=self.environment())


class Trust:
    """No wall: for submissions that their teacher trusts, in a folder that is gone afterwards."""

    name = "trusted"

    def places(self, box: Path) -> tuple[Path, Path]:
        return box / "given", box / "room"

    def command(self, box: Path, environment: dict[str, str], limits: Limits) -> list[str]:
        variables = environment | {"PYTHONPATH": _python_path()}
        set_them = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "--ignore-environment", *set_them, sys.executable, *PROGRAM]

    def environment(self) -> dict[str, str]:
        return {}

    def end(self, box: Path) -> None:
        """End those that have left their process group: their home lies in the box. Linux only."""
        # they may start others meanwhile
        for _ in range(100):
            found = _at_home_in(box)
            if not found:
                return
            for pid in found:
                # it has just ended
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def _of_caller(*names: str) -> dict[str, str]:
    """Those of the caller's variables, as far as they are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def _at_home_in(box: Path) -> list[int]:
    """Processes that were started, or forked, with a home in the box. A dead one has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        # it has just ended, or is another user's
        with contextlib.suppress(OSError):
            if b"HOME=%s/" % os.fsencode(box) in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def find_wall(*, trust: bool = False, image: str = IMAGE) -> Wall:
    """The best wall of this machine; CourseError where there is none, unless told to trust."""
    if trust:
        return Trust()
    for wall in (Bubblewrap(), Bubblewrap(nested=True)):
        if not (reason := why_no_bubblewrap(wall)):
            return wall
    tried = [reason]
    for name in ENGINES:
        if not (reason := why_no_container(name, image)):
            return Container(name, image)
        tried.append(reason)
    raise CourseError(REFUSED.format(tried="\n".join(f"  {each}" for each in tried)))


def why_no_bubblewrap(wall: Bubblewrap) -> str:
    """Why bubblewrap cannot be used; empty where it can. Tried with the very walls of an answer."""
    return _why_not(wall, sys.executable)


def why_no_container(engine: str, image: str = IMAGE) -> str:
    """The same of a container; an image is not looked for elsewhere."""
    wall = Container(engine, image)
    return _failure([engine, "image", "inspect", image], wall) or _why_not(wall)


def _why_not(wall: Bubblewrap | Container, python: str = "python") -> str:
    with tempfile.TemporaryDirectory(prefix="labkit-course-") as folder:
        (Path(folder) / "given").mkdir()
        walls = wall.walls(Path(folder).resolve(), {}, Limits())
        return _failure([*walls, python, "-c", ""], wall)


def _failure(command: list[str], wall: Wall) -> str:
    """Why a command fails: the last line that it says; empty where it works."""
    name = command[0]
    program = shutil.which(name)
    if program is None:
        return f"{name}: not installed"
    try:
        done = subprocess.run(
            command,
            executable=program,
            capture_output=True,
            timeout=30,
            env=wall.environment(),
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return f"{name}: {error}"
    if done.returncode == 0:
        return ""
    *_, said = ["", *done.stderr.decode(errors="replace").strip().splitlines()]
    said = said.removeprefix(f"{name}: ") or f"exit code {done.returncode}"
    return f"{name}: {said}"


def import_paths() -> list[str]:
    """The folders that modules come from, but for the checkout itself: it holds the solutions."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    found = [*given, *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    paths = [os.path.abspath(path) for path in found if os.path.isdir(path)]
    return [path for path in dict.fromkeys(paths) if path != str(ROOT)]


def _python_path() -> str:
    return os.pathsep.join([str(ROOT), *import_paths()])


def readable() -> list[str]:
    """What a program can read: the system, Python, its libraries, the course's, the data sets."""
    found = [*SYSTEM, *ETC, sys.prefix, sys.base_prefix, *folders_of(Path(sys.executable))]
    found += [*import_paths(), *(str(ROOT / place) for place in IMPORTED)]
    found.append(os.environ.get("LABKIT_DATA", str(ROOT / "data" / "cache")))
    there = [os.path.abspath(place) for place in found if os.path.exists(place)]
    return list(dict.fromkeys(there))


def folders_of(python: Path) -> list[str]:
    """The folders through which links lead to a Python, to that of the program itself."""
    found = [str(python.parent)]
    while python.is_symlink():
        python = python.parent / python.readlink()
        found.append(str(python.parent))
    return [*found, str(python.resolve().parent)]
