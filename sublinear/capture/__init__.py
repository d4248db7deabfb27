"""A model as torch's compiler captures it: graphs with guards, cut into blocks.

The arrows: ``watching <- cutting <- pieces <- graphs``.
"""
