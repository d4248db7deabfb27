"""Python runs this at its start: where ``LABKIT_REHEARSE`` is set,
the process gets rehearsed cards.
"""

import os

if os.environ.get("LABKIT_REHEARSE"):
    from tests.rehearsal.install import from_environment

    from_environment()
