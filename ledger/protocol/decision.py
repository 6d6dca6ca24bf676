"""What a committee decides in a round, as one pure function of what everybody can see.

Members, workers and auditors all call `decide`: a vote is a claim that this is what came out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol import encoding, merkle
from ledger.protocol.aggregation import aggregate
from ledger.protocol.consensus import quorum
from ledger.protocol.election import elect
from ledger.protocol.errors import ConsensusError
from ledger.protocol.scoring import committee_distances, spread_threshold
from ledger.protocol.selection import accepted_size, rank, select
from ledger.protocol.types import NO_DIGEST, Digest, Phase, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.counting import CountedScores, Updates
    from ledger.protocol.documents import ScoreVector
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import ClientId, RegisteredClient


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that a round decides.

    Attributes:
        ranking: ranking words of the trainers, best first.
        threshold_bits: float64 bits of strategy III's threshold, 0 for I and II.
        accepted: S_a, in ranking order.
        next_committee: S_c of the next round, in ranking order.
        model: w_{t+1}, shape (d,).
        model_digest: its sha256.
        updates_root: Merkle root over the ranked updates.
        scores_root: Merkle root over the counted score vectors.
    """

    ranking: tuple[int, ...]
    threshold_bits: int
    accepted: tuple[ClientId, ...]
    next_committee: tuple[ClientId, ...]
    model: NDArray[np.float32]
    model_digest: Digest
    updates_root: Digest
    scores_root: Digest

    def voted(self, phase: Phase) -> tuple[Digest, Digest]:
        """Return set digest and result that a member votes for in a phase."""
        if phase is Phase.ELECTION:
            return encoding.set_digest(self.next_committee), NO_DIGEST
        result = encoding.aggregation_result(
            self.model_digest,
            self.updates_root,
            self.scores_root,
            encoding.ranking_digest(self.ranking),
            self.threshold_bits,
        )
        return encoding.set_digest(self.accepted), result


def decide(
    parameters: Parameters,
    registry: Sequence[RegisteredClient],
    model: NDArray[np.float32],
    updates: Updates,
    counted: Mapping[ClientId, CountedScores],
) -> Decision:
    """Return what the committee decides (Algorithm 1, lines 6-12, without the voting).

    Args:
        parameters: of the deployment.
        registry: for the claimed samples n_k.
        model: w_t, shape (d,).
        updates: the usable updates of the round.
        counted: the complete score vectors that count, by member.

    Returns:
        Ranking, S_a, w_{t+1}, the next committee and the roots over what they rest on.

    Raises:
        ConsensusError: too few score vectors or trainers, or an aggregate that is not finite.
    """
    trainers = _scored_trainers(parameters, counted)
    vectors = [counted[member].vector for member in sorted(counted)]
    distances = committee_distances(
        np.array([vector.distances for vector in vectors]), parameters.scoring
    )
    ranking = rank(zip(trainers, distances.tolist(), strict=True))
    threshold_bits = 0
    if parameters.strategy is Strategy.WITHIN_SPREAD:
        threshold = spread_threshold([_distances_to(vector, counted) for vector in vectors])
        threshold_bits = encoding.float_bits(threshold)
    size = accepted_size(parameters.aggregation_ppm, len(ranking))
    accepted = select(ranking, parameters.strategy, size, threshold_bits)
    next_model = aggregate(
        model,
        {client: updates.vectors[client] for client in accepted},
        {client: registry[client].samples for client in accepted},
        parameters.server_rate,
    )
    if not np.isfinite(next_model).all():
        raise ConsensusError("the aggregate is not finite")
    return Decision(
        ranking=ranking,
        threshold_bits=threshold_bits,
        accepted=accepted,
        next_committee=elect(ranking, parameters.members),
        model=next_model,
        model_digest=encoding.sha256(encoding.vector_bytes(next_model)),
        updates_root=merkle.root(
            merkle.UPDATE_LEAF, update_leaves(ranking, accepted, updates.payloads)
        ),
        scores_root=merkle.root(merkle.SCORES_LEAF, score_leaves(counted)),
    )


def update_leaves(
    ranking: Sequence[int], accepted: Sequence[ClientId], payloads: Mapping[ClientId, Digest]
) -> list[merkle.Leaf]:
    """Return the leaves of the updates root: one per ranked trainer, by rank.

    Args:
        ranking: ranking words, best first.
        accepted: S_a.
        payloads: payload digest of each ranked trainer.

    Returns:
        (client, payload, rank, distance bits, accepted) of each.
    """
    chosen = set(accepted)
    clients = [encoding.word_client(word) for word in ranking]
    return [
        (client, payloads[client], place, word >> 32, client in chosen)
        for place, (word, client) in enumerate(zip(ranking, clients, strict=True))
    ]


def score_leaves(counted: Mapping[ClientId, CountedScores]) -> list[merkle.Leaf]:
    """Return the leaves of the scores root: (member, digest of its vector) of those that count."""
    return [(member, counted[member].digest) for member in sorted(counted)]


def _scored_trainers(
    parameters: Parameters, counted: Mapping[ClientId, CountedScores]
) -> tuple[ClientId, ...]:
    needed = quorum(parameters.members)
    if len(counted) < needed:
        raise ConsensusError(f"{len(counted)} score vectors count, and {needed} are needed")
    trainers = next(iter(counted.values())).vector.trainers
    if len(trainers) < parameters.members:
        raise ConsensusError(
            f"{len(trainers)} trainers remain, and a committee needs {parameters.members}"
        )
    return trainers


def _distances_to(
    vector: ScoreVector, counted: Mapping[ClientId, CountedScores]
) -> NDArray[np.float64]:
    """Return a member's distances to the other members whose scores count."""
    kept = [other in counted for other in vector.members]
    return vector.member_distances[kept]
