"""Whether a lie got onto the record, and by which findings an audit has to name the liar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import FindingKind
from tests.federation.cells import Fault

if TYPE_CHECKING:
    from clients.testnet.round_watch import WatchedRound
    from ledger.protocol.types import ClientId

NAMED_BY = {
    Fault.FALSE_SCORES: frozenset({FindingKind.FALSE_SCORES}),
    Fault.WRONG_PROPOSAL: frozenset({FindingKind.WRONG_PROPOSAL}),
    Fault.EQUIVOCATING: frozenset({FindingKind.EQUIVOCATION, FindingKind.BAN}),
    Fault.NOT_FINITE: frozenset({FindingKind.DROPOUT}),
    Fault.TRUNCATED: frozenset({FindingKind.DROPOUT}),
    Fault.COPIED: frozenset({FindingKind.DROPOUT}),
    Fault.LATE: frozenset({FindingKind.DROPOUT}),
    Fault.SELF_BAN: frozenset({FindingKind.BAN}),
}
"""What an audit says of a liar whose lie had an effect."""


def effective(
    fault: Fault, liars: frozenset[ClientId], ended: WatchedRound, banned: frozenset[ClientId]
) -> frozenset[ClientId]:
    """Return who of the liars has got a lie onto the record of its round.

    Late is no effect of a payload that is wrong: who was late has shown none.

    Args:
        fault: one of `LIES`.
        liars: who was made to lie.
        ended: the round.
        banned: everybody who is banned by now.
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
