"""Reads ``NN_name.toml`` of this folder: the claims and corrections of one notebook.

A text may go over several lines; it is one paragraph all the same. A correction's ``holds`` is
the name of a function in `course.claims.checks`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TypeVar, cast

from course.claims import checks
from course.claims.claim import Claim, Correction, Range

FOLDER = Path(__file__).parent

# What TOML gives for the type that a field is annotated with.
KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "Range": (list,),
    "Settings": (dict,),
    "Mapping[str, Settings]": (dict,),
    "float | None": (float, int),
    "int | None": (int,),
    "Callable[[], bool] | None": (str,),
    "tuple[str, ...]": (list,),
}

Entry = Mapping[str, object]
Made = TypeVar("Made", Claim, Correction)


def names(folder: Path = FOLDER) -> list[str]:
    """The notebooks that have claims, in order; the template is none of them."""
    return sorted(path.stem for path in folder.glob("[0-9]*.toml"))


def load(notebook: str, folder: Path = FOLDER) -> tuple[list[Claim], list[Correction]]:
    """The claims and corrections of a notebook. ValueError names the file, the entry and
    the field.
    """
    path = folder / f"{notebook}.toml"
    if not path.exists():
        raise ValueError(
            f"{notebook!r} has no claims; there are those of {', '.join(names(folder))}"
        )
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name}: {error}") from None
    for name in entries.keys() - {"claim", "correction"}:
        raise ValueError(f"{path.name}: {name}: use [[claim]] and [[correction]]")
    claims = []
    for number, entry in enumerate(entries.get("claim", ()), 1):
        claims.append(_read(f"{path.name}, claim {number}", entry, _claim))
    corrections = []
    for number, entry in enumerate(entries.get("correction", ()), 1):
        corrections.append(_read(f"{path.name}, correction {number}", entry, _correction))
    return claims, corrections


def _read(place: str, entry: Entry, make: Callable[[Entry], Made]) -> Made:
    try:
        return make(entry)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _claim(entry: Entry) -> Claim:
    values = _checked(entry, fields(Claim))
    for name in ("figure", "expect"):
        values[name] = _range(name, values[name])
    # The types were checked one by one.
    return Claim(**values)  # type: ignore[arg-type]


def _correction(entry: Entry) -> Correction:
    values = _checked(entry, fields(Correction))
    if "holds" in values:
        values["holds"] = _check(str(values["holds"]))
    return Correction(**values)  # type: ignore[arg-type]


def _checked(entry: Entry, known: Iterable[Field[object]]) -> dict[str, object]:
    """The entry's values, each of the type of its field; texts as one paragraph."""
    by_name = {each.name: each for each in known}
    for name in entry.keys() - by_name.keys():
        raise ValueError(f"{name}: no such field; there are {', '.join(by_name)}")
    values: dict[str, object] = {}
    for name, each in by_name.items():
        required = each.default is MISSING and each.default_factory is MISSING
        if name not in entry:
            if required:
                raise ValueError(f"{name} is missing")
            continue
        value = entry[name]
        kinds = KINDS[str(each.type)]
        if not isinstance(value, kinds) or isinstance(value, bool) != (bool in kinds):
            raise ValueError(f"{name}={value!r}: use {kinds[0].__name__}")
        if isinstance(value, str):
            value = " ".join(value.split())
        if str(each.type) == "tuple[str, ...]":
            value = _numbers(name, value)
        values[name] = value
    return values


def _numbers(name: str, value: object) -> tuple[str, ...]:
    numbers = cast(list[object], value)
    if not all(isinstance(number, str) for number in numbers):
        raise ValueError(f'{name}={value!r}: use texts, such as ["000.22"]')
    return tuple(cast(list[str], numbers))


def _range(name: str, value: object) -> Range:
    bounds = cast(list[object], value)
    if len(bounds) != 2 or not all(isinstance(bound, int | float) for bound in bounds):
        raise ValueError(f"{name}={value!r}: use [low, high], two numbers")
    low, high = cast(list[float], bounds)
    return float(low), float(high)


def _check(name: str) -> Callable[[], bool]:
    found = getattr(checks, name, None)
    if found is None or getattr(found, "__module__", "") != checks.__name__:
        raise ValueError(f"holds={name!r}: no such function in course/claims/checks.py")
    return cast(Callable[[], bool], found)
