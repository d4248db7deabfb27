"""Check functions of the exercises, a module a notebook: each prints ``✓`` or ``not yet``, and
returns which.

The checks are found: every ``check_...`` of the modules ``lab_*.py``, and ``front_*.py`` where a
deeper notebook has an exercise of its own.
"""

from importlib import import_module
from pkgutil import iter_modules

from course.exercises.tell import attempt

__all__ = ["attempt"]

for _module in iter_modules(__path__):
    if _module.name.startswith(("front_", "lab_")):
        _found = import_module(f"{__name__}.{_module.name}")
        for _name, _value in vars(_found).items():
            if _name.startswith("check_"):
                if _name in __all__:
                    raise ImportError(f"two modules of course.exercises define {_name}")
                globals()[_name] = _value
                __all__.append(_name)
