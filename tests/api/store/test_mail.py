"""Mail of a store: genuine envelopes of one contract, in pages, in the order of their arrival."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ledger.protocol import canonical
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    PublishedPayload,
    encode_envelope,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import ClientId, Digest, Domain
from ledger.storage import mailbox as pages
from ledger.storage.blobs import FolderObjects
from ledger.storage.http import NO_RETRY, store_server
from ledger.storage.mailbox import Mailbox, Page, decode_page, encode_page, run_folder
from ledger.storage.opening import mailbox_at
from tests.actors.support import PARAMETERS
from tests.api.conftest import refused
from tests.api.store.conftest import Contract, Store, stored, uploads_of

KIND = EnvelopeKind.PAYLOAD


def envelope(domain: Domain, number: int, round_number: int = 1, client: int = 0) -> Envelope:
    digest = Digest(number.to_bytes(32))
    return Envelope(domain, round_number, ClientId(client), PublishedPayload(digest))


def board_of(one: Envelope) -> str:
    where = one.domain
    return f"/{run_folder(where)}/{one.round}/{int(one.kind)}"


def posted(store: Store, one: Envelope, client: int = 0, **changes: Any) -> httpx.Response:
    data = changes.get("data", encode_envelope(one))
    path = changes.get("path", f"{board_of(one)}/{sha256(data).hex()}")
    header = store.signed(store.upload(data, client, changes.get("round_number", 1), path))
    return store.http.put(path, content=data, headers={"Authorization": header})


def test_what_one_client_puts_every_reader_lists_once(store: Store) -> None:
    sender = mailbox_at(store.url, uploads_of(store.domain))
    readers = [mailbox_at(store.url), mailbox_at(store.url), mailbox_at(str(store.folder))]
    mail = [envelope(store.domain, number, client=number % 3) for number in range(5)]
    came: list[list[Envelope]] = [[] for _ in readers]
    for one in mail:
        assert sender.put(one)
        assert not sender.put(one)
        for found, reader in zip(came, readers, strict=True):
            found.extend(reader.listed(store.domain, 1, KIND, len(found)))
    assert came == [mail, mail, mail]
    assert [len(reader.listed(store.domain, 1, EnvelopeKind.REPLY)) for reader in readers] == [
        0
    ] * 3
    readers[0].forget(store.domain, 2)
    assert len(readers[0].listed(store.domain, 1, KIND)) == 5


def test_mail_comes_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.store.routes.MAX_PAGE_ENVELOPES", 2)
    mailbox = Mailbox(FolderObjects(store.folder))
    mail = [envelope(store.domain, number) for number in range(5)]
    for one in mail:
        mailbox.put(one)
    first = decode_page(store.http.get(f"{board_of(mail[0])}?after=0").content)
    assert (first.after, len(first.envelopes)) == (0, 2)
    last = decode_page(store.http.get(f"{board_of(mail[0])}?after=4").content)
    assert len(last.envelopes) == 1
    assert len(mailbox_at(store.url).listed(store.domain, 1, KIND)) == 5
    monkeypatch.setattr("api.store.routes.MAX_ENVELOPE_BYTES", 1)
    assert len(mailbox_at(store.url).listed(store.domain, 1, KIND)) == 5


def test_store_that_begins_anew_loses_nothing(tmp_path: Path, contract: Contract) -> None:
    mail = [envelope(contract.domain, number) for number in range(6)]
    with stored(tmp_path / "store", contract) as store:
        objects = store_server(store.url, None, 30.0, NO_RETRY)
        reader = Mailbox(objects)
        sender = mailbox_at(store.url, uploads_of(store.domain))
        for one in mail[:3]:
            sender.put(one)
        before = list(reader.listed(store.domain, 1, KIND))
        assert set(before) == set(mail[:3])
    with pytest.raises(OSError, match="unreachable"):
        reader.listed(contract.domain, 1, KIND)
    with stored(tmp_path / "store", contract) as store:
        # The same store at another port.
        objects.server = store_server(store.url, None, 30.0).server
        sender = mailbox_at(store.url, uploads_of(store.domain))
        for one in mail[3:]:
            sender.put(one)
        assert set(reader.listed(store.domain, 1, KIND, 3)) == set(mail[3:])
        assert reader.listed(store.domain, 1, KIND)[:3] == before


def test_members_relay_mail_on_their_own_quota(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, quota_envelopes=2) as store:
        for number in range(2):
            assert posted(store, envelope(store.domain, number, client=3)).status_code == 201
        told = refused(posted(store, envelope(store.domain, 2, client=3)), 429, "quota-exceeded")
        assert told["detail"].startswith("client 0 may put 2 of them")
        assert posted(store, envelope(store.domain, 2, client=3), client=3).status_code == 201
        # What is there already costs nothing.
        assert posted(store, envelope(store.domain, 2, client=3)).status_code == 200
    with stored(tmp_path / "store", contract, quota_mail_bytes=300) as store:
        refused(posted(store, envelope(store.domain, 9)), 429, "quota-exceeded")


def test_few_fill_no_board(
    tmp_path: Path, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.store.routes.LEAST_ENVELOPES", 1)
    monkeypatch.setattr("api.store.routes.MAX_FOLDER_OBJECTS", 2 * PARAMETERS.clients + 1)
    with stored(tmp_path / "store", contract) as store:
        for number in range(2):
            assert posted(store, envelope(store.domain, number)).status_code == 201
        told = refused(posted(store, envelope(store.domain, 2)), 429, "quota-exceeded")
        assert told["detail"].startswith("client 0 may put 2 of them")
        assert posted(store, envelope(store.domain, 2), client=1).status_code == 201


def test_what_is_no_envelope_of_the_board_is_not_kept(store: Store) -> None:
    one = envelope(store.domain, 1)
    data = encode_envelope(one)
    other_chain = replace(one, domain=replace(store.domain, chain_id=1))
    named = f"{board_of(one)}/{sha256(data).hex()}"
    for answer, status, name in (
        (posted(store, one, data=b"no envelope"), 422, "envelope-invalid"),
        (posted(store, one, data=data[:-1]), 422, "envelope-invalid"),
        (posted(store, one, data=b""), 422, "envelope-invalid"),
        (posted(store, one, data=encode_envelope(other_chain)), 422, "envelope-invalid"),
        (posted(store, one, data=encode_envelope(replace(one, round=2))), 422, "envelope-invalid"),
        (posted(store, envelope(store.domain, 1, client=99)), 422, "envelope-invalid"),
        (posted(store, one, path=f"{board_of(one)}/{'00' * 32}"), 403, "upload-refused"),
        (posted(store, one, path=f"{board_of(one)}/{'0' * 63}"), 404, "board-not-found"),
        (posted(store, other_chain), 404, "board-not-found"),
        (posted(store, envelope(store.domain, 1, round_number=3)), 409, "round-not-taken"),
        (posted(store, one, round_number=3), 409, "round-not-taken"),
        (posted(store, one, data=bytes(1_000_001)), 413, "body-too-large"),
        (store.http.put(named, content=data), 401, "upload-unsigned"),
    ):
        refused(answer, status, name)
    assert not list((store.folder / "mail").rglob("*"))


def test_mail_is_bound_to_one_contract_and_to_recent_rounds(store: Store) -> None:
    board = board_of(envelope(store.domain, 1))
    for path in (
        board[:-1] + "8",
        board[:-1] + "x",
        board.replace(f"/{store.domain.chain_id}/", "/1/"),
        board.replace("/1/2", f"/{2**64}/2"),
        board.replace("/1/2", "/01/2"),
    ):
        refused(store.http.get(path), 404, "board-not-found")
    for query in ("after=-1", "after=x", f"after={2**64}", "after=1&after=2", "x=1", "AFTER=1"):
        refused(store.http.get(f"{board}?{query}"), 422, "request-invalid")
    far = store.http.get(board.replace("/1/2", "/5/2"))
    assert decode_page(far.content).envelopes == ()


def test_a_page_is_canonical_and_bounded() -> None:
    page = Page(bytes(16), 7, (b"a", b""))
    data = encode_page(page)
    assert decode_page(data) == page
    for wrong in (
        data[:-1],
        b"",
        encode_page(Page(bytes(15), 7, ())),
        encode_page(Page(bytes(16), -1, ())),
        encode_page(Page(bytes(16), 0, (b"",) * (pages.MAX_PAGE_ENVELOPES + 1))),
        encode_page(Page(bytes(16), 0, ("text",))),  # type: ignore[arg-type]
        canonical.encode({"version": 2, "epoch": bytes(16), "after": 0, "envelopes": []}),
        bytes(pages.MAX_PAGE_BYTES + 1),
    ):
        with pytest.raises(EncodingError):
            decode_page(wrong)


def test_a_page_of_a_million_empty_lists_takes_no_memory() -> None:
    # 3 MB of msgpack, 200 MB and more as lists.
    count = pages.MAX_PAGE_BYTES - 100
    data = b"\x84\xa5after\x00\xa9envelopes\xdd" + count.to_bytes(4) + b"\x90" * count
    rows = b"\xdc\x01\x00" + (b"\xdc\x27\x10" + b"\x90" * 10_000) * 256
    nested = b"\x84\xa5after\x00\xa9envelopes" + rows
    for page in (data, nested):
        tracemalloc.start()
        try:
            with pytest.raises(EncodingError):
                decode_page(page)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2**20
