"""The learning rate with the best mean final accuracy on the seeds of tuning is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.experiments.execution.learning_rates import (
    AS_CONFIGURED,
    choose_rates,
    digest_of_trials,
    factors,
)
from clients.experiments.rows import CellSeconds, TrialRow
from tests.clients.experiments.minis import plan_of

if TYPE_CHECKING:
    from clients.experiments.plan import ExperimentPlan

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
    """Return what each of the four rates comes to: a tenth below its mean, and a tenth above."""
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
