"""A whole round of the preset `digits`, on the embedded chain and on the memory ledger by turns.

A third run is on an embedded chain all of whose parts are py-evm's own. The runs have one
configuration and so one history: after every round the heads of all three are compared, and the
hashes of the newest blocks of both chains.

Each round's CPU seconds are all that this process spends on it - training, scoring, voting,
envelopes and the ledger - but for the row of metrics after it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run, open_run
from ledger.chain.embedded import evm
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from pathlib import Path

    from clients.simulation import Simulation

WARM_UP = 2
_NOW = 1_700_000_000.0


def digits_rounds(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the median CPU milliseconds of a round on each ledger, and their ratios.

    Args:
        folder: where to make homes.
        rounds: how many are measured.

    Raises:
        RuntimeError: the runs do not have the same history, or the chains not the same blocks.
    """
    configuration = load("digits", settings=(f"protocol.rounds={WARM_UP + rounds}",))
    chain_ms: list[float] = []
    reference_ms: list[float] = []
    memory_ms: list[float] = []
    with (
        EmbeddedChain.create(folder / "chain.sqlite", clock=lambda: _NOW) as chain,
        EmbeddedChain.create(folder / "reference.sqlite", clock=lambda: _NOW) as reference,
        open_run(folder / "on-chain", "run", configuration, chain, MemoryBlobs()) as recorded,
        open_run(folder / "again", "run", configuration, reference, MemoryBlobs()) as referred,
        open_memory_run(folder / "in-memory", "run", configuration) as remembered,
    ):
        use_reference(reference)
        for _ in range(WARM_UP + rounds):
            memory_ms.append(_played(remembered.simulation))
            chain_ms.append(_played(recorded.simulation))
            reference_ms.append(_played(referred.simulation))
            heads = {run.simulation.head for run in (recorded, referred, remembered)}
            if len(heads) != 1:
                raise RuntimeError("the ledgers went different ways")
            if chain.head() != reference.head():
                raise RuntimeError("py-evm's own parts make other blocks")
    on_chain, by_reference, in_its_memory = (
        median(times[WARM_UP:]) for times in (chain_ms, reference_ms, memory_ms)
    )
    return {
        "rounds": rounds,
        "chain CPU ms": round(on_chain, 1),
        "py-evm's own parts, CPU ms": round(by_reference, 1),
        "memory CPU ms": round(in_its_memory, 1),
        "ratio": round(on_chain / in_its_memory, 2),
        "ratio to py-evm's own parts": round(on_chain / by_reference, 2),
    }


def use_reference(chain: EmbeddedChain) -> None:
    """Let a chain execute its next blocks by py-evm's own parts."""
    chain._chain = evm.chain_class(chain.chain_id, is_reference=True)(chain._database)


def _played(simulation: Simulation) -> float:
    """Play a round; return its CPU milliseconds."""
    started = time.process_time()
    simulation.play_round()
    return (time.process_time() - started) * 1e3
