"""04, data loading: what shows that the technique acts."""

import multiprocessing
from typing import Any


def alive(names: dict[str, Any]) -> None:
    """Workers are processes, which last as long as they are kept; without them training loads."""
    # Workers and whether they are kept; then who loaded an epoch, and who is there after it.
    for workers, loader, loaded, kept in (
        (0, "DataLoader", 0, 0),
        (2, "DataLoader", 2, 2),
        (2, "new workers", 2, 0),
    ):
        settings = names["lab"].defaults | {"num_workers": workers, "loader": loader}
        workload = names["make_workload"](**settings)
        workload.step()
        assert len(names["epochs"].of(settings).loaders) == loaded
        assert len(multiprocessing.active_children()) == kept
        del workload
        assert not multiprocessing.active_children()
