"""Whether code can be compiled here: tried with one operator, not looked up.

That a compiler stands on the PATH says little. It may be too old or lack its headers, and on a GPU
Triton builds its launchers with the system's C compiler as well.
"""

from __future__ import annotations

import logging

import torch

from labkit.device import pick_device


def trouble_with_compiling(device: torch.device | str | None = None) -> str | None:
    """What PyTorch says when it cannot compile for a device (None: the labs' own); None if it can.

    The first trial on a machine may take a minute: PyTorch finds out which vector instructions the
    compiler knows, and translates its own headers in advance. Both are kept on disk.
    """
    numbers = torch.ones(8, device=pick_device() if device is None else device)
    # Where CUDA's tools are, and no GPU, it warns of that in red when it is imported.
    extensions = logging.getLogger("torch.utils.cpp_extension")
    level = extensions.level
    extensions.setLevel(logging.ERROR)
    try:
        torch.compile(torch.relu)(numbers)
    except Exception as error:
        # Whatever it is, the reader is told.
        first, *_ = [*str(error).splitlines(), ""]
        return f"{type(error).__name__}: {first}"
    finally:
        extensions.setLevel(level)
    return None
