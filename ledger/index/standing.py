"""Where a deployment stands after what is indexed, and how each further event continues it.

Every event must follow from those before it: the ledger's head commits to the whole history, the
commitments of the open round among it, and is recomputed here from what the logs say. A log that
is missing, or comes twice, is found where it should have been.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ledger.chain.contract.plausibility import require_possible_event
from ledger.chain.ports import IncompleteLogsError
from ledger.history.folding import folded
from ledger.history.round import Round
from ledger.protocol import encoding
from ledger.protocol.fold import RoundStart, head_after
from ledger.protocol.inputs import Participants
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    LedgerDeployed,
    LedgerOpened,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import NO_DIGEST, ClientId

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest, RegisteredClient


@dataclass(slots=True)
class Events:
    """What the chain holds of one round.

    Attributes:
        opening: how it began.
        course: commitments and bans, in the chain's order.
        ended: its end; None while it is open.
        trainers: that its seed draws, where that is remembered.
        ended_time: of the block that ended it, where that is remembered.
    """

    opening: RoundStart
    course: list[RecordedEvent] = field(default_factory=list)
    ended: RecordedEvent | None = None
    trainers: tuple[ClientId, ...] | None = None
    ended_time: int | None = None

    @property
    def all(self) -> list[RecordedEvent]:
        """Course and end."""
        return self.course if self.ended is None else [*self.course, self.ended]

    def head(self, before: Digest) -> Digest:
        """Return the ledger's head after them.

        Args:
            before: the head that the opening left.
        """
        heads = [one for one in self.all if not isinstance(one.event, UpdatesCommitted)]
        last = max(heads, key=lambda one: (one.block_number, one.log_index), default=None)
        match None if last is None else last.event:
            case ClientBanned(head=head) | RoundDecided(head=head) | RoundAbandoned(head=head):
                return head
            case _:
                return before

    def round(self, fixed: Deployment, registry: tuple[RegisteredClient, ...]) -> Round:
        """Return the round that they tell.

        Args:
            fixed: what was fixed at deployment.
            registry: all clients, with bans.
        """
        return self._known(Round(self.opening, fixed, registry, self.ended, folded(self.course)[0]))

    def line(self, fixed: Deployment, registry: tuple[RegisteredClient, ...]) -> Round:
        """Return the round by its opening and its end."""
        return self._known(Round(self.opening, fixed, registry, self.ended))

    def _known(self, one: Round) -> Round:
        # Who trains follows from the seed; the draw costs all K clients, and was made already.
        if self.trainers is not None:
            banned = frozenset(one.vacant_members)
            one.__dict__["participants"] = Participants(one.committee, self.trainers, banned)
        return one


@dataclass(slots=True)
class Standing:
    """Where a deployment stands.

    Attributes:
        fixed: what was fixed at deployment.
        registry: the clients registered so far, with bans.
        head: the ledger's head.
        number: the round that the contract counts; 0 before the first.
        current: the newest round that has opened; None before the first.
        seed: of the round that the contract counts.
        commitments: running digest of the open round's.
        node: that the events are asked of; None for a file.
    """

    fixed: Deployment
    registry: tuple[RegisteredClient, ...]
    head: Digest
    number: int = 0
    current: Events | None = None
    seed: Digest = NO_DIGEST
    commitments: Digest = NO_DIGEST
    node: str | None = None

    @staticmethod
    def at_deployment(fixed: Deployment) -> Standing:
        """Return where a deployment stands before anybody is registered."""
        return Standing(fixed, (), fixed.config)

    @staticmethod
    def of(
        fixed: Deployment, registry: tuple[RegisteredClient, ...], head: Digest, current: Events
    ) -> Standing:
        """Return where a deployment stands whose newest round is known.

        Args:
            fixed: what was fixed at deployment.
            registry: all clients, with bans.
            head: the ledger's.
            current: the newest round.
        """
        found = Standing(fixed, registry, head, current.opening.round, current)
        found.seed = current.opening.seed
        found.commitments = encoding.commitments_chain(
            (mined.client, mined.commitment) for mined in folded(current.course)[0].commitments
        )
        following = None if current.ended is None else _following(current.ended)
        if following is not None:
            found._count(following)
        return found

    @property
    def is_open(self) -> bool:
        """Whether a round takes commitments."""
        current = self.current
        return (
            current is not None and current.ended is None and current.opening.round == self.number
        )

    def take(self, recorded: RecordedEvent) -> None:
        """Go on by one event.

        Args:
            recorded: the next of the contract's events, and where the chain holds it.

        Raises:
            IncompleteLogsError: it does not follow from those before it.
        """
        require_possible_event(recorded, self.fixed)
        event = recorded.event
        match event:
            case LedgerDeployed():
                pass
            case ClientsRegistered(first, words):
                self._require(recorded, "first", first, len(self.registry))
                self.registry += tuple(encoding.registered_client(word) for word in words)
            case LedgerOpened(config):
                self._require(recorded, "config", config, self.fixed.config)
                self._require(recorded, "clients", len(self.registry), self.fixed.clients)
                self._open(recorded)
            case UpdatesCommitted(number, clients, commitments):
                self._require_open(recorded, number)
                for client, commitment in zip(clients, commitments, strict=True):
                    self.commitments = encoding.commitments_digest(
                        self.commitments, client, commitment
                    )
                self._in_course(recorded)
            case ClientBanned(number, client, head):
                self._require(recorded, "round", number, self.number)
                true = encoding.head_after_ban(self.head, number, client)
                self._require(recorded, "head", head, true)
                self._ban(client, number)
                self.head = head
                self._in_course(recorded)
            case RoundDecided() | RoundAbandoned():
                self._require_open(recorded, event.round)
                self._require(recorded, "head", event.head, self._head_after(event))
                assert self.current is not None, "a round is open"
                self.current.ended = recorded
                self.head = event.head
                self._open(recorded)

    def _head_after(self, event: RoundDecided | RoundAbandoned) -> Digest:
        before = encoding.HeadContext(self.head, self.number, self.seed, self.commitments)
        return head_after(before, event)

    def _open(self, recorded: RecordedEvent) -> None:
        opening = RoundStart.of(recorded.event, recorded.block_number)
        assert opening is not None, "the event opens a round, or says that there is none"
        if self._count(opening):
            self.current = Events(opening)

    def _count(self, opening: RoundStart) -> bool:
        """Count the round of an opening, and say whether it has begun."""
        if opening.round > self.fixed.rounds:
            return False  # the contract goes on counting the last round
        self.number, self.seed, self.commitments = opening.round, opening.seed, NO_DIGEST
        return len(opening.committee) == self.fixed.members

    def _in_course(self, recorded: RecordedEvent) -> None:
        # After a ledger has ended for want of clients, bans belong to a round that never began.
        if self.current is not None and self.current.opening.round == self.number:
            self.current.course.append(recorded)

    def _ban(self, client: ClientId, number: int) -> None:
        banned = replace(self.registry[client], banned_in=number)
        self.registry = (*self.registry[:client], banned, *self.registry[client + 1 :])

    def _require_open(self, recorded: RecordedEvent, number: int) -> None:
        self._require(recorded, "round", number, self.number if self.is_open else 0)

    def _require(self, recorded: RecordedEvent, name: str, found: object, true: object) -> None:
        if found != true:
            raise IncompleteLogsError(
                self.node,
                f"block {recorded.block_number} is said to hold a {type(recorded.event).__name__} "
                f"with {name} {_shown(found)}, where {_shown(true)} follows from the events before",
            )


def _following(ended: RecordedEvent) -> RoundStart | None:
    return RoundStart.of(ended.event, ended.block_number)


def _shown(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
