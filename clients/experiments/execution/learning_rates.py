"""One learning rate for each method, by the mean final accuracy on seeds that are not reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.cells import Trial, digest_of
from clients.experiments.rows import DECIMALS, ChoiceRow, TrialRow

if TYPE_CHECKING:
    from clients.experiments.plan import ExperimentPlan

AS_CONFIGURED = 1.0
"""The factor of a method whose rate is not chosen."""


def choose_rates(plan: ExperimentPlan, rows: Iterable[TrialRow]) -> list[ChoiceRow]:
    """Return the choice of each method all of whose trials have been run.

    The best mean counts; of two as good, that which is nearer to the configured rate, and then the
    smaller.
    """
    rows_by_name = {row.cell: row for row in rows}
    trials: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in plan.trials:
        trials[trial.cell.method.name].append(trial)
    return [
        _choice(plan.experiment, method, of, rows_by_name)
        for method, of in trials.items()
        if all(trial.name in rows_by_name for trial in of)
    ]


def factors(plan: ExperimentPlan, choices: Iterable[ChoiceRow]) -> dict[str, float]:
    """Return what each method's configured learning rate is multiplied by."""
    methods = {cell.method.name: cell.is_tuned for cell in plan.cells}
    chosen_factors = {row.method: row.factor for row in choices if row.method in methods}
    return chosen_factors | {
        method: AS_CONFIGURED for method, tuned in methods.items() if not tuned
    }


def digest_of_trials(trials: Iterable[Trial]) -> str:
    """Return the digest of what a choice follows from, 0x-hex."""
    return digest_of(sorted(trial.digest for trial in trials))


def _choice(
    experiment: str, method: str, trials: list[Trial], rows: Mapping[str, TrialRow]
) -> ChoiceRow:
    finals: defaultdict[float, list[float]] = defaultdict(list)
    for trial in trials:
        finals[trial.factor].append(rows[trial.name].final)
    means = {factor: round(fmean(values), DECIMALS) for factor, values in finals.items()}
    best = max(means, key=lambda factor: (means[factor], -_octaves(factor), -factor))
    return ChoiceRow(
        experiment=experiment,
        method=method,
        factor=best,
        finals={f"{factor:g}": mean for factor, mean in means.items()},
        seeds=tuple(sorted({trial.cell.seed for trial in trials})),
        digest=digest_of_trials(trials),
    )


def _octaves(factor: float) -> float:
    """Return how far a factor is from 1, the same for a double and a half."""
    return max(factor, 1 / factor)
