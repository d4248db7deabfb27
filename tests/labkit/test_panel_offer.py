"""A scenario that is offered later: a new bet, and values that were withheld until then."""

from __future__ import annotations

import pytest

from labkit import Lab, Workload
from labkit.panel import Bet, LabPanel
from labkit.panel.run import CELLS


def make_workload(update: str, rows: int, flag: bool) -> Workload:
    return Workload(lambda: None, rows)


@pytest.fixture
def panel() -> LabPanel:
    lab = Lab(
        make_workload,
        memory=False,
        update=["torch", "yours"],
        flag=[False, True],
        situation={"rows": [1, 2, 4]},
        scenarios={"few": {"rows": 1, "flag": True}},
        unavailable={"update": {"yours": "build it below"}},
    )
    return LabPanel(lab)


def test_it_is_chosen_with_its_bet_open(panel: LabPanel) -> None:
    shown = panel.offer("many", Bet("Which is faster?", "order"), rows=4, flag=True)
    assert shown is panel and panel.scenario == "many"
    assert panel.settings() == {"flag": True, "rows": 4}
    assert panel.bet.bet == Bet("Which is faster?", "order") and not panel.bet.locked
    assert list(panel.scenarios) == ["few", "many"]
    button = panel.scenarios["few"]
    button.click()
    assert panel.scenario == "few"
    assert panel.bet.bet.kind == "factor"
    # As a widget on the page, too.
    assert button in panel._scenario_row.children


def test_a_withheld_value_can_be_chosen_from_then_on(panel: LabPanel) -> None:
    control = panel.controls["update"]
    assert not control.settable and control.candidate.disabled
    assert "build it below" in control.label.value
    with pytest.raises(ValueError, match="cannot run on this machine: build it below"):
        panel.lab.run(update="yours", seconds=0.05)
    panel.offer("your own", update="yours")
    assert panel.settings() == {"update": "yours", "flag": False, "rows": 1}
    assert panel.settings("baseline")["update"] == "torch"
    assert not control.candidate.disabled and "build it below" not in control.label.value
    assert "update" in panel.buttons.swept.options
    result = panel.run(wait=True)
    assert result.candidate.settings["update"] == "yours"


def test_a_switch_that_was_withheld_is_grey_no_more() -> None:
    reason = {"flag": {True: "slow here"}}
    lab = Lab(make_workload, update=["torch"], flag=[False, True], rows=[1], unavailable=reason)
    panel = LabPanel(lab)
    switch = panel.controls["flag"].candidate
    assert switch.disabled and "labkit-disabled" in switch._dom_classes
    panel.offer("all the same", flag=True)
    assert switch.value and not switch.disabled
    assert "labkit-disabled" not in switch._dom_classes


def test_offered_again_it_is_replaced_and_its_bet_is_open_again(panel: LabPanel) -> None:
    panel.offer("many", rows=4, flag=True)
    panel.bet.slider.value = 2.0
    panel.run(wait=True)
    assert panel.bet.locked
    panel.offer("many", Bet("How many times?"), rows=2, flag=True)
    assert list(panel.scenarios) == ["few", "many"]
    assert panel.settings()["rows"] == 2
    assert not panel.bet.locked and panel.bet.answer is None


def test_of_two_scenarios_with_the_same_settings_the_chosen_one_is_shown(panel: LabPanel) -> None:
    panel.offer("again", rows=1, flag=True)
    assert panel.scenario == "again"
    panel.choose("few")
    assert panel.scenario == "few"
    panel.controls["flag"].candidate.value = False
    assert panel.scenario is None


def test_a_scenario_ends_a_comparison_of_equal_sides(panel: LabPanel) -> None:
    panel.offer("many", rows=4)
    panel.controls["flag"].candidate.value = True
    panel.buttons.same.click()
    assert panel.settings() == panel.settings("baseline")
    panel.choose("many")
    assert panel.settings()["flag"] is True and panel.settings("baseline")["flag"] is False


def test_nothing_runs_before_it_is_asked_to(panel: LabPanel) -> None:
    panel.run(wait=True)
    panel.offer("many", rows=4, flag=True)
    panel.wait()
    assert len(panel.history) == 1


