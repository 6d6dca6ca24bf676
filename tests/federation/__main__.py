"""`python -m tests.federation`: the whole matrix of faults, for as long as there is time.

What it has come to is in a file, so that a session goes on where the one before ended; each begins
a federation of its own, since anvil keeps nothing. The table is written into the documentation.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from clients.configuration.parsing import plain_values
from clients.testnet import ChainKind, StoreKind
from clients.testnet.network import ChainPace, NetworkSettings, fitted_to_pace
from tests.federation import worker_files
from tests.federation.cells import Cell, possible_cells
from tests.federation.disturbed import DisturbedNetwork
from tests.federation.long_run import LongRun
from tests.federation.state import WANTED, State, written

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "project" / "faults.md"
WORKERS = 12
MATRIX = (
    *("protocol.clients=240", "protocol.active_rate=0.05", "protocol.committee_rate=0.416667"),
    *("protocol.aggregation_rate=0.5", "protocol.rounds=4000"),
)
"""240 clients, so that those that are banned are not missed; twelve are active, five of them serve:
one of them may be silent."""

MATRIX_PACES = {
    ChainKind.EMBEDDED: ChainPace(0.5, 1.5, 4, 100, 2, 0.3),
    ChainKind.ANVIL: ChainPace(1.0, 0.0, 4, 52, 1, 0.3),
}
"""Faster than the usual ones, since most of a round is waiting. Three views of 4, 8 and 16 seconds,
the one before them and two of the election end before the deadline, whatever the window took."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    folder = options.state
    folder.mkdir(parents=True, exist_ok=True)
    chains = [ChainKind(options.chain)] if options.chain else [*ChainKind]
    can_mount = worker_files.has_own_mounts()
    if not can_mount:
        say("no mounts of our own here: full disks are left out")
    for chain in chains:
        path = folder / f"{chain}.json"
        state = State.read(path) if options.resume and path.exists() else State(str(chain))
        ends = time.monotonic() + 3600 * options.hours / len(chains)
        _session(state, path, ends, options.wanted, can_mount=can_mount)
    states = [State.read(p) for chain in ChainKind if (p := folder / f"{chain}.json").exists()]
    if not options.no_page:
        written(PAGE, states)
    wrong = [one for state in states for one in state.violations]
    for one in wrong:
        say(f"{one.wrong}: round {one.round}, {one.fault or 'no fault'}, clients {one.clients}")
    return 1 if wrong else 0


def _session(state: State, path: Path, ends: float, wanted: int, *, can_mount: bool) -> None:
    """Begin one federation after the other until the time is over or all cells are full."""
    possible = possible_cells(can_fill_disks=can_mount)
    while time.monotonic() < ends and not state.is_complete(possible, wanted):
        with tempfile.TemporaryDirectory(prefix="federation-") as home:
            small = [
                Path(home) / "workers" / f"{n:02d}" for n in range(WORKERS if can_mount else 0)
            ]
            try:
                for folder in small:
                    worker_files.mount_small(folder)
                _federation(state, path, Path(home), ends, possible, wanted)
            finally:
                for folder in small:
                    worker_files.unmount(folder)
        if any(one.wrong == "stuck" for one in state.violations):
            return  # the next one would only hide it


def _federation(
    state: State, path: Path, home: Path, ends: float, possible: tuple[Cell, ...], wanted: int
) -> None:
    chain = ChainKind(state.chain)
    settings = NetworkSettings(
        home=home,
        configuration=fitted_to_pace(plain_values("digits", settings=MATRIX), MATRIX_PACES[chain]),
        workers=WORKERS,
        pace=MATRIX_PACES[chain],
        chain=chain,
        store=StoreKind.SERVED,
        anvil=os.environ.get("CMFL_ANVIL"),
    )
    state.federations += 1
    rng = np.random.default_rng([state.federations, state.rounds])

    def told(line: str) -> None:
        state.write(path)
        say(f"{state.chain} {line}")

    with DisturbedNetwork(settings, told) as federation:
        run = LongRun(federation, state, rng, home / "backups", possible, wanted, told)
        run.run(lambda: time.monotonic() >= ends)
    state.write(path)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.federation", description=__doc__)
    parser.add_argument("--chain", choices=[*ChainKind], help="one of them; both if not given")
    parser.add_argument("--hours", type=float, default=4.0, help="of all chains together")
    parser.add_argument("--wanted", type=int, default=WANTED, help="how often each cell")
    parser.add_argument("--resume", action="store_true", help="go on from the last session")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "faults")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
