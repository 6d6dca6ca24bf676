"""What the replay makes of a round once it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ledger.protocol.encoding import INFINITY_BITS, word_client

if TYPE_CHECKING:
    from ledger.protocol.closing import MinedCommitment
    from ledger.protocol.ledger_state import LedgerState, RoundDecided


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round that has ended, as its transactions made it.

    Attributes:
        round: t.
        known: whether seed, committee and model are those that the round opened with; false
            where the record of the round before is missing.
        before: the contract's state just before the round ended, bans included.
        commitments: all that the chain holds of the round, in its order.
        block: number of the block in which it ended.
        decided: the decision, if there is one.
        transaction: hash of the transaction that ended the round.
    """

    round: int
    known: bool
    before: LedgerState
    commitments: tuple[MinedCommitment, ...]
    block: int
    decided: RoundDecided | None
    transaction: bytes

    @property
    def is_in_range(self) -> bool:
        """Whether a decision's numbers are in range; a believed event may hold anything."""
        event, sizes = self.decided, self.before.deployment
        if event is None:
            return True
        ranked = [word_client(word) for word in event.ranking]
        clients = [*ranked, *event.accepted, *event.next_committee]
        return (
            all(0 <= word < INFINITY_BITS << 32 for word in event.ranking)
            and all(client < sizes.clients for client in clients)
            and all(one < other for one, other in pairwise(event.ranking))
            and len(set(ranked)) == len(ranked)
            and sizes.members <= len(ranked) <= sizes.trainers
        )
