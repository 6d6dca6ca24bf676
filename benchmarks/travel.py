"""Study of reference travel: window, slope and cap.

`python -m benchmarks.travel --preset robust --windows 10 20 --slopes 150 --caps 3` plays each
choice, and references that are the members' own updates, on the memory ledger under each attack,
and prints the mean test accuracy of the last five rounds, and which shares of the honest and of
the malicious trainers were accepted after a third of the rounds. Choose by seeds that nothing is
reported of afterwards. `--set` takes settings as `cmfl run` does.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.late_accuracy import late_accuracy, memory_run
from clients.configuration.loading import load
from ledger.io.named_files import write_named
from ledger.io.processes import task_pool
from ledger.protocol.encoding import word_client
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.reference import DirectionWeight, ReferenceRule
from ledger.protocol.rules.registry import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.runs.open_run import OpenedRun

RESULTS = Path(__file__).parent / "results"
BASE = (
    'protocol.reference="own"',
    'protocol.clip="none"',
    'protocol.election="middle"',
    "training.learning_rate=0.5",
)
"""Settings over the preset's and under the user's."""


@dataclass(frozen=True, slots=True)
class TravelCell:
    """One run: window, slope and cap of the travel (None for own updates), attack, seed."""

    preset: str
    settings: tuple[str, ...]
    travel: tuple[int, float, float] | None
    attack: str
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its reference rule."""
        return "own" if self.travel is None else "-".join(f"{number:g}" for number in self.travel)


@dataclass(frozen=True, slots=True)
class TravelResult:
    """Result of a run: accuracy, and the accepted shares of honest and malicious trainers."""

    accuracy: float
    honest: float | None
    malicious: float | None


def main() -> None:
    """Run everything, print the table and write it down."""
    arguments = _arguments()
    travels = [
        None,
        *(
            (window, slope, cap)
            for window in arguments.windows
            for slope in arguments.slopes
            for cap in arguments.caps
        ),
    ]
    cells = [
        TravelCell(arguments.preset, tuple(arguments.set), travel, attack, arguments.rate, seed)
        for seed in arguments.seeds
        for attack in arguments.attacks
        for travel in travels
    ]
    console = Console()
    with Progress(console=console) as bar, task_pool(arguments.jobs) as pool:
        task = bar.add_task("runs", total=len(cells))
        results = pool.run(play, cells, lambda _name: bar.advance(task))
    by_name: dict[tuple[str, str], list[TravelResult]] = defaultdict(list)
    for cell, result in zip(cells, results, strict=True):
        by_name[cell.attack, cell.name].append(result)
    names = list(dict.fromkeys(cell.name for cell in cells))
    title = "accuracy, honest accepted, malicious accepted"
    table = Table("attack", *names, title=f"{title}; seeds {arguments.seeds}")
    for attack in arguments.attacks:
        table.add_row(attack, *(_shown(by_name[attack, name]) for name in names))
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    rows = [asdict(cell) | asdict(result) for cell, result in zip(cells, results, strict=True)]
    write_named(arguments.out, f"{json.dumps(rows, indent=1)}\n".encode())


def play(cell: TravelCell, report: Callable[[str], None]) -> TravelResult:
    """Return the result of one run.

    Args:
        cell: what is run.
        report: called with the choice's name when it has ended.
    """
    settings = [f"seed={cell.seed}", *BASE, *cell.settings]
    if cell.travel is not None:
        rule = ReferenceRule(
            cell.name, DirectionWeight(*cell.travel), "direction", "along a travel"
        )
        REFERENCES[cell.name] = rule
        settings.append(f'protocol.reference="{cell.name}"')
    if cell.attack != "none":
        settings += [f'malice.attack="{cell.attack}"', f"malice.malicious_rate={cell.rate}"]
    configuration = load(cell.preset, settings=tuple(settings))
    with memory_run(configuration) as run:
        rows = run.go_on(lambda _row: None)
        honest, malicious = (_accepted(run, are_malicious=kind) for kind in (False, True))
    report(cell.name)
    return TravelResult(late_accuracy(rows), honest, malicious)


def _accepted(run: OpenedRun, *, are_malicious: bool) -> float | None:
    """Return which share of the honest or the malicious trainers was accepted, late in a run."""
    attackers = run.population.attackers.clients
    ranked = accepted = 0
    for recorded in run.ledger.outcomes(limit=2**31, descending=False):
        event = recorded.event
        if isinstance(event, RoundDecided) and 3 * event.round > run.measure.parameters.rounds:
            kind = {c for c in map(word_client, event.ranking) if (c in attackers) == are_malicious}
            ranked += len(kind)
            accepted += len(kind.intersection(event.accepted))
    return accepted / ranked if ranked else None


def _shown(found: list[TravelResult]) -> str:
    shares = [[result.honest for result in found], [result.malicious for result in found]]
    measured = [[share for share in kind if share is not None] for kind in shares]
    parts = [f"{fmean(kind):.2f}" if kind else "-" for kind in measured]
    return f"{fmean(result.accuracy for result in found):.3f}  {'  '.join(parts)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="robust")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--windows", type=int, nargs="*", default=[20])
    parser.add_argument("--slopes", type=float, nargs="*", default=[150.0])
    parser.add_argument("--caps", type=float, nargs="*", default=[3.0])
    parser.add_argument("--attacks", nargs="+", default=["none", "back-gradient", "ipm", "min-max"])
    parser.add_argument("--rate", type=float, default=0.3, help="share of malicious clients")
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "travel.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
