"""One round as the chain and the blobs tell it: what the CLI shows and the API serves.

Nothing here is verified beyond what a blob's digest verifies; `audit` does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol import ledger_state
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents import RoundRecord, RunDocument, decode_record, decode_run
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.sampling import sample_trainers

if TYPE_CHECKING:
    from ledger.blobs.store import BlobReader
    from ledger.chain.committee_ledger import CommitteeLedger
    from ledger.chain.events import Recorded
    from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class RoundHistory:
    """All that is recorded of one round.

    Attributes:
        round: t.
        status: "open", "decided" or "abandoned".
        seed: seed_t.
        committee: S_c, by places.
        trainers: S_b, as the seed gives them, ascending.
        commitments: payload digest of each client that committed, in the chain's order.
        decided: the decision, if there is one.
        abandoned: the abandonment, if that is how it ended.
        banned: clients banned during the round.
        ended: where the chain holds decision or abandonment; None while open.
        record: the round's record blob; None if undecided, missing or unreadable.
    """

    round: int
    status: str
    seed: Digest
    committee: tuple[ClientId, ...]
    trainers: tuple[ClientId, ...]
    commitments: dict[ClientId, Digest]
    decided: ledger_state.RoundDecided | None
    abandoned: ledger_state.RoundAbandoned | None
    banned: tuple[ClientId, ...]
    ended: Recorded | None
    record: RoundRecord | None


def read_round(
    ledger: CommitteeLedger,
    sizes: ledger_state.Deployment,
    round_number: int,
    blobs: BlobReader | None = None,
    to_block: int | None = None,
) -> RoundHistory | None:
    """Return one round's history, None if it has not opened.

    Args:
        ledger: the contract.
        sizes: K and n, from `ledger.deployment()`.
        round_number: t, from 1.
        blobs: where the round's record is looked up; None leaves it out.
        to_block: last block that is read; None for the head.

    Returns:
        What chain and blobs hold of it.
    """
    opening = ledger.opening(round_number, to_block)
    if opening is None or round_number > sizes.rounds:
        return None
    committee, seed = opening
    if len(committee) < sizes.members:  # nobody could be drawn any more: the ledger has ended
        return None
    commitments: dict[ClientId, Digest] = {}
    banned: list[ClientId] = []
    decided: ledger_state.RoundDecided | None = None
    abandoned: ledger_state.RoundAbandoned | None = None
    ended: Recorded | None = None
    for recorded in ledger.round_events(round_number, to_block):
        match recorded.event:
            case ledger_state.UpdatesCommitted(_, clients, payloads):
                commitments |= zip(clients, payloads, strict=True)
            case ledger_state.ClientBanned(_, client, _):
                banned.append(client)
            case ledger_state.RoundDecided() as event:
                decided, ended = event, recorded
            case ledger_state.RoundAbandoned() as event:
                abandoned, ended = event, recorded
            case _:
                pass
    return RoundHistory(
        round=round_number,
        status="decided" if decided else "abandoned" if abandoned else "open",
        seed=seed,
        committee=committee,
        trainers=sample_trainers(seed, sizes.clients, committee, sizes.trainers),
        commitments=commitments,
        decided=decided,
        abandoned=abandoned,
        banned=tuple(banned),
        ended=ended,
        record=read_record(blobs, decided.record) if blobs and decided else None,
    )


def read_record(blobs: BlobReader, digest: Digest) -> RoundRecord | None:
    """Return a round's record, None if it is missing, damaged or no record.

    Args:
        blobs: where it should be.
        digest: as the chain names it.
    """
    try:
        return decode_record(blobs.get(digest, MAX_DOCUMENT_BYTES))
    except (BlobError, EncodingError):
        return None


def read_run(blobs: BlobReader, config: Digest) -> RunDocument | None:
    """Return a run's configuration, None if it is missing, damaged or no configuration.

    Args:
        blobs: where it should be.
        config: as the contract names it.
    """
    try:
        return decode_run(blobs.get(config, MAX_DOCUMENT_BYTES))
    except (BlobError, EncodingError):
        return None
