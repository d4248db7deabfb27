"""Rehearsals in forks, which begin with torch: most take less time than its import."""

import pytest


@pytest.fixture(autouse=True)
def in_forks(forked_python: None) -> None:
    """A fork gets its cards as it begins, as a fresh process does."""
