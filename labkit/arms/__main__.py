"""A child process: ``python -m labkit.arms [SCRIPT ARGUMENTS]``, started by `labkit.arms.children`."""

from labkit.arms.serve import main

main()
