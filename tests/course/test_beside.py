"""The planner beside other ways: the record, what it says, and its figure."""

import json
from pathlib import Path

import pytest

from course.records import beside
from course.records.beside import OURS, Beside, Model, Way, recorded, write

COMPILER = "activation_memory_budget"
OTHERS = {
    "checkpoint_sequential",
    "every block",
    "grid",
    "genetic",
    COMPILER,
}


def way(name: str, size: int, time: float) -> Way:
    return Way(name, "", size, time, (time - 0.01, time + 0.01))


def of(*ways: Way) -> Model:
    return Model("net", 8, 100, 0.1, ways)


def test_the_record_has_every_way_on_eight_models() -> None:
    found = recorded()
    assert len(found.models) >= 8
    for model in found.models:
        assert {each.name for each in model.others} == OTHERS
        assert any(each.setting == "lowest peak" for each in model.ours)
        for each in model.ways:
            low, high = each.interval
            assert 0 < low <= each.time <= high


def test_plans_are_as_small_as_what_they_were_made_for() -> None:
    for model in recorded().models:
        others = {each.label: each for each in model.others}
        for each in model.ours:
            asked = each.setting.removeprefix("as small as ")
            if asked in others:
                assert each.bytes <= others[asked].bytes


def test_the_notebook_says_what_the_record_says() -> None:
    """Its paragraph names these: write it anew after another recording."""
    found = recorded()
    assert len(found.models) == 9
    for model in found.models:
        least = min(each.bytes for each in model.others)
        assert model.ours[0].bytes <= beside.AS_SMALL * least
        half, none = (each.bytes for each in model.others if each.name == COMPILER)
        assert half <= none
    shortest = sorted(found.models, key=lambda model: model.plain_seconds)[:2]
    assert {model.name for model in shortest} == {"temporal", "lstm cells"}
    better: dict[str, set[str]] = {}
    for name, each in found.better:
        better.setdefault(each.name, set()).add(name)
    assert len(better.pop(COMPILER)) == 6
    pieces = {"temporal", "lstm cells", "encoder-decoder", "mixer", "gpt"}
    assert better == {"checkpoint_sequential": pieces}
    settings = {each.setting for _, each in found.better if each.name == "checkpoint_sequential"}
    assert settings == {"2"}


def test_what_is_better_than_every_plan_is_named() -> None:
    plans = way(OURS, 50, 1.3), way(OURS, 70, 1.1)
    same, worse = way("grid", 50, 1.3), way("genetic", 60, 1.35)
    assert Beside("", "", "", 1, (of(*plans, same, worse),)).better == ()
    smaller, faster = way("grid", 49, 1.5), way("genetic", 60, 1.2)
    found = Beside("", "", "", 1, (of(*plans, smaller, faster),))
    assert found.better == (("net", smaller), ("net", faster))


def test_what_saves_nothing_is_beaten_by_plain_training() -> None:
    plans = (way(OURS, 50, 1.3),)
    assert of(*plans).as_good(way("activation_memory_budget", 100, 1.0))
    assert not of(*plans).as_good(way("activation_memory_budget", 90, 1.0))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "sublinear.json"
    found = Beside("a machine", "2026-01-02", "2.15", 1, (of(way("grid", 60, 1.2)),))
    write(found, path)
    assert recorded(path) == found


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sublinear.json"
    path.write_text(json.dumps({"schema": beside.SCHEMA + 1, "models": []}))
    with pytest.raises(ValueError, match="this version knows"):
        recorded(path)


def test_the_figure_has_a_panel_for_each_model() -> None:
    found = recorded()
    figure = found.figure()
    drawn = [axis for axis in figure.axes if axis.axison]
    assert [axis.get_title() for axis in drawn] == [model.name for model in found.models]
    count = sum(len(model.others) for model in found.models)
    assert f"{count - len(found.better)} of {count}" in figure.get_suptitle()
    assert f"{found.date}, torch {found.torch}" in figure.get_suptitle()
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"plain", OURS, *OTHERS}
