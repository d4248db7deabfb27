"""Methods and pictures to learn from: what was done before, and what a plan looks like.

A practitioner needs none of them. `sublinear.plan` takes the methods by name, for comparison. Each
is imported by its module: ``from sublinear.teaching.pareto import pareto``.
"""
