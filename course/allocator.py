"""The C library's allocator, told to keep what is freed. For a process of its own: there is no way
back.
"""

from __future__ import annotations

import ctypes
import platform

# glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def why_not(device: str = "cpu") -> str | None:
    """Why this machine cannot show it, or None: it takes tensors on the CPU, and glibc."""
    if device != "cpu":
        return "PyTorch's allocator for GPUs keeps it anyway"
    if platform.libc_ver()[0] != "glibc":
        return "needs Linux with the GNU C library"
    return None


def keep_memory() -> None:
    """Free memory stays with this process from now on, to its end.

    OSError where the C library has no such switch, or refuses it.
    """
    if reason := why_not():
        raise OSError(reason)
    libc = ctypes.CDLL(None)
    # No memory is given back, and no large block comes from the kernel by itself.
    for switch, value in ((_TRIM_THRESHOLD, _NEVER), (_MMAP_MAX, 0)):
        if not libc.mallopt(switch, value):
            raise OSError(f"mallopt({switch}, {value}) was refused")
