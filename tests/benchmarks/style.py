"""How the code reads, in figures: ``uv run python tests/benchmarks/style.py [FOLDER ...]``.

For each room: lines with code or text, their mean length, the share over 100 columns; per 1,000 of
these lines: comprehensions, conditional expressions, comments behind code, uses of `Any`; the
function with the most statements. For comparison: equinox has lines of 42 characters, 6
comprehensions, 4 conditional expressions and 5 comments behind code per 1,000 lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from labkit.text import aligned

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("labkit", "sublinear", "course", "tests")
COLUMNS = 100

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# Comments that a tool reads must stand behind the code that they speak of.
DIRECTIVES = ("# noqa", "# type:", "# fmt:", "# pragma:")

HEAD = [
    "room",
    "files",
    "lines",
    "columns",
    "over 100",
    "comprehensions",
    "ternaries",
    "trailing",
    "Any",
    "longest function",
]


@dataclass
class Style:
    """Counts over some files; ``longest`` is the function with the most statements."""

    files: int = 0
    lines: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    longest: tuple[int, str] = (0, "")

    def add(self, path: Path) -> None:
        """Count one file."""
        source = path.read_text(encoding="utf-8")
        self.files += 1
        for line in source.splitlines():
            if line.strip():
                self.lines.append(len(line))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, COMPREHENSIONS):
                self.counts["comprehensions"] += 1
            elif isinstance(node, ast.IfExp):
                self.counts["ternaries"] += 1
            elif isinstance(node, ast.Name) and node.id == "Any":
                self.counts["Any"] += 1
            elif isinstance(node, FUNCTIONS):
                name = f"{path.relative_to(ROOT)}:{node.name}"
                self.longest = max(self.longest, (statements(node), name))
        self.counts["trailing"] += sum(1 for _ in trailing_comments(source))

    def row(self, room: str) -> list[str]:
        """The figures as texts, in the order of `HEAD`."""
        count = len(self.lines)
        if count == 0:
            raise ValueError(f"{room!r} holds no Python code")
        over = sum(length > COLUMNS for length in self.lines)
        row = [room, f"{self.files}", f"{count}"]
        row += [f"{sum(self.lines) / count:.1f}", f"{100 * over / count:.1f} %"]
        for name in HEAD[5:9]:
            row.append(f"{1000 * self.counts[name] / count:.1f}")
        number, place = self.longest
        return [*row, f"{number}  {place}"]


def statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Statements in a function, without its own line and docstring."""
    found = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
    return found - (ast.get_docstring(function) is not None)


def trailing_comments(source: str) -> Iterator[str]:
    """Comments behind code, but for directives."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(DIRECTIVES):
            before = token.line[: token.start[1]]
            if before.strip():
                yield token.string


def main(rooms: list[str]) -> None:
    """Print the table."""
    rows = [HEAD]
    for room in rooms:
        style = Style()
        for path in sorted((ROOT / room).rglob("*.py")):
            style.add(path)
        rows.append(style.row(room))
    print(aligned(rows))


if __name__ == "__main__":
    main(sys.argv[1:] or list(ROOMS))
