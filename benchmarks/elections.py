"""Study of elections: who is in the next committee, and what attackers make of it.

`python -m benchmarks.elections --attacks target worst-back --seeds 100 101 102` plays each way to
elect on the memory ledger, under each attack, with members' own references and with those of the
preset `robust`, and prints the mean test accuracy of the last five rounds with its error over
seeds, and the mean and the largest share of a committee that attackers held. The contract knows two
ways, the paper's `middle` and the lot among the accepted: the others are put in their place in the
specification that the memory ledger runs.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.late_accuracy import late_accuracy, memory_run
from clients.configuration.loading import load
from ledger.io.named_files import write_named
from ledger.io.processes import task_pool
from ledger.protocol.encoding import keccak256, word_client
from ledger.protocol.judgement import DerivedSets, sets_of
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import Election

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clients.runs.open_run import OpenedRun
    from ledger.protocol.judgement import SelectionSizes
    from ledger.protocol.types import ClientId

    Elect = Callable[[Sequence[ClientId], int, int], Sequence[ClientId]]
    """From all ranked, best first, the number that is accepted, and C, to the next committee."""

RESULTS = Path(__file__).parent / "results"
BASE = ("training.learning_rate=1.0",)
RULES: Mapping[str, tuple[str, ...]] = {
    "own": ('protocol.reference="own"', 'protocol.clip="none"'),
    "peers": ('protocol.reference="peers"', 'protocol.clip="quantile"'),
}
SETS_OF = (
    "ledger.protocol.judgement.sets_of",
    "ledger.protocol.rounds.sets_of",
    "ledger.actors.driver.sets_of",
)


def middle_of_accepted(
    ranked: Sequence[ClientId], accepted: int, members: int
) -> Sequence[ClientId]:
    """Return the middle of the accepted; the first of the ranking where they are too few."""
    first = max(accepted - members, 0) // 2
    return ranked[first : first + members]


def lot_of_all(ranked: Sequence[ClientId], accepted: int, members: int) -> Sequence[ClientId]:  # noqa: ARG001
    """Return a drawn part of the ranking."""
    return _drawn(ranked, members)


CONFIGURED: Mapping[str, Election] = {
    "middle": Election.MIDDLE,
    "lot of accepted": Election.LOT,
}
STUDIED: Mapping[str, Elect] = {
    "middle of accepted": middle_of_accepted,
    "lot of all": lot_of_all,
}
ELECTIONS = ("middle", "middle of accepted", "lot of accepted", "lot of all")


@dataclass(frozen=True, slots=True)
class ElectionCell:
    """One run: rule, election, attack, share of attackers, seed."""

    preset: str
    settings: tuple[str, ...]
    rule: str
    election: str
    attack: str
    rate: float
    seed: int


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """Result of a run: accuracy, and attackers' mean and largest share of a committee."""

    accuracy: float
    mean_share: float
    largest_share: float


def main() -> None:
    """Run everything, print the table and write it down."""
    arguments = _arguments()
    cells = [
        ElectionCell(
            arguments.preset, tuple(arguments.set), rule, election, attack, arguments.rate, seed
        )
        for seed in arguments.seeds
        for attack in arguments.attacks
        for rule in arguments.rules
        for election in ELECTIONS
    ]
    console = Console()
    with Progress(console=console) as bar, task_pool(arguments.jobs) as pool:
        task = bar.add_task("runs", total=len(cells))
        results = pool.run(play, cells, lambda _name: bar.advance(task))
    found: dict[tuple[str, str, str], list[ElectionResult]] = defaultdict(list)
    for cell, result in zip(cells, results, strict=True):
        found[cell.rule, cell.attack, cell.election].append(result)
    title = "accuracy; attackers' mean and largest share of a committee"
    table = Table("rule", "attack", *ELECTIONS, title=f"{title}; seeds {arguments.seeds}")
    for rule in arguments.rules:
        for attack in arguments.attacks:
            table.add_row(rule, attack, *(_shown(found[rule, attack, name]) for name in ELECTIONS))
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    rows = [asdict(cell) | asdict(result) for cell, result in zip(cells, results, strict=True)]
    write_named(arguments.out, f"{json.dumps(rows, indent=1)}\n".encode())


def play(cell: ElectionCell, report: Callable[[str], None]) -> ElectionResult:
    """Return the result of one run.

    Args:
        cell: what is run.
        report: called with the election's name when it has ended.
    """
    election = CONFIGURED.get(cell.election, Election.MIDDLE)
    settings = [f"seed={cell.seed}", f"protocol.election={election}", *BASE, *RULES[cell.rule]]
    settings += cell.settings
    if cell.attack != "none":
        settings += [f'malice.attack="{cell.attack}"', f"malice.malicious_rate={cell.rate}"]
    configuration = load(cell.preset, settings=tuple(settings))

    def elected(sizes: SelectionSizes, ranking: Sequence[int], threshold_bits: int) -> DerivedSets:
        accepted = sets_of(sizes, ranking, threshold_bits).accepted
        ranked = [word_client(word) for word in ranking]
        candidates = tuple(STUDIED[cell.election](ranked, len(accepted), sizes.members))
        return DerivedSets(accepted, candidates)

    with ExitStack() as studied:
        if cell.election not in CONFIGURED:
            for place in SETS_OF:
                studied.enter_context(patch(place, elected))
        run = studied.enter_context(memory_run(configuration))
        rows = run.go_on(lambda _row: None)
        shares = _shares(run)
    report(cell.election)
    return ElectionResult(late_accuracy(rows), fmean(shares), max(shares))


def _drawn(clients: Sequence[ClientId], members: int) -> Sequence[ClientId]:
    """Return so many clients in their order, drawn by a digest of all of them."""
    seed = keccak256(b"".join(client.to_bytes(4, "big") for client in clients))
    places = np.random.default_rng(int.from_bytes(seed, "big")).permutation(len(clients))
    return [clients[place] for place in sorted(places[:members].tolist())]


def _shares(run: OpenedRun) -> list[float]:
    """Return attackers' share of each elected committee."""
    attackers = run.population.attackers.clients
    events = [found.event for found in run.ledger.outcomes(limit=2**31, descending=False)]
    decided = [event.next_committee for event in events if isinstance(event, RoundDecided)]
    return [len(attackers.intersection(committee)) / len(committee) for committee in decided]


def _shown(found: list[ElectionResult]) -> str:
    accuracies = [result.accuracy for result in found]
    error = stdev(accuracies) / len(found) ** 0.5 if len(found) > 1 else 0.0
    mean, most = fmean(r.mean_share for r in found), max(r.largest_share for r in found)
    return f"{fmean(accuracies):.3f} ± {error:.3f}; {mean:.2f}, {most:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="robust")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    parser.add_argument("--attacks", nargs="+", default=["target", "worst-back", "min-max"])
    parser.add_argument("--rate", type=float, default=0.3, help="share of malicious clients")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "elections.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
