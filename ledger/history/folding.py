"""Rounds from the contract's logs.

A list of logs is not complete because a node gave it: a round that has opened must have a start,
and every round before it an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.ports import IncompleteLogsError
from ledger.history.round import Round, RoundActivity
from ledger.protocol.fold import RoundStart, mined_commitments, registry_with_bans
from ledger.protocol.ledger_state import (
    ClientBanned,
    RoundAbandoned,
    RoundDecided,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.round_ledger import RoundHistory
    from ledger.history.round import RoundSizes
    from ledger.protocol.inputs import MinedCommitment
    from ledger.protocol.types import RegisteredClient


@dataclass(frozen=True, slots=True)
class RoundReader:
    """Reads a deployment's rounds.

    Attributes:
        to_block: the last block that is read.
        registered: returns all clients as they were registered.
        banned: returns the bans up to `to_block`; None to read them.
    """

    ledger: RoundHistory
    sizes: RoundSizes
    to_block: int | None
    registered: Callable[[], tuple[RegisteredClient, ...]]
    banned: Callable[[], tuple[ClientBanned, ...]] | None = None

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return all clients, with the bans that the chain holds."""
        bans = self.ledger.bans(self.to_block) if self.banned is None else self.banned()
        return registry_with_bans(self.registered(), bans)

    def has_begun(self, opening: RoundStart | None) -> bool:
        """Return whether a start opens a round: without a full committee none does."""
        return (
            opening is not None
            and opening.round <= self.sizes.rounds
            and len(opening.committee) == self.sizes.members
        )

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""
        ends = self.ledger.outcomes(1, descending=True, to_block=self.to_block)
        if not ends:
            return int(self.has_begun(self.ledger.opening(1, self.to_block)))
        following = RoundStart.of(ends[0].event, ends[0].block_number)
        if following is None:
            return 0
        return following.round if self.has_begun(following) else following.round - 1

    def one(self, number: int) -> Round | None:
        """Return a round with all that came in, None if it has not opened."""
        opening = self.ledger.opening(number, self.to_block)
        if opening is None or not self.has_begun(opening):
            return None
        activity, ended = activity_of(self.ledger.round_events(number, self.to_block))
        return Round(opening, self.sizes, self.registry(), ended, activity)

    def some(self, first: int, last: int) -> list[Round]:
        """Return the rounds of a range by their starts and ends, ascending.

        Args:
            first: at least 1.
            last: a round that has opened.

        Raises:
            IncompleteLogsError: the logs do not hold all of them.
        """
        opening = self.ledger.opening(first, self.to_block)
        if opening is None:
            raise IncompleteLogsError(
                self.ledger.node,
                f"round {last} is said to have opened, but no log opens round {first}",
            )
        ends = self._ends(first, last)
        registry = self.registry()
        rounds: list[Round] = []
        for number in range(first, last + 1):
            ended = ends.get(number)
            rounds.append(Round(opening, self.sizes, registry, ended))
            following = None if ended is None else RoundStart.of(ended.event, ended.block_number)
            if following is None:
                if number < last:
                    raise IncompleteLogsError(
                        self.ledger.node,
                        f"round {last} is said to have opened, but round {number} has no end in "
                        "the logs",
                    )
                break
            opening = following
        return rounds

    def _ends(self, first: int, last: int) -> dict[int, RecordedEvent]:
        """Return how each round of a range ended, by its number; nothing for the open one."""
        newest = self._end(last)
        until = self.to_block if newest is None else newest.block_number
        ends: dict[int, RecordedEvent] = {}
        for recorded in self.ledger.outcomes(last - first + 1, descending=True, to_block=until):
            if isinstance(recorded.event, RoundDecided | RoundAbandoned):
                ends[recorded.event.round] = recorded
        # Ends of later rounds in the same block may have filled the answer above.
        for number in range(first, last):
            if number not in ends and (missing := self._end(number)) is not None:
                ends[number] = missing
        return ends if newest is None else ends | {last: newest}

    def _end(self, number: int) -> RecordedEvent | None:
        return activity_of(self.ledger.round_events(number, self.to_block))[1]


def activity_of(events: Iterable[RecordedEvent]) -> tuple[RoundActivity, RecordedEvent | None]:
    """Return a round's commitments and bans, and its end.

    Args:
        events: of the round, in the chain's order.
    """
    commitments: list[MinedCommitment] = []
    bans: list[RecordedEvent] = []
    ended: RecordedEvent | None = None
    for recorded in events:
        commitments += mined_commitments(recorded.event, recorded.block_number)
        match recorded.event:
            case ClientBanned():
                bans.append(recorded)
            case RoundDecided() | RoundAbandoned():
                ended = recorded
            case _:
                pass
    return RoundActivity(tuple(commitments), tuple(bans)), ended
