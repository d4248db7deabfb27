"""Recorded runs of other machines: kept with their raw times, shown beside the reader's own."""

from course.records.planned import planned
from course.records.references import Recorded, reference

__all__ = ["Recorded", "planned", "reference"]
