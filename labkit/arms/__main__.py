"""``python -m labkit.arms [SCRIPT ARGUMENTS]``: a child, started by `labkit.arms.children`."""

from labkit.arms.serve import main

main()
