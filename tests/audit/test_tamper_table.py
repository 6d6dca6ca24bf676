"""What an audit says of every kind of change to a closed home: the table, each row of it tried.

Four verdicts: *named* (opening refuses it or the audit fails, and says what is wrong), *open* (the
audit is incomplete), *remark* (it passes with a remark, and strictly is incomplete) and *unseen*
(nothing of the record rests on it, or no copy of a home can show it: then the kept head does).
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest
from eth.db.trie import _make_trie_root_and_nodes
from eth_hash.auto import keccak

from ledger.audit.checks.rounds import BLOB_DAMAGED
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, BlobKind
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import CommitteeLedger, Manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.protocol.documents.record import decode_record
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import Digest, DropoutReason
from ledger.storage.blobs import MemoryBlobs
from tests.audit.blobs import ChangedBlobs, kinds
from tests.audit.honest import honest_run
from tests.audit.remembered import remembered
from tests.audit.runs import Run, contradiction_in

MOST_TRIED = 2  # blobs of one kind that each change is tried on: the first and the last
ON_THE_FIRST = ("first byte", "removed")
"""Changes that are tried on the first row of a kind, the others on the last."""


class Verdict(Enum):
    """What comes of a change."""

    NAMED = auto()
    OPEN = auto()
    REMARK = auto()
    UNSEEN = auto()


NAMED, OPEN, REMARK, UNSEEN = Verdict

KEPT_KINDS = (
    *("header", "transactions", "receipts", "state of the head", "code"),
    *("block-number-to-hash", "block-hash-to-score", "transaction-hash-to-block"),
    *("v1:canonical_head_hash", "v1:header_chain_gaps", "v1:chain_gaps"),
)
CHANGES = ("first byte", "last byte", "removed", "another's")
CHAIN_FILE = {(kind, change): NAMED for kind in KEPT_KINDS for change in CHANGES} | {
    ("older state", "first byte"): NAMED,
    ("older state", "last byte"): NAMED,
    ("older state", "another's"): NAMED,
    # Nothing that is audited rests on it, and nothing that the chain needs to go on.
    ("older state", "removed"): UNSEEN,
}
ONLY_ONE = {"code", "v1:canonical_head_hash", "v1:header_chain_gaps", "v1:chain_gaps"}

LOG_ROWS = {
    "UPDATE logs SET data = CAST(substr(data, 2) || x'7f' AS BLOB) WHERE id = ?": NAMED,
    "UPDATE logs SET data = CAST(x'ff' AS TEXT) WHERE id = ?": NAMED,
    "UPDATE logs SET topic0 = zeroblob(32) WHERE id = ?": NAMED,
    "UPDATE logs SET topic1 = zeroblob(32) WHERE id = ?": NAMED,
    "UPDATE logs SET topic3 = zeroblob(32) WHERE id = ?": NAMED,
    "UPDATE logs SET transaction_hash = zeroblob(32) WHERE id = ?": NAMED,
    "UPDATE logs SET address = zeroblob(20) WHERE id = ?": NAMED,
    "DELETE FROM logs WHERE id = ?": NAMED,
    "UPDATE logs SET id = id + 500 WHERE id = ?": NAMED,
    "UPDATE logs SET id = id + (1 << 30) WHERE id = ?": NAMED,
    "INSERT INTO logs SELECT id + 1000, transaction_hash, address, topic0, topic1, topic2, "
    "topic3, data FROM logs WHERE id = ?": NAMED,
}
OTHER_ROWS = {
    "UPDATE meta SET value = '1' WHERE name = 'chain_id'": NAMED,
    "UPDATE meta SET value = 'London' WHERE name = 'fork'": NAMED,
    "UPDATE meta SET value = replace(value, '0', '1') WHERE name = 'genesis_hash'": NAMED,
    "UPDATE meta SET value = '99' WHERE name = 'schema'": NAMED,
    "DELETE FROM meta WHERE name = 'genesis_hash'": NAMED,
    "INSERT INTO kv VALUES (x'" + "11" * 32 + "', x'00')": NAMED,
    "INSERT INTO kv VALUES ('a name that nobody reads', x'00')": UNSEEN,
    "INSERT INTO meta VALUES ('a name that nobody reads', '')": UNSEEN,
}

BLOB_KINDS = (
    *(BlobKind.CONFIGURATION, "first model", BlobKind.MODEL, BlobKind.RECORD, BlobKind.PAYLOAD),
    *("malformed payload", BlobKind.VECTOR, "refused score vector"),
)
BLOB_CHANGES = ("flipped", "cut", "emptied", "another's")
BLOBS = {(kind, change): NAMED for kind in BLOB_KINDS for change in BLOB_CHANGES} | {
    (kind, "removed"): OPEN for kind in BLOB_KINDS
}
BLOBS |= {(BlobKind.INCIDENTS, change): NAMED for change in BLOB_CHANGES}
BLOBS |= {(BlobKind.INCIDENTS, "removed"): REMARK}
BLOBS |= {("nobody's", change): UNSEEN for change in (*BLOB_CHANGES, "removed")}
BLOBS |= {("a missing payload", "published late"): REMARK}

MANIFEST: dict[str, Any] = {
    "chain_id": 1,
    "genesis_hash": "0x" + "00" * 32,
    "address": "0x" + "11" * 20,
    "salt": "0x" + "00" * 32,
    "transaction": "0x" + "00" * 32,
    "block": 2,
    "deployer": "0x" + "11" * 20,
    "compiler": "vyper 0.0.1",
    "bytecode_sha256": "00" * 32,
    "sources": {},
    "config": "0x" + "00" * 32,
    "arguments": {},
}


@dataclass
class ClosedRun:
    """A run whose home can be copied and changed."""

    run: Run
    folder: Path
    rows: Mapping[str, list[tuple[bytes, bytes]]]
    logs: list[int]
    blobs: Mapping[str, list[Digest]]
    head: Digest
    late: bytes

    def changed(self, folder: Path, *statements: tuple[str, tuple[object, ...]]) -> Path:
        """Return a copy of the home in which statements were carried out on the chain file."""
        folder.mkdir()
        for name in ("chain.sqlite", "chain.sqlite.head"):
            shutil.copy(self.folder / name, folder / name)
        database = sqlite3.connect(folder / "chain.sqlite")
        for statement, values in statements:
            assert database.execute(statement, values).rowcount > 0, statement
        database.commit()
        database.close()
        return folder

    def verdict(
        self, folder: Path, *, manifest: Manifest | None = None, head: Digest | None = None
    ) -> Verdict:
        """Return what opening and auditing a home come to."""
        try:
            with EmbeddedReader.open(folder / "chain.sqlite") as chain:
                ledger = connect(chain, manifest or self.run.manifest)
                report = audit(ledger, self.run.blobs, head=head)
        except ChainError:
            return NAMED
        return _verdict(report)


def _verdict(report: AuditReport) -> Verdict:
    if report.outcome is AuditOutcome.PASSED:
        is_strict = replace(report, strict=True).outcome is AuditOutcome.INCOMPLETE
        assert is_strict == bool(report.remarks)
        return REMARK if report.remarks else UNSEEN
    if report.outcome is AuditOutcome.INCOMPLETE:
        return OPEN
    assert any(step.contradiction is not None for step in report.steps), readable(report)
    return NAMED


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> ClosedRun:
    folder = tmp_path_factory.mktemp("closed")
    run = honest_run(folder)
    blobs, head, late = _blobs_of(run), run.ledger.state().head, _missing_payload(run)
    run.chain.close()
    database = sqlite3.connect(folder / "chain.sqlite")
    logs = [identifier for (identifier,) in database.execute("SELECT id FROM logs ORDER BY id")]
    rows = database.execute("SELECT key, value FROM kv ORDER BY key").fetchall()
    database.close()
    return ClosedRun(run, folder, _by_kind(folder, run, rows), logs, blobs, head, late)


def _by_kind(
    folder: Path, run: Run, rows: Iterable[tuple[bytes, bytes]]
) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return the rows of the chain file by what they are."""
    kinds: dict[bytes, str] = {}
    with EmbeddedReader.open(folder / "chain.sqlite") as chain:
        for number in range(chain.head().number + 1):
            header = chain.header(number)
            kinds[header.hash] = "header"
            roots = {"transactions": header.transaction_root, "receipts": header.receipt_root}
            for name, body_root in roots.items():
                items = tuple(chain._items(body_root))
                kinds |= dict.fromkeys(map(bytes, _make_trie_root_and_nodes(items)[1]), name)
        kinds[keccak(chain.code(run.ledger.address))] = "code"
        root = chain.header().state_root
    values = {bytes(key): value for key, value in rows}
    kinds |= dict.fromkeys(_reached(root, values, kinds), "state of the head")
    found: dict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for key, value in values.items():
        kind = kinds.get(key, "older state") if len(key) == 32 else _prefix(key)
        found[kind].append((key, bytes(value)))
    return found


