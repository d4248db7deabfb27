"""`python -m whyslow`: see `whyslow.cli`."""

import sys

from whyslow.cli import main

sys.exit(main())
