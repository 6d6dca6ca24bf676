"""The rows that a range of blocks makes: rounds, parts, digests and counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ledger.history.digests import digests_of_round
from ledger.history.documents import read_documents
from ledger.history.participation import ParticipationCounts, participations
from ledger.index.codes import STATUS, Document
from ledger.index.packing import pack_events, pack_opening
from ledger.index.parts import add_counts, row_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.digests import Entry
    from ledger.history.documents import Documents
    from ledger.index.standing import Events
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import RegisteredClient
    from ledger.storage.blobs import BlobReader

Row = dict[str, Any]
COUNTED = tuple(one.name for one in fields(ParticipationCounts))


@dataclass(slots=True)
class RoundRows:
    """What is written of some rounds, without the deployment that all of it belongs to.

    Attributes:
        rounds: rows of the table of rounds.
        told: of what the events tell.
        parts: of participations.
        digests: where each digest stands.
        counts: by client, what these rounds add.
    """

    rounds: list[Row] = field(default_factory=list)
    told: list[Row] = field(default_factory=list)
    parts: list[Row] = field(default_factory=list)
    digests: set[Entry] = field(default_factory=set)
    counts: dict[int, ParticipationCounts] = field(default_factory=dict)

    def add(
        self,
        fixed: Deployment,
        registry: tuple[RegisteredClient, ...],
        events: Events,
        blobs: BlobReader,
        time_of: Callable[[RecordedEvent], int],
    ) -> None:
        """Add a round.

        Args:
            fixed: what was fixed at deployment.
            registry: all clients, with bans.
            events: all that the chain holds of the round.
            blobs: where its documents are.
            time_of: the time of the block that holds an event.
        """
        one = events.round(fixed, registry)
        documents, ended, decided = read_documents(blobs, one), one.ended, one.decided
        record, incidents = standing_of(documents, is_decided=decided is not None)
        self.rounds.append(
            {
                "round": one.round,
                "opened_block": one.opening.opened_block,
                "status": STATUS[one.status],
                "view": max(decided.views) if decided else 0,
                "ended_block": ended.block_number if ended else None,
                "ended_time": time_of(ended) if ended else None,
                "record": int(record),
                "incidents": int(incidents),
            }
        )
        self.told.append(
            {
                "round": one.round,
                "opening": pack_opening(one.opening, one.trainers),
                "course": pack_events(events.course),
                "ended": pack_events([ended]) if ended else None,
            }
        )
        parts = participations(one, documents)
        base = decided.base if decided else None
        self.parts += [row_of(part, one.round, base) for part in parts]
        self.digests.update(digests_of_round(one, documents, events.all))
        if ended is not None:
            add_counts(self.counts, parts)


def standing_of(documents: Documents, *, is_decided: bool) -> tuple[Document, Document]:
    """Return how record and incidents document of a round stand.

    Args:
        documents: those that are there.
        is_decided: whether the round has a decision, which names a record.
    """
    record = Document.NONE
    if is_decided:
        record = Document.READ if documents.record is not None else Document.MISSING
    if not documents.names_incidents:
        return record, Document.NONE
    return record, Document.READ if documents.has_incidents else Document.MISSING
