"""`python -m course`: see `course.cli`."""

import sys

from course.cli import main

sys.exit(main())
