"""The common part of both decentralised kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.kinds.baseline import without_ledger
from clients.experiments.rows import round_values
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from clients.experiments.baselines.decentralised.decentralised_round import DecentralisedRound
    from clients.experiments.definition import Method
    from clients.experiments.kinds.method_kind import MethodRun, MethodTask
    from clients.runs.metrics import Measure
    from clients.runs.population import Population


def require_options(method: Method, known: Collection[str]) -> None:
    """Refuse an option that a method does not know, or that is no whole number."""
    for name, value in method.options.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"options.{name}: {method.kind} knows {listed}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"options.{name} = {value!s:.80}: must be a whole number")


def play_decentralised(
    task: MethodTask, population: Population, measure: Measure, rows: Sequence[DecentralisedRound]
) -> MethodRun:
    """Return the result of a run, the second quality in its `extra`."""
    extra = {
        "beside_accuracy": list(round_values(row.beside.accuracy for row in rows)),
        "beside_loss": list(round_values(row.beside.loss for row in rows)),
    }
    traffic = [row.traffic for row in rows]
    return without_ledger(task, population, measure, rows, traffic, extra)
