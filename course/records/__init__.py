"""Recorded runs of other machines: kept with their raw times, shown beside the reader's own, held against claims."""

from course.records.beside import reference
from course.records.claims import Claim, Correction, ledger
from course.records.files import planned

__all__ = ["Claim", "Correction", "ledger", "planned", "reference"]
