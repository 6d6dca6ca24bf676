"""What everybody can see of an open round, and what follows from it.

In one process all actors look at the same view: distances and the honest decision are computed
once and shared, which is the same as every honest member computing them from the same bytes. A
worker in a process of its own builds its own view with the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clients.scoring import squared_distances
from ledger.protocol.counting import count_scores
from ledger.protocol.decision import decide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.blobs.store import BlobStore
    from ledger.protocol.counting import CountedScores, Electorate, Updates
    from ledger.protocol.decision import Decision
    from ledger.protocol.documents import RefusedScores
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import ClientId, Digest, SignedScores


@dataclass
class RoundView:
    """An open round after its commitments are on the chain and its payloads are published.

    Attributes:
        parameters: of the deployment.
        electorate: who may score whom.
        seed: seed_t.
        timestamp: of the block with the last commitment; every request carries it, so that a
            member that is restarted signs the same message again.
        model: w_t, shape (d,).
        updates: the usable updates.
        blobs: where members publish.
        device: where distances are computed.
        published: the members' signed score claims so far.
    """

    parameters: Parameters
    electorate: Electorate
    seed: Digest
    timestamp: int
    model: NDArray[np.float32]
    updates: Updates
    blobs: BlobStore
    device: str = "cpu"
    published: list[SignedScores] = field(default_factory=list)

    @cached_property
    def scored_trainers(self) -> tuple[ClientId, ...]:
        """The trainers with a usable update, ascending."""
        return tuple(c for c in self.electorate.trainers if c in self.updates.vectors)

    @cached_property
    def scoring_members(self) -> tuple[ClientId, ...]:
        """The members with a usable update, ascending."""
        return tuple(sorted(c for c in self.electorate.committee if c in self.updates.vectors))

    def distance(self, client: ClientId, member: ClientId) -> float:
        """Return ‖Δ_client − Δ_member‖² of two usable updates."""
        rows, columns, matrix = self._distances
        return float(matrix[rows[member], columns[client]])

    def counted(self) -> dict[ClientId, CountedScores]:
        """Return the score vectors that count, by member."""
        return self._counting[0]

    def refused(self) -> tuple[RefusedScores, ...]:
        """Return the score claims that do not count."""
        return self._counting[1]

    @cached_property
    def decision(self) -> Decision:
        """What follows from all published scores.

        Raises:
            ConsensusError: nothing does; the round has to be abandoned.
        """
        registry = self.electorate.registry
        return decide(self.parameters, registry, self.model, self.updates, self.counted())

    @cached_property
    def _counting(self) -> tuple[dict[ClientId, CountedScores], tuple[RefusedScores, ...]]:
        check = self.distance if self.parameters.scores_checked else None
        return count_scores(self.electorate, self.updates, self.published, self.blobs.get, check)

    @cached_property
    def _distances(self) -> tuple[dict[ClientId, int], dict[ClientId, int], NDArray[np.float64]]:
        members = self.scoring_members
        clients = self.scored_trainers + members
        matrix = squared_distances(
            np.array([self.updates.vectors[client] for client in clients]),
            np.array([self.updates.vectors[member] for member in members]),
            self.device,
        )
        rows = {member: place for place, member in enumerate(members)}
        columns = {client: place for place, client in enumerate(clients)}
        return rows, columns, matrix
