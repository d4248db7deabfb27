"""Build the course's site from the notebooks and the recorded runs, without executing anything.

uv run python -m course.site.build [OUT]       OUT: course/site/_build/html

A new notebook, record or claim needs no work here; a notebook needs its section in
`course/teaching.md`. Every warning of Sphinx is an error, and so is a link that leads nowhere.

Why Sphinx with MyST-NB and not Jupyter Book 2: its builder (`mystmd`, tried in version 1.11)
asks a server for its theme at each first build and ends when that does not answer; bundling the
theme is an open issue (https://github.com/jupyter-book/mystmd/issues/210). Sphinx, MyST-NB and
the theme (Furo) are ordinary Python packages, so that a machine that reaches no more than a
package index builds the site. Sources stay MyST: to change back later is a matter of `conf.py`.
MathJax is one file from `sphinx-mathjax-offline`, so that formulas need no network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from course.site import pages

HERE = Path(__file__).resolve().parent


def build(out: Path) -> None:
    """Write the site to ``out``. Raises CalledProcessError: a warning of Sphinx is an error."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        pages.write_source(source)
        sphinx = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
        # One process: what the site needs is quickly read, and workers would each import it all
        # again.
        subprocess.run(
            [*sphinx, "-c", HERE, "-d", Path(folder, "doctrees"), source, out],
            check=True,
            env=_plain(),
        )
    shutil.copy(pages.mathjax(), out / "_static" / "tex-svg.js")


def _plain() -> dict[str, str]:
    """The environment without what would draw the build into a user's own settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPHINX", "JUPYTER"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=HERE / "_build" / "html")
    out = parser.parse_args().out.resolve()
    try:
        build(out)
    except subprocess.CalledProcessError as error:
        print(
            f"Sphinx ended with {error.returncode}; its warnings above are errors here",
            file=sys.stderr,
        )
        return 1
    print(f"{out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
