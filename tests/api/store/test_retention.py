"""What is old goes from a store, whenever it was put; what anybody needs stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from api.settings import StoreSettings
from api.store.app import Retention, serve
from api.store.receiver import ChargeKind, Charges, charges_file
from ledger.actors.retention import BlobUse, NamedBlob, PayloadRemover
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest, Upload
from ledger.storage.blobs import FolderBlobs
from ledger.storage.opening import mailbox_at, store_at
from tests.actors.deployed import Deployed
from tests.actors.support import PARAMETERS
from tests.api.store.conftest import Contract, contract_in, stored, uploads_of

MOST = (1_000, 1_000_000)
LATE, OLD, AGAIN, OTHERS, SLOW = b"late", b"old", b"again", b"others", b"slow"


@dataclass(frozen=True)
class Kept:
    """A store's folder, without its server."""

    contract: Contract
    blobs: FolderBlobs
    charges: Charges

    def put(self, data: bytes, round_number: int) -> None:
        """Have a client put a blob, as the server does."""
        upload = Upload(round_number, ClientId(0), "", sha256(data), len(data))
        if self.blobs.has(upload.digest):
            self.charges.note(upload, ChargeKind.BLOB)
            return
        assert self.charges.charge(upload, ChargeKind.BLOB, MOST)
        self.blobs.put(data)
        self.charges.settle(upload, ChargeKind.BLOB, is_stored=True)

    def end_round(self) -> None:
        run = self.contract.run
        assert run.driver.abandon(run.chain_view())

    def has(self, data: bytes) -> bool:
        return self.blobs.has(sha256(data))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with contract_in(tmp_path, rounds=6, commit_blocks=1, deadline_blocks=3) as contract:
        folder = tmp_path / "store"
        folder.mkdir()
        charges = Charges(charges_file(folder, contract.domain))
        yield Kept(contract, FolderBlobs(folder), charges)
        charges.close()


def test_old_blobs_are_removed_and_needed_ones_stay(kept: Kept) -> None:
    # A client may put what another run has: then it was there, and belongs to the round, too.
    needed: set[Digest] = {kept.blobs.put(OTHERS)}
    retention = Retention(kept.contract.ledger, kept.blobs, kept.charges, 1, lambda: needed)
    for data in (OLD, AGAIN, OTHERS):
        kept.put(data, 1)
    slow = Upload(1, ClientId(0), "", sha256(SLOW), len(SLOW))
    assert kept.charges.charge(slow, ChargeKind.BLOB, MOST)
    kept.end_round()
    retention.remove_old()
    assert all(map(kept.has, (OLD, AGAIN, OTHERS)))
    # The neighbours of the open round are taken, too.
    kept.put(LATE, 1)
    kept.end_round()
    kept.put(AGAIN, 3)
    retention.remove_old()
    assert not kept.has(OLD)
    assert not kept.has(LATE)
    assert kept.has(AGAIN), "the open round needs it"
    assert kept.has(OTHERS)
    kept.end_round()
    retention.remove_old()
    assert kept.charges.rounds() == [3]
    kept.blobs.put(SLOW)
    kept.charges.settle(slow, ChargeKind.BLOB, is_stored=True)
    kept.end_round()
    retention.remove_old()
    assert not kept.has(SLOW)
    assert not kept.has(AGAIN)
    assert kept.has(OTHERS)


def test_a_round_has_ended_when_that_is_final(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, final = kept.contract.ledger.chain, kept.contract.ledger.chain.head().number
    monkeypatch.setattr(type(chain), "finalized", lambda _: final)
    retention = Retention(kept.contract.ledger, kept.blobs, kept.charges, 1)
    kept.put(OLD, 1)
    for _ in range(2):
        kept.end_round()
    retention.remove_old()
    assert kept.has(OLD), "a reorganisation may open its round again"
    final = chain.head().number
    retention.remove_old()
    assert not kept.has(OLD)


def test_payloads_are_removed_by_what_is_final(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    note = lambda *given: read.append(given[-1].state().round)  # noqa: E731
    monkeypatch.setattr(PayloadRemover, "ended", note)
    retention = Retention(kept.contract.ledger, kept.blobs, kept.charges, 1)
    chain = kept.contract.ledger.chain
    kept.end_round()
    final = chain.head().number
    monkeypatch.setattr(type(chain), "finalized", lambda _: final)
    kept.end_round()
    retention.remove_old()
    assert set(read) == {2}, "round 2 has ended since, in a block that is not final"


def test_without_record_nothing_of_round_goes(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    untold = (NamedBlob(BlobUse.RECORD, None, sha256(b"somewhere else")),)
    monkeypatch.setattr("api.store.app.blobs_of_round", lambda *_: untold)
    retention = Retention(kept.contract.ledger, kept.blobs, kept.charges, 1)
    kept.put(OLD, 1)
    for _ in range(2):
        kept.end_round()
    retention.remove_old()
    assert kept.has(OLD), "it may be a score vector"


def test_nothing_is_removed_of_another_contract(tmp_path: Path, contract: Contract) -> None:
    other = replace(contract.domain, salt=Digest(bytes(32)))
    Charges(charges_file(tmp_path, other)).close()
    settings = StoreSettings(folder=tmp_path, keep_rounds=1)
    with pytest.raises(ConfigurationError, match="a folder of one contract"):
        serve(settings, contract.ledger, "127.0.0.1", 0)


# Rounds whose blobs and mail go through a store end as those in one process do.


def test_a_run_through_a_store_removes_old_blobs(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with contract_in(tmp_path) as contract:
        with stored(folder, contract) as store:
            uploads = uploads_of(contract.domain, 0, tuple(range(1, PARAMETERS.clients)))
            blobs, mailbox = store_at(store.url, uploads), mailbox_at(store.url, uploads)
            for digest in contract.run.blobs.digests():
                assert blobs.put(contract.run.blobs.get(digest)) == digest
            context = replace(contract.run.context, blobs=blobs, mailbox=mailbox)
            run, records = Deployed(context, contract.run.blobs), []
            unnamed = blobs.put(b"what no record names")
            for number in (1, 2):
                uploads.round = number
                decided = run.play()
                assert decided is not None
                records.append(decode_record(blobs.get(decided.record)))
                assert blobs.has(decided.model)
        kept = FolderBlobs(folder)
        before = set(kept.digests())
        (charged,) = folder.glob("charges-*.sqlite")
        charges = Charges(charged)
        Retention(contract.ledger, kept, charges, 1).remove_old()
        old, new = (set(record.payloads().values()) for record in records)
        assert before - set(kept.digests()) == old | {unnamed}
        assert new <= before
        assert [path.name for path in (folder / "mail").glob("*/*/*/*")] == ["2"]
        assert charges.rounds() == [1, 2], "a late client's quota still counts"
        charges.close()
