"""The loop without a committee: FedAvg, and any other aggregator in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.adversaries.attackers import Attackers, malicious_clients
from clients.aggregators.aggregation import Aggregation
from clients.aggregators.pre_aggregators.registry import pre_aggregator_named
from clients.aggregators.registry import aggregator_named
from clients.attacks.updates.update_attack import AttackParameters
from clients.configuration.loading import load
from clients.experiments.baselines import (
    FederatedServer,
    FederatedSettings,
    MethodRound,
    federated_traffic,
    run_federated,
)
from clients.random_streams import named_stream
from clients.runs.population import populate, with_training_path
from clients.runs.preparation import open_measure
from clients.training.evaluation import majority_rate
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGURATION = load("digits", settings=("seed=3", "protocol.rounds=60"))
POPULATION = populate(CONFIGURATION)
DATA, INITIAL = POPULATION.data, POPULATION.initial
SAMPLES = DATA.sample_counts
MALICIOUS = frozenset(map(ClientId, malicious_clients(60, 0.3, named_stream(3, "malicious"))))


def run(
    settings: FederatedSettings,
    seed: int = 3,
    progress: Callable[[MethodRound], None] = lambda _: None,
) -> tuple[MethodRound, ...]:
    with open_measure(
        with_training_path(CONFIGURATION, POPULATION), POPULATION, settings.participants
    ) as measure:
        return run_federated(SAMPLES, measure.gauge, INITIAL, settings, seed, progress)


def accuracy(row: MethodRound) -> float:
    assert row.quality.accuracy is not None
    return row.quality.accuracy


def loss(row: MethodRound) -> float:
    assert row.quality.loss is not None
    return row.quality.loss


def test_a_clean_run_learns_and_back_gradient_slows_it() -> None:
    clean = run(FederatedSettings(30, 30))
    attacked = run(FederatedSettings(30, 30, attackers=Attackers(MALICIOUS, "back-gradient")))
    floor = majority_rate(DATA.test.y)
    assert len(clean) == 30
    assert floor < 0.15
    assert accuracy(clean[-1]) > 0.92
    assert floor < accuracy(attacked[-1]) < accuracy(clean[-1]) - 0.05
    assert loss(clean[-1]) < loss(clean[0])
    assert [row.trained for row in clean] == [row.trained for row in attacked]


def test_a_run_is_reproducible_and_reports_each_round() -> None:
    seen: list[MethodRound] = []
    settings = FederatedSettings(3, 10, attackers=Attackers(MALICIOUS, "gradient-scaling"))
    rows = run(settings, 3, seen.append)
    assert rows == tuple(seen) == run(settings)
    assert rows != run(settings, seed=4)


def test_the_server_rate_scales_the_step() -> None:
    still = run(FederatedSettings(2, 10, server_rate=0.0))
    assert accuracy(still[0]) == accuracy(still[1])
    assert loss(run(FederatedSettings(2, 10))[1]) < loss(still[1])


@pytest.mark.parametrize(("rounds", "participants"), [(0, 10), (1, 0), (1, 61)])
def test_no_rounds_or_more_participants_than_clients_are_refused(
    rounds: int, participants: int
) -> None:
    said = f"rounds = {rounds}, participants = {participants}: .* the 60 clients"
    with pytest.raises(ConfigurationError, match=said):
        run(FederatedSettings(rounds, participants))


def test_options_impossible_for_the_participants_are_refused_early() -> None:
    krum = aggregator_named("Krum", {"f": 3})
    FederatedSettings(1, 9, aggregation=Aggregation(krum)).require(60)
    seen: list[MethodRound] = []
    with pytest.raises(ConfigurationError, match="Krum with f = 3 of n = 8 updates"):
        run(FederatedSettings(1, 8, aggregation=Aggregation(krum)), progress=seen.append)
    assert not seen


def test_an_unknown_attack_is_refused_before_any_training() -> None:
    with pytest.raises(ConfigurationError, match="unknown attack 'shouting'"):
        run(FederatedSettings(1, 10, attackers=Attackers(attack="shouting")))


def test_a_mean_equals_the_ledgers_aggregation_bit_for_bit() -> None:
    attackers = Attackers(MALICIOUS, "back-gradient")
    rows = run(FederatedSettings(3, 10, server_rate=0.8, attackers=attackers))
    sampling, model = named_stream(3, "fedavg", "sample"), INITIAL
    with open_measure(with_training_path(CONFIGURATION, POPULATION), POPULATION, 10) as measure:
        for number, row in enumerate(rows, start=1):
            chosen = sorted(sampling.choice(60, 10, replace=False).tolist())
            seed = sha256(repr((3, "fedavg", number)).encode())
            jobs = [TrainingJob(c, training_seed(seed, ClientId(c))) for c in chosen]
            trained = measure.gauge.engine.train(model, jobs)
            updates = {ClientId(c): one.vector for c, one in zip(chosen, trained, strict=True)}
            sent = {c: -u if c in MALICIOUS else u for c, u in updates.items()}
            model = aggregate(model, sent, dict(enumerate(DATA.sample_counts)), 0.8)  # type: ignore[arg-type]
            quality = measure.gauge.quality(measure.gauge.begin(model))
            assert (row.trained, row.quality) == (tuple(chosen), quality)


def test_a_selecting_aggregator_reports_its_choice_and_withstands_attacks() -> None:
    tenfold = Attackers(MALICIOUS, "back-gradient", AttackParameters(10))
    plain = FederatedSettings(12, 30, attackers=tenfold)
    chosen = replace(plain, aggregation=Aggregation(aggregator_named("MultiKrum", {"f": 13})))
    mixed = replace(
        plain,
        aggregation=Aggregation(
            aggregator_named("TrMean", {"f": 13}), (pre_aggregator_named("NNM", {"f": 13}),)
        ),
    )
    ruined, selected, trimmed = run(plain), run(chosen), run(mixed)
    assert accuracy(ruined[-1]) < 0.3
    assert min(accuracy(selected[-1]), accuracy(trimmed[-1])) > 0.7
    for one, two, three in zip(ruined, selected, trimmed, strict=True):
        assert one.trained == two.trained == three.trained == one.aggregated == three.aggregated
        assert len(two.aggregated) == 30 - 13
        assert set(two.aggregated) < set(two.trained)
        assert MALICIOUS.intersection(two.aggregated) < MALICIOUS.intersection(two.trained)


def test_the_server_keeps_its_model_without_finite_updates() -> None:
    largest = np.finfo(np.float32).max
    start, zeros = np.full(2, largest, dtype=np.float32), np.zeros(2)
    one = FederatedServer(FederatedSettings(1, 1), [1, 1], start, zeros)
    rng = np.random.default_rng(0)
    for bad in (np.full(2, np.nan, dtype=np.float32), -start):
        assert one.take({ClientId(1): bad}, rng) == ()
        assert one.model is start
        assert one.last is zeros
    assert one.take({ClientId(1): start}, rng) == (1,)
    assert one.model.tolist() == [0, 0]
    assert one.last.tolist() == [largest, largest]


def test_a_round_takes_one_model_down_and_one_update_up() -> None:
    traffic = federated_traffic(map(ClientId, (0, 2)), dimension=100)
    assert traffic.received["model"] == {0: 400, 2: 400}
    assert traffic.sent["updates"] == {0: 408, 2: 408}
    assert traffic.busiest == 400 + 408


def test_a_round_has_all_that_is_measured_of_its_model() -> None:
    chosen = load("smoke", settings=("evaluation.training_loss=true",))
    population = populate(chosen)
    with open_measure(with_training_path(chosen, population), population, 5) as measure:
        rows = run_federated(
            population.data.sample_counts,
            measure.gauge,
            population.initial,
            FederatedSettings(3, 5),
            0,
        )
    losses = [row.quality.training_loss for row in rows]
    assert None not in losses
    assert len({row.quality.loss for row in rows} | set(losses)) == 6
