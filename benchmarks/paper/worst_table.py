"""The tables of the worst attacks in `docs/presets.md`: the accuracy that each rule keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.report import DASH, captured_share, format_estimate, markdown
from clients.experiments.series import by_method, grouped
from clients.experiments.statistics import mean_and_error, paired
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.experiments.rows import CellRow, ExperimentRows

STRATEGY_3, SHARED, TUNED = (
    "robustness-worst",
    "robustness-worst-digits",
    "robustness-worst-tuned",
)
CALM, FEDAVG = "none", "FedAvg"

HEAD = (
    "rule", "rate", "no attack", "worst attack by 30 %", "accuracy under it",
    "less FedAvg without attack", "least of a run", "largest share of a committee",
)  # fmt: skip


def worst_table(rows: Mapping[str, ExperimentRows], experiment: str) -> list[str]:
    """Return the table of an experiment as lines of Markdown.

    Args:
        rows: of experiments, by name.
        experiment: `STRATEGY_3`, `SHARED` or `TUNED`.

    Raises:
        ConfigurationError: it has no rows, or a method has none without an attack.
    """
    if experiment not in rows:
        raise ConfigurationError(
            f"there are no rows of {experiment}: make them by experiment run {experiment}"
        )
    methods = by_method(rows[experiment].cells)
    calm = [cell for cell in methods.get(FEDAVG, ()) if cell.condition == CALM]
    return markdown(HEAD, [_line(method, own, calm) for method, own in methods.items()])


def _line(method: str, cells: Sequence[CellRow], fedavg: Sequence[CellRow]) -> list[str]:
    finals = {
        condition: [cell.final for cell in own if cell.final is not None]
        for condition, own in grouped(cells, lambda cell: cell.condition).items()
    }
    if not finals.get(CALM):
        raise ConfigurationError(f"{method} has no row without an attack")
    attacks = {name: values for name, values in finals.items() if name != CALM and values}
    worst = min(attacks, key=lambda name: mean_and_error(attacks[name]).mean, default=None)
    rates = dict.fromkeys(f"{cell.learning_rate:g}" for cell in cells)
    shares = [share for cell in cells if (share := captured_share(cell)) is not None]
    return [
        method,
        ", ".join(rates),
        format_estimate(finals[CALM]),
        *([DASH] * 4 if worst is None else _under(worst, attacks, _less(cells, worst, fedavg))),
        f"{max(shares):.2f}" if shares else "no committee",
    ]


def _under(worst: str, attacks: Mapping[str, Sequence[float]], difference: str) -> list[str]:
    """Return the worst attack by its mean, that mean, and the least run, whichever its attack."""
    least = min(min(finals) for finals in attacks.values())
    return [worst, format_estimate(attacks[worst]), difference, f"{least:.3f}"]


def _less(cells: Sequence[CellRow], attack: str, fedavg: Sequence[CellRow]) -> str:
    """Return the accuracy under an attack less that of FedAvg without attackers, seed by seed."""
    own = {cell.seed: cell.final for cell in cells if cell.condition == attack}
    pairs = [
        (ours, cell.final)
        for cell in fedavg
        if (ours := own.get(cell.seed)) is not None and cell.final is not None
    ]
    if not pairs:
        return DASH
    difference = paired(*zip(*pairs, strict=True))
    error = "" if difference.error is None else f" ± {difference.error:.3f}"
    return f"{difference.mean:+.3f}{error}"
