"""`python -m course open`: a notebook in JupyterLab, once it is sure that Jupyter can start.

Where Jupyter may not write to its folders it ends in a traceback; here it is told in one sentence.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from course.notebook_files import ROOT, notebook_path


def why_not() -> str | None:
    """Why Jupyter could not start, in one sentence; None where it can."""
    # Not above: those who only record have no Jupyter.
    from jupyter_core.paths import jupyter_config_dir, jupyter_data_dir, jupyter_runtime_dir

    for place in (jupyter_config_dir(), jupyter_data_dir(), jupyter_runtime_dir()):
        folder = Path(place)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            return (
                f"Jupyter cannot write to {folder} ({error.strerror}): set HOME to a folder of "
                "your own, as in `export HOME=/tmp/home`"
            )
    return None


def main(args: argparse.Namespace) -> int:
    """Open a notebook; 1, with a sentence, where that cannot be done."""
    path = notebook_path(args.notebook.removesuffix(".ipynb"))
    trouble = why_not()
    if not path.exists():
        trouble = f"there is no notebook {args.notebook!r} in {path.parent}"
    if trouble:
        print(f"course: {trouble}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}", str(path)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    if os.name == "posix":
        # In the place of this process: Ctrl-C is Jupyter's.
        os.execv(sys.executable, command)
    return subprocess.call(command)
