"""Gas and time of the two transactions of a round, with signed but made-up content.

    python -m benchmarks.ledger                   print medians for four sizes of committee
    python -m benchmarks.ledger --gas-snapshot    write `contracts/gas_snapshot.json`

Rounds are measured from the third on: a deployment's first rounds pay for storage that later rounds
overwrite. Signatures are made outside of the measured time. The memory ledger takes each
transaction before the embedded chain does, so it finds no signature recovered already. The chain
writes durably (synchronous FULL). With other repliers, the last seats certify the election, and
the contract has to look up nearly every member.

Gas is the same on every machine, and a test compares the snapshot.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.recorded_rounds import RecordedRounds
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.memory import MemoryLedger
from ledger.protocol import encoding
from ledger.protocol.ledger_state import registry_batches

SIZES = ((4, 6), (7, 20), (21, 65), (43, 65))
"""Committee members and trainers."""
CLIENTS = 1075
GAS_SNAPSHOT = Path(__file__).parent.parent / "contracts" / "gas_snapshot.json"
_T = TypeVar("_T")


def main() -> None:
    """Write the gas snapshot, or print the costs of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gas-snapshot", action="store_true", help="write the gas snapshot")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gas_snapshot:
            snapshot = json.dumps(gas_snapshot(Path(folder)), indent=1)
            GAS_SNAPSHOT.write_text(f"{snapshot}\n", "utf-8")
        else:
            _show([round_costs(Path(folder), size, arguments.rounds) for size in SIZES])


def gas_snapshot(folder: Path) -> dict[str, dict[str, int]]:
    """Return the gas of every transaction, for each size "C members, n trainers"."""
    snapshot: dict[str, dict[str, int]] = {}
    for members, trainers in SIZES:
        path = folder / f"{members}-{trainers}.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            run = RecordedRounds(chain, members, trainers, CLIENTS)
            snapshot[f"{members} members, {trainers} trainers"] = _gas_of(run)
    return snapshot


def _gas_of(run: RecordedRounds) -> dict[str, int]:
    deployed, *registered = (receipt.gas_used for receipt in run.registrations)
    gas = {"deployment": deployed, "registration, each client": sum(registered) // CLIENTS}
    for name in ("first", "second", "third"):
        commit = run.commit(run.signed_commitments(run.active)).gas_used
        decide = run.decide(run.certified()).gas_used
        if name != "second":
            gas[f"commit_updates, {name} round"] = commit
            gas[f"commit_updates, {name} round, each client"] = commit // len(run.active)
            gas[f"decide, {name} round"] = decide
    run.commit(run.signed_commitments(run.active))
    gas["decide, other repliers in the election"] = run.decide(
        run.certified(other_repliers=True)
    ).gas_used
    half = run.signed_commitments(run.active[::2])
    run.commit(half)
    gas["commit_updates, half of it sent ahead"] = run.commit(
        run.signed_commitments(run.active)
    ).gas_used
    gas["abandon_round"] = run.abandon().gas_used
    return gas


def round_costs(folder: Path, size: tuple[int, int], rounds: int) -> dict[str, float]:
    """Return the median gas and milliseconds of a round, on the chain and in memory."""
    members, trainers = size
    with EmbeddedChain.create(folder / f"{members}-{trainers}-timed.sqlite") as chain:
        run = RecordedRounds(chain, members, trainers, CLIENTS)
        memory = _remembered(run)
        measured = [_record_round(run, memory) for _ in range(2 + rounds)][2:]
        others = [_record_round(run, memory, other_repliers=True) for _ in range(rounds)]
    row: dict[str, float] = {"C": members, "n": trainers}
    row |= {key: round(median(costs[key] for costs in measured), 1) for key in measured[0]}
    row["decide gas with other repliers"] = median(costs["decide gas"] for costs in others)
    chain_cpu = row["commit CPU ms"] + row["decide CPU ms"]
    memory_cpu = row["memory commit CPU ms"] + row["memory decide CPU ms"]
    return row | {"chain / memory, CPU": round(chain_cpu / memory_cpu, 1)}


def _remembered(run: RecordedRounds) -> MemoryLedger:
    """Return a memory ledger in the state of the recorded one: in round 1."""
    memory = MemoryLedger(run.state.deployment, run.state.domain)
    words = [encoding.registry_word(client) for client in run.state.registry]
    _, batches = registry_batches(words)
    for batch, rest in batches:
        memory.register_clients(batch, rest)
    return memory


def _record_round(
    run: RecordedRounds, memory: MemoryLedger, *, other_repliers: bool = False
) -> dict[str, float]:
    """Decide one round on both ledgers; return gas and milliseconds of its two transactions."""
    number, signed = run.state.round, run.signed_commitments(run.active)
    costs: dict[str, float] = {}

    def timed(name: str, send: Callable[[], _T]) -> _T:
        wall, cpu = time.perf_counter(), time.process_time()
        result = send()
        costs[f"{name} ms"] = (time.perf_counter() - wall) * 1e3
        costs[f"{name} CPU ms"] = (time.process_time() - cpu) * 1e3
        return result

    timed("memory commit", lambda: memory.commit_updates(number, signed))
    costs["commit gas"] = timed("commit", lambda: run.commit(signed)).gas_used
    made = run.certified(other_repliers=other_repliers)
    timed("memory decide", lambda: memory.decide(number, made.decision, made.certificates))
    costs["decide gas"] = timed("decide", lambda: run.decide(made)).gas_used
    if memory.state().head != run.state.head:
        raise RuntimeError(f"the memory ledger has another head after round {number}")
    return costs


def _show(rows: list[dict[str, float]]) -> None:
    table = Table("", *(str(index + 1) for index in range(len(rows))), title="ledger")
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console().print(table)


if __name__ == "__main__":
    main()
