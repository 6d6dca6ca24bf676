"""Gas and time of the two transactions of a round, with signed but made-up content.

    python -m benchmarks.ledger                   print medians for four sizes of committee
    python -m benchmarks.ledger --gas-snapshot    write `contracts/gas_snapshot.json`

Measuring begins with the third round: earlier ones pay for storage that later ones overwrite.
Signing is not measured. Both ledgers recover every signature; the chain writes durably (synchronous
FULL).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, keep, show, timed
from ledger.chain.contract.rehearsal import RecordedRounds, digest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.memory import MemoryLedger
from ledger.protocol import encoding, ledger_state, types
from ledger.protocol.parameters import majority
from ledger.protocol.signing import recovered


def deployment_of(
    words: Sequence[int], members: int, trainers: int, **other: Any
) -> ledger_state.Deployment:
    """Return a deployment of registered clients that accepts the first two fifths of a ranking."""
    values: dict[str, Any] = {
        "registry": ledger_state.registry_batches(words)[0],
        "clients": len(words),
        "trainers": trainers,
        "members": members,
        "aggregation_ppm": 400_000,
        "form": types.AcceptanceForm.FIRST,
        "rounds": 2**32 - 1,
        "commit_blocks": 2,
        "replies": majority(members),
        "beacon": types.Beacon.NONE,
        "deadline_blocks": 4,
        "config": digest_of("configuration", 0),
        "model": digest_of("model", 0),
    }
    return ledger_state.Deployment(**values | other)


SIZES = ((4, 6), (7, 20), (21, 65), (43, 65))  # committee members and trainers
CLIENTS = 1075
GAS_SNAPSHOT = ROOT / "contracts" / "gas_snapshot.json"


def main() -> None:
    """Write the gas snapshot, or print the costs of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gas-snapshot", action="store_true", help="write the gas snapshot")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gas_snapshot:
            keep(GAS_SNAPSHOT, gas_snapshot(Path(folder)))
        else:
            rows = [round_times(Path(folder), size) for size in SIZES]
            show(rows, "ledger", heads=[f"{members}, {trainers}" for members, trainers in SIZES])


def gas_snapshot(folder: Path) -> dict[str, dict[str, int]]:
    """Return the gas of every transaction, for each size "C members, n trainers"."""
    snapshot: dict[str, dict[str, int]] = {}
    for members, trainers in SIZES:
        path = folder / f"{members}-{trainers}.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            gas = _gas_of(
                RecordedRounds(chain, deployment_of((), members, trainers, clients=CLIENTS))
            )
            snapshot[f"{members} members, {trainers} trainers"] = gas
    return snapshot


def _gas_of(run: RecordedRounds) -> dict[str, int]:
    def committed(clients: Sequence[types.ClientId]) -> int:
        return run.commit(run.signed_commitments(clients)).gas_used

    deployed, *registered = (receipt.gas_used for receipt in run.registrations)
    gas = {"deployment": deployed, "registration, each client": sum(registered) // CLIENTS}
    for name in ("first", "second", "third"):
        commit = committed(run.active)
        decide = run.decide(run.certified()).gas_used
        if name != "second":
            gas[f"commit_updates, {name} round"] = commit
            gas[f"commit_updates, {name} round, each client"] = commit // len(run.active)
            gas[f"decide, {name} round"] = decide
    committed(run.active)
    others = run.decide(run.certified(other_repliers=True))
    gas["decide, other repliers in the election"] = others.gas_used
    committed(run.active[::2])
    gas["commit_updates, half of it sent ahead"] = committed(run.active)
    gas["abandon_round"] = run.abandon().gas_used
    return gas


def round_times(folder: Path, size: tuple[int, int]) -> dict[str, float]:
    """Return the median milliseconds of a round's transactions, on the chain and in memory."""
    members, trainers = size
    times: dict[str, list[float]] = defaultdict(list)

    def send(name: str, call: Callable[..., object], *arguments: object) -> None:
        recovered.cache_clear()
        _, seconds = timed(partial(call, *arguments))
        times[f"{name} ms"].append(seconds.wall * 1e3)
        times[f"{name} CPU ms"].append(seconds.cpu * 1e3)

    with EmbeddedChain.create(folder / f"{members}-{trainers}-timed.sqlite") as chain:
        run = RecordedRounds(chain, deployment_of((), members, trainers, clients=CLIENTS))
        memory = MemoryLedger(run.state.deployment, run.state.domain)
        words = [encoding.registry_word(client) for client in run.state.registry]
        for batch, rest in ledger_state.registry_batches(words)[1]:
            memory.register_clients(batch, rest)
        for _ in range(7):
            number, signed = run.state.round, run.signed_commitments(run.active)
            send("memory commit", memory.commit_updates, number, signed)
            send("commit", run.commit, signed)
            made = run.certified()
            send("memory decide", memory.decide, number, *made)
            send("decide", run.decide, made)
    row: dict[str, float] = {"C": members, "n": trainers}
    row |= {name: round(median(measured[2:]), 1) for name, measured in times.items()}
    chain_cpu = row["commit CPU ms"] + row["decide CPU ms"]
    memory_cpu = row["memory commit CPU ms"] + row["memory decide CPU ms"]
    return row | {"chain / memory, CPU": round(chain_cpu / memory_cpu, 1)}


if __name__ == "__main__":
    main()
