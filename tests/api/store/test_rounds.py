"""Rounds whose blobs and mail go through a store end as those in one process do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from api.store.charges import Charges
from api.store.retention import Retention
from ledger.protocol.documents.record import decode_record
from ledger.storage.blobs import FolderBlobs
from ledger.storage.opening import mailbox_at, store_at
from tests.actors.deployed import Deployed
from tests.actors.support import PARAMETERS
from tests.api.store.conftest import contract_in, stored, uploads_of

if TYPE_CHECKING:
    from pathlib import Path


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
