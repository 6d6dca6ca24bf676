"""One round, from the contract's events."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ledger.history.status import RoundStatus
from ledger.protocol.encoding import word_client
from ledger.protocol.inputs import (
    ParticipantCounts,
    Participants,
    WindowLength,
    closing_block,
    participants_of,
    window_end,
)
from ledger.protocol.ledger_state import ClientBanned, RoundAbandoned, RoundDecided

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.protocol.fold import RoundStart
    from ledger.protocol.inputs import MinedCommitment
    from ledger.protocol.types import ClientId, Digest, RegisteredClient


class RoundSizes(ParticipantCounts, WindowLength, Protocol):
    """Sizes and durations of a round; both a run's parameters and its deployment have them."""

    @property
    def members(self) -> int:
        """The number C of members of a committee."""

    @property
    def rounds(self) -> int:
        """T, the last round."""


@dataclass(frozen=True, slots=True)
class RoundActivity:
    """Commitments and bans of a round between its opening and its end, in the chain's order."""

    commitments: tuple[MinedCommitment, ...] = ()
    bans: tuple[RecordedEvent, ...] = ()


@dataclass(frozen=True)
class Round:
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
