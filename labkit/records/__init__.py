"""Recorded runs of other machines: kept with their raw times, shown beside the reader's own, held against claims."""

from labkit.records.beside import reference
from labkit.records.claims import Claim, Correction, ledger
from labkit.records.files import planned

__all__ = ["Claim", "Correction", "ledger", "planned", "reference"]
