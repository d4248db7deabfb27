"""Methods to learn from: what was done before.

A practitioner needs none of them. `sublinear.plan` takes them by name, for comparison.
"""