def test_of_several_that_a_cell_offers_the_first_is_chosen(
    panel: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = "breaks", "first run"
    monkeypatch.setattr("labkit.panel.panel.current_cell", lambda: cell)
    panel.offer("many", rows=4)
    panel.offer("again", rows=2)
    assert panel.scenario == "many" and list(panel.scenarios) == ["few", "many", "again"]
    # Another cell, or the same one again.
    cell = "breaks", "second run"
    panel.offer("again", rows=2)
    assert panel.scenario == "again"


@pytest.fixture
def run_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell that offers was waiting for the one before."""
    monkeypatch.setattr(CELLS, "queued", True)


@pytest.mark.usefixtures("run_all")
def test_while_all_cells_are_run_the_first_scenario_stays(panel: LabPanel) -> None:
    first, before = panel.scenario, panel.settings()
    panel.offer("many", Bet("Which is faster?", "order"), rows=4, flag=True)
    panel.offer("your own", update="yours")
    assert panel.scenario == first and list(panel.scenarios) == ["few", "many", "your own"]
    assert panel.settings() == before | {"update": "torch"}
    panel.scenarios["many"].click()
    assert panel.scenario == "many" and panel.bet.bet.kind == "order"
    panel.scenarios["your own"].click()
    assert panel.settings()["update"] == "yours"


@pytest.mark.usefixtures("run_all")
def test_what_is_offered_to_a_reader_who_has_begun_is_chosen(panel: LabPanel) -> None:
    panel.bet.even.click()
    panel.offer("many", rows=4, flag=True)
    assert panel.scenario == "many"


@pytest.mark.usefixtures("run_all")
def test_it_is_chosen_after_a_run(panel: LabPanel) -> None:
    panel.run(wait=True)
    panel.offer("many", rows=4, flag=True)
    assert panel.scenario == "many"


@pytest.mark.usefixtures("run_all")
def test_its_mode_comes_until_it_was_run() -> None:
    lab = Lab(
        lambda rate: Workload(lambda: None, evaluate=lambda: 1.0),
        rate=[1, 2],
        race={"target": 2, "steps": 4, "every": 2, "seeds": 2},
    )
    panel = LabPanel(lab)
    panel.offer("race it", Bet("Who arrives?", "arrives"), rate=2)
    assert panel.modes.value == "Time"
    panel.choose("race it")
    assert panel.modes.value == "Race"
    # Another offer, and back.
    panel.offer("time it", Bet("Which is faster?", "order"), rate=1)
    panel.choose("time it")
    assert panel.modes.value == "Time"
    panel.choose("race it")
    assert panel.modes.value == "Race"
    panel.run(wait=True)
    # Later the mode is the reader's.
    panel.modes.value = "Time"
    panel.choose("race it")
    assert panel.modes.value == "Time"
    panel.stop()
    panel.wait(30)


@pytest.mark.parametrize(
    ("bet", "settings", "error", "words"),
    [
        (Bet("How many?", "bytes"), {"rows": 2}, ValueError, "no mode of this lab decides"),
        (None, {"rows": 3}, ValueError, "rows=3, which is not listed"),
        (None, {"row": 2}, TypeError, "names 'row'"),
        ("who?", {"rows": 2}, TypeError, "use Bet"),
    ],
)
def test_bad_input_changes_nothing(panel: LabPanel, bet, settings, error, words) -> None:
    before = panel.settings(), dict(panel.lab.scenarios), dict(panel.lab.unavailable)
    with pytest.raises(error, match=words):
        panel.offer("new", bet, **settings)
    assert (panel.settings(), panel.lab.scenarios, panel.lab.unavailable) == before


def test_the_mode_is_one_that_decides_the_bet() -> None:
    lab = Lab(
        lambda rate: Workload(lambda: None, evaluate=lambda: 1.0),
        rate=[1, 2],
        race={"target": 2, "steps": 4, "every": 2, "seeds": 2},
    )
    panel = LabPanel(lab)
    assert panel.modes.value == "Time"
    panel.offer("race it", Bet("Who arrives?", "arrives"), rate=2)
    assert panel.modes.value == "Race"
