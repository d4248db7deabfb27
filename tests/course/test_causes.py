"""Each cause that whyslow names has a notebook of the course, and whyslow knows none of them."""

import re
from pathlib import Path

import pytest

import whyslow
from course import causes
from course.notebook_files import notebook_path
from whyslow import Diagnosis, Finding
from whyslow.remedies import REMEDIES
from whyslow.stacks import CAUSES


def test_each_cause_has_a_notebook_and_no_other_is_listed():
    listed = [cause for names in causes.NOTEBOOKS.values() for cause in names]
    assert sorted(listed) == sorted({*REMEDIES, *CAUSES})


@pytest.mark.parametrize("name", causes.NOTEBOOKS)
def test_each_of_them_exists(name):
    assert notebook_path(name).exists()


def test_whyslow_names_no_notebook():
    for path in Path(whyslow.__file__).parent.rglob("*.py"):
        assert not re.search(r"\b\d\d_[a-z]+_", path.read_text(encoding="utf-8")), path


def test_where_to_read_on_about_a_finding():
    found = Finding("waits for data", 0.5, (0.4, 0.6), "so", "do\nthis")
    told = list(causes.further(Diagnosis((found,), 0.1, 20.0)))
    assert told == ["waits for data: notebook 04_data_loading"]
    with pytest.raises(KeyError):
        causes.notebook_of("nothing of the kind")
