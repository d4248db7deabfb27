"""`python -m labkit`: the `labkit` command of a checkout that is not installed."""

import sys

from labkit.cli import main

sys.exit(main())
