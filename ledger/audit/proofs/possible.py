"""What no round of a run with this configuration can be: refused before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.documents.fields import require_ascending
from ledger.protocol.encoding import INFINITY_BITS, word_client
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import NO_DIGEST, AcceptanceForm, Beacon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.audit.proofs.proof import ClientProof, CommittedDecision, RoundBasis
    from ledger.protocol.ledger_state import Deployment


def require_possible(proof: ClientProof) -> None:
    """Refuse a proof of a round that no run with its configuration can have.

    Args:
        proof: as it was decoded.

    Raises:
        EncodingError: names the value and the rule.
    """
    require_possible_ground(proof)
    sizes = proof.deployment
    _require_clients("client", [proof.client], sizes)
    _require_clients("commitments", [one.client for one in proof.commitments], sizes)
    if proof.decision is not None:
        _require_decision(proof.decision, sizes)
    _require_parts(proof)


def require_possible_ground(ground: RoundBasis) -> None:
    """Refuse a round that no run with its configuration can have.

    Args:
        ground: as it was decoded.

    Raises:
        EncodingError: names the value and the rule.
    """
    sizes = ground.deployment
    if not 1 <= ground.round <= sizes.rounds:
        raise EncodingError(f"round {ground.round} is none of the run's {sizes.rounds}")
    if sizes.beacon is Beacon.NONE and ground.deployment_parent_hash != NO_DIGEST:
        raise EncodingError("deployed_after is not zero, though the run has beacon = none")
    _require_clients("committee", ground.committee, sizes)
    if len(ground.committee) != sizes.members:
        raise EncodingError(f"committee of {len(ground.committee)} is not of {sizes.members}")
    _require_clients("bans", [ban.client for ban in ground.bans], sizes)
    for ban in ground.bans:
        if not 1 <= ban.round < ground.round:
            raise EncodingError(f"a ban in round {ban.round} is not before round {ground.round}")


def _require_decision(decision: CommittedDecision, sizes: Deployment) -> None:
    ranking = decision.ranking
    require_ascending("ranking words", ranking)
    if not sizes.members <= len(ranking) <= sizes.trainers:
        bounds = f"{sizes.members} to {sizes.trainers}"
        raise EncodingError(f"a ranking of {len(ranking)} is not one of {bounds}")
    if ranking[-1] >> 32 >= INFINITY_BITS:
        raise EncodingError(f"ranking word {ranking[-1]} has a distance that is not finite")
    _require_clients("ranking", [word_client(word) for word in ranking], sizes)
    if decision.threshold_bits >= INFINITY_BITS:
        raise EncodingError(f"threshold_bits {decision.threshold_bits} are not of a finite number")
    if decision.threshold_bits and sizes.form is not AcceptanceForm.WITHIN_THRESHOLD:
        raise EncodingError(f"threshold_bits {decision.threshold_bits}, where none is used")


def _require_parts(proof: ClientProof) -> None:
    """Refuse parts that nothing could be compared with.

    Raises:
        EncodingError: names the part.
    """
    is_decided, has_ended = proof.decision is not None, proof.path.ended(proof.round) is not None
    for name, part, is_due in (
        ("decision", proof.decision, has_ended),
        ("record", proof.record, is_decided),
        ("siblings", proof.siblings, is_decided and proof.payload is not None),
        ("payload", proof.payload, proof.commitment is not None),
        ("signature", proof.signature, proof.commitment is not None),
        ("committed_at", proof.committed_at, proof.commitment is not None),
        ("ended_at", proof.ended_at, has_ended),
    ):
        if part is not None and not is_due:
            raise EncodingError(f"{name} is given, and there is nothing that it could be of")


def _require_clients(name: str, clients: Sequence[int], sizes: Deployment) -> None:
    for client in clients:
        if client >= sizes.clients:
            raise EncodingError(f"{name}: client {client} is none of the run's {sizes.clients}")
    if len(set(clients)) != len(clients):
        raise EncodingError(f"{name}: a client comes twice")
