"""The end of a front notebook, and the file that keeps how far its reader has come."""

import json
from pathlib import Path

import pytest
from filelock import FileLock

from course import progress
from course.board import Board
from course.board.store import Figure
from course.ending import ALL, LAST, NO_BETS, ending
from course.exercises import own
from course.front import is_front
from course.notebook_files import course_notebooks, read_notebook
from course.progress import NAMED, PATH, next_after, note, read
from course.shortlist import shortlist
from course.way import DONE, OPEN, STAR
from labkit.panel import guess
from labkit.panel.guess import Decided

RIGHT = Decided("narrow · How many times?", "1.0×", "1.02×", True)
WRONG = Decided("wide · How many times?", "64×", "7.30×", False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the reader's progress goes, which is not there yet."""
    monkeypatch.setenv("LABKIT_BOARD", str(tmp_path / "own" / "board.json"))
    return tmp_path / "own" / "progress.json"


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> guess.Score:
    """The bets of this session: one right, one wrong."""
    found = guess.Score()
    found.count("narrow", RIGHT)
    found.count("wide", WRONG)
    monkeypatch.setattr(guess, "SCORE", found)
    return found


def test_the_path_leads_through_front_notebooks_and_then_to_those_still_open() -> None:
    front = {path.stem for path in course_notebooks() if is_front(read_notebook(path))}
    assert set(PATH) == front
    assert [next_after(name) for name in PATH[:-1]] == [(name,) for name in PATH[1:]]
    assert next_after(PATH[-1]) == PATH[:NAMED]
    # What is finished is passed over, and the reader's own place.
    assert next_after(PATH[0], PATH[:3]) == (PATH[3],) and next_after(PATH[2], PATH) == ()
    passed = {*PATH} - {PATH[4], PATH[8], PATH[-1]}
    assert next_after(PATH[-1], passed) == (PATH[4], PATH[8])
    assert next_after(PATH[8], passed) == (PATH[-1],)


def test_an_ending_shows_bets_beside_measurements_and_what_comes_next(
    file: Path, score: guess.Score
) -> None:
    found = ending("06_mixed_precision")
    text, html = str(found), found._repr_html_()
    for shown in (text, html):
        assert "1.02×" in shown and "64×" in shown and "✓" in shown and "✗" in shown
        assert f"1 of {len(PATH)} notebooks finished, 1 of 2 bets right so far" in shown
        assert "15 Zeroing gradients" in shown and "15_zeroing_gradients.ipynb" in shown
    before = PATH.index("06_mixed_precision")
    assert before * OPEN + DONE + (len(PATH) - before - 1) * OPEN in text
    # A step for each, as a link; that of this notebook moves, unless the reader wants no motion.
    assert html.count('title="open"') == len(PATH) - 1
    assert 'href="18_gradient_clipping.ipynb"' in html
    assert html.count('class="labkit-done labkit-here labkit-new"') == 1
    assert "prefers-reduced-motion" in html
    assert "<details><summary>What other machines gained" in html
    assert "labkit-svg" in html.split("<details>")[1]


def test_a_bet_on_a_moving_picture_counts_by_its_first_answer(
    file: Path, score: guess.Score
) -> None:
    from course.explorables import LossCliff

    picture = LossCliff()
    asked = {"question": "Where does it end?", "answer": "up the cliff"}
    picture.bet = {**asked, "bet": "up the cliff", "right": True}
    picture.bet = {**asked, "bet": "in the valley", "right": False}
    found = ending("18_gradient_clipping")
    row = ["Where does it end?", "up the cliff", "up the cliff (simulated)", "✓"]
    assert row in found.rows and len(found.rows) == 4
    assert "2 of 3 bets right" in str(found)


def test_the_end_shows_the_speedrun_as_it_is_and_follows_a_choice(
    file: Path, score: guess.Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ending("18_gradient_clipping").speedrun == ""
    seen = []
    score.watch(lambda: seen.append(ending("18_gradient_clipping")))
    board = Board("gradient_clipping")
    board.latest = Figure(
        "gradient_clipping", "whole race", (), 2.0, (1.5, 2.5), "faster", 100.0, pairs=5
    )
    board.keep()
    (found,) = seen
    assert found.speedrun.startswith(f"Your speedrun: {board.waterfall.headline()}. clipping: 2.0")
    for shown in (str(found), found._repr_html_()):
        assert "clipping: 2.00x faster. Kept." in shown
    # Of another notebook its switch alone is left out.
    assert "clipping" not in ending("06_mixed_precision").speedrun


def test_the_first_and_the_last_notebook(file: Path, score: guess.Score) -> None:
    first = ending(PATH[0])._repr_html_()
    # It has no claims with a headline.
    assert "<details>" not in first and "01 Timing and vectorization" in first
    with pytest.raises(ValueError, match="'06_none' has no claims"):
        ending("06_none")


def test_the_last_notebook_names_what_is_open_and_shows_the_map(
    file: Path, score: guess.Score
) -> None:
    passed_over = {"05_batch_size", "19_bias_before_batchnorm"}
    for name in {*PATH[:-1]} - passed_over:
        note(name, [RIGHT])
    last = ending(PATH[-1])
    count = len(PATH)
    text, html = str(last), last._repr_html_()
    for shown in (text, html):
        assert "05_batch_size.ipynb" in shown and "19_bias_before_batchnorm.ipynb" in shown
        assert f"{count - 2} of {count} notebooks finished" in shown and LAST in shown
        assert f"{count - 2} of {count - 1} bets right so far" in shown
    assert text.count("Next: ") == 2 and str(shortlist()) in text
    assert shortlist()._repr_html_() in html
    # On the way there is none, until all are finished.
    assert ending(PATH[-2]).map is None
    for name in passed_over:
        note(name)
    for name in PATH[-2:]:
        found = ending(name)
        assert ALL in str(found) and ALL in found._repr_html_()
        assert "Next" not in str(found) and "Next" not in found._repr_html_()
    # The first shows the map below its ending.
    assert ending(PATH[0]).map is None


def test_without_a_bet_it_says_how_to_place_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    found = ending("04_data_loading")
    assert NO_BETS in str(found) and NO_BETS in found._repr_html_()
    assert "bets right" not in found.way
    # All cells were run and nobody has played.
    assert found.progress.finished == {} and not file.exists()


def test_a_picture_s_bet_alone_finishes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = guess.Score()
    monkeypatch.setattr(guess, "SCORE", found)
    found.count("picture", RIGHT, measured=False)
    assert not ending("04_data_loading").done and read().finished == {}
    found.count("panel", WRONG)
    assert ending("04_data_loading").done and len(read().bets) == 2


def test_decided_bets_count_in_a_notebook_that_is_not_finished(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = guess.Score()
    monkeypatch.setattr(guess, "SCORE", found)
    found.count("picture", RIGHT, measured=False)
    shown = ending("05_batch_size")
    assert shown.way.endswith(f"0 of {len(PATH)} notebooks finished, 1 of 1 bet right so far")
    assert NO_BETS in str(shown) and set(shown.way.split()[0]) == {OPEN}
    # In another notebook, and in another session of this one.
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    assert "1 of 1 bet right" in ending("06_mixed_precision").way
    assert ending("05_batch_size").rows[1][0] == RIGHT.question
    (row,) = [entry.texts() for entry in shortlist().entries if entry.title[:2] == "05"]
    assert row[0] == "05 Batch size" and row[2] == "1 of 1"


def test_a_run_that_decides_nothing_finishes_a_notebook_and_scores_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = guess.Score()
    monkeypatch.setattr(guess, "SCORE", found)
    found.leave_open("stopped", "wide: How many times?", "64×", measured=False)
    assert not ending("05_batch_size").done and not file.exists()
    found.leave_open("unclear", "narrow: How many times?", "2.0×")
    shown = ending("05_batch_size")
    assert shown.done and NO_BETS not in str(shown)
    assert shown.rows[-1] == ["narrow: How many times?", "2.0×", "not decided", "–"]
    assert shown.way.endswith(f"1 of {len(PATH)} notebooks finished") and read().bets == ()


def test_the_end_is_renewed_with_each_bet(
    file: Path, score: guess.Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            shown.append(content)

    def display(content: dict[str, str], **options: bool) -> Handle:
        assert options == {"raw": True, "display_id": True}
        shown.append(content)
        return Handle()

    monkeypatch.setattr("course.ending.display", display)
    ending("04_data_loading")._ipython_display_()
    assert "1 of 2 bets right" in shown[-1]["text/plain"]
    score.count("third", Decided("third: Which?", "a", "a", True))
    assert "2 of 3 bets right" in shown[-1]["text/html"]
    score.leave_open("fourth", "fourth: Which?", "b")
    assert "fourth: Which?" in shown[-1]["text/plain"] and len(shown) == 3


def test_a_bet_that_no_run_decided_is_listed(file: Path, score: guess.Score) -> None:
    score.leave_open("wide", WRONG.question, "64×")
    score.leave_open("third", "third: Which is faster?", "neither")
    found = ending("04_data_loading")
    # The first was decided, too.
    assert found.rows[-1] == ["third: Which is faster?", "neither", "not decided", "–"]
    assert len(found.rows) == 4 and "not decided" in found._repr_html_()


def test_bets_are_kept_over_the_course_and_the_first_answer_counts(file: Path) -> None:
    note("00_start_here", [WRONG])
    note("06_mixed_precision", [RIGHT])
    # Bet again, in another session.
    again = Decided(WRONG.question, "7.0×", "7.30×", True)
    other = Decided("other: Which?", "both", "one", False)
    found = note("00_start_here", [again, other])
    assert set(found.bets_in("00_start_here")) == {WRONG, other}
    assert found == read()
    assert [bet.right for bet in found.bets].count(True) == 1 and len(found.bets) == 3


def test_a_solved_exercise_is_a_star_that_stays(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "_won", {"check_06_mixed_linear"})
    ending("06_mixed_precision")
    monkeypatch.setattr(own, "_won", set())
    note("15_zeroing_gradients", [RIGHT])
    found = ending("06_mixed_precision")
    first = PATH.index("06_mixed_precision")
    assert PATH[first + 1] == "15_zeroing_gradients"
    assert first * OPEN + STAR + DONE + (len(PATH) - first - 2) * OPEN in str(found)
    assert f"2 of {len(PATH)} notebooks finished, 1 exercise solved (★)" in str(found)
    assert found._repr_html_().count('<span class="labkit-star">★</span>') == 1
    # Files from before say nothing of it.
    content = json.loads(file.read_text())
    # Nor of being finished: they held no others.
    for name in ("solved", "done"):
        del content["notebooks"]["06_mixed_precision"][name]
    file.write_text(json.dumps(content))
    assert not read().finished["06_mixed_precision"].solved


def test_nothing_is_written_in_the_test_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LABKIT_BOARD", raising=False)
    monkeypatch.setattr(progress, "board_path", lambda: tmp_path / "board.json")
    assert PATH[0] in note(PATH[0], [RIGHT]).finished
    assert read() == progress.Progress()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is damaged: JSONDecodeError"),
        ("[]", "is damaged: TypeError"),
        ('{"schema": 1, "notebooks": {"a": {"date": "", "bets": [{}]}}}', "is damaged: KeyError"),
        ('{"schema": 9, "notebooks": {}}', "has schema 9; this version knows 1"),
    ],
)
def test_a_damaged_file_is_told_and_put_aside(file: Path, content: str, words: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    assert words in read().said and read().finished == {}
    assert file.read_text() == content
    found = note(PATH[0], [RIGHT])
    assert words in found.said and "kept as progress.aside-1.json" in found.said
    assert file.with_name("progress.aside-1.json").read_text() == content
    assert json.loads(file.read_text())["notebooks"][PATH[0]]["bets"][0]["bet"] == "1.0×"
    assert read().said == ""


def test_a_file_that_cannot_be_written_is_no_error(
    file: Path, score: guess.Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.write_text("a file in the folder's place")
    found = note(PATH[0], [RIGHT])
    assert "cannot be used" in found.said and "Nothing was noted." in found.said
    assert found.bets == (RIGHT,)
    file.parent.unlink()
    file.parent.mkdir()
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with FileLock(file.with_name(".progress.json.lock")):
        assert "is in use" in ending(PATH[0])._repr_html_()
    assert not file.exists()
