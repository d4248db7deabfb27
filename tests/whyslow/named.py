"""What the diagnosis names in programs, in a process of its own: ``python -m tests.whyslow.named
NAME ...``. Prints a line of JSON for each: ``names``, the worst first, and ``text``.
"""

from __future__ import annotations

import json
import sys

import torch

import whyslow
from tests.whyslow.programs import PROGRAMS


def main(name: str, seconds: float = 3.0) -> None:
    """Diagnose the faulty form of this program."""
    torch.manual_seed(0)
    program = PROGRAMS[name].make(False)
    try:
        found = whyslow.diagnose(program.step, program.batches, seconds=seconds)
    finally:
        program.close()
    print(json.dumps({"names": [each.name for each in found], "text": str(found)}))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
