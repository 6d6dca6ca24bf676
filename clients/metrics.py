"""What a round came to, told from what the chain recorded of it.

Rows are built from the chain and the blobs, never from a running simulation's memory: so a run
that was killed between a decision and its row gets the same row when it is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from clients.models.evaluation import evaluate
from ledger.protocol.inputs import participants_of, registry_with_bans
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from clients.datasets.federated import FederatedData
    from clients.models.model import Model
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """One round, measured after it.

    Attributes:
        round: t.
        head: of the ledger after the round, 0x-hex: it commits to all that was recorded so far.
        decided: False if the round was abandoned; the model is then the one before.
        accuracy: of the model after the round on the test set, in [0, 1].
        loss: mean cross-entropy there; None where the model has no finite one.
        floor: accuracy of always answering the commonest class.
        trained: S_b, ascending.
        served: S_c, by places.
        accepted: S_a, in ranking order; empty if abandoned.
        malicious_trained: how many of S_b attack.
        malicious_served: how many of S_c attack.
        malicious_accepted: how many of S_a attack.
        views: views that the aggregation and the election took, from 1; 0 if abandoned.
    """

    round: int
    head: str
    decided: bool
    accuracy: float
    loss: float | None
    floor: float
    trained: tuple[ClientId, ...]
    served: tuple[ClientId, ...]
    accepted: tuple[ClientId, ...]
    malicious_trained: int
    malicious_served: int
    malicious_accepted: int
    views: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Measure:
    """What a row needs beside the chain.

    Attributes:
        model: the model whose parameters the ledger votes on.
        data: for its test set.
        floor: majority rate of the test set.
        malicious: clients that attack.
        parameters: of the deployment.
        device: where the model is evaluated.
    """

    model: Model
    data: FederatedData
    floor: float
    malicious: Collection[ClientId]
    parameters: Parameters
    device: str

    def row(
        self, ledger: CommitteeLedger, round_number: int, vector: NDArray[np.float32]
    ) -> RoundMetrics:
        """Return the row of an ended round.

        Args:
            ledger: the contract.
            round_number: t.
            vector: the model after it.

        Raises:
            ValueError: the round has not ended.
        """
        opening = ledger.opening(round_number)
        events = [recorded.event for recorded in ledger.round_events(round_number)]
        ends = [event for event in events if isinstance(event, RoundDecided | RoundAbandoned)]
        if opening is None or not ends:
            raise ValueError(f"round {round_number} has not ended")
        end = ends[0]
        decided = end if isinstance(end, RoundDecided) else None
        took_part = participants_of(
            self.parameters,
            registry_with_bans(ledger.registry(), ledger.bans()),
            round_number,
            opening.seed,
            opening.committee,
        )
        trainers, committee = took_part.trainers, took_part.committee
        accepted = decided.accepted if decided else ()
        accuracy, loss = evaluate(self.model, vector, *self.data.test, self.device)
        return RoundMetrics(
            round=round_number,
            head=f"0x{end.head.hex()}",
            decided=decided is not None,
            accuracy=accuracy,
            loss=loss if isfinite(loss) else None,
            floor=self.floor,
            trained=trainers,
            served=committee,
            accepted=accepted,
            malicious_trained=self._attackers(trainers),
            malicious_served=self._attackers(committee),
            malicious_accepted=self._attackers(accepted),
            views=(decided.views[0] + 1, decided.views[1] + 1) if decided else (0, 0),
        )

    def _attackers(self, clients: tuple[ClientId, ...]) -> int:
        return sum(client in self.malicious for client in clients)
