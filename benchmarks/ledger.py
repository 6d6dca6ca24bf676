"""What the ledger costs: gas and time of a round's transactions.

`python -m benchmarks.ledger` measures `commit_updates` and `decide` for four sizes of committee,
medians over rounds from the second on: a deployment's first round pays for storage that all later
ones overwrite. Every transaction is signed, run by the embedded chain and on disk (synchronous
FULL) when its time ends; signatures of clients and members are made outside of it.

In both phases the first quorum of places replies, as it does while members answer in the order of
places; "with other repliers" is the dearest `decide`, in which the election is certified by the
last quorum of places: the contract has to look up nearly every member.

The same clients also train (softmax on digits, batches of 32) and the members score, in this
process and with one worker, which gives the ledger's share of a round.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ledger.chain.embedded import EmbeddedChain
from ledger.protocol import ledger_state, rounds, sampling
from ledger.protocol.consensus import primary_place, quorum
from ledger.protocol.types import Digest, Phase
from tests.contracts import support
from tests.contracts.twins import Shape, Twins

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.ports import Receipt

SIZES = ((4, 6), (7, 20), (21, 65), (43, 65))
CLIENTS = 1075
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.sqlite"
        paths = [path.with_suffix(f".{number}") for number in range(len(SIZES))]
        pairs = zip(paths, SIZES, strict=True)
        rows = [round_costs(one, size, arguments) for one, size in pairs]
    _show("ledger", rows)
    RESULTS.mkdir(exist_ok=True)
    found = {"machine": platform.processor() or platform.machine(), "rows": rows}
    (RESULTS / "ledger.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def round_costs(path: Path, size: tuple[int, int], arguments: argparse.Namespace) -> Row:
    """Return gas and milliseconds of a round's transactions.

    Args:
        path: a chain file to make.
        size: C and n.
        arguments: how many rounds, clients and local steps; whether clients train.
    """
    members, trainers = size
    shape = Shape(
        clients=arguments.clients,
        trainers=trainers,
        members=members,
        aggregation_ppm=400_000,
        rounds=2**32 - 1,
    )
    with EmbeddedChain.create(path) as chain:
        started = time.perf_counter()
        twins = Twins.opened(chain, shape)
        registration_ms = (time.perf_counter() - started) * 1e3
        registration_gas = _registration_gas(twins)
        measured = [_record_round(twins) for _ in range(1 + arguments.rounds)][1:]
        row: Row = {
            "C": members,
            "n": trainers,
            "deploy gas": twins.deployment_receipt.gas_used,
            "registration gas per client": round(registration_gas / shape.clients),
            "deploy and register ms": round(registration_ms),
        }
        row |= {key: round(median(one[key] for one in measured), 1) for key in measured[0]}
        others = [_record_round(twins, other_repliers=True) for _ in range(arguments.rounds)]
        row["decide gas with other repliers"] = round(median(one["decide gas"] for one in others))
        few = round(median(_half_a_round(twins) for _ in range(arguments.rounds)))
        row["gas per commitment"] = round(row["commit gas"] / (members + trainers))
        row["gas per further commitment"] = round(
            (row["commit gas"] - few) / ((members + trainers) // 2)
        )
        row["ledger ms"] = round(row["commit ms"] + row["decide ms"], 1)
        if not arguments.without_training:
            training_ms = _training_milliseconds(twins, arguments)
            row["training ms"] = round(training_ms, 1)
            row["ledger share"] = round(row["ledger ms"] / (row["ledger ms"] + training_ms), 3)
    return row


def _record_round(twins: Twins, *, other_repliers: bool = False) -> dict[str, float]:
    """Decide one round; return gas and milliseconds of its two transactions."""
    ledger, state = twins.ledger, twins.state
    active = sorted({*support.trainers_of(state), *state.committee})
    signed = [support.commitment(twins, client) for client in active]
    committed, commit_ms = _timed(lambda: ledger.commit_updates(state.round, signed))
    twins.state, _ = rounds.commit_updates(state, state.round, signed)
    found = support.proposal(twins, support.ranking_of(support.trainers_of(state)))
    certificates = found.certificates
    if other_repliers:
        certificates = (certificates[0], _election_by_the_last_places(twins, found.decision))
    decision = (found.round, found.decision, certificates)
    head = twins.chain.head()
    decided, decide_ms = _timed(lambda: ledger.decide(*decision))
    block = ledger_state.BlockContext(head.number + 1, Digest(head.hash))
    twins.state, _ = rounds.decide(twins.state, *decision, block)
    return {
        "commit gas": committed.gas_used,
        "commit ms": commit_ms,
        "decide gas": decided.gas_used,
        "decide ms": decide_ms,
    }


def _election_by_the_last_places(
    twins: Twins, decision: ledger_state.SubmittedDecision
) -> ledger_state.SubmittedCertificate:
    """Return the election's certificate with replies of the last quorum of places."""
    state = twins.state
    members = len(state.committee)
    place = primary_place(state.seed, Phase.ELECTION, 0, members)
    others = [other for other in range(members) if other != place]
    voted = support.voted(twins, decision, Phase.ELECTION)
    vote = support.request(twins, Phase.ELECTION, 0, *voted)
    return support.certificate(twins, vote, repliers=others[-quorum(members) :])


