"""``python -m labkit.remote [SCRIPT ARGUMENTS]``: a child, started by `labkit.remote.children`."""

from labkit.remote.serving import main

main()
