"""Recorded runs of other machines: kept with their raw times, shown beside the reader's own."""

from course.records.beside import reference
from course.records.files import planned

__all__ = ["planned", "reference"]
