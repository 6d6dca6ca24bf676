"""Whether a lie got onto the record, and by which findings an audit has to name the liar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.certificates import BAN, EQUIVOCATION, WRONG_PROPOSAL
from ledger.audit.checks.completeness import DROPOUT
from ledger.audit.checks.distances import FALSE_SCORES
from tests.federation.cells import Fault

if TYPE_CHECKING:
    from clients.testnet.watch import WatchedRound
    from ledger.protocol.types import ClientId

NAMED_BY = {
    Fault.FALSE_SCORES: frozenset({FALSE_SCORES}),
    Fault.WRONG_PROPOSAL: frozenset({WRONG_PROPOSAL}),
    Fault.EQUIVOCATING: frozenset({EQUIVOCATION, BAN}),
    Fault.NOT_FINITE: frozenset({DROPOUT}),
    Fault.TRUNCATED: frozenset({DROPOUT}),
    Fault.COPIED: frozenset({DROPOUT}),
    Fault.LATE: frozenset({DROPOUT}),
    Fault.SELF_BAN: frozenset({BAN}),
}
"""What an audit says of a liar whose lie had an effect."""


def effective(
    fault: Fault, liars: frozenset[ClientId], ended: WatchedRound, banned: frozenset[ClientId]
) -> frozenset[ClientId]:
    """Return who of the liars has got a lie onto the record of its round.

    Late is no effect of a payload that is wrong: who was late has shown none.
    """
    match fault:
        case Fault.LATE:
            return liars.intersection(ended.late)
        case Fault.NOT_FINITE | Fault.TRUNCATED:
            return liars.intersection(ended.malformed)
        case Fault.COPIED:
            return liars.intersection(set(ended.unusable) - set(ended.malformed))
        case Fault.FALSE_SCORES:
            return liars.intersection(ended.refused)
        case Fault.WRONG_PROPOSAL:
            return liars.intersection(ended.accused)
        case Fault.EQUIVOCATING | Fault.SELF_BAN:
            return liars & banned
        case _:
            raise ValueError(f"{fault} is no lie")
