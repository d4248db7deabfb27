"""A model as torch's compiler captures it: graphs with guards, cut into blocks and planned.

The arrows: ``watching <- cutting <- pieces <- backend <- model`` and
``together <- backend``.
"""

from sublinear.capture.backend import Backend, backend
from sublinear.capture.model import captured

__all__ = ["Backend", "backend", "captured"]
