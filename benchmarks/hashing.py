"""Cost of a round's digests to the thread that trains: hashed after its training, or beside it.

`python -m benchmarks.hashing` trains the same made clients in this process in turns, with the
digests of all updates computed after the training, as formerly, and in a thread meanwhile. It gives
medians of wall seconds and of the CPU seconds of the training thread, which a busy machine does not
change, and compares the digests.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.training import WORKS, made_data
from clients.models.registry import model_named
from clients.training import row_payloads
from clients.training.engine_factory import open_engine
from clients.training.lockstep.execution_plan import plan
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256

NEVER = 1 << 60
"""Bytes that no update has: none is hashed in a thread."""


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", choices=tuple(WORKS), default="W1L")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5, help="measured, after one that is not")
    arguments = parser.parse_args()
    work = replace(WORKS[arguments.work], clients=arguments.clients)
    model, data = model_named(work.model, work.form, work.options), made_data(work)
    jobs = [TrainingJob(client, sha256(b"job %d" % client)) for client in range(work.clients)]
    start = model.initial(np.random.default_rng(1))
    usual = row_payloads.THREADED_BYTES
    least = {"after": NEVER, "beside": usual}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in least}
    digests = set()
    with open_engine(
        model, data, work.settings,
        device="cpu", workers=1, path=plan(model, data, work.settings, "cpu").path, sets={},
        rows=work.clients,
    ) as engine:  # fmt: skip
        for _ in range(arguments.turns + 1):
            for kind, threaded_bytes in least.items():
                row_payloads.THREADED_BYTES = threaded_bytes
                wall, cpu = time.perf_counter(), time.thread_time()
                updates = engine.train(start, jobs)
                times[kind].append((time.perf_counter() - wall, time.thread_time() - cpu))
                digests.add(tuple(update.payload.digest for update in updates))
    row_payloads.THREADED_BYTES = usual
    assert len(digests) == 1, "the digests are the same either way"
    for kind, turns in times.items():
        wall, cpu = (median(turn[i] for turn in turns[1:]) for i in (0, 1))
        print(f"{arguments.work}, {work.clients} clients, hashed {kind}: "
              f"{wall:.3f} s, training thread {cpu:.3f} CPU s")  # fmt: skip


if __name__ == "__main__":
    main()
