"""Claims: what the sources say, held against the recorded runs."""

from course.claims.ledgers import Claim, Correction, ledger

__all__ = ["Claim", "Correction", "ledger"]
