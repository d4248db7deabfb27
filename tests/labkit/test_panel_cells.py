"""Panels of cells that are run again; the browser tests do it on a page."""

import gc

from ipywidgets.widgets import widget as registry

from labkit import Lab, Workload
from labkit.panel import LabPanel
from labkit.panel.outputs import ShownIn, current_cell


class Shown:
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_second_run_of_a_cell_closes_what_the_first_one_showed() -> None:
    cells, first, twin, second = ShownIn(), Shown(), Shown(), Shown()
    cells.show(first, "a", "1")
    cells.show(twin, "a", "1")
    assert (first.closed, twin.closed) == (0, 0)
    cells.show(second, "a", "2")
    assert (first.closed, twin.closed, second.closed) == (1, 1, 0)


def test_what_another_cell_still_shows_stays() -> None:
    cells, kept, other = ShownIn(), Shown(), Shown()
    cells.show(kept, "a", "1")
    cells.show(kept, "b", "2")
    cells.show(other, "a", "3")
    assert kept.closed == 0
    cells.show(other, "b", "4")
    assert kept.closed == 1


def test_the_same_panel_shown_again_stays() -> None:
    cells, panel = ShownIn(), Shown()
    cells.show(panel, "a", "1")
    cells.show(panel, "a", "2")
    assert panel.closed == 0


def test_no_panel_is_kept_alive() -> None:
    cells, closed = ShownIn(), []

    class Told(Shown):
        def close(self) -> None:
            closed.append(self)

    cells.show(Told(), "a", "1")
    gc.collect()
    cells.show(Shown(), "a", "2")
    assert closed == []


def test_outside_a_kernel_there_is_no_cell() -> None:
    assert current_cell() is None


def test_a_closed_panel_leaves_no_widget_open() -> None:
    before = set(registry._instances)
    panel = LabPanel(Lab(lambda rows: Workload(lambda: None), rows=[1, 2, 4]))
    assert set(registry._instances) > before
    panel.close()
    assert set(registry._instances) == before
