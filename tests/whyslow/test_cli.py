"""The `whyslow` command, run in this process."""

import pytest

from whyslow.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["pyproject.toml"], "'pyproject.toml' is no Python script"),
        (["whyslow/cli.py:main"], "there is no file 'whyslow/cli.py:main'"),
        (["--seconds", "0", "whyslow/cli.py"], "seconds=0.0"),
    ],
)
def test_what_cannot_be_watched_is_named(capsys, arguments, words):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert words in capsys.readouterr().err
