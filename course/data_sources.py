"""Files of the data sets: where they come from, and that each one is what its checksum says.

A set is taken from the first place that has it undamaged: the folder named by the environment
variable LABKIT_DATA, the project's cache, a download. `data_sources.json` lists every file with its
checksum, because `d2l.download` does not verify what it fetched.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

import pooch
from requests import RequestException

from labkit.progress import progress


class Entry(TypedDict):
    """One file: its name in a folder, its checksum as ``algorithm:digits``, its size in bytes."""

    name: str
    checksum: str
    url: NotRequired[str]
    bytes: NotRequired[int]


class DataSet(TypedDict):
    """One set; each of its forms is a list of files that is enough alone. The first is fetched."""

    title: str
    origin: str
    licence: str
    forms: list[list[Entry]]


class Copy(NamedTuple):
    """A copy of a set: where it is, whether it is complete and intact, what is wrong with files."""

    source: str
    complete: bool
    files: dict[Path, str | None]


_MANIFEST = Path(__file__).with_name("data_sources.json")
SETS: dict[str, DataSet] = json.loads(_MANIFEST.read_text(encoding="utf-8"))


def cache_dir() -> Path:
    """`data/cache` of a checkout; for an installed package `.cache/labkit` in the user's home."""
    root = Path(__file__).resolve().parent.parent
    if (root / "pyproject.toml").is_file() and (root / "data").is_dir():
        return root / "data" / "cache"
    return Path.home() / ".cache" / "labkit"


def copies(name: str) -> Iterator[Copy]:
    """Each copy of a set, best first. Raises NotADirectoryError where LABKIT_DATA is no folder."""
    for source, root in _folders().items():
        for form in SETS[name]["forms"]:
            found = {}
            for entry in form:
                path = root / entry["name"]
                if path.is_file():
                    found[path] = damage(path, entry["checksum"])
            complete = len(found) == len(form) and not any(found.values())
            yield Copy(source, complete, found)


def files(name: str) -> list[Path]:
    """The files of the first complete copy, else a download. Damaged ones are named on stderr.

    Raises ConnectionError where nothing can be fetched, OSError where a file is damaged and cannot
    be fetched again.
    """
    for copy in copies(name):
        if copy.complete:
            return list(copy.files)
        for problem in filter(None, copy.files.values()):
            left = " and left as it is" if copy.source == "LABKIT_DATA" else ""
            print(f"labkit: {problem}. It is not used{left}.", file=sys.stderr)
    return [_cached(name, entry) for entry in SETS[name]["forms"][0]]


def damage(path: Path, checksum: str) -> str | None:
    """What is wrong with a file, with both checksums; None where it is intact."""
    algorithm, expected = checksum.split(":")
    found = pooch.file_hash(str(path), alg=algorithm)
    if found == expected:
        return None
    return f"{path} is damaged: {algorithm} {expected} expected, {found} found"


def _folders() -> dict[str, Path]:
    """The folders where sets may lie, by the name of the source, best first."""
    own = os.environ.get("LABKIT_DATA")
    if not own:
        return {"cache": cache_dir()}
    if not Path(own).is_dir():
        raise NotADirectoryError(
            f"LABKIT_DATA={own!r} is not a folder; name an existing one, or unset it"
        )
    return {"LABKIT_DATA": Path(own), "cache": cache_dir()}


def _cached(name: str, entry: Entry) -> Path:
    """The verified file in the cache, downloaded if it is missing or damaged."""
    path = cache_dir() / entry["name"]
    problem = None
    if path.is_file():
        problem = damage(path, entry["checksum"])
        if problem is None:
            return path
    try:
        _download(name, entry, path)
    except OSError as error:
        if problem is None:
            raise
        raise OSError(f"{problem}, and cannot be fetched again. {error}") from None
    return path


def _download(name: str, entry: Entry, path: Path) -> None:
    """Fetch one file; until it is whole and verified, ``path`` stays as it is.

    Raises ConnectionError if offline, OSError if what came is not what the checksum says.
    """
    url = entry["url"]
    bar = progress(total=entry["bytes"], desc=entry["name"], unit="B", unit_scale=True)
    # Unpacked on the way, a file would no longer be the one that the checksum was taken of.
    as_it_is = {"Accept-Encoding": "identity"}
    fetch = pooch.HTTPDownloader(bar, chunk_size=2**18, timeout=10, headers=as_it_is)
    try:
        with closing(bar), _quiet(pooch.get_logger()):
            pooch.retrieve(url, entry["checksum"], path.name, path.parent, downloader=fetch)
    except RequestException as error:
        raise ConnectionError(
            f"{name}: {url} cannot be reached ({_innermost(error)}). Without internet, "
            f"{_by_hand(name)}"
        ) from error
    except ValueError as error:
        sums = re.search(r"expected \S+ but got \w+", str(error))
        raise OSError(
            f"{entry['name']}: what came from {url} is another file, as when a proxy answers "
            f"({sums[0] if sums else error}). It was not kept; try again, or {_by_hand(name)}"
        ) from None
    # pooch's temporary file is for its owner alone; a cache is often one for a whole class.
    path.chmod(0o644)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """No messages below a warning: in a notebook they would stay there in red."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _innermost(error: BaseException) -> BaseException:
    """What lies under the errors that requests and urllib3 wrap into each other."""
    if error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _by_hand(name: str) -> str:
    """What a reader can do, who has the files from elsewhere."""
    return f"put {_wanted(name)} into a folder and set the variable LABKIT_DATA to it."


def _wanted(name: str) -> str:
    """The files or folders that make up a set, in each of its forms."""
    forms = []
    for form in SETS[name]["forms"]:
        parts = dict.fromkeys(Path(entry["name"]).parts[0] for entry in form)
        forms.append(", ".join(parts))
    return " or ".join(forms)
