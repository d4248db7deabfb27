"""Bars: a display of the cell in a notebook, tqdm in a terminal,
and nothing where nobody watches.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tqdm import tqdm

from labkit import progress as module
from labkit.progress import progress


class Kernel:
    def __init__(self, allow_stdin: bool) -> None:
        self.request = {"content": {"allow_stdin": allow_stdin}, "header": {"msg_id": "cell-1"}}

    def get_parent(self, _: str) -> dict[str, Any]:
        return self.request


class Shell:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], str, bool]]:
    """What bars display: the bundle, the display's name, and whether it replaces what is there."""
    found = []

    def publish(data: Any, *, transient: Any, update: bool) -> None:
        found.append((data, transient["display_id"], update))

    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    monkeypatch.setattr(module, "_latest", {})
    return found


def use_kernel(monkeypatch: pytest.MonkeyPatch, *, allow_stdin: bool) -> Kernel:
    kernel = Kernel(allow_stdin)
    monkeypatch.setattr("IPython.get_ipython", lambda: Shell(kernel))
    return kernel


def run_bar(**options: Any) -> None:
    with progress(total=4, desc="<work>", unit="run", delay=0, mininterval=0, **options) as bar:
        for _ in range(4):
            bar.update()


def test_in_a_notebook_the_bars_of_a_cell_share_one_display_that_ends_empty(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = use_kernel(monkeypatch, allow_stdin=True)
    run_bar()
    first, *others = sent
    assert "&lt;work&gt; 0 / 4 run" in first[0]["text/html"]
    assert not first[2]
    assert all(update for _, _, update in others)
    assert any("<work> 4 / 4 run" in bundle.get("text/plain", "") for bundle, _, _ in others)
    assert sent[-1][0] == {}
    count = len(sent)

    run_bar()
    assert all(update for _, _, update in sent[count:])
    assert len({name for _, name, _ in sent}) == 1
    kernel.request["header"]["msg_id"] = "cell-2"
    count = len(sent)
    run_bar()
    assert not sent[count][2]
    assert sent[count][1] != first[1]
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_was_never_seen_leaves_nothing(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(monkeypatch, allow_stdin=True)
    with progress(total=2) as bar:
        bar.update(2)
    assert sent == []


def test_a_notebook_that_a_program_runs_shows_nothing(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_kernel(monkeypatch, allow_stdin=False)
    run_bar()
    assert sent == []
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_and_other_places_have_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_bar()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run_bar()
    out, err = capsys.readouterr()
    assert out == ""
    assert "<work>" in err
    assert err.endswith("\r")


def test_the_reader_s_own_bars_keep_their_monitor(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tqdm.monitor_interval
    assert before > 0
    with progress(total=1, disable=False) as bar:
        assert isinstance(bar, tqdm) and bar.monitor_interval == 0
    use_kernel(monkeypatch, allow_stdin=True)
    with progress(total=1) as bar:
        assert bar.monitor_interval == 0
    assert tqdm.monitor_interval == before


def test_work_goes_on_where_no_bar_is_shown() -> None:
    assert list(progress(iterable=[1, 2, 3])) == [1, 2, 3]


def test_a_bar_without_a_total_counts(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_kernel(monkeypatch, allow_stdin=True)
    with progress(desc="unpacking", unit=" files", delay=0, mininterval=0) as bar:
        bar.update(27_000)
    texts = [bundle["text/plain"] for bundle, _, _ in sent if bundle]
    assert texts[-1] == "unpacking 27,000 files"
    assert capsys.readouterr() == ("", "")
