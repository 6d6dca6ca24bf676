"""The digests of a deployment, and the places of one digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ledger.history.documents import Documents
from ledger.protocol.ledger_state import ClientBanned, Deployment, RoundDecided, UpdatesCommitted
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from ledger.chain.contract.codec import RecordedEvent
    from ledger.history.round import HistoryRound

NO_CLIENT = -1
"""In place of a client, for a digest that belongs to none."""


class DigestKind(IntEnum):
    """Subject of a digest or an address; the numbers never change their meaning."""

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


Entry = tuple[bytes, DigestKind, int, int]
"""Digest, kind, round (0 for the deployment) and client (or `NO_CLIENT`)."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One place of a digest; `round` is None for a digest of the deployment itself."""

    kind: DigestKind
    round: int | None
    client: int | None

    @staticmethod
    def of(kind: int, round_number: int, client: int) -> Occurrence:
        """Return the place of an entry's kind, round and client."""
        owner = None if client == NO_CLIENT else client
        return Occurrence(DigestKind(kind), round_number or None, owner)


def in_order(entries: Iterable[Entry]) -> list[Occurrence]:
    """Return the places of one digest: the deployment first, then ascending by round."""
    places = sorted((number, kind, client) for _, kind, number, client in entries)
    return [Occurrence.of(kind, number, client) for number, kind, client in places]


def digests_of_deployment(fixed: Deployment) -> Iterator[Entry]:
    """Yield the digests among the contract's parameters."""
    yield fixed.config, DigestKind.CONFIGURATION, 0, NO_CLIENT
    yield fixed.registry, DigestKind.REGISTRY, 0, NO_CLIENT
    yield fixed.model, DigestKind.INITIAL_MODEL, 0, NO_CLIENT


def digests_of_events(events: Iterable[RecordedEvent], number: int) -> Iterator[Entry]:
    """Yield hashes of blocks and transactions, heads after bans, and commitments.

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


def digests_of_round(round_: HistoryRound, documents: Documents) -> Iterator[Entry]:
    """Yield the digests of a round, given its documents."""
    number = round_.round
    yield round_.seed, DigestKind.SEED, number, NO_CLIENT
    yield from digests_of_events(round_.events, number)
    if round_.end is not None:
        yield round_.end.head, DigestKind.HEAD, number, NO_CLIENT
    if round_.decided is not None:
        yield from _of_decision(round_.decided)
    for client, payload in documents.payloads.items():
        yield payload, DigestKind.PAYLOAD, number, client
    if documents.record is not None:
        for signed in documents.record.claims:
            yield signed.scores.digest, DigestKind.SCORE_VECTOR, number, signed.scores.member


def _of_decision(event: RoundDecided) -> Iterator[Entry]:
    digests = {
        DigestKind.BASE: event.base,
        DigestKind.MODEL: event.model,
        DigestKind.UPDATES_ROOT: event.updates_root,
        DigestKind.SCORES_ROOT: event.scores_root,
        DigestKind.REVEAL: event.reveal,
        DigestKind.RECORD: event.record,
        DigestKind.INCIDENTS: event.incidents,
        DigestKind.RESULT: event.result(),
    }
    for kind, digest in digests.items():
        if digest != NO_DIGEST:
            yield digest, kind, event.round, NO_CLIENT
