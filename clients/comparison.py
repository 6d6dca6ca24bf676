"""FedAvg and the strategies I, II and III side by side, clean and attacked.

Every CMFL run goes over the ledger, as a run of its own on the same chain; FedAvg has no
committee and so nothing to record. All share data, model, attackers and local training.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from clients.baselines import AveragingSettings, federated_average
from clients.configuration import checked
from clients.population import populate
from clients.runs import opened
from clients.training import TrainingEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.configuration import Configuration
    from ledger.blobs.store import BlobStore
    from ledger.chain.ports import ChainWriter

METHODS = ("FedAvg", "I", "II", "III")
LAST_ROUNDS = 5
"""Rounds at the end whose mean accuracy is reported: single rounds are noisy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one method came to under one seed.

    Attributes:
        method: one of `METHODS`.
        seed: of the run.
        attacked: whether clients attacked.
        accuracy: mean of the last rounds, in [0, 1].
        run: name of the run on the ledger; None for FedAvg.
    """

    method: str
    seed: int
    attacked: bool
    accuracy: float
    run: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A grid of runs in one home.

    Attributes:
        home: of the runs.
        chain: where all contracts go.
        blobs: where everybody publishes.
        attacked: the configuration under attack; the clean one is the same without malice.
        seeds: one run of each kind for each.
    """

    home: Path
    chain: ChainWriter
    blobs: BlobStore
    attacked: Configuration
    seeds: Sequence[int]

    def run(self, on_round: Callable[[str, int, int], None]) -> list[Outcome]:
        """Run everything.

        Args:
            on_round: called after each round with a label, the round and the last round.

        Returns:
            One outcome per method, seed and condition.
        """
        grid = [
            (method, seed, attacked)
            for seed in self.seeds
            for attacked in (True, False)
            for method in METHODS
        ]
        return [self.one(method, seed, attacked, on_round) for method, seed, attacked in grid]

    def one(
        self, method: str, seed: int, attacked: bool, on_round: Callable[[str, int, int], None]
    ) -> Outcome:
        """Run one method under one seed.

        Args:
            method: one of `METHODS`.
            seed: of the run.
            attacked: whether clients attack.
            on_round: called after each round.
        """
        name = f"{method}-{'attacked' if attacked else 'clean'}-seed{seed}"
        configuration = self._configuration(method, seed, attacked)
        total = configuration.protocol.rounds
        if method == "FedAvg":
            accuracies = _averaged(configuration, lambda r: on_round(name, r, total))
            return Outcome(method, seed, attacked, fmean(accuracies[-LAST_ROUNDS:]), None)
        with opened(self.home, name, configuration, self.chain, self.blobs) as run:
            run.go_on(lambda row: on_round(name, row.round, total))
            rows = run.folder.read_metrics() or []
        accuracy = fmean(row["accuracy"] for row in rows[-LAST_ROUNDS:])
        return Outcome(method, seed, attacked, accuracy, name)

    def _configuration(self, method: str, seed: int, attacked: bool) -> Configuration:
        values = self.attacked.model_dump(exclude_none=True)
        values["seed"] = seed
        if method != "FedAvg":
            values["protocol"]["strategy"] = METHODS.index(method)
        if not attacked:
            values.pop("malice")
        return checked(values)


def _averaged(configuration: Configuration, on_round: Callable[[int], None]) -> list[float]:
    """Return FedAvg's accuracy after each round, with as many active clients as CMFL has."""
    population = populate(configuration)
    parameters = configuration.parameters(population.model.dimension)
    settings = AveragingSettings(
        rounds=parameters.rounds,
        active=parameters.active,
        server_rate=parameters.server_rate,
        malicious=tuple(population.malicious),
        attack=population.attack,
        attack_parameters=population.attack_parameters,
        device=population.device,
    )
    with TrainingEngine(
        population.model,
        population.data.train,
        configuration.local_training(),
        configuration.machine.device,
        configuration.machine.workers,
    ) as engine:
        rows = federated_average(
            population.data,
            engine,
            population.initial,
            settings,
            configuration.seed,
            lambda row: on_round(row.round),
        )
    return [row.accuracy for row in rows]
