"""Programs with planted faults, tuned programs, and the tests of the diagnosis."""
