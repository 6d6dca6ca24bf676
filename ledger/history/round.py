"""One round, made of the contract's events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ledger.chain.contract.codec import RecordedEvent
from ledger.chain.round_ledger import RoundHistory
from ledger.history.status import RoundStatus
from ledger.protocol.encoding import word_client
from ledger.protocol.fold import RoundStart, mined_commitments, registry_with_bans
from ledger.protocol.inputs import (
    MinedCommitment,
    Participants,
    RoundSizes,
    closing_block,
    participants_of,
    window_end,
)
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided
from ledger.protocol.types import ClientId, Digest, RegisteredClient


@dataclass(frozen=True)
class HistoryRound:
    """One round: opening, events and end.

    Attributes:
        opening: its number, committee and seed, and the block that opened it.
        registry: all clients, with the bans recorded until it ended.
        ended: its decision or abandonment with block and transaction; None while it is open.
        events: all of its events in the chain's order, `ended` included.
    """

    opening: RoundStart
    sizes: RoundSizes
    registry: tuple[RegisteredClient, ...]
    ended: RecordedEvent | None
    events: tuple[RecordedEvent, ...] = ()

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
        events = [recorded.event for recorded in self.bans]
        return tuple(event.client for event in events if isinstance(event, ClientBanned))

    @property
    def bans(self) -> tuple[RecordedEvent, ...]:
        """The bans that were recorded during the round."""
        return tuple(each for each in self.events if isinstance(each.event, ClientBanned))

    @property
    def mined(self) -> tuple[MinedCommitment, ...]:
        """The recorded commitments, in the chain's order."""
        return tuple(
            mined
            for recorded in self.events
            for mined in mined_commitments(recorded.event, recorded.block_number)
        )

    @property
    def commitments(self) -> dict[ClientId, Digest]:
        """Each client's recorded commitment, also one without effect."""
        return {mined.client: mined.commitment for mined in self.mined}

    @property
    def counted(self) -> frozenset[ClientId]:
        """The active clients whose commitment counts: recorded by the closing block."""
        expected = self.participants.expected
        # While the window is open, the commitments so far determine the closing block.
        end = window_end(self.sizes, self.opening.opened_block)
        last = closing_block(end, expected, self.mined)
        return expected.intersection(m.client for m in self.mined if m.block <= last)

    @property
    def places(self) -> dict[ClientId, tuple[int, int]]:
        """Rank from 0 and distance bits of each ranked trainer."""
        ranking = self.decided.ranking if self.decided else ()
        return {word_client(word): (rank, word >> 32) for rank, word in enumerate(ranking)}


def has_begun(start: RoundStart, sizes: RoundSizes) -> bool:
    """Return whether a start opens a round: without a full committee none does."""
    return start.round <= sizes.rounds and len(start.committee) == sizes.members


def read_round(ledger: RoundHistory, sizes: RoundSizes, number: int) -> HistoryRound | None:
    """Return one round of a ledger, None if it has not opened."""
    opening = ledger.opening(number)
    if opening is None or not has_begun(opening, sizes):
        return None
    events = tuple(ledger.round_events(number))
    ends = [each for each in events if isinstance(each.event, RoundDecided | RoundAbandoned)]
    registry = registry_with_bans(ledger.registry(), ledger.bans())
    return HistoryRound(opening, sizes, registry, ends[0] if ends else None, events)
