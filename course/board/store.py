"""The reader's choices and figures: one readable file, outside of the repository.

Whoever changes the file locks it, reads it anew, and replaces it as a whole. So a kernel that is
killed leaves the old file or the new one, and two kernels lose nothing of each other's. What cannot
be read is put aside under another name before a new file is written.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from course.board.words import as_json, from_json
from course.switches import SWITCHES
from labkit.results.comparison import CLAIM_PAIRS

SCHEMA = 1
ABOUT = "PyTorch Speed Lab: what you measured and kept. Delete this file to begin anew."
ELSEWHERE = "The variable LABKIT_BOARD names another place for it."
# An interval within so much either way shows no difference, also where its sign is not clear.
NEAR = 1.1
# What a single pair has to show, and a figure that other programs disturbed: of 81 recorded sides
# that were timed twice, 5 differ by more.
FAR = 1.3
# Races in which one side alone arrives, that tell who is ahead.
ENOUGH_ALONE = 2
# How long to wait for another kernel. Writing takes milliseconds.
PATIENCE = 5.0


class BoardError(Exception):
    """The reader's file cannot be used, and why; the file is as it was."""


class Damaged(BoardError):
    """The file cannot be read: it was changed by hand, or is of another time."""


@dataclass(frozen=True)
class Figure:
    """What one switch did on top of others.

    ``factor`` is the time without it over the time with it, nan where neither side arrived, and
    ``interval`` its 95 % interval. ``rate`` is images per second without it. ``memory`` is the peak
    with it over ``peak``, that without it in bytes. ``mode`` is "time", "race" (to an accuracy that
    is reached early), "cut race" (to what both sides had reached in time) or "whole race".
    ``stopped`` says that it was interrupted, ``disturbed`` that other programs took the cores
    meanwhile. It rests on so many ``pairs``; ``agree`` is what each of them says: "faster",
    "slower", or nothing. Where the target was reached only with the switch, ``bound`` is how many
    times as fast it was at least, by the time that was spent without it.
    """

    switch: str
    mode: str
    on_top_of: tuple[str, ...]
    factor: float
    interval: tuple[float, float]
    verdict: str
    rate: float
    memory: float = math.nan
    date: str = ""
    torch: str = ""
    stopped: bool = False
    pairs: int = 0
    agree: str = ""
    peak: float = math.nan
    disturbed: bool = False
    bound: float = math.nan

    @property
    def direction(self) -> str:
        """The verdict; an unclear one is "faster" or "slower" by the interval or by all pairs.

        It is "same" where the interval lies within `NEAR` either way. One quiet pair is enough for
        a loss, since all that comes later is measured on top of it; a gain needs as many as a
        verdict. Beside other programs a small difference is unclear.
        """
        low, high = self.interval
        if self.disturbed and self.verdict in ("faster", "slower") and self._is_small:
            return "unclear"
        if self.verdict != "unclear":
            return self.verdict
        # Who alone arrives is ahead, also in few races.
        many = self.pairs >= (ENOUGH_ALONE if math.isinf(self.factor) else CLAIM_PAIRS)
        if high < 1 or (self.agree == "slower" and (many or not self.disturbed)):
            return "slower"
        if (self.agree == "faster" and many) or 1 < low <= high < math.inf:
            return "faster"
        return "same" if 1 / NEAR <= low <= high <= NEAR else "unclear"

    @property
    def _is_small(self) -> bool:
        return self.mode == "time" and 1 / FAR < self.factor < FAR

    @property
    def prevents(self) -> bool:
        """Whether the target was reached without its switch, and not with it."""
        return self.factor <= 0

    @property
    def gain(self) -> float:
        """Its factor, or the least that it can be where nothing was reached without the switch."""
        alone = math.isinf(self.factor) and math.isfinite(self.bound)
        return self.bound if alone else self.factor

    @property
    def counts(self) -> bool:
        """Whether estimates follow it: where it is clear that it gains or loses, and in which.

        What a race to an early accuracy found is not what a switch brings until the target.
        """
        known = self.verdict if self.direction == "same" else self.direction
        return known != "unclear" and 0 < self.gain < math.inf and not self.early

    @property
    def early(self) -> bool:
        """Whether it is of a race to an accuracy that is reached early."""
        return self.mode in ("race", "cut race")


@dataclass(frozen=True)
class Choice:
    """A figure, and whether its switch was kept."""

    figure: Figure
    kept: bool


@dataclass(frozen=True)
class Run:
    """One training of the script with these switches, from its start to the target.

    ``seconds`` are infinite where it was not reached. ``disturbed``: beside other programs.
    """

    switches: tuple[str, ...]
    seconds: float
    date: str = ""
    disturbed: bool = False


