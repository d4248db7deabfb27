"""A front notebook's run beside the records of its longer notebook, which have other names."""

from typing import Any

import pytest

from course.measured import elsewhere
from course.measured.elsewhere import Elsewhere, alike, in_lines
from course.records import reference
from labkit.racing import RaceResult
from labkit.results import Comparison, Measurement
from labkit.sweep import Sweep

MACHINES = {"amd-epyc-2-cores", "intel-xeon-2-cores"}
LOADING = Elsewhere(reference("04_data_loading"), elsewhere.loading)
PRECISION = Elsewhere(reference("06_mixed_precision"), elsewhere.precision)


def compared(before: dict[str, Any], after: dict[str, Any], **shared: Any) -> Comparison:
    baseline, candidate = ({**shared, **settings} for settings in (before, after))
    times = (0.1, 0.1)
    sides = Measurement("baseline", baseline, times), Measurement("x", candidate, times)
    return Comparison(*sides, lab="make_workload")


def epoch(workers: int, loader: str = "DataLoader", side: int = 224) -> Comparison:
    before = {"num_workers": 0, "loader": "DataLoader"}
    return compared(before, {"num_workers": workers, "loader": loader}, side=side, width=8)


def step(model: str, precision: str = "bf16", batch_size: int = 64) -> Comparison:
    return compared(
        {"precision": "fp32"}, {"precision": precision}, model=model, batch_size=batch_size
    )


def factors(found: Any) -> list[float]:
    return [other.speedup for _, other in found]


def test_kept_workers_and_new_ones_have_their_records() -> None:
    kept, new = LOADING.matching(epoch(2)), LOADING.matching(epoch(2, "new workers", side=32))
    assert {label.partition(",")[0] for label, _ in kept} == MACHINES
    assert {other.lab for _, other in kept} == {"make_workload"}
    assert min(factors(kept)) > 1.1
    assert {other.lab for _, other in new} == {"make_thumbnails"}
    assert max(factors(new)) < 0.5
    assert LOADING.matching(epoch(0, "your prefetch")) == []
    # A large network with small pictures is another case: no figure of large ones beside it.
    assert LOADING.matching(epoch(2, side=32)) == []


@pytest.mark.parametrize(
    ("model", "lab", "width", "on_gpu"),
    [
        ("convnet", "make_workload", None, None),
        # A GPU's narrowest layers are wider.
        ("tiny layers", "make_layers", 16, 64),
        ("wide layers", "make_layers", 1024, 4096),
    ],
)
def test_layers_have_the_records_of_layers(
    model: str, lab: str, width: int | None, on_gpu: int | None
) -> None:
    found = PRECISION.matching(step(model))
    assert len(found) == len(MACHINES) + 1
    for label, other in found:
        wanted = on_gpu if label.startswith("nvidia-h200") else width
        assert other.lab == lab and other.shared.get("width") == wanted
        # What differs is said; the width of wide layers does.
        assert (f"width={wanted}" in label) == (wanted not in (None, 16))
    assert len(alike(step(model), found)) == len(MACHINES) + 1


def test_another_model_is_not_alike() -> None:
    cpus = PRECISION.on(*MACHINES)
    found = cpus.matching(step("transformer"))
    assert found and alike(step("transformer"), found) == []
    # It was recorded on the GPU.
    ((label, _),) = alike(step("transformer"), PRECISION.matching(step("transformer")))
    assert label.startswith("nvidia-h200")


def test_one_machine_a_sweep_a_race_and_the_table() -> None:
    (machine,) = LOADING.on("intel-xeon-2-cores").machines
    assert machine == "intel-xeon-2-cores" and set(LOADING.machines) == MACHINES
    swept = LOADING.swept(Sweep("num_workers", (epoch(1), epoch(2))), "num_workers")
    assert {label.partition(",")[0] for label, _ in swept} == MACHINES
    assert "intel-xeon-2-cores" in str(LOADING.beside(epoch(2)))
    race = RaceResult((), 0.5, "accuracy", True)
    assert LOADING.matching(race) == []


def test_in_short_lines() -> None:
    assert in_lines([]) == []
    best = max(factors(LOADING.matching(epoch(2))))
    first, when = in_lines(LOADING.matching(epoch(2)))
    assert first == f"On another machine: {best:.2f} times as fast."
    assert when.startswith("Recorded on ")
    wide = in_lines(PRECISION.matching(step("wide layers")))
    assert wide[-1].endswith("width=1024") and max(map(len, wide)) < 54
