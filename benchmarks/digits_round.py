"""A whole round of the preset `digits`, on the embedded chain and on the memory ledger by turns.

The two runs have one configuration and so one history: their heads are compared after every round,
and each round's CPU seconds are all that this process spends on it - training, scoring, voting,
envelopes and the ledger - but for the row of metrics after it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run, open_run
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from pathlib import Path

    from clients.simulation import Simulation

WARM_UP = 2


def digits_rounds(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the median CPU milliseconds of a round on each ledger, and their ratio.

    Args:
        folder: where to make homes.
        rounds: how many are measured.

    Raises:
        RuntimeError: the two runs do not have the same history.
    """
    configuration = load("digits", settings=(f"protocol.rounds={WARM_UP + rounds}",))
    chain_ms: list[float] = []
    memory_ms: list[float] = []
    with (
        EmbeddedChain.create(folder / "chain.sqlite") as chain,
        open_run(folder / "on-chain", "run", configuration, chain, MemoryBlobs()) as recorded,
        open_memory_run(folder / "in-memory", "run", configuration) as remembered,
    ):
        for _ in range(WARM_UP + rounds):
            memory_ms.append(_played(remembered.simulation))
            chain_ms.append(_played(recorded.simulation))
            if remembered.simulation.head != recorded.simulation.head:
                raise RuntimeError("the memory ledger went another way than the chain")
    on_chain, in_its_memory = median(chain_ms[WARM_UP:]), median(memory_ms[WARM_UP:])
    return {
        "rounds": rounds,
        "chain CPU ms": round(on_chain, 1),
        "memory CPU ms": round(in_its_memory, 1),
        "ratio": round(on_chain / in_its_memory, 2),
    }


def _played(simulation: Simulation) -> float:
    """Play a round; return its CPU milliseconds."""
    started = time.process_time()
    simulation.play_round()
    return (time.process_time() - started) * 1e3
