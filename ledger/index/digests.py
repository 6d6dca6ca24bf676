"""Which digests belong to a round, and where one of them stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.index.codes import NOBODY, DigestKind
from ledger.protocol.ledger_state import ClientBanned, UpdatesCommitted
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.chain.contract.events import Recorded
    from ledger.history.documents import Documents
    from ledger.history.round import Round
    from ledger.protocol.ledger_state import Deployment, RoundDecided

Entry = tuple[bytes, DigestKind, int, int]
"""Digest, kind, round (0 for what is the deployment's) and client (`NOBODY` for nobody's)."""


def digests_of_deployment(fixed: Deployment) -> Iterator[Entry]:
    """Yield the digests that were fixed at deployment."""
    yield fixed.config, DigestKind.CONFIGURATION, 0, NOBODY
    yield fixed.registry, DigestKind.REGISTRY, 0, NOBODY
    yield fixed.model, DigestKind.INITIAL_MODEL, 0, NOBODY


def digests_of_events(events: Iterable[Recorded], number: int) -> Iterator[Entry]:
    """Yield the hashes of blocks and transactions, and the heads after bans.

    Args:
        events: of one round, or of the registration.
        number: of the round; 0 for the registration.
    """
    for recorded in events:
        yield recorded.block_hash, DigestKind.BLOCK, number, NOBODY
        yield recorded.transaction_hash, DigestKind.TRANSACTION, number, NOBODY
        match recorded.event:
            case ClientBanned(_, client, head):
                yield head, DigestKind.HEAD, number, client
            case UpdatesCommitted(_, clients, commitments):
                for client, commitment in zip(clients, commitments, strict=True):
                    yield commitment, DigestKind.COMMITMENT, number, client
            case _:
                pass


def digests_of_round(
    one: Round, documents: Documents, events: Iterable[Recorded]
) -> Iterator[Entry]:
    """Yield the digests of a round.

    Args:
        one: the round.
        documents: its documents.
        events: all that the chain holds of it.
    """
    number = one.round
    yield one.seed, DigestKind.SEED, number, NOBODY
    yield from digests_of_events(events, number)
    if one.end is not None:
        yield one.end.head, DigestKind.HEAD, number, NOBODY
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
            yield digest, kind, event.round, NOBODY


@dataclass(frozen=True, slots=True)
class Place:
    """Where a digest or an address stands.

    Attributes:
        kind: what it is there.
        chain_id: of the chain.
        genesis: hash of the chain's block 0.
        contract: address of the contract, 20 bytes; None for a chain's own.
        round: t; None for what belongs to the deployment.
        client: whose it is; None for nobody's.
    """

    kind: DigestKind
    chain_id: int
    genesis: bytes
    contract: bytes | None = None
    round: int | None = None
    client: int | None = None