def _prefix(key: bytes) -> str:
    """Return the name of a look-up: `v1:` and the next part, or the first."""
    parts = key.split(b":")
    return b":".join(parts[: 2 if parts[0] == b"v1" else 1]).decode()


def _reached(root: bytes, values: Mapping[bytes, bytes], known: Mapping[bytes, str]) -> set[bytes]:
    """Return all nodes of a trie, and of the tries that its leaves name."""
    reached, waiting = set(), [root]
    while waiting:
        key = waiting.pop()
        if key in reached or key in known:
            continue
        reached.add(key)
        waiting += [other for other in values if len(other) == 32 and other in values[key]]
    return reached


def _blobs_of(run: Run) -> dict[BlobKind | str, list[Digest]]:
    recorded = run.ledger.recorded_in(0, run.chain.head().number)
    events = [r.event for r in recorded if isinstance(r.event, RoundDecided)]
    return kinds(run) | {
        BlobKind.INCIDENTS: [event.incidents for event in events if any(event.incidents)],
        "nobody's": [run.blobs.put(b"nobody's")],
    }


def _missing_payload(run: Run) -> bytes:
    """Return the payload that the record of round 4 says was missing."""
    record = decode_record(run.blobs.get(run.outcome(4).record))
    [gone] = [d.client for d in record.dropouts if d.reason is DropoutReason.PAYLOAD_MISSING]
    return replace(run, round=4).payload(gone)


