"""What each rank runs: meet the others, then do what the notebook asks."""

import os

from course.ranks import here
from labkit.remote import serve

# The profiler's own messages are not for the reader's page.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def number() -> int:
    """Which rank this process is."""
    return here().number


here()
serve(number)
