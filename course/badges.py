"""Badges that open a fork in Colab and in Codespaces: ``python -m course badges``.

The addresses are made from the checkout's own remote, and from nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from course import colab
from course.notebook_files import ROOT
from course.written import write_whole

# A copy that fetches the course: a notebook of Colab's has nothing beside it.
FIRST = f"{colab.FOLDER}/00_start_here.ipynb"
# https://github.com/owner/name(.git), git@github.com:owner/name(.git), ssh://git@github.com/...
GITHUB = re.compile(
    r"^(?:https://|ssh://git@|git@)github\.com[:/]([\w.-]+)/([\w.-]+?)(?:\.git)?/?$"
)


class NoRemote(ValueError):
    """The checkout has no remote that badges could lead to."""


def fork_of(remote: str) -> str:
    """``"owner/name"`` of a remote on GitHub. NoRemote for any other."""
    found = GITHUB.match(remote)
    if found is None:
        raise NoRemote(
            f"{remote!r} is no repository on GitHub: Colab and Codespaces open only those"
        )
    return f"{found[1]}/{found[2]}"


def badges(remote: str, branch: str) -> str:
    """The lines of markdown for a fork at ``remote``. NoRemote for one that is not on GitHub."""
    fork = fork_of(remote)
    first = f"https://colab.research.google.com/github/{fork}/blob/{branch}/{FIRST}"
    codespaces = f"https://codespaces.new/{fork}/tree/{branch}"
    return (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({first})\n"
        f"[![Open in Codespaces](https://github.com/codespaces/badge.svg)]({codespaces})\n"
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def main(args: Any) -> int:
    """Print the badges of this checkout's ``origin``; with ``--write`` put them into README.md, and
    write the notebooks for Colab.
    """
    remote = _git("remote", "get-url", "origin")
    branch = _git("rev-parse", "--abbrev-ref", "HEAD") or "main"
    try:
        if not remote:
            raise NoRemote("this checkout has no remote named origin: fork it, and clone your fork")
        lines = badges(remote, branch)
    except NoRemote as error:
        print(f"course: {error}", file=sys.stderr)
        return 1
    print(lines, end="")
    if args.write:
        readme = ROOT / "README.md"
        write_whole(readme, with_badges(readme.read_text(encoding="utf-8"), lines))
        written = colab.write(fork_of(remote), branch, ROOT)
        print(f"{len(written)} notebooks in {colab.FOLDER}/: commit them with README.md")
    return 0


def with_badges(readme: str, lines: str) -> str:
    """The README with these badges below its title, in place of others."""
    title, _, rest = readme.partition("\n")
    rest = re.sub(r"\A\n?(?:\[!\[[^\n]*\n)*\n?", "", rest)
    return f"{title}\n\n{lines}\n{rest}"
