"""The table of the kinder attacks: every attack by 30 % of the clients on digits.

Each method is shown at the learning rate that was chosen for it on other seeds, and beside that at
the rate that all of them share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing.series import by_method, grouped
from clients.experiments.report import format_estimate, markdown
from clients.experiments.statistics import mean_and_error
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.experiments.rows import CellRow, ExperimentRows

TUNED, SHARED = "robustness-digits", "robustness-digits-one-rate"
"""The experiments with a rate for each method, and with one for all."""

NAMES = {
    "FedAvg-trainers": "FedAvg (n)",
    "CMFL-I": "I",
    "robust": "`own`",
    "robust-travel": "`travel`",
}
ENDING = "-30"


def robustness_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the table as lines of Markdown, and a line on its seeds below.

    Args:
        rows: of both experiments, by name.

    Raises:
        ConfigurationError: one of them has no rows, or a method has several rates.
    """
    for name in (TUNED, SHARED):
        if name not in rows:
            raise ConfigurationError(f"there are no rows of {name}: make them by experiment run")
    tuned, shared = (by_method(rows[name].cells) for name in (TUNED, SHARED))
    (rate,) = {_rate(own) for own in shared.values()}
    head = ["attack by 30 % of the clients"]
    head += [f"{title}, rate {_rate(tuned[method])}" for method, title in NAMES.items()]
    head += [f"{title}, rate {rate}" for title in NAMES.values()]
    groups = [(own, method) for own in (tuned, shared) for method in NAMES]
    table = [
        [condition.removesuffix(ENDING).replace("clean", "none")]
        + [_entry(own[method], condition) for own, method in groups]
        for condition in grouped(rows[SHARED].cells, lambda cell: cell.condition)
    ]
    return [*markdown(head, table), "", _seeds(rows)]


def _rate(cells: Sequence[CellRow]) -> str:
    rates = {cell.learning_rate for cell in cells}
    if len(rates) > 1:
        raise ConfigurationError(f"{cells[0].method} has the rates {sorted(rates)}: one is needed")
    return f"{rates.pop():g}"


def _entry(cells: Sequence[CellRow], condition: str) -> str:
    finals = [cell.final for cell in cells if cell.condition == condition]
    return format_estimate([final for final in finals if final is not None])


def _seeds(rows: Mapping[str, ExperimentRows]) -> str:
    reported = sorted({cell.seed for name in (TUNED, SHARED) for cell in rows[name].cells})
    choices = [choice for choice in rows[TUNED].choices if choice.method in NAMES]
    tried = sorted({seed for choice in choices for seed in choice.seeds})
    factors = sorted({float(factor) for choice in choices for factor in choice.finals})
    floor = mean_and_error([c.floor for c in rows[SHARED].cells if c.floor is not None]).mean
    return (
        f"Test accuracy on `digits`, mean of the last five rounds ± standard error over seeds "
        f"{_listed(reported)}. Rates were chosen without an attack on seeds {_listed(tried)}, of "
        f"{factors[0]:g} to {factors[-1]:g} times the preset's. The commonest class alone scores "
        f"{floor:.3f}."
    )


def _listed(seeds: Sequence[int]) -> str:
    is_range = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if is_range else ", ".join(map(str, seeds))
