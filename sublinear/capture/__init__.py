"""A model as torch's compiler captures it: graphs with guards, cut into blocks and planned.

The arrows: ``watching <- cutting <- pieces <- together <- backend``.
"""

from sublinear.capture.backend import Backend, backend

__all__ = ["Backend", "backend"]
