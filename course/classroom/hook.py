"""A second wall, for accidents: Python's own calls cannot change files outside a folder.

It names the path, also where the answer swallowed the error. It sees what Python does, and
nothing of native code (`torch.save`) or of other programs; where those matter, a sandbox stands
around it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

# events that change files: the places of paths among their arguments, and of the open folders
# that relative paths begin at
_CHANGES = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "shutil.rmtree": ((0, 1),),
}
# those that change what a link leads to, and not the link
_FOLLOW = ("open", "os.truncate", "os.chmod", "os.chown", "os.utime")
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(folders: list[str], report: Callable[[str], None], *, programs: bool) -> None:
    """Refuse and report changes outside ``folders``, and other programs unless ``programs``."""
    inside = tuple(os.path.realpath(folder) + os.sep for folder in folders)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROGRAMS and not programs:
            raise PermissionError("no other program may be started without a sandbox")
        places = _CHANGES.get(event, ())
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _TO_WRITE:
            places = ((0, None),)
        for path_at, folder_at in places:
            folder = -1 if folder_at is None else _at(arguments, folder_at)
            path = _path(arguments[path_at], folder, follow=event in _FOLLOW)
            if path is not None and not (path + os.sep).startswith(inside):
                report(f"tried to change {path}")
                raise PermissionError(f"outside its folder: {path}")

    sys.addaudithook(hook)


def _at(arguments: tuple[Any, ...], place: int) -> int:
    # older Pythons have fewer arguments
    found = arguments[place] if place < len(arguments) else -1
    return found if isinstance(found, int) else -1


def _path(path: Any, folder: int, *, follow: bool) -> str | None:
    """The real path; None for a file that is open already."""
    if isinstance(path, int):
        return None
    name = os.fsdecode(path)
    if folder >= 0 and not os.path.isabs(name):
        name = os.path.join(_folder(folder), name)
    head, tail = os.path.split(name.rstrip(os.sep))
    if follow or tail in ("", ".", ".."):
        return os.path.realpath(name)
    return os.path.join(os.path.realpath(head), tail)


def _folder(handle: int) -> str:
    """The path of an open folder; the root where it cannot be told, which is outside."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return os.sep
