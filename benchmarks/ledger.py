"""Gas of the transactions of a run, with signed but made-up content.

    python -m benchmarks.ledger    write `contracts/gas_snapshot.json`

The third round is typical: earlier ones pay for storage that later ones overwrite.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, keep
from ledger.chain.contract.rehearsal import RecordedRounds, digest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol import ledger_state, types
from ledger.protocol.parameters import majority


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


SIZES = ((4, 6), (7, 20), (12, 18), (21, 65), (43, 65))  # committee members and trainers
CLIENTS = 1075
GAS_SNAPSHOT = ROOT / "contracts" / "gas_snapshot.json"


def main() -> None:
    """Write the gas snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        keep(GAS_SNAPSHOT, gas_snapshot(Path(folder)))


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


if __name__ == "__main__":
    main()
