"""The live panel of a lab: widgets in the notebook, the measuring in a background thread.

Found out in a real browser (JupyterLab 4.6, ipywidgets 8.1, ipykernel 6 and 7):

- Work runs in a **background thread** that the Run button starts (`labkit.panel.run`). That alone
  lets Stop and the sliders answer on every kernel. Blocking callbacks never do; blocking or async
  cells do on some kernels only.
- While something is timed nothing is drawn by matplotlib: a few numbers and points go to a small
  canvas (`labkit.panel.live`, `race_view`, `memory_view`).
- A changed control starts the next run once nothing has moved for a tenth of a second, and ends the
  run that goes on (`labkit.panel.changes`). A slider passes over values that nobody asked for.
- When a run ends, a figure and the result as HTML become ordinary outputs of the cell
  (`labkit.panel.outputs`), so that saved notebooks have them. Beside the live panel they are shown
  on request ("Details"): they say what it says.
- Every element that takes the focus carries ``data-lm-suppress-shortcuts="true"``; else JupyterLab
  takes ``b`` on a focused button for "insert a cell below". Sliders have an ``aria-label``. Colours
  are Okabe and Ito's and JupyterLab's own ``--jp-*`` variables, for light and dark themes
  (``static/panel/``, ``static/panel.css``).
"""

try:
    import anywidget  # noqa: F401
    import ipywidgets  # noqa: F401
except ImportError as error:
    raise ImportError(
        "LabPanel needs ipywidgets and anywidget; lab.run(...) measures the same without them"
    ) from error

from labkit.panel.panel import LabPanel

__all__ = ["LabPanel"]
