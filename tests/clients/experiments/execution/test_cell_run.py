"""A row counts what a run came to, and the best learning rate of tuning is chosen."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from clients.experiments.baselines import MethodRound
from clients.experiments.cells import play_cell, row_of
from clients.experiments.kinds import MethodRun
from clients.experiments.plan import ExperimentPlan, Job
from clients.experiments.rows import CellSeconds, TrialRow, append_row, read_rows
from clients.experiments.run import AS_CONFIGURED, choose_rates, digest_of_trials, factors
from clients.runs.metrics import Quality
from ledger.protocol.types import ClientId
from tests.clients.experiments.minis import plan_of

SECONDS = CellSeconds(wall=1.0, cpu=1.0)
KINDS = (
    'kind = "federated"\naggregator = "TrMean"\noptions = {f = {share = 0.2}}\n'
    'pre = [{name = "NNM", f = 1}]',
    'kind = "brain-torrent"',
    'kind = "gossip"\noptions = {segments = 3, replicas = 2}',
)


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))


def test_a_server_weighs_updates_by_declared_samples() -> None:
    def loss(factor: str) -> float | None:
        attack = f'attack=many-samples", "malice.factor={factor}'
        plan = plan_of(("attack=back-gradient", attack))
        cell = plan.cell("FedAvg-n__back-gradient__seed200")
        return play_cell(Job(cell, 1.0), Path(), None, lambda: None).loss[-1]

    assert loss("1.0") != loss("1000.0")


def test_attackers_and_times_are_counted_by_hand() -> None:
    # Clients 0 and 3 attack. Round 1: 0 trains and is taken; round 2: 3 serves, 0 is left out.
    rounds = (
        MethodRound(
            quality=Quality(accuracy=0.5, loss=float("inf"), client_accuracy=(0.5, None)),
            trained=ids(0, 1, 2),
            served=ids(4, 5),
            aggregated=ids(0, 1),
        ),
        MethodRound(
            quality=Quality(accuracy=0.7, loss=1.0, client_accuracy=(1 / 3, None)),
            trained=ids(0, 1, 4),
            served=ids(3, 5),
            aggregated=ids(1, 4),
        ),
    )
    played = MethodRun(
        rounds=rounds, floor=0.125, samples=(9, 8, 7, 6, 5, 4), malicious=frozenset(ids(3, 0))
    )
    row = row_of(plan_of().cells[0], played, SECONDS, None)
    assert row.malicious_trained == (1, 1)
    assert row.malicious_members == (0, 1)
    assert row.malicious_aggregated == (1, 0)
    assert row.malicious_accepted == 0.25
    assert row.accepted_honest == 0.75  # 1 and 2, of whom 1; 1 and 4, who both
    assert row.times_aggregated == (1, 2, 0, 0, 1, 0)
    assert (row.accuracy, row.loss, row.final) == ((0.5, 0.7), (None, 1.0), 0.6)
    assert row.client_accuracy == (0.333333, None)
    assert row.malicious == (0, 3)
    assert row.extra == {"committee": 4, "trainers": 6}


@pytest.mark.parametrize("kind", KINDS)
def test_baselines_are_played_and_what_they_send_is_counted(kind: str, tmp_path: Path) -> None:
    plan = plan_of(
        ('kind = "federated"', kind), ("seeds = [200, 201]", "seeds = [200]\ncounts_bytes = true")
    )
    rounds: list[None] = []
    job = Job(plan.cells[3], 1.0)
    row = play_cell(job, Path("nowhere"), None, lambda: rounds.append(None))
    assert len(rounds) == len(row.accuracy) == len(row.bytes["by_round"]) == 2
    assert min(row.bytes["by_round"]) > row.bytes["model"] == 2600
    assert sum(row.times_aggregated) > 0
    assert (row.seconds.ledger, row.ledger, row.malicious_members) == (None, None, None)
    assert row.condition == "back-gradient"
    assert len(row.malicious) == 1
    append_row(tmp_path / "mini.jsonl", row)
    assert read_rows(tmp_path / "mini.jsonl").cells == (row,)


def test_clients_of_one_server_send_float32_whatever_those_of_cmfl_send() -> None:
    rounded = ('"protocol.rounds=2"', '"protocol.rounds=2", "protocol.payload=q8"')
    rows = [
        play_cell(Job(plan.cells[-1], 1.0), Path("nowhere"), None, lambda: None)
        for plan in (plan_of(), plan_of(rounded))
    ]
    assert {row.kind for row in rows} == {"federated"}
    assert rows[0].accuracy == rows[1].accuracy


def test_jobs_go_to_other_processes_and_rows_come_back() -> None:
    plan = plan_of()
    jobs = [Job(plan.cells[0], 0.5), plan.trials[0]]
    assert pickle.loads(pickle.dumps(jobs)) == jobs
    assert plan.cells[0].at_rate(0.5).configuration.training.learning_rate == 0.25


RATES = ("rates = [0.5, 1.0]\nseeds = [100]", "rates = [0.25, 0.5, 1.0, 2.0]\nseeds = [100, 101]")


def rows(plan: ExperimentPlan, finals: dict[tuple[float, int], float]) -> list[TrialRow]:
    return [
        TrialRow(
            cell=trial.name,
            experiment="mini",
            method=trial.cell.method.name,
            condition=trial.cell.condition,
            axes=trial.cell.axes,
            seed=trial.cell.seed,
            digest=trial.digest,
            factor=trial.factor,
            learning_rate=trial.factor * 0.5,
            final=finals[trial.factor, trial.cell.seed],
            seconds=CellSeconds(wall=1.0, cpu=1.0),
        )
        for trial in plan.trials
        if (trial.factor, trial.cell.seed) in finals
    ]


def finals(*means: float) -> dict[tuple[float, int], float]:
    rates = (0.25, 0.5, 1.0, 2.0)
    return {
        (rate, seed): mean + shift
        for rate, mean in zip(rates, means, strict=True)
        for seed, shift in ((100, -0.125), (101, 0.125))
    }


@pytest.mark.parametrize(
    ("means", "factor"),
    [
        ((0.5, 0.625, 0.25, 0.125), 0.5),
        # Of two as good the one nearer to 1, and of two as near the smaller.
        ((0.5, 0.25, 0.5, 0.5), 1.0),
        ((0.5, 0.25, 0.25, 0.5), 2.0),
        ((0.25, 0.5, 0.25, 0.5), 0.5),
    ],
)
def test_the_best_mean_is_chosen(means: tuple[float, ...], factor: float) -> None:
    plan = plan_of(RATES)
    (choice,) = choose_rates(plan, rows(plan, finals(*means)))
    assert (choice.method, choice.factor, choice.seeds) == ("CMFL-I", factor, (100, 101))
    assert choice.finals == dict(zip(("0.25", "0.5", "1", "2"), means, strict=True))
    assert choice.digest == digest_of_trials(plan.trials)


def test_nothing_is_chosen_before_all_trials_are_over() -> None:
    plan, known = plan_of(RATES), finals(0.5, 0.5, 0.5, 0.5)
    del known[2.0, 101]
    assert choose_rates(plan, rows(plan, known)) == []


def test_untuned_method_keeps_its_rate_and_a_waiting_has_none() -> None:
    plan = plan_of(RATES)
    assert factors(plan, []) == {"FedAvg (n)": AS_CONFIGURED}
    choices = choose_rates(plan, rows(plan, finals(0.5, 0.25, 0.25, 0.25)))
    assert factors(plan, choices) == {"CMFL-I": 0.25, "FedAvg (n)": AS_CONFIGURED}
    assert factors(plan_of(is_quick=True), choices)["FedAvg (n)"] == AS_CONFIGURED
