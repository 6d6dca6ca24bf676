"""FedAvg, what CMFL is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.adversaries.attackers import Attackers, malicious_clients
from clients.adversaries.updates.attack import AttackParameters
from clients.baselines import AveragingRound, AveragingSettings, federated_average
from clients.chance import named_stream
from clients.configuration import load
from clients.models.evaluation import majority_rate
from clients.runs.population import populate
from clients.runs.preparing import measuring, settled
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGURATION = load("digits", settings=("seed=3", "protocol.rounds=60"))
POPULATION = populate(CONFIGURATION)
DATA, INITIAL = POPULATION.data, POPULATION.initial
MALICIOUS = frozenset(map(ClientId, malicious_clients(60, 0.3, named_stream(3, "malicious"))))


def run(
    settings: AveragingSettings,
    seed: int = 3,
    progress: Callable[[AveragingRound], None] | None = None,
) -> tuple[AveragingRound, ...]:
    with measuring(settled(CONFIGURATION, POPULATION), POPULATION, settings.active) as measure:
        return federated_average(DATA, measure.gauge, INITIAL, settings, seed, progress)


def accuracy(row: AveragingRound) -> float:
    assert row.accuracy is not None
    return row.accuracy


def loss(row: AveragingRound) -> float:
    assert row.loss is not None
    return row.loss


def test_a_clean_run_learns_and_back_gradient_attackers_hold_it_back() -> None:
    clean = run(AveragingSettings(60, 30))
    attacked = run(AveragingSettings(60, 30, attackers=Attackers(MALICIOUS, "back-gradient")))
    floor = majority_rate(DATA.test.y)
    assert [row.round for row in clean] == list(range(1, 61))
    assert floor < 0.15
    assert accuracy(clean[-1]) > 0.92
    assert floor < accuracy(attacked[-1]) < accuracy(clean[-1]) - 0.05
    assert loss(clean[-1]) < loss(clean[0])
    assert [row.participants for row in clean] == [row.participants for row in attacked]
    assert all(row.malicious == 0 for row in clean)
    assert all(row.malicious == len(MALICIOUS.intersection(row.participants)) for row in attacked)


def test_a_run_repeats_itself_and_reports_each_round_as_it_ends() -> None:
    seen: list[AveragingRound] = []
    settings = AveragingSettings(3, 10, attackers=Attackers(MALICIOUS, "gradient-scaling"))
    rows = run(settings, 3, seen.append)
    assert rows == tuple(seen) == run(settings)
    assert rows != run(settings, seed=4)


def test_the_server_rate_scales_the_step() -> None:
    still = run(AveragingSettings(2, 10, server_rate=0.0))
    assert still[0].accuracy == still[1].accuracy
    assert loss(run(AveragingSettings(2, 10))[1]) < loss(still[1])


@pytest.mark.parametrize(("rounds", "active"), [(0, 10), (1, 0), (1, 61)])
def test_no_rounds_or_more_active_than_clients_are_refused(rounds: int, active: int) -> None:
    with pytest.raises(ConfigurationError, match=f"rounds = {rounds}, active = {active}"):
        run(AveragingSettings(rounds, active))


def test_an_unknown_attack_is_refused_before_any_training() -> None:
    with pytest.raises(ConfigurationError, match="unknown attack 'noise'"):
        run(AveragingSettings(1, 10, attackers=Attackers(attack="noise")))


def test_ten_times_the_opposite_from_a_third_of_the_clients_ruins_a_plain_average() -> None:
    tenfold = Attackers(MALICIOUS, "back-gradient", AttackParameters(10))
    ruined = run(AveragingSettings(20, 30, attackers=tenfold))
    assert accuracy(ruined[-1]) < 0.3
