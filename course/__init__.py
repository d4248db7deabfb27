"""The course: all that knows notebooks. labkit measures, sublinear plans; both know nothing of it."""
