"""Metrics of a round, computed from the chain's record.

Rows depend on chain and blobs, never on a running simulation's memory: a run killed between a
decision and its row gets the same row when it is resumed. Only the evaluation of the model may be
started beforehand, whose result does not depend on the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import FederatedData, Samples, frozen_samples, named_stream
from clients.training.port import Engine, PendingEvaluation
from ledger.chain.round_ledger import RoundHistory
from ledger.history.round import read_round
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.attacks.samples import DataAttack
    from clients.configuration.schema import EvaluationSection


TEST = "test"
TRAINING = "training"
BACKDOOR = "backdoor"


def client_set(client: int) -> str:
    """Return the name of the set of a client's own test samples."""
    return f"client {client}"


def measured_sets(
    data: FederatedData, section: EvaluationSection, seed: int, attack: DataAttack | None = None
) -> dict[str, Samples]:
    """Return the sets of samples to evaluate on, by name; none of them is empty."""
    test = data.test
    if section.samples is not None:
        if section.samples > len(test.y):
            raise ConfigurationError(
                f"evaluation.samples = {section.samples}: the test set has {len(test.y)} samples"
            )
        stream = named_stream(seed, "evaluation")
        rows = np.sort(stream.choice(len(test.y), section.samples, replace=False))
        test = frozen_samples(test.x[rows], test.y[rows])
    sets = {TEST: test}
    if section.training_loss:
        sets[TRAINING] = training_samples(data)
    if attack is not None and attack.backdoor is not None:
        sets[BACKDOOR] = attack.backdoor(data, sets[TEST])
    if section.per_client:
        if data.client_tests is None:
            raise ConfigurationError(
                f"evaluation.per_client is set, but the clients of {data.name!r} have no test "
                f"samples of their own: its partition is not natural"
            )
        tests = enumerate(data.client_tests)
        sets |= {client_set(client): test for client, test in tests if len(test.y)}
    return sets


def training_samples(data: FederatedData) -> Samples:
    """Return the training samples of all clients."""
    inputs = np.concatenate([samples.x for samples in data.train])
    return frozen_samples(inputs, np.concatenate([samples.y for samples in data.train]))


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a model; all None if it was not evaluated."""

    accuracy: float | None = None  # share of the test samples, or tokens, in [0, 1]
    loss: float | None = None  # mean cross-entropy or squared error; None also if not finite
    training_loss: float | None = None
    # On each client's test samples; None for a client without any.
    client_accuracy: tuple[float | None, ...] | None = None
    # Share of the test samples of other classes taken for a backdoor's target with its trigger.
    backdoor_success: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMetrics(Quality):
    """One round, with the quality of the model after it."""

    round: int
    head: str  # of the ledger after the round, 0x-hex
    decided: bool  # False if the round was abandoned; the model is then the one before
    floor: float
    trained: tuple[ClientId, ...]  # S_b, ascending
    served: tuple[ClientId, ...]  # S_c, by places
    accepted: tuple[ClientId, ...]  # S_a, in ranking order
    malicious_trained: int
    malicious_served: int
    malicious_accepted: int
    views: tuple[int, int] | None  # of aggregation and election, from 0; None if abandoned

    def as_dict(self) -> dict[str, Any]:
        row = asdict(self)
        return {name: row.pop(name) for name in ("round", "head", "decided")} | row


@dataclass(frozen=True, slots=True)
class ModelGauge:
    """Evaluates models with an engine that holds the samples of each set."""

    engine: Engine
    section: EvaluationSection
    sizes: Mapping[str, int]
    rounds: int
    clients: int

    def is_due(self, round_number: int) -> bool:
        return round_number % self.section.every == 0 or round_number == self.rounds

    def begin(self, vector: NDArray[np.float32]) -> PendingEvaluation:
        return self.engine.evaluate(vector, tuple(self.sizes))

    def quality(self, pending: PendingEvaluation) -> Quality:
        evaluations = dict(zip(self.sizes, pending(), strict=True))
        accuracy = {name: evaluation.accuracy for name, evaluation in evaluations.items()}
        by_client = tuple(accuracy.get(client_set(client)) for client in range(self.clients))
        return Quality(
            accuracy[TEST],
            evaluations[TEST].mean_loss,
            evaluations[TRAINING].mean_loss if TRAINING in evaluations else None,
            by_client if self.section.per_client else None,
            accuracy.get(BACKDOOR),
        )


@dataclass(slots=True)
class Measure:
    """Everything that a row needs apart from the chain."""

    gauge: ModelGauge
    floor: float
    malicious: Collection[ClientId]
    parameters: Parameters
    _begun: dict[int, tuple[NDArray[np.float32], PendingEvaluation]] = field(default_factory=dict)

    def expect(self, round_number: int, vector: NDArray[np.float32]) -> None:
        """Start evaluating the model, shape (d,), that a round is about to be decided with."""
        if self.gauge.is_due(round_number):
            self._begun = {round_number: (vector, self.gauge.begin(vector))}

    def row(
        self, ledger: RoundHistory, round_number: int, vector: NDArray[np.float32] | None
    ) -> RoundMetrics:
        """Return the row of an ended round; the model after it is None if it is not evaluated."""
        round_ = read_round(ledger, self.parameters, round_number)
        if round_ is None or round_.end is None:
            raise ValueError(f"round {round_number} has not ended")
        decided = round_.decided
        accepted = decided.accepted if decided else ()

        def attackers(clients: Iterable[ClientId]) -> int:
            return sum(client in self.malicious for client in clients)

        return RoundMetrics(
            round=round_number,
            head=f"0x{round_.end.head.hex()}",
            decided=decided is not None,
            **asdict(self._quality(round_number, vector)),
            floor=self.floor,
            trained=round_.trainers,
            served=round_.committee,
            accepted=accepted,
            malicious_trained=attackers(round_.trainers),
            malicious_served=attackers(round_.committee),
            malicious_accepted=attackers(accepted),
            views=decided.views if decided else None,
        )

    def _quality(self, round_number: int, vector: NDArray[np.float32] | None) -> Quality:
        if not self.gauge.is_due(round_number):
            return Quality()
        assert vector is not None, "a measured round's model is at hand"
        begun = self._begun.pop(round_number, None)
        # Another model can have been decided than was expected: by somebody else, in a later view.
        if begun is not None and np.array_equal(begun[0], vector):
            return self.gauge.quality(begun[1])
        return self.gauge.quality(self.gauge.begin(vector))
