"""What a proof does not prove, however its steps end: said, not passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.proofs.codes import Caveat, ClientVerdict, ProvenRole, ScoresTaken
from ledger.audit.proofs.trust import TrustedContract, TrustedHead
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.proofs.proof import ClientProof
    from ledger.audit.proofs.statement import ClientStatement
    from ledger.audit.proofs.trust import Trusted

_OF_DROPOUT = {
    DropoutReason.PAYLOAD_MISSING: Caveat.ABSENCE_CERTIFIED,
    DropoutReason.PAYLOAD_MALFORMED: Caveat.MALFORMED_CERTIFIED,
}


def caveats_of(
    proof: ClientProof, statement: ClientStatement, trusted: Trusted | None
) -> tuple[Caveat, ...]:
    """Return what is not proven of a statement.

    Args:
        proof: what it follows from.
        statement: what became of the client.
        trusted: what the caller takes for true.
    """
    return (*_of_trust(proof, trusted), *_of_statement(proof, statement))


def _of_trust(proof: ClientProof, trusted: Trusted | None) -> Iterator[Caveat]:
    match trusted:
        case None:
            yield Caveat.NOTHING_TRUSTED
        case TrustedContract():
            if not trusted.is_final:
                yield Caveat.NOT_FINAL
        case TrustedHead():
            if proof.signature is None:
                yield Caveat.CONTRACT_UNPROVEN
            if proof.committed_at is not None or proof.ended_at is not None:
                yield Caveat.PLACES_UNPROVEN
            if proof.record is not None:
                yield Caveat.CLOSING_CERTIFIED
    if proof.commitment is not None and proof.signature is None:
        yield Caveat.AUTHOR_LACKING


def _of_statement(proof: ClientProof, statement: ClientStatement) -> Iterator[Caveat]:
    if statement.rank is not None:
        yield Caveat.DISTANCES_CERTIFIED
    if statement.verdict is ClientVerdict.USED:
        yield Caveat.MODEL_CERTIFIED
    if statement.dropout in _OF_DROPOUT:
        yield _OF_DROPOUT[statement.dropout]
    if statement.scores is ScoresTaken.NONE and statement.dropout is None:
        yield Caveat.SILENCE_UNPROVEN
    is_active = (
        statement.role in {ProvenRole.TRAINER, ProvenRole.MEMBER} and proof.decision is not None
    )
    if is_active and proof.record is None and proof.siblings is None:
        yield Caveat.RECORD_LACKING
