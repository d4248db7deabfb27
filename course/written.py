"""What the course writes: tables in Markdown, and files that are written whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts, the first the head, as a Markdown table."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, and its folders, so that a full disk or an interrupt leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    if isinstance(content, str):
        content = content.encode("utf-8")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
