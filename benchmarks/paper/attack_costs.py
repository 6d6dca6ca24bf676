"""The table of processor times in `docs/attacks.md`: what it costs to play the rule.

From the rows of `cmfl experiment run robustness-worst-digits` that are not on a chain.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.paper.worst_table import SHARED
from clients.experiments.report import DASH, markdown
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.experiments.rows import ExperimentRows

PLAIN = "ipm"
"""The attack beside which the others are measured: a mean of updates, and no search."""

ATTACKS = ("adaptive", "target-blind", "noise-30", "frame", "target", "worst-back", "worst-drift")
METHODS = ("FedAvg", "CMFL-I", "own", "crowd", "peers-clipped")


def cost_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the processor time of a run under each attack, in runs under a plain one.

    Ratios are of one method and seed each, played by the same process beside others; the table has
    their medians.

    Args:
        rows: of `robustness-worst-digits`.

    Raises:
        ConfigurationError: it has none.
    """
    if SHARED not in rows:
        raise ConfigurationError(f"there are no rows of {SHARED}: make them by experiment run")
    seconds = {
        (cell.method, cell.condition, cell.seed): cell.seconds.cpu
        for cell in rows[SHARED].cells
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
    return markdown((f"runs under {PLAIN}", *METHODS), lines)
