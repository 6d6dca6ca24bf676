"""Rounds from the contract's events.

A list of logs is not complete because a node gave it: a round that has opened must have a start,
and every round before it an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ledger.chain.ports import IncompleteLogsError
from ledger.history.status import RoundStatus
from ledger.protocol.encoding import word_client
from ledger.protocol.fold import RoundStart, mined_commitments, registry_with_bans
from ledger.protocol.inputs import (
    Participants,
    RoundSizes,
    closing_block,
    participants_of,
    window_end,
)
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.round_ledger import RoundHistory
    from ledger.protocol.inputs import MinedCommitment
    from ledger.protocol.types import ClientId, Digest, RegisteredClient


@dataclass(frozen=True, slots=True)
class RoundActivity:
    """Commitments and bans of a round between its opening and its end, in the chain's order."""

    commitments: tuple[MinedCommitment, ...] = ()
    bans: tuple[RecordedEvent, ...] = ()


@dataclass(frozen=True)
class HistoryRound:
    """One round: opening, activity and end.

    Attributes:
        opening: its number, committee and seed, and the block that opened it.
        registry: all clients, with the recorded bans.
        ended: its decision or abandonment with block and transaction; None while it is open.
        activity: commitments and bans; None where only opening and end were read.
    """

    opening: RoundStart
    sizes: RoundSizes
    registry: tuple[RegisteredClient, ...]
    ended: RecordedEvent | None
    activity: RoundActivity | None = None

    @property
    def round(self) -> int:
        """t, from 1."""
        return self.opening.round

    @property
    def committee(self) -> tuple[ClientId, ...]:
        """S_c, by seat index."""
        return self.opening.committee

    @property
    def seed(self) -> Digest:
        """seed_t."""
        return self.opening.seed

    @property
    def decided(self) -> RoundDecided | None:
        """The decision; None if it was abandoned or is open."""
        event = None if self.ended is None else self.ended.event
        return event if isinstance(event, RoundDecided) else None

    @property
    def abandoned(self) -> RoundAbandoned | None:
        """The abandonment; None if it was decided or is open."""
        event = None if self.ended is None else self.ended.event
        return event if isinstance(event, RoundAbandoned) else None

    @property
    def end(self) -> RoundDecided | RoundAbandoned | None:
        """The decision or the abandonment; None while it is open."""
        return self.decided or self.abandoned

    @property
    def status(self) -> RoundStatus:
        """Status of the round."""
        if self.ended is None:
            return RoundStatus.OPEN
        return RoundStatus.DECIDED if self.decided else RoundStatus.ABANDONED

    @cached_property
    def participants(self) -> Participants:
        """The participants; the seed draws the trainers among the clients that are not banned."""
        return participants_of(self.sizes, self.registry, self.round, self.seed, self.committee)

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        """S_b, ascending; none of them was banned when the round opened."""
        return self.participants.trainers

    @property
    def vacant_members(self) -> tuple[ClientId, ...]:
        """Members that were banned when the round opened, by seat index."""
        return tuple(c for c in self.committee if self.registry[c].is_banned_in(self.round))

    @property
    def banned(self) -> tuple[ClientId, ...]:
        """Clients banned during the round, with effect from the next one."""
        events = [recorded.event for recorded in self._read.bans]
        return tuple(event.client for event in events if isinstance(event, ClientBanned))

    @property
    def bans(self) -> tuple[RecordedEvent, ...]:
        """The bans that were recorded during the round."""
        return self._read.bans

    @property
    def mined(self) -> tuple[MinedCommitment, ...]:
        """The recorded commitments, in the chain's order."""
        return self._read.commitments

    @cached_property
    def commitments(self) -> dict[ClientId, Digest]:
        """Each client's recorded commitment, also one without effect."""
        return {mined.client: mined.commitment for mined in self.mined}

    @cached_property
    def counted(self) -> frozenset[ClientId]:
        """The active clients whose commitment counts: recorded by the closing block."""
        expected = self.participants.expected
        # While the window is open, the commitments so far determine the closing block.
        end = window_end(self.sizes, self.opening.opened_block)
        last = closing_block(end, expected, self.mined)
        return expected.intersection(m.client for m in self.mined if m.block <= last)

    @cached_property
    def places(self) -> dict[ClientId, tuple[int, int]]:
        """Rank from 0 and distance bits of each ranked trainer."""
        ranking = self.decided.ranking if self.decided else ()
        return {word_client(word): (rank, word >> 32) for rank, word in enumerate(ranking)}

    @property
    def _read(self) -> RoundActivity:
        if self.activity is None:
            raise ValueError(f"of round {self.round} only the opening and the end were read")
        return self.activity


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

    def one(self, number: int) -> HistoryRound | None:
        """Return a round with all that came in, None if it has not opened."""
        opening = self.ledger.opening(number, self.to_block)
        if opening is None or not self.has_begun(opening):
            return None
        activity, ended = activity_of(self.ledger.round_events(number, self.to_block))
        return HistoryRound(opening, self.sizes, self.registry(), ended, activity)

    def some(self, first: int, last: int) -> list[HistoryRound]:
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
        rounds: list[HistoryRound] = []
        for number in range(first, last + 1):
            ended = ends.get(number)
            rounds.append(HistoryRound(opening, self.sizes, registry, ended))
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