@pytest.fixture(scope="module")
def ledger(closed: ClosedRun) -> Iterator[CommitteeLedger]:
    """The contract in the unchanged file, for those who change something else."""
    with EmbeddedReader.open(closed.folder / "chain.sqlite") as chain:
        yield remembered(connect(chain, closed.run.manifest))


def some(values: list[Any]) -> list[Any]:
    return values if len(values) <= MOST_TRIED else [values[0], values[-1]]


def test_an_unchanged_home_passes(closed: ClosedRun, tmp_path: Path) -> None:
    assert closed.verdict(closed.changed(tmp_path / "copy")) is UNSEEN


def test_the_table_names_every_kind_of_row(closed: ClosedRun) -> None:
    assert {kind for kind, _ in CHAIN_FILE} == set(closed.rows)


@pytest.mark.parametrize(("kind", "change"), CHAIN_FILE)
def test_a_changed_row_of_the_chain_file(
    closed: ClosedRun, tmp_path: Path, kind: str, change: str
) -> None:
    rows = closed.rows[kind]
    key, value = rows[0 if change in ON_THE_FIRST else -1]
    others = [other for _, other in closed.rows["header"] if other != value]
    if kind not in ONLY_ONE:
        others = [other for _, other in rows if other != value]
    wrong = {
        "first byte": bytes([value[0] ^ 1]) + value[1:] if value else b"\1",
        "last byte": value[:-1] + bytes([value[-1] ^ 1]) if value else b"\1",
        "another's": others[0],
    }
    if change == "removed":
        home = closed.changed(tmp_path / "copy", ("DELETE FROM kv WHERE key = ?", (key,)))
    else:
        statement, values = "UPDATE kv SET value = ? WHERE key = ?", (wrong[change], key)
        home = closed.changed(tmp_path / "copy", (statement, values))
    assert closed.verdict(home) is CHAIN_FILE[kind, change], key


@pytest.mark.parametrize("statement", LOG_ROWS)
def test_a_changed_row_of_the_log_table(closed: ClosedRun, tmp_path: Path, statement: str) -> None:
    identifier = closed.logs[-1 if statement.startswith("UPDATE") else 0]
    home = closed.changed(tmp_path / "copy", (statement, (identifier,)))
    assert closed.verdict(home) is LOG_ROWS[statement]


