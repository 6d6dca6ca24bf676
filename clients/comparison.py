"""FedAvg and the strategies I, II and III side by side, clean and attacked.

Every CMFL run goes over the ledger, as a run of its own on the same chain; FedAvg has no
committee and so nothing to record. All share data, model, attackers and local training.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from clients.configuration.loading import checked
from clients.experiments.baselines.federated import FederatedSettings, run_federated
from clients.methods import METHODS, Averaging
from clients.runs.open_run import open_run
from clients.runs.population import populate
from clients.runs.preparation import open_measure, with_training_path
from ledger.protocol.errors import BlobMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from clients.methods import Committee, Method
    from ledger.chain.ports import ChainWriter
    from ledger.storage.blobs import BlobStore

LAST_ROUNDS = 5
"""Rounds at the end whose mean accuracy is reported: single rounds are noisy."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a comparison.

    Attributes:
        method: what is run.
        seed: of the run.
        attacked: whether clients attack.
    """

    method: Method
    seed: int
    attacked: bool

    @property
    def name(self) -> str:
        """The name of the run."""
        return f"{self.method.name}-{'attacked' if self.attacked else 'clean'}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to.

    Attributes:
        method: name of what was run.
        seed: of the run.
        attacked: whether clients attacked.
        accuracy: mean of the last rounds, in [0, 1].
        floor: accuracy of always answering the commonest class of the same test set.
        malicious: share of the accepted updates, over all rounds, that attackers sent.
        run: name of the run on the ledger; None for FedAvg.
    """

    method: str
    seed: int
    attacked: bool
    accuracy: float
    floor: float
    malicious: float
    run: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A grid of runs in one home.

    Attributes:
        home: of the runs.
        chain: where all contracts go.
        blobs: where everybody publishes.
        attacked: the configuration under attack; the clean one is the same without malice.
    """

    home: Path
    chain: ChainWriter
    blobs: BlobStore
    attacked: Configuration

    def run(self, seeds: Sequence[int], on_round: Callable[[str], None]) -> list[Outcome]:
        """Run every method, attacked and clean, under each seed.

        Args:
            seeds: of the runs.
            on_round: called after each round with the name of the run.

        Returns:
            One outcome per method, seed and condition.
        """
        return [
            self.one(Trial(method, seed, attacked), on_round)
            for seed in seeds
            for attacked in (True, False)
            for method in METHODS
        ]

    def one(self, trial: Trial, on_round: Callable[[str], None]) -> Outcome:
        """Run one method under one seed, or take its run up again.

        Args:
            trial: what is run.
            on_round: called after each round with the name of the run.
        """
        values = self.attacked.model_dump(exclude_none=True) | {"seed": trial.seed}
        if not trial.attacked:
            values.pop("malice")
        configuration = checked(values)
        if isinstance(trial.method, Averaging):
            return _averaged(trial, trial.method, configuration, on_round)
        return self._recorded(trial, trial.method, configuration, on_round)

    def _recorded(
        self,
        trial: Trial,
        method: Committee,
        configuration: Configuration,
        on_round: Callable[[str], None],
    ) -> Outcome:
        ruled = method.configured(configuration)
        with open_run(self.home, trial.name, ruled, self.chain, self.blobs) as run:
            if run.without_row:
                raise BlobMissingError(
                    f"run {trial.name!r} cannot be compared: the models of its rounds "
                    f"{', '.join(map(str, run.without_row))} are gone"
                )
            run.go_on(lambda _: on_round(trial.name))
            rows = run.folder.read_metrics()
        return Outcome(
            method=method.name,
            seed=trial.seed,
            attacked=trial.attacked,
            accuracy=_last([row["accuracy"] for row in rows]),
            floor=rows[-1]["floor"],
            malicious=_share(
                sum(row["malicious_accepted"] for row in rows),
                sum(len(row["accepted"]) for row in rows),
            ),
            run=trial.name,
        )


def _averaged(
    trial: Trial, method: Averaging, configuration: Configuration, on_round: Callable[[str], None]
) -> Outcome:
    population = populate(configuration)
    parameters = configuration.parameters(population.model.dimension)
    settings = FederatedSettings(
        rounds=parameters.rounds,
        participants=method.participants(parameters),
        server_rate=parameters.server_rate,
        attackers=population.attackers,
    )
    configuration = with_training_path(configuration, population)
    with open_measure(configuration, population, settings.participants) as measure:
        rows = run_federated(
            population.data,
            measure.gauge,
            population.initial,
            settings,
            configuration.seed,
            lambda _: on_round(trial.name),
        )
    return Outcome(
        method=method.name,
        seed=trial.seed,
        attacked=trial.attacked,
        accuracy=_last([row.accuracy for row in rows]),
        floor=measure.floor,
        malicious=_share(
            sum(row.malicious for row in rows), sum(len(row.participants) for row in rows)
        ),
        run=None,
    )


def _last(accuracies: Sequence[float | None]) -> float:
    """Return the mean of the last rounds that were measured, of which the last is one."""
    return fmean([one for one in accuracies if one is not None][-LAST_ROUNDS:])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
