"""How often a run has a committee whose attackers can certify a false model.

    python -m benchmarks.captured_committees    write docs/measured/captured_committees.json

Simulated runs of strategy 3 accept every update: a lot elects the next committee among the
trainers. Beside them are runs of the preset `robust` that have rows.
"""

from __future__ import annotations

from statistics import fmean

import numpy as np

from benchmarks.harness import ROWS, keep_table
from benchmarks.paper.tables import PRESET, MethodRuns, certifying
from clients.experiments.report import DASH, markdown
from clients.experiments.rows import ExperimentRows, read_experiments
from ledger.protocol.types import Quorum

CLIENTS, RATES, ROUNDS = (60, 300), (0.2, 0.3, 0.4), 40
SIZES = ((12, 18), (15, 15), (18, 18), (21, 21))
"""Members and trainers, of whom the next members are elected: 30 active clients, or 2 C if more."""
HEADS = (
    *("C of active", "K", "to certify: `paper`, `bft`", "20%", "30%", "40%", "30%, `bft`"),
    *("recorded runs", "accuracy, worst attack", "distances a round"),
)


def captured(
    clients: int, sizes: tuple[int, int], rate: float, needed: int, runs: int = 20_000
) -> float:
    """Return the share of runs in which attackers hold so many seats of some committee."""
    rng, (members, trainers) = np.random.default_rng(0), sizes
    malicious = round(rate * clients)
    held = rng.hypergeometric(malicious, clients - malicious, members, runs)
    is_captured = held >= needed
    for _ in range(ROUNDS - 1):
        others = malicious - held
        training = rng.hypergeometric(others, clients - members - others, trainers)
        held = rng.hypergeometric(training, trainers - training, members)
        is_captured |= held >= needed
    return float(is_captured.mean())


def recorded(experiment: str, sizes: tuple[int, int]) -> tuple[str, str]:
    """Return how many attacked runs have a captured committee, and the least mean accuracy."""
    rows = read_experiments(ROWS).get(experiment, ExperimentRows())
    own = [
        run
        for run in rows.cells
        if (run.method, run.extra.get("committee"), run.extra.get("trainers")) == (PRESET, *sizes)
    ]
    if not any(run.malicious for run in own):
        return DASH, DASH
    runs = MethodRuns(own)
    return runs.captured, f"{fmean(runs.finals(runs.worst).values()):.3f}, {runs.worst}"


def table() -> list[str]:
    """Return the table of all sizes."""
    lines = []
    for clients in CLIENTS:
        for sizes in SIZES:
            paper, bft = (certifying(sizes[0], quorum) for quorum in Quorum)
            shares = [captured(clients, sizes, rate, paper) for rate in RATES]
            shares.append(captured(clients, sizes, 0.3, bft))
            place = (f"{sizes[0]} of {sum(sizes)}", str(clients), f"{paper}, {bft}")
            experiment = "robustness-worst-committees" if clients == 60 else "none"
            distances = str(sizes[0] * (sum(sizes) - 1))
            found = (*(f"{share:.3f}" for share in shares), *recorded(experiment, sizes))
            lines.append([*place, *found, distances])
    return markdown(HEADS, lines)


def main() -> None:
    """Print the table, and write it with the count of all attacks into docs/measured."""
    lines = table()
    print("\n".join(lines))
    preset = recorded("robustness-worst", SIZES[0])[0]
    keep_table("captured_committees", lines, preset=preset)


if __name__ == "__main__":
    main()