@pytest.mark.parametrize("statement", OTHER_ROWS)
def test_changed_row_about_chain_file(closed: ClosedRun, tmp_path: Path, statement: str) -> None:
    home = closed.changed(tmp_path / "copy", (statement, ()))
    assert closed.verdict(home) is OTHER_ROWS[statement]


@pytest.mark.parametrize(("kind", "change"), BLOBS)
def test_a_changed_blob(closed: ClosedRun, ledger: CommitteeLedger, kind: str, change: str) -> None:
    true = closed.run.blobs
    if kind == "a missing payload":
        more = MemoryBlobs()
        for digest in true.digests():
            more.put(true.get(digest))
        more.put(closed.late)
        assert _verdict(audit(ledger, more)) is BLOBS[kind, change]
        return
    other = BlobKind.MODEL if kind == BlobKind.RECORD else BlobKind.RECORD
    for digest in some(closed.blobs[kind]):
        data = true.get(digest)
        wrong = {
            "flipped": bytes([data[0] ^ 1]) + data[1:],
            "cut": data[:-1],
            "emptied": b"",
            "another's": true.get(closed.blobs[other][-1]),
        }
        store = ChangedBlobs(true, {digest: wrong.get(change)})
        report = audit(ledger, store)
        assert _verdict(report) is BLOBS[kind, change], kind
        if BLOBS[kind, change] is NAMED:
            failed = [step.number for step in report.steps if step.contradiction is not None]
            contradiction = contradiction_in(report, AuditStep.BLOBS)
            assert (failed, contradiction.fact) == ([AuditStep.BLOBS], BLOB_DAMAGED)
            assert digest.hex() in contradiction.sentence


@pytest.mark.parametrize("name", MANIFEST)
def test_a_changed_field_of_the_manifest(closed: ClosedRun, name: str) -> None:
    wrong = replace(closed.run.manifest, **{name: MANIFEST[name]})
    assert closed.verdict(closed.folder, manifest=wrong) is NAMED


def test_the_manifest_s_other_fields_are_its_folder_s(closed: ClosedRun) -> None:
    """Whoever reads a run folder checks them: `read_run_manifest`."""
    others = {"version", "run", "configuration"}
    assert {field.name for field in fields(closed.run.manifest)} == set(MANIFEST) | others


NOTE: dict[str, tuple[Callable[[bytes], bytes | None], Verdict]] = {
    "one slot damaged": (lambda note: flipped(note, 40), UNSEEN),
    "both slots damaged": (lambda note: flipped(flipped(note, 40), 552), OPEN),
    "cut": (lambda note: note[:100], OPEN),
    "emptied": (lambda _note: b"", OPEN),
    # No note is no older home's fault; the kept head shows what it would have shown.
    "removed": (lambda _note: None, UNSEEN),
}


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("change", NOTE)
def test_a_changed_head_note(closed: ClosedRun, tmp_path: Path, change: str) -> None:
    make, verdict = NOTE[change]
    home = closed.changed(tmp_path / "copy")
    note = home / "chain.sqlite.head"
    wrong = make(note.read_bytes())
    if wrong is None:
        note.unlink()
    else:
        note.write_bytes(wrong)
    assert closed.verdict(home) is verdict


@pytest.fixture(scope="module")
def rewritten(closed: ClosedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run by the same keys under the same contract that went another way."""
    folder = tmp_path_factory.mktemp("rewritten")
    run = Run.opened(folder)
    with run.chain:
        run.play().play()
    for digest in run.blobs.digests():
        closed.run.blobs.put(run.blobs.get(digest))
    assert replace(run.manifest, run=closed.run.manifest.run) == closed.run.manifest
    return folder


def test_consistent_other_home_is_named_only_with_a_kept_head(
    closed: ClosedRun, rewritten: Path
) -> None:
    """A majority of all keys, or a backup: every rule holds, and yet it is not what was."""
    assert closed.verdict(rewritten) is UNSEEN
    assert closed.verdict(rewritten, head=closed.head) is NAMED
    assert closed.verdict(closed.folder, head=closed.head) is UNSEEN


def test_another_chain_is_named_by_note(closed: ClosedRun, rewritten: Path, tmp_path: Path) -> None:
    home = closed.changed(tmp_path / "copy")
    shutil.copy(rewritten / "chain.sqlite", home / "chain.sqlite")
    assert closed.verdict(home) is NAMED