@dataclass(frozen=True)
class Choices:
    """All choices made on one machine, in the order in which they were made.

    ``rate`` is the slow script's images per second, nan while it was not timed; ``disturbed`` says
    that other programs took the cores meanwhile. ``runs`` are those of the whole script, the latest
    last.
    """

    rate: float = math.nan
    made: dict[str, Choice] = field(default_factory=dict)
    disturbed: bool = False
    runs: tuple[Run, ...] = ()

    @property
    def kept(self) -> tuple[Choice, ...]:
        """Those that were kept, of switches that there still are."""
        return tuple(
            choice for name, choice in self.made.items() if choice.kept and name in SWITCHES
        )

    @property
    def switches(self) -> tuple[str, ...]:
        """The names of those that were kept."""
        return tuple(choice.figure.switch for choice in self.kept)

    @property
    def sure(self) -> bool:
        """Whether the slow script was timed, with the cores for itself."""
        return math.isfinite(self.rate) and not self.disturbed

    @property
    def run(self) -> Run | None:
        """The latest of the script with what is kept now."""
        kept = set(self.switches)
        return next((run for run in self.runs[::-1] if set(run.switches) == kept), None)

    def run_of_first(self, kept: Sequence[str]) -> Run | None:
        """The latest quiet run, to the target, of the first so many of ``kept``; of the most."""
        runs = [run for run in self.runs if math.isfinite(run.seconds) and not run.disturbed]
        for count in range(len(kept), 0, -1):
            for run in reversed(runs):
                if set(run.switches) == set(kept[:count]):
                    return run
        return None

    @property
    def fastest(self) -> Run | None:
        """The best of all runs."""
        return min(self.runs, key=lambda run: run.seconds, default=None)

    def below(self, switch: str) -> tuple[str, ...]:
        """What a switch is measured on top of: all that is kept, or was kept before it.

        Else it would be counted with what was measured on top of it.
        """
        kept = self.switches
        return kept[: kept.index(switch)] if switch in kept else kept

    def with_run(self, run: Run) -> Choices:
        """With one more."""
        return replace(self, runs=(*self.runs, run))

    def with_choice(self, choice: Choice) -> Choices:
        """With one more, the latest; its rate is the slow script's if nothing was below it.

        What is kept anew has the place that it had.
        """
        name = choice.figure.switch
        made = dict(self.made)
        if not (choice.kept and name in self.switches):
            made.pop(name, None)
        made[name] = choice
        return replace(self.timed_by(choice.figure), made=made)

    def timed_by(self, figure: Figure) -> Choices:
        """With the rate of the first quiet figure that has the slow script below it."""
        unknown = not math.isfinite(figure.rate)
        known = self.sure and (figure.disturbed or self._is_timed)
        if unknown or figure.on_top_of or known:
            return self
        return replace(self, rate=figure.rate, disturbed=figure.disturbed)

    def with_rate(self, rate: float, disturbed: bool = False) -> Choices:
        """With the slow script's rate, unless a switch was timed on it: that counts more.

        A disturbed rate gives way to any other one, and takes the place of no other one.
        """
        if self.sure and (self._is_timed or disturbed):
            return self
        return replace(self, rate=rate, disturbed=disturbed)

    @property
    def _is_timed(self) -> bool:
        """Whether a switch was timed on the slow script."""
        return any(not choice.figure.on_top_of for choice in self.made.values())

    def undone(self, choice: Choice, before: Choices) -> Choices:
        """Without a choice that was made after ``before``: what was chosen then is chosen again.

        The rate stays: it was measured, not chosen. Nothing is undone where another choice came
        since, as in another notebook.
        """
        name = choice.figure.switch
        if not self.has(choice):
            return self
        made = [each for each in self.made.items() if each[0] != name]
        if name in before.made:
            made.insert(list(before.made).index(name), (name, before.made[name]))
        return replace(self, made=dict(made))

    def has(self, choice: Choice) -> bool:
        """Whether this is the latest choice of its switch."""
        # A nan is equal to none, and written like all others.
        return repr(self.made.get(choice.figure.switch)) == repr(choice)


def board_path() -> Path:
    """``LABKIT_BOARD``, else `board.json` in the folder where this system keeps users' data."""
    own = os.environ.get("LABKIT_BOARD")
    if own:
        return Path(own).expanduser()
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Application Support"
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return folder / "pytorch-speed-lab" / "board.json"


def shown(path: Path) -> str:
    """The path as it is shown: a notebook that is passed on should not name its reader's home."""
    if path.is_relative_to(Path.home()):
        return str(Path("~") / path.relative_to(Path.home()))
    return str(path)


def read(path: Path, machine: str) -> Choices:
    """The choices made on a machine; none where there is no file. BoardError says what is wrong."""
    return _choices(_content(path), machine)


