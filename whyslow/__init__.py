"""Why is my training slow? `watch` says which lines take its time, `diagnose` what would save it.

`with whyslow.watch():` around a loop, `whyslow.start()` at the top of a script or in a cell, and
`python -m whyslow train.py` look at a program as it runs, line by line.
`whyslow.diagnose(step, batches=loader)` takes one step and experiments with it, on its largest part
first.
"""

from __future__ import annotations

from whyslow.findings import Diagnosis, Finding
from whyslow.report import Report
from whyslow.session import diagnose
from whyslow.watching import Watch, start

__all__ = ["Diagnosis", "Finding", "Report", "Watch", "diagnose", "start", "watch"]

# As it reads: ``with whyslow.watch():``.
watch = Watch
