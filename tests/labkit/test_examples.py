"""The examples in the docstrings of the public names: they run, and say what is true."""

from __future__ import annotations

import doctest
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from matplotlib import pyplot

import labkit


@pytest.fixture(autouse=True)
def generators_as_they_were() -> Iterator[None]:
    """`seed_all` is one of the examples."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    pyplot.close("all")


@pytest.mark.parametrize("name", labkit.__all__)
def test_a_public_name_has_an_example_and_names_its_errors(name: str) -> None:
    public = getattr(labkit, name)
    words = public.__doc__ or ""
    assert ">>> " in words, f"{name} has no example"
    assert re.search(r"\b(Type|Value)Error\b", words), f"{name} names no error"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for example in doctest.DocTestFinder(recurse=False).find(public, name):
        runner.run(example, out=report.append)
    assert runner.tries > 0 and runner.failures == 0, "".join(report)
