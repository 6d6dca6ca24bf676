"""What a decided round rests on: inputs that the chain has closed, the record, and its blobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ledger.audit.codes import BlobKind, Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import hexed
from ledger.protocol.closing import closing_of
from ledger.protocol.documents.record import decode_record
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Evidence, participants_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ledger.audit.archive import Archive
    from ledger.audit.replay import ReplayedRound
    from ledger.protocol.closing import Closing
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.inputs import Inputs, Participants
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import ClientId, Digest

_RESTING_ON_RECORD = (
    Step.BLOBS,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)


@dataclass(frozen=True)
class RoundEvidence:
    """A decided round with all that an auditor could read of it.

    Attributes:
        event: the decision.
        inputs: what the chain has closed.
        record: what the decision rests on; None if it cannot be read.
        evidence: payloads and vectors that could be read, of those that the record names. Its
            model only stands in for the dimension: step 9 knows the true one.
    """

    event: RoundDecided
    inputs: Inputs
    record: RoundRecord | None
    evidence: Evidence

    @cached_property
    def updates(self) -> Mapping[ClientId, NDArray[np.float32]]:
        """Δ of each client whose update the record counts, as far as it is there and is one."""
        counted = self.record.clients if self.record is not None else ()
        found = {client: self.evidence.updates.get(client) for client in counted}
        return {client: update for client, update in found.items() if update is not None}


def participants_in(replayed: ReplayedRound) -> Participants:
    """Return who took part in a round.

    Args:
        replayed: the round.
    """
    before = replayed.before
    sizes, number = before.deployment, replayed.round
    return participants_of(sizes, before.registry, number, before.seed, before.committee)


def closing_in(replayed: ReplayedRound, participants: Participants) -> Closing:
    """Return where a round's inputs end, though it may have ended before.

    Args:
        replayed: the round.
        participants: who took part.
    """
    before = replayed.before
    window = before.deployment.commit_blocks
    end = before.opened_block + window
    closing = closing_of(
        before.opened_block, window, participants.expected, end, replayed.commitments
    )
    assert closing is not None, "the window's end closes it"
    return closing


def gather(inputs: Inputs, event: RoundDecided, archive: Archive) -> RoundEvidence:
    """Return the evidence of a decided round; what is missing or damaged is noted.

    Args:
        inputs: what the chain has closed.
        event: the decision.
        archive: where the blobs are.
    """
    record = _record(event, archive)
    payloads: dict[ClientId, bytes] = {}
    vectors: dict[Digest, bytes] = {}
    if record is not None:
        for client, digest in named_payloads(record).items():
            data = archive.read(BlobKind.PAYLOAD, digest, event.round, (client,))
            if data is not None:
                payloads[client] = data
        for signed in (*record.scores, *(entry.signed for entry in record.refused)):
            digest, member = signed.scores.digest, signed.scores.member
            data = archive.read(BlobKind.VECTOR, digest, event.round, (member,))
            if data is not None:
                vectors[digest] = data
    stand_in = np.broadcast_to(np.float32(0), inputs.parameters.dimension)
    return RoundEvidence(event, inputs, record, Evidence(stand_in, payloads, vectors))


def named_payloads(record: RoundRecord) -> dict[ClientId, Digest]:
    """Return the payloads that a record names: those it counts, and malformed ones.

    Args:
        record: of a round.
    """
    malformed = {d.client: d.payload for d in record.dropouts if d.payload is not None}
    return malformed | record.payloads()


def _record(event: RoundDecided, archive: Archive) -> RoundRecord | None:
    """Return the round's record; without one, what it would prove is not checkable."""
    at, log = event.round, archive.log
    data = archive.read(BlobKind.RECORD, event.record, at)
    if data is not None:
        try:
            return decode_record(data)
        except EncodingError as error:
            contradiction = Contradiction(
                Fact.RECORD_MALFORMED, at, recorded=hexed(event.record), true=str(error)
            )
            log.contradict(Step.COMPLETENESS, contradiction)
    log.lack(Missing(Need.RECORD, at), *_RESTING_ON_RECORD)
    return None