def _registration_gas(twins: Twins) -> int:
    """Return the gas of all registrations."""
    events = twins.ledger.events(0, twins.chain.head().number)
    hashes = {recorded.transaction_hash for recorded in events}
    receipts = [twins.chain.receipt(transaction_hash) for transaction_hash in hashes]
    return sum(receipt.gas_used for receipt in receipts if receipt is not None)


def _half_a_round(twins: Twins) -> int:
    """Commit for half of the active clients, abandon the round; return the commitments' gas."""
    active = sorted({*support.trainers_of(twins.state), *twins.state.committee})
    kept = active[: len(active) - len(active) // 2]
    support.commit_all(twins, kept)
    used = twins.last_receipt.gas_used
    twins.wait()
    twins.abandon(twins.state.round)
    return used


def _training_milliseconds(twins: Twins, arguments: argparse.Namespace) -> float:
    """Return the median time in which the active clients train and the members score."""
    # Imported here: without training the benchmark needs no machine-learning framework.
    from clients.datasets.registry import load_dataset  # noqa: PLC0415
    from clients.local_sgd import LocalTraining, TrainingJob  # noqa: PLC0415
    from clients.models.registry import model_named  # noqa: PLC0415
    from clients.scoring import squared_distances  # noqa: PLC0415
    from clients.training import TrainingEngine  # noqa: PLC0415

    rng, state = np.random.default_rng(1), twins.state
    data = load_dataset("digits", arguments.clients, rng)
    model = model_named("softmax", data.input_shape, data.classes)
    settings = LocalTraining(learning_rate=0.1, batch_size=32, local_steps=arguments.local_steps)
    start, found = model.initial(rng), []
    active = (*support.trainers_of(state), *state.committee)
    with TrainingEngine(model, data.train, settings) as engine:
        for _ in range(1 + arguments.rounds):
            jobs = [
                TrainingJob(client, sampling.training_seed(state.seed, client)) for client in active
            ]
            started = time.perf_counter()
            updates = engine.train(start, jobs)
            trainers = updates[: len(active) - len(state.committee)]
            squared_distances(trainers, updates[len(trainers) :])
            found.append((time.perf_counter() - started) * 1e3)
    return median(found[1:])


def _timed(send: Callable[[], Receipt]) -> tuple[Receipt, float]:
    started = time.perf_counter()
    receipt = send()
    return receipt, (time.perf_counter() - started) * 1e3


def _show(name: str, rows: list[Row]) -> None:
    table = Table("", *(str(index + 1) for index in range(len(rows))), title=name)
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console().print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
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
