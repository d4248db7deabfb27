"""The course: all that knows notebooks. labkit measures, sublinear plans.

Both know nothing of it.
"""
