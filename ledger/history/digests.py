"""Which digests a deployment holds, and where one of them stands."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from ledger.protocol.ledger_state import ClientBanned, UpdatesCommitted
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.documents import Documents
    from ledger.history.round import Round
    from ledger.protocol.ledger_state import Deployment, RoundDecided

NO_CLIENT = -1
"""What stands for the client of a digest that is nobody's own."""


class DigestKind(IntEnum):
    """What a digest or an address is of; the numbers never change their meaning."""

    CONFIGURATION = 1
    REGISTRY = 2
    INITIAL_MODEL = 3
    SEED = 4
    COMMITMENT = 5
    PAYLOAD = 6
    SCORE_VECTOR = 7
    BASE = 8
    MODEL = 9
    UPDATES_ROOT = 10
    SCORES_ROOT = 11
    REVEAL = 12
    RECORD = 13
    INCIDENTS = 14
    RESULT = 15
    HEAD = 16
    BLOCK = 17
    TRANSACTION = 18
    CONTRACT = 19
    CLIENT = 20
    GENESIS = 21


Entry = tuple[bytes, DigestKind, int, int]
"""Digest, kind, round (0 for what is the deployment's) and client (`NOBODY` for nobody's)."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Where a digest stands in a deployment.

    Attributes:
        kind: what it is there.
        round: t; None for what belongs to the deployment.
        client: whose it is; None for nobody's.
    """

    kind: DigestKind
    round: int | None
    client: int | None

    @staticmethod
    def of(kind: int, round_number: int, client: int) -> Occurrence:
        """Return where an entry stands.

        Args:
            kind: a number of `DigestKind`.
            round_number: 0 for what belongs to the deployment.
            client: `NOBODY` for nobody's.
        """
        owner = None if client == NO_CLIENT else client
        return Occurrence(DigestKind(kind), round_number or None, owner)


@dataclass(slots=True)
class KnownDigests:
    """The digests of a deployment's first rounds, as long as nothing of these can change.

    Attributes:
        rounds: how many these are.
        entries: by digest.
    """

    rounds: int = 0
    entries: dict[bytes, set[Entry]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the digests of the next round, and count it."""
        for entry in entries:
            self.entries.setdefault(entry[0], set()).add(entry)
        self.rounds += 1


def in_order(entries: Iterable[Entry]) -> list[Occurrence]:
    """Return where one digest stands: the deployment first, then ascending by round."""
    places = sorted((number, kind, client) for _, kind, number, client in entries)
    return [Occurrence.of(kind, number, client) for number, kind, client in places]


def digests_of_deployment(fixed: Deployment) -> Iterator[Entry]:
    """Yield the digests that were fixed at deployment."""
    yield fixed.config, DigestKind.CONFIGURATION, 0, NO_CLIENT
    yield fixed.registry, DigestKind.REGISTRY, 0, NO_CLIENT
    yield fixed.model, DigestKind.INITIAL_MODEL, 0, NO_CLIENT


def digests_of_events(events: Iterable[RecordedEvent], number: int) -> Iterator[Entry]:
    """Yield the hashes of blocks and transactions, and the heads after bans.

    Args:
        events: of one round, or of the registration.
        number: of the round; 0 for the registration.
    """
    for recorded in events:
        yield recorded.block_hash, DigestKind.BLOCK, number, NO_CLIENT
        yield recorded.transaction_hash, DigestKind.TRANSACTION, number, NO_CLIENT
        match recorded.event:
            case ClientBanned(_, client, head):
                yield head, DigestKind.HEAD, number, client
            case UpdatesCommitted(_, clients, commitments):
                for client, commitment in zip(clients, commitments, strict=True):
                    yield commitment, DigestKind.COMMITMENT, number, client
            case _:
                pass


def digests_of_round(
    one: Round, documents: Documents, events: Iterable[RecordedEvent]
) -> Iterator[Entry]:
    """Yield the digests of a round.

    Args:
        one: the round.
        documents: its documents.
        events: all that the chain holds of it.
    """
    number = one.round
    yield one.seed, DigestKind.SEED, number, NO_CLIENT
    yield from digests_of_events(events, number)
    if one.end is not None:
        yield one.end.head, DigestKind.HEAD, number, NO_CLIENT
    if one.decided is not None:
        yield from _of_decision(one.decided)
    for client, payload in documents.payloads.items():
        yield payload, DigestKind.PAYLOAD, number, client
    if documents.record is not None:
        refused = [entry.signed for entry in documents.record.refused]
        for signed in (*documents.record.scores, *refused):
            yield signed.scores.digest, DigestKind.SCORE_VECTOR, number, signed.scores.member


def _of_decision(event: RoundDecided) -> Iterator[Entry]:
    found = {
        DigestKind.BASE: event.base,
        DigestKind.MODEL: event.model,
        DigestKind.UPDATES_ROOT: event.updates_root,
        DigestKind.SCORES_ROOT: event.scores_root,
        DigestKind.REVEAL: event.reveal,
        DigestKind.RECORD: event.record,
        DigestKind.INCIDENTS: event.incidents,
        DigestKind.RESULT: event.result(),
    }
    for kind, digest in found.items():
        if digest != NO_DIGEST:
            yield digest, kind, event.round, NO_CLIENT