def change(path: Path, machine: str, how: Callable[[Choices], Choices]) -> tuple[Choices, str]:
    """Change a machine's choices; what they are now, and what the reader should know, if anything.

    BoardError where that is not possible: the file is as it was.
    """
    said = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            try:
                content = _content(path)
                present = _choices(content, machine)
            except Damaged as error:
                aside = _put_aside(path)
                said = f"{error} It is kept as {aside.name}; a new file was begun."
                content, present = {"schema": SCHEMA, "about": ABOUT, "machines": {}}, Choices()
            present = how(present)
            content["machines"][machine] = _entry_of(present)
            _replace(path, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise BoardError(
            f"{shown(path)} cannot be written: {why}. Nothing in it has changed. {ELSEWHERE}"
        ) from error
    return present, said


def _content(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"schema": SCHEMA, "about": ABOUT, "machines": {}}
    except UnicodeDecodeError:
        raise Damaged(f"{shown(path)} is damaged: it is no text.") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise BoardError(f"{shown(path)} cannot be read: {why}. {ELSEWHERE}") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise Damaged(f"{shown(path)} is damaged: {error}.") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, int) or not isinstance(content.get("machines"), dict):
        raise Damaged(f"{shown(path)} is damaged: it holds no board.")
    if schema > SCHEMA:
        raise BoardError(
            f"{shown(path)} was written by a newer version of the course (schema {schema}; this "
            f"one knows {SCHEMA}). It is left as it is: update the course, or move the file away."
        )
    if schema < SCHEMA:
        raise Damaged(
            f"{shown(path)} was written by an older version of the course (schema {schema}; this "
            f"one knows {SCHEMA})."
        )
    return content


def _choices(content: dict[str, Any], machine: str) -> Choices:
    try:
        entry = content["machines"].get(machine)
        if entry is None:
            return Choices()
        made = {}
        for name, choice in entry["switches"].items():
            made[name] = Choice(_figure(name, choice), bool(choice["kept"]))
        disturbed = bool(entry.get("disturbed", False))
        runs = tuple(map(_run, entry.get("runs", [])))
        return Choices(from_json(entry["rate"]), made, disturbed, runs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the board of {machine!r} is damaged: {error!r}.") from None


def _run(entry: dict[str, Any]) -> Run:
    switches, seconds = tuple(map(str, entry["switches"])), from_json(entry["seconds"])
    return Run(switches, seconds, str(entry["date"]), bool(entry["disturbed"]))


def _figure(name: str, entry: dict[str, Any]) -> Figure:
    low, high = entry["interval"]
    return Figure(
        switch=name,
        mode=str(entry["mode"]),
        on_top_of=tuple(map(str, entry["on_top_of"])),
        factor=from_json(entry["factor"]),
        interval=(from_json(low), from_json(high)),
        verdict=str(entry["verdict"]),
        rate=from_json(entry["rate"]),
        memory=from_json(entry["memory"]),
        date=str(entry["date"]),
        torch=str(entry["torch"]),
        stopped=bool(entry["stopped"]),
        pairs=int(entry.get("pairs", 0)),
        agree=str(entry.get("agree", "")),
        peak=from_json(entry.get("peak")),
        disturbed=bool(entry.get("disturbed", False)),
        bound=from_json(entry.get("bound")),
    )


def _entry_of(choices: Choices) -> dict[str, Any]:
    switches = {}
    for name, choice in choices.made.items():
        entry = asdict(choice.figure)
        entry.pop("switch")
        for key in ("factor", "rate", "memory", "peak", "bound"):
            entry[key] = as_json(entry[key])
        entry["interval"] = [as_json(end) for end in entry["interval"]]
        switches[name] = {"kept": choice.kept} | entry
    rate = as_json(choices.rate)
    found: dict[str, Any] = {"rate": rate, "disturbed": choices.disturbed, "switches": switches}
    if choices.runs:
        found["runs"] = [asdict(run) | {"seconds": as_json(run.seconds)} for run in choices.runs]
    return found


def _put_aside(path: Path) -> Path:
    """Give the file a name that is free."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.aside-{number}{path.suffix}")).exists():
        number += 1
    os.replace(path, aside)
    return aside


def _replace(path: Path, text: str) -> None:
    """Replace the file as a whole; its lock is held, so one name for the draft is enough."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with the file; the system gives the lock back when a process ends, however it ends."""
    with path.with_name(f".{path.name}.lock").open("a") as file:
        end = time.monotonic() + PATIENCE
        while not _lock(file):
            if time.monotonic() > end:
                raise BoardError(
                    f"{shown(path)} is in use: another kernel has been writing for {PATIENCE:g} s. "
                    "Nothing has changed; try again, or restart that kernel."
                )
            time.sleep(0.02)
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
