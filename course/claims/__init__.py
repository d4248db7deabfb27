"""Claims: what the sources say, as data, held against the recorded runs.

``NN_name.toml`` holds what a notebook's sources say (`course.claims.claim` describes the fields),
`match` finds the recorded result that is meant, `findings` says what it says to the claim.
"""

from course.claims.claim import Claim, Correction
from course.claims.findings import Finding
from course.claims.gains import Gains, gains
from course.claims.heat import heat_map
from course.claims.ledgers import Ledger, ledger, ledgers

__all__ = [
    "Claim",
    "Correction",
    "Finding",
    "Gains",
    "Ledger",
    "gains",
    "heat_map",
    "ledger",
    "ledgers",
]
