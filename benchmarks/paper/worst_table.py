"""The table of the worst attacks in `docs/presets.md`: the accuracy that each rule keeps.

From the rows of `cmfl experiment run robustness-worst`: all methods at one learning rate, and each
at the rate that was chosen for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing.series import by_method, grouped
from clients.experiments.report import DASH, captured_share, format_estimate, markdown
from clients.experiments.statistics import mean_and_error
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clients.experiments.rows import CellRow, ExperimentRows

SHARED, TUNED = "robustness-worst-digits", "robustness-worst-tuned"
CALM = "none"

HEAD = (
    "rule", "rate", "no attack", "worst attack by 30 %", "accuracy under it", "least of a run",
    "largest share of a committee",
)  # fmt: skip


def worst_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the tables that there are as lines of Markdown, each under a sentence on its rates.

    Args:
        rows: of both experiments, or of the first alone, by name.

    Raises:
        ConfigurationError: the first has no rows, or a method none without an attack.
    """
    if SHARED not in rows:
        raise ConfigurationError(f"there are no rows of {SHARED}: make them by experiment run")
    lines = []
    for name, sentence in ((SHARED, "One learning rate:"), (TUNED, "Each rule at its own rate:")):
        if name not in rows:
            continue
        methods = by_method(rows[name].cells)
        table = markdown(HEAD, [_line(method, own) for method, own in methods.items()])
        lines += [sentence, "", *table, ""]
    return lines[:-1]


def _line(method: str, cells: Sequence[CellRow]) -> list[str]:
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
        *([DASH] * 3 if worst is None else _under(worst, attacks)),
        f"{max(shares):.2f}" if shares else "no committee",
    ]


def _under(worst: str, attacks: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the worst attack by its mean, that mean, and the least run, whichever its attack."""
    least = min(min(finals) for finals in attacks.values())
    return [worst, format_estimate(attacks[worst]), f"{least:.3f}"]
