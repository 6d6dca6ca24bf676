"""What a memory ledger remembers: where it stood after each block, and what was recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import LedgerSnapshot, RoundStart
from ledger.chain.contract.event_logs import RecordedEvent
from ledger.chain.ports import Block
from ledger.protocol import encoding
from ledger.protocol.closing import MinedCommitment
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    LedgerDeployed,
    LedgerOpened,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.ledger_state import Deployment, Event, LedgerState
    from ledger.protocol.types import Digest, Domain, RegisteredClient

DEPLOYMENT_BLOCK = 1
"""A fresh chain's first transaction creates the contract."""


class MemoryHistory:
    """What is read of a memory ledger; a `RoundHistory`.

    A block's hash follows from its number, so that blocks cost nothing: nobody seals them.

    Attributes:
        domain: what its clients sign for.
        from_block: the block in which it was deployed.
    """

    is_recorded = False

    def __init__(self, state: LedgerState) -> None:
        """Begin with the block in which the ledger was deployed.

        Args:
            state: after the constructor.
        """
        self.domain: Domain = state.domain
        self.from_block = DEPLOYMENT_BLOCK
        self._deployment = state.deployment
        self._height = DEPLOYMENT_BLOCK
        self._changed_in = [DEPLOYMENT_BLOCK]
        self._snapshots = [LedgerSnapshot.of(state)]
        self._registered: tuple[RegisteredClient, ...] = ()
        self._openings: dict[int, RecordedEvent] = {}
        self._ends: list[RecordedEvent] = []
        self._bans: list[RecordedEvent] = []
        self._rounds: defaultdict[int, list[RecordedEvent]] = defaultdict(list)
        place = self._hash(DEPLOYMENT_BLOCK)
        event = LedgerDeployed(state.domain.salt)
        self._recorded = [RecordedEvent(event, DEPLOYMENT_BLOCK, place, place, 0)]

    @property
    def node(self) -> str | None:
        """None: no node is asked."""
        return None

    def newest_block(self) -> Block:
        """Return the newest block."""
        return self.block(self._height)

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        """Return the number of the newest block that is final; nothing is ever taken back here."""
        return max(0, newest.number - (confirmations or 0))

    def block(self, number: int) -> Block:
        """Return one block; its time is its number, in seconds.

        Args:
            number: 0 for the first.

        Raises:
            ChainError: there is no such block.
        """
        if not 0 <= number <= self._height:
            raise ChainError(f"there is no block {number}: the newest is {self._height}")
        return Block(number, self._hash(number), self._hash(number - 1), number)

    def deployment(self) -> Deployment:
        """Return what was fixed at deployment."""
        return self._deployment

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return where the ledger stood after a block.

        Args:
            block_number: which; None for the newest.

        Raises:
            ChainError: it was not deployed in this block yet.
        """
        if block_number is None:
            return self._snapshots[-1]
        place = bisect_right(self._changed_in, block_number)
        if not place:
            raise ChainError(f"there is no committee ledger in block {block_number}")
        return self._snapshots[place - 1]

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, without bans."""
        return self._registered

    def bans(self, to_block: int | None = None) -> tuple[ClientBanned, ...]:
        """Return every ban, oldest first.

        Args:
            to_block: last block, included; None for the newest.
        """
        events = [recorded.event for recorded in self._up_to(self._bans, to_block)]
        return tuple(event for event in events if isinstance(event, ClientBanned))

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return how a round began, None if it has not opened.

        Args:
            round_number: t, from 1.
            to_block: last block, included; None for the newest.
        """
        recorded = self._openings.get(round_number)
        if recorded is None or not self._up_to([recorded], to_block):
            return None
        return RoundStart.of(recorded)

    def commitments(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[MinedCommitment, ...]:
        """Return the commitments that were taken in a round, oldest first.

        Args:
            round_number: t.
            to_block: last block, included; None for the newest.
        """
        return tuple(
            MinedCommitment(recorded.block_number, client, commitment)
            for recorded in self.round_events(round_number, to_block)
            if isinstance(recorded.event, UpdatesCommitted)
            for client, commitment in zip(
                recorded.event.clients, recorded.event.commitments, strict=True
            )
        )

    def round_events(self, round_number: int, to_block: int | None = None) -> list[RecordedEvent]:
        """Return all that was recorded of one round, oldest first.

        Args:
            round_number: t.
            to_block: last block, included; None for the newest.
        """
        return self._up_to(self._rounds.get(round_number, ()), to_block)

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return all that was recorded in these blocks, oldest first.

        Args:
            from_block: first block, included.
            to_block: last block, included.
        """
        first, end = (
            bisect_left(self._recorded, number, key=attrgetter("block_number"))
            for number in (from_block, to_block + 1)
        )
        return self._recorded[first:end]

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return the last or the first ended rounds: decisions and abandonments.

        Args:
            limit: how many at most.
            descending: newest first.
            to_block: last block, included; None for the newest.
        """
        found = self._up_to(self._ends, to_block)
        return (found[::-1] if descending else found)[:limit]

    def _remember(self, state: LedgerState, events: Sequence[Event]) -> None:
        """Take down what the newest block's transaction came to."""
        self._changed_in.append(self._height)
        self._snapshots.append(LedgerSnapshot.of(state))
        place = self._hash(self._height)
        for index, event in enumerate(events):
            # There is no transaction to look up: its block is as good a name.
            recorded = RecordedEvent(event, self._height, place, place, index)
            self._recorded.append(recorded)
            self._file(recorded)
        if state.round == 0 or any(isinstance(event, LedgerOpened) for event in events):
            self._registered = state.registry

    def _file(self, recorded: RecordedEvent) -> None:
        event = recorded.event
        match event:
            case LedgerDeployed() | ClientsRegistered():
                return
            case LedgerOpened():
                self._openings[1] = recorded
                return
            case RoundDecided() | RoundAbandoned():
                self._ends.append(recorded)
                self._openings[event.round + 1] = recorded
            case ClientBanned():
                self._bans.append(recorded)
            case UpdatesCommitted():
                pass
        self._rounds[event.round].append(recorded)

    def _up_to(self, found: Sequence[RecordedEvent], to_block: int | None) -> list[RecordedEvent]:
        last = self._height if to_block is None else to_block
        return [recorded for recorded in found if recorded.block_number <= last]

    def _hash(self, number: int) -> Digest:
        """Return a block's hash; of the one before the first, zeros."""
        if number < 0:
            return NO_DIGEST
        where = self.domain.chain_id.to_bytes(32) + self.domain.contract
        return encoding.keccak256(where + encoding.u64(number))
