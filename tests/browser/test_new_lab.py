"""The moving picture of a new lab, in a copy of the checkout: its model, its still, its bet."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.labs.copies import LABS, copy_with_labs, pytest_in, run_in

pytestmark = pytest.mark.browser


def test_a_new_lab_s_picture_passes_the_tests_of_pictures(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert browser.is_connected()
    copy_with_labs(tmp_path)
    first = next(iter(LABS))
    picture = "".join(word.capitalize() for word in first[3:].split("_"))
    done = run_in(tmp_path, "-m", "course.site.stills", picture)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("LABKIT_PICTURES", picture)
    model = f"tests/browser/test_explorable_{first[:2]}.py"
    others = "tests/browser/test_explorables.py", "tests/course/test_stills.py"
    done = pytest_in(tmp_path, model, *others, "-k", chosen(picture))
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 8


def chosen(picture: str) -> str:
    """The model's own tests, and of all pictures' tests those of this one."""
    return f"a_step_takes or {picture}"
