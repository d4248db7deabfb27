"""Labs count what a step does where an open journal asks for it."""

from contextlib import AbstractContextManager

from labkit.journal import journal


def counting() -> AbstractContextManager[None]:
    """A journal that asks labs to count, and keeps nothing."""
    return journal(lambda result, about: None, counters=True)
