"""The table of processor times in `docs/attacks.md`: what it costs to play the rule.

From the rows of `cmfl experiment run robustness-worst-tuned` that are not on a chain.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.paper.worst_table import TUNED
from clients.experiments.report import DASH, markdown
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.experiments.rows import ExperimentRows

PLAIN = "none"
"""The condition beside which attacks are measured."""

ATTACKS = ("min-max", "adaptive", "target", "worst-back", "worst-drift")
METHODS = ("FedAvg", "NNM-TrMean", "CMFL-I")


def cost_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the processor time of a run under each attack, in runs without one.

    Ratios are of one method and seed each, played by the same process beside others; the table has
    their medians.

    Args:
        rows: of `robustness-worst-tuned`.

    Raises:
        ConfigurationError: it has none.
    """
    if TUNED not in rows:
        raise ConfigurationError(f"there are no rows of {TUNED}: make them by experiment run")
    seconds = {
        (cell.method, cell.condition, cell.seed): cell.seconds.cpu
        for cell in rows[TUNED].cells
        if cell.ledger is None
    }
    seeds = sorted({seed for method, _, seed in seconds if method != "FedAvg"})
    lines = []
    for attack in ATTACKS:
        line = [attack]
        for method in METHODS:
            ratios = [
                seconds[method, attack, seed] / seconds[method, PLAIN, seed]
                for seed in seeds
                if (method, attack, seed) in seconds and (method, PLAIN, seed) in seconds
            ]
            line.append(f"{median(ratios):.1f}" if ratios else DASH)
        lines.append(line)
    return markdown(("runs without an attack", *METHODS), lines)
