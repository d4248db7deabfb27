"""The `whyslow` command, run in this process."""

import sys

import pytest

from whyslow.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["pyproject.toml"], "'pyproject.toml' is no Python script"),
        (["whyslow/lines.py:main"], "there is no file 'whyslow/lines.py:main'"),
        (["--seconds", "0", "whyslow/lines.py"], "seconds=0.0"),
    ],
)
def test_what_cannot_be_watched_is_named(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(sys, "argv", ["whyslow", *arguments])
    with pytest.raises(SystemExit) as error:
        main()
    assert error.value.code == 2
    assert words in capsys.readouterr().err
