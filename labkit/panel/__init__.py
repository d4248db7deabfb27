"""The live panel of a lab: widgets in the notebook, the measuring in a background thread.

- `panel`: `LabPanel`, which holds the parts together.
- `widgets`: what the reader sets, and where it stands on the page.
- `guess`: `Bet`, and when one is right.
- `run`: one state, one lock, and the thread that measures.
- `view`: what is shown of a run while it goes on, and at its end.
- `outputs`: the cell that shows a panel.
- `call`: the call without widgets, as source.

Found out in a real browser (JupyterLab 4.6, ipywidgets 8.1, ipykernel 6 and 7):

- Work runs in a **background thread** that the Run button starts. That alone lets Stop and the
  sliders answer on every kernel. Blocking callbacks never do; blocking or async cells do on some
  kernels only.
- Every element that takes the focus carries ``data-lm-suppress-shortcuts="true"``; else JupyterLab
  takes ``b`` on a focused button for "insert a cell below". Sliders have an ``aria-label``. Colours
  are Okabe and Ito's and JupyterLab's own ``--jp-*`` variables, for light and dark themes.
- When a run ends, the result becomes an ordinary output of the cell. Beside the live panel it is
  hidden: it says the same. A notebook that is reopened without a kernel shows it.
"""

from labkit.panel.guess import Bet
from labkit.panel.panel import LabPanel

__all__ = ["Bet", "LabPanel"]
