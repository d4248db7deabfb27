"""Records: written whole or not at all, and read back as they were."""

import json
import math
import os

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from labkit import Lab, Workload, race, records
from labkit.cli import main
from labkit.recording import machine_name, record
from labkit.results import Comparison, Measurement


def comparison(error=None):
    base = Measurement("baseline", {"amp": False, "size": 8}, (0.0123456, 0.2), cold=0.5, peak_bytes=2**20)
    other = Measurement(
        "amp=True", {"amp": True, "size": 8}, () if error else (0.01, 0.1), peak_bytes=2**21, error=error
    )
    return Comparison(base, other)


def test_round_trip_and_table(tmp_path):
    card = {"torch": "2.9"}
    records.write(
        tmp_path / "laptop", "06_x", card, [records.as_dict(comparison()), records.as_dict(comparison("out of memory"))]
    )
    kept = records.read("06_x", tmp_path)["laptop"]
    first = kept["results"][0]
    assert first["baseline"]["times"] == [0.01235, 0.2] and first["candidate"]["settings"] == {"amp": True, "size": 8}
    assert kept["machine"] == card and kept["schema"] == records.SCHEMA
    text = str(records.Reference("06_x", tmp_path))
    for word in ("laptop", kept["date"], "amp=True", "(at size=8)", "1.00 MiB -> 2.00 MiB", "ended by out of memory"):
        assert word in text, text


def test_a_race_is_recorded_with_runs_that_never_arrived(tmp_path):
    result = race({"a": lambda: Workload(lambda: None, evaluate=lambda: 0.0)}, target=1, steps=2, seeds=2)
    entry = json.loads(json.dumps(records.as_dict(result), allow_nan=False))
    assert entry["median_seconds"] == {"a": None} and [run["reached"] for run in entry["runs"]] == [False, False]
    records.write(tmp_path / "m", "03_x", {}, [entry])
    assert "a: median never, 0 of 2 seeds arrived" in str(records.Reference("03_x", tmp_path))


def test_what_is_missing_says_so(tmp_path):
    assert "not recorded yet" in str(records.Reference("06_x", tmp_path))
    assert records.read("06_x", tmp_path / "nowhere") == {}


def test_a_file_that_is_no_record_is_named(tmp_path):
    records.write_json(tmp_path / "m" / "06_x.json", {"schema": 99})
    with pytest.raises(ValueError, match=r"06_x\.json: not a record of 06_x"):
        records.read("06_x", tmp_path)


def test_writing_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    records.write_json(path, [1])
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        records.write_json(path, [2])
    assert json.loads(path.read_text()) == [1] and list(tmp_path.iterdir()) == [path]


def test_a_lab_s_results_are_collected_when_asked(tmp_path, monkeypatch):
    target = tmp_path / "results.json"

    def make_nothing(x):
        return Workload(lambda: None, evaluate=lambda: 1.0)

    lab = Lab(make_nothing, memory=False, x=[1, 2])
    lab.run(x=2, seconds=0.05)
    monkeypatch.setenv("LABKIT_RECORD", str(target))
    lab.run(x=2, seconds=0.05)
    lab.race({"x": 2}, target=1, steps=1)
    entries = json.loads(target.read_text())
    assert [entry["kind"] for entry in entries] == ["comparison", "race"]
    assert {entry["lab"] for entry in entries} == {"make_nothing"}
    assert math.isclose(entries[0]["speedup"], 1, rel_tol=0.9)


def test_committed_records_are_valid_and_small():
    for path in records.reference_folder().glob("*/*.json"):
        assert path.parent.name in records.read(path.stem)
        assert path.stat().st_size < 200_000, path
        assert str(records.Reference(path.stem))


NOTEBOOK = """
from labkit import Lab, Workload
def make_nothing(x):
    return Workload(lambda: None)
Lab(make_nothing, memory=False, x=[1, 2]).run(x=2, seconds=0.05);
"""


def test_record_runs_a_notebook_at_full_size_and_writes_what_it_measured(tmp_path, monkeypatch):
    notebook = tmp_path / "05_tiny.ipynb"
    nbformat.write(
        new_notebook(cells=[new_code_cell("import os; assert os.environ['LABKIT_SIZE'] == 'full'" + NOTEBOOK)]),
        notebook,
    )
    assert main(["record", str(notebook), "--out", str(tmp_path / "out")]) == 0
    [(machine, written)] = records.read("05_tiny", tmp_path / "out").items()
    assert machine == machine_name(written["machine"]) and written["machine"]["measured"]
    assert [entry["lab"] for entry in written["results"]] == ["make_nothing"]


def test_a_notebook_that_fails_or_measures_nothing_leaves_no_record(tmp_path):
    notebook = tmp_path / "05_bad.ipynb"
    for code, error in (("1 / 0", CellExecutionError), ("pass", ValueError)):
        nbformat.write(new_notebook(cells=[new_code_cell(code)]), notebook)
        with pytest.raises(error):
            record(notebook, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert main(["record", str(tmp_path / "nowhere.ipynb")]) == 1


def test_machines_are_named_by_gpu_or_by_cpu_and_cores():
    assert machine_name({"gpu": {"name": "NVIDIA H200"}, "cpu": {}}) == "nvidia-h200"
    assert machine_name({"gpu": None, "cpu": {"model": "AMD EPYC", "cores": 2}}) == "amd-epyc-2-cores"
