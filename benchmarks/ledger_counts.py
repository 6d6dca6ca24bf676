"""Work of the embedded chain in a round, in counts that are the same on every machine.

For each transaction of a round of 7 members and 20 trainers it counts the opcodes, and those that
the faster loop leaves to py-evm's own functions. For one round of `digits` it counts executed calls
of the contract, reads of the chain file, and everything that waits for the disk.

`python -m benchmarks.ledger_counts` writes `ledger_counts.json`, with which a test compares.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from eth.vm.code_stream import CodeStream
from rich.console import Console

from benchmarks.ledger import deployment_of
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.actors.journal import FileJournal
from ledger.chain.contract.rehearsal import RecordedRounds
from ledger.chain.embedded import evm
from ledger.chain.embedded.chain_store import ChainStore
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.engine import BlockStream
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.io.home import Disk
from ledger.storage.blobs import FolderBlobs

COUNTS = Path(__file__).with_suffix(".json")
MEMBERS, TRAINERS, CLIENTS = 7, 20, 100
ROUNDS_BEFORE = 2
_NOW = 1_700_000_000.0


def main() -> None:
    """Write the counts, and print them."""
    with tempfile.TemporaryDirectory() as folder:
        counts = {**transaction_counts(Path(folder)), "round": round_counts(Path(folder))}
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", "utf-8")
    Console().print_json(json.dumps(counts))


def transaction_counts(folder: Path) -> dict[str, dict[str, int]]:
    """Return the counts of each transaction of a recorded round, by name."""
    path = folder / "recorded.sqlite"
    with EmbeddedChain.create(path, clock=lambda: _NOW, synchronous="NORMAL") as chain:
        run = RecordedRounds(chain, deployment_of((), MEMBERS, TRAINERS, clients=CLIENTS))
        for _ in range(ROUNDS_BEFORE):
            run.commit(run.signed_commitments(run.active))
            run.decide(run.certified())
        signed = run.signed_commitments(run.active)
        with counted_opcodes() as committing:
            run.commit(signed)
        made = run.certified()
        with counted_opcodes() as deciding:
            run.decide(made)
        counts = {"commit_updates": dict(committing), "decide": dict(deciding)}
        # py-evm's own functions execute each block again, on the state of its parent.
        kind = evm.chain_class(chain.chain_id, is_reference=True)
        machine = kind(evm.OverlayDatabase(chain._store))
        for name, number in zip(
            counts, (chain.head().number - 1, chain.head().number), strict=True
        ):
            header, parent = chain.header(number), chain.header(number - 1)
            fresh = machine.create_header_from_parent(parent).copy(gas_used=header.gas_used)
            with counted_opcodes() as counter:
                machine.get_vm(fresh).import_block(machine.get_block_by_header(header))
            counts[name]["opcodes"] = counter["left to py-evm"]
    return counts


def round_counts(folder: Path) -> dict[str, int]:
    """Return the counts of one round of `digits`, after the first ones."""
    disk, home = Disk(), folder / "home"
    configuration = load("digits", settings=(f"protocol.rounds={ROUNDS_BEFORE + 1}",))
    blobs = FolderBlobs(folder / "blobs", disk=disk)
    with (
        EmbeddedChain.create(folder / "digits.sqlite", clock=lambda: _NOW) as chain,
        open_run(home, "run", configuration, chain, blobs, disk=disk) as run,
    ):
        for _ in range(ROUNDS_BEFORE):
            run.simulation.play_round()
        counter: Counter[str] = Counter()
        with (
            _counted(counter, "contract calls executed", EmbeddedReader, "execute"),
            _counted(counter, "chain file reads", ChainStore, "get"),
            _counted(counter, "durable blocks", ChainStore, "commit"),
            _counted(counter, "barriers of blobs", Disk, "sync"),
            _counted(
                *(counter, "commits of the journal", FileJournal, "sync"),
                lambda journal: journal._base.in_transaction,
            ),
        ):
            run.simulation.play_round()
    return dict(counter)


@contextlib.contextmanager
def counted_opcodes() -> Iterator[Counter[str]]:
    """Count the opcodes that py-evm's own functions execute."""
    counter: Counter[str] = Counter()

    def items(stream: type[CodeStream]) -> AbstractContextManager[object]:
        original = stream.__iter__

        def counted(self: CodeStream) -> Iterator[int]:
            for opcode in original(self):
                counter["left to py-evm"] += 1
                yield opcode

        return patch.object(stream, "__iter__", counted)

    with items(CodeStream), items(BlockStream):
        yield counter


def _counted(
    counter: Counter[str],
    name: str,
    owner: type[Any],
    method: str,
    counts: Callable[[Any], bool] = lambda _: True,
) -> AbstractContextManager[object]:
    """Count the calls of a method on objects for which `counts` is true."""
    original = getattr(owner, method)

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        counter[name] += counts(self)
        return original(self, *arguments, **options)

    return patch.object(owner, method, counted)


if __name__ == "__main__":
    main()
