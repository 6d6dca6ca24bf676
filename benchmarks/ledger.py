"""Cost of the ledger: gas and time of a round's transactions.

`python -m benchmarks.ledger` measures `commit_updates` and `decide` for four sizes of committee,
medians over rounds from the third on: a deployment's first rounds pay for storage that all later
ones overwrite. Every transaction is signed, run by the embedded chain and on disk (synchronous
FULL) when its time ends; signatures of clients and members are made outside of it.

The memory ledger takes the same transactions first, so that it finds no signature recovered that
the chain's twin has asked for already. Milliseconds are wall time and CPU time.
A whole round of `digits` on either ledger is measured by `benchmarks.digits_round`.

In both phases the same members reply; "with other repliers" is the dearest `decide`, in which the
election is certified by the last places: the contract has to look up nearly every member.

The same clients also train (softmax on digits, batches of 32) and the members score, in this
process and with one worker, which gives the ledger's share of a round.

`python -m benchmarks.ledger --gas-snapshot` writes `contracts/gas_snapshot.json` instead: the gas
of every transaction, exact and the same on every machine, with which a test compares.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.recorded_rounds import RecordedRounds
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.memory import MemoryLedger
from ledger.protocol import encoding, sampling
from ledger.protocol.ledger_state import registry_batches

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = ((4, 6), (7, 20), (21, 65), (43, 65))
CLIENTS = 1075
RESULTS = Path(__file__).parent / "results"
GAS_SNAPSHOT = Path(__file__).parent.parent / "contracts" / "gas_snapshot.json"
DIGITS_ROUNDS = 25
Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransactionTime:
    """Milliseconds of one transaction."""

    wall: float
    cpu: float


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gas_snapshot:
            GAS_SNAPSHOT.write_text(
                json.dumps(gas_snapshot(Path(folder)), indent=1) + "\n", "utf-8"
            )
            return
        rows = [
            round_costs(Path(folder) / f"{members}.sqlite", (members, trainers), arguments)
            for members, trainers in SIZES
        ]
        digits = None if arguments.without_training else _digits(Path(folder))
    _show("ledger", rows)
    if digits is not None:
        _show("a round of digits", [digits])
    RESULTS.mkdir(exist_ok=True)
    document = {
        "machine": platform.processor() or platform.machine(),
        "rows": rows,
        "digits": digits,
    }
    (RESULTS / "ledger.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def gas_snapshot(folder: Path) -> dict[str, dict[str, int]]:
    """Return the gas of every transaction, for each size "C members, n trainers".

    Args:
        folder: where to make chain files.
    """
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


def round_costs(path: Path, size: tuple[int, int], arguments: argparse.Namespace) -> Row:
    """Return gas and milliseconds of a round's transactions.

    Args:
        path: a chain file to make.
        size: C and n.
        arguments: how many rounds, clients and local steps; whether clients train.
    """
    members, trainers = size
    with EmbeddedChain.create(path) as chain:
        started = time.perf_counter()
        run = RecordedRounds(chain, members, trainers, arguments.clients)
        registration_ms = (time.perf_counter() - started) * 1e3
        memory = _remembered(run)
        deployed, *registered = (receipt.gas_used for receipt in run.registrations)
        measured = [_record_round(run, memory) for _ in range(2 + arguments.rounds)][2:]
        row: Row = {
            "C": members,
            "n": trainers,
            "deploy gas": deployed,
            "registration gas per client": round(sum(registered) / arguments.clients),
            "deploy and register ms": round(registration_ms),
        }
        row |= {key: round(median(costs[key] for costs in measured), 1) for key in measured[0]}
        others = [_record_round(run, memory, other_repliers=True) for _ in range(arguments.rounds)]
        row["decide gas with other repliers"] = round(
            median(costs["decide gas"] for costs in others)
        )
        few = round(median(_half_a_round(run) for _ in range(arguments.rounds)))
        row["gas per commitment"] = round(row["commit gas"] / (members + trainers))
        row["gas per further commitment"] = round(
            (row["commit gas"] - few) / ((members + trainers) // 2)
        )
        row["ledger ms"] = round(row["commit ms"] + row["decide ms"], 1)
        chain_cpu = row["commit CPU ms"] + row["decide CPU ms"]
        memory_cpu = row["memory commit CPU ms"] + row["memory decide CPU ms"]
        row["chain / memory, CPU"] = round(chain_cpu / memory_cpu, 1)
        if not arguments.without_training:
            training_ms = _training_milliseconds(run, arguments)
            row["training ms"] = round(training_ms, 1)
            row["ledger share"] = round(row["ledger ms"] / (row["ledger ms"] + training_ms), 3)
    return row


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
    _, remembered_commit = _timed(lambda: memory.commit_updates(number, signed))
    committed, commit = _timed(lambda: run.commit(signed))
    made = run.certified(other_repliers=other_repliers)
    _, remembered_decide = _timed(lambda: memory.decide(number, made.decision, made.certificates))
    decided, decide = _timed(lambda: run.decide(made))
    if memory.state().head != run.state.head:
        raise RuntimeError(f"the memory ledger has another head after round {number}")
    return {
        "commit gas": committed.gas_used,
        "commit ms": commit.wall,
        "commit CPU ms": commit.cpu,
        "memory commit CPU ms": remembered_commit.cpu,
        "decide gas": decided.gas_used,
        "decide ms": decide.wall,
        "decide CPU ms": decide.cpu,
        "memory decide CPU ms": remembered_decide.cpu,
    }


def _half_a_round(run: RecordedRounds) -> int:
    """Commit for half of the active clients, abandon the round; return the commitments' gas."""
    active = run.active
    used = run.commit(run.signed_commitments(active[: len(active) - len(active) // 2])).gas_used
    run.abandon()
    return used


def _training_milliseconds(run: RecordedRounds, arguments: argparse.Namespace) -> float:
    """Return the median time in which the active clients train and the members score."""
    # Imported here: without training the benchmark needs no machine-learning framework.
    from clients.datasets.registry import DataChoice, load_dataset  # noqa: PLC0415
    from clients.local_sgd import LocalTraining  # noqa: PLC0415
    from clients.models.registry import model_named  # noqa: PLC0415
    from clients.training.engine_factory import open_engine  # noqa: PLC0415
    from clients.training.port import TrainingJob  # noqa: PLC0415
    from ledger.protocol.rules.distance import SQUARED  # noqa: PLC0415

    rng, state = np.random.default_rng(1), run.state
    data = load_dataset(DataChoice("digits"), arguments.clients, rng)
    model = model_named("softmax", data.form)
    settings = LocalTraining(learning_rate=0.1, batch_size=32, local_steps=arguments.local_steps)
    start, times = model.initial(rng), []
    active = (*run.trainers, *state.committee)
    with open_engine(
        model,
        data,
        settings,
        device="cpu",
        workers=1,
        path="lockstep",
        sets={},
        rows=len(active),
    ) as engine:
        for _ in range(1 + arguments.rounds):
            jobs = [
                TrainingJob(client, sampling.training_seed(state.seed, client)) for client in active
            ]
            started = time.perf_counter()
            updates = [update.vector for update in engine.train(start, jobs)]
            by_client = dict(zip(active, updates, strict=True))
            engine.distances(SQUARED, None, by_client, state.committee)
            times.append((time.perf_counter() - started) * 1e3)
    return median(times[1:])


def _digits(folder: Path) -> Row:
    from benchmarks.digits_round import digits_rounds  # noqa: PLC0415 - it trains

    return digits_rounds(folder, DIGITS_ROUNDS)


def _timed(send: Callable[[], T]) -> tuple[T, TransactionTime]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = send()
    spent = TransactionTime((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
    return result, spent


def _show(name: str, rows: list[Row]) -> None:
    table = Table("", *(str(index + 1) for index in range(len(rows))), title=name)
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console().print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gas-snapshot", action="store_true", help="write the snapshot instead")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to measure")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="registered clients, K")
    parser.add_argument("--without-training", action="store_true", help="leave training out")
    parser.add_argument("--local-steps", type=int, default=10, help="SGD steps of each client")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
