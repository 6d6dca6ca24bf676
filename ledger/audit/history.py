"""One round as the chain and the blobs tell it: what the CLI shows and the API serves.

Nothing here is verified beyond what a blob's digest verifies; `audit` does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.protocol import ledger_state
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.incidents import decode_incidents
from ledger.protocol.documents.record import decode_record
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.inputs import participants_of, registry_with_bans
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.events import Recorded
    from ledger.protocol.documents.incidents import Incidents
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.types import ClientId, Digest

    Document = TypeVar("Document")


class RoundStatus(StrEnum):
    """How a round stands."""

    OPEN = "open"
    DECIDED = "decided"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class RoundHistory:
    """All that is recorded of one round.

    Attributes:
        round: t.
        status: how it stands.
        seed: seed_t.
        committee: S_c, by places.
        trainers: S_b, as the seed gives them without the banned, ascending.
        empty_seats: members that were banned when the round opened, by places.
        commitments: what each client committed, in the chain's order.
        decided: the decision, if there is one.
        abandoned: the abandonment, if that is how it ended.
        banned: clients banned during the round.
        ended: where the chain holds decision or abandonment; None while open.
        record: the round's record; None if undecided, missing or unreadable.
        incidents: what went wrong while voting, signed by nobody; None if there is no document,
            or it is missing or bogus.
    """

    round: int
    status: RoundStatus
    seed: Digest
    committee: tuple[ClientId, ...]
    trainers: tuple[ClientId, ...]
    empty_seats: tuple[ClientId, ...]
    commitments: dict[ClientId, Digest]
    decided: ledger_state.RoundDecided | None
    abandoned: ledger_state.RoundAbandoned | None
    banned: tuple[ClientId, ...]
    ended: Recorded | None
    record: RoundRecord | None
    incidents: Incidents | None

    @property
    def payloads(self) -> dict[ClientId, Digest]:
        """Payload digests that the record names: usable updates, and malformed payloads."""
        if self.record is None:
            return {}
        malformed = {d.client: d.payload for d in self.record.dropouts if d.payload is not None}
        return malformed | self.record.payloads()


@dataclass
class _Chain:
    """What the chain's events say of a round."""

    commitments: dict[ClientId, Digest] = field(default_factory=dict)
    banned: list[ClientId] = field(default_factory=list)
    decided: ledger_state.RoundDecided | None = None
    abandoned: ledger_state.RoundAbandoned | None = None
    ended: Recorded | None = None

    def take(self, recorded: Recorded) -> None:
        """Add one event."""
        match recorded.event:
            case ledger_state.UpdatesCommitted(_, clients, commitments):
                self.commitments |= zip(clients, commitments, strict=True)
            case ledger_state.ClientBanned(_, client, _):
                self.banned.append(client)
            case ledger_state.RoundDecided() as event:
                self.decided, self.ended = event, recorded
            case ledger_state.RoundAbandoned() as event:
                self.abandoned, self.ended = event, recorded
            case _:
                pass

    @property
    def status(self) -> RoundStatus:
        """How the round stands."""
        if self.decided is not None:
            return RoundStatus.DECIDED
        return RoundStatus.OPEN if self.abandoned is None else RoundStatus.ABANDONED


def read_round(
    ledger: CommitteeLedger,
    sizes: ledger_state.Deployment,
    round_number: int,
    blobs: BlobReader | None = None,
    to_block: int | None = None,
) -> RoundHistory | None:
    """Return one round, None if it has not opened.

    Args:
        ledger: the contract.
        sizes: K and n, from `ledger.deployment()`.
        round_number: t, from 1.
        blobs: where record and incidents are looked up; None leaves them out.
        to_block: last block that is read; None for the head.

    Returns:
        What chain and blobs hold of it.
    """
    opening = ledger.opening(round_number, to_block)
    if opening is None or round_number > sizes.rounds:
        return None
    committee, seed = opening.committee, opening.seed
    if len(committee) < sizes.members:  # nobody could be drawn any more: the ledger has ended
        return None
    registry = registry_with_bans(ledger.whole_registry(), ledger.bans(to_block))
    active = participants_of(sizes, registry, round_number, seed, committee)
    chain = _Chain()
    for recorded in ledger.round_events(round_number, to_block):
        chain.take(recorded)
    return RoundHistory(
        round=round_number,
        status=chain.status,
        seed=seed,
        committee=committee,
        trainers=active.trainers,
        empty_seats=tuple(member for member in committee if member in active.banned),
        commitments=chain.commitments,
        decided=chain.decided,
        abandoned=chain.abandoned,
        banned=tuple(chain.banned),
        ended=chain.ended,
        record=read_record(blobs, chain.decided.record) if blobs and chain.decided else None,
        incidents=_incidents(blobs, chain.decided) if blobs and chain.decided else None,
    )


def read_record(blobs: BlobReader, digest: Digest) -> RoundRecord | None:
    """Return a round's record, None if it is missing, damaged or no record.

    Args:
        blobs: where it should be.
        digest: as the chain names it.
    """
    return _read(blobs, digest, decode_record)


def gone_payloads(history: RoundHistory, blobs: BlobReader) -> tuple[ClientId, ...]:
    """Return whose payload the record names and a store does not have, ascending by client.

    Args:
        history: of a round.
        blobs: where payloads should be; none of them is read.
    """
    named = sorted(history.payloads.items())
    return tuple(client for client, payload in named if not blobs.has(payload))


def read_run(blobs: BlobReader, config: Digest) -> RunDocument | None:
    """Return a run's configuration, None if it is missing, damaged or no configuration.

    Args:
        blobs: where it should be.
        config: as the contract names it.
    """
    return _read(blobs, config, decode_run)


def _incidents(blobs: BlobReader, decided: ledger_state.RoundDecided) -> Incidents | None:
    """Return a round's incidents, None if there are none of this round."""
    if decided.incidents == NO_DIGEST:
        return None
    found = _read(blobs, decided.incidents, decode_incidents)
    if found is None or (found.round, found.base) != (decided.round, decided.base):
        return None
    return found


def _read(
    blobs: BlobReader, digest: Digest, decode: Callable[[bytes], Document]
) -> Document | None:
    try:
        return decode(blobs.get(digest, MAX_DOCUMENT_BYTES))
    except (BlobError, EncodingError):
        return None
