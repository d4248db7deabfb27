"""Moving pictures, one for each notebook: ``from course.explorables import Roofline``.

Each answers one question in the browser alone, and says in its caption what is simulated. They are
found: a file ``NAME.js`` that begins with ``// 06: what it shows.`` is a class here, ``loss_cliff``
as ``LossCliff``.
"""

from course.explorables.explorable import Explorable, alive, every, module

__all__ = ["Explorable", "alive", "module"]

for _class in every():
    globals()[_class.__name__] = _class
    __all__.append(_class.__name__)
