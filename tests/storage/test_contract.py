"""What every object store promises, and its views: blobs and mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    PublishedPayload,
    encode_envelope,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import FolderCursor, ObjectBlobs, blob_path
from ledger.storage.mailbox import Mailbox, board_folder

if TYPE_CHECKING:
    from tests.storage.conftest import Shared

KIND = EnvelopeKind.PAYLOAD
HELLO = Payload.of(b"hello")
PATH = blob_path(HELLO.digest)


def envelope(shared: Shared, number: int) -> Envelope:
    payload = PublishedPayload(Digest(number.to_bytes(32)))
    return Envelope(shared.domain, 1, ClientId(number % 3), payload)


def test_what_one_puts_another_reads(shared: Shared) -> None:
    store, other = shared.open(), shared.open()
    for data in (b"", b"hello", bytes(200_000)):
        payload = Payload.of(data)
        path = blob_path(payload.digest)
        assert store.put(path, payload)
        assert not store.put(path, payload)
        assert other.has(path)
        assert other.get(path, len(data)) == data
    store.sync()


def test_a_missing_object_is_not_found(shared: Shared) -> None:
    store = shared.open()
    assert not store.has(PATH)
    with pytest.raises(FileNotFoundError):
        store.get(PATH, 1_000)


def test_no_more_is_read_than_the_limit(shared: Shared) -> None:
    store = shared.open()
    store.put(PATH, HELLO)
    assert store.get(PATH, 5) == b"hello"
    with pytest.raises(OSError, match=r"larger than the 4 bytes|over 4 bytes"):
        store.get(PATH, 4)


@pytest.mark.parametrize("wrong", [b"hullo", b"", b"hell", b"hello!"])
def test_a_damaged_object_is_refused_and_replaced(shared: Shared, wrong: bytes) -> None:
    store = shared.open()
    store.put(PATH, HELLO)
    shared.damage(PATH, wrong)
    with pytest.raises(OSError, match=r"damaged|other bytes|larger|over 5 bytes") as caught:
        store.get(PATH, 5)
    assert not isinstance(caught.value, FileNotFoundError)
    assert shared.open().put(PATH, HELLO)
    assert store.get(PATH, 5) == b"hello"


def test_a_deleted_object_is_gone_and_can_be_put_again(shared: Shared) -> None:
    store = shared.open()
    store.put(PATH, HELLO, durable=False)
    if not shared.deletes:
        with pytest.raises(PermissionError):
            store.delete(PATH)
        return
    store.delete(PATH)
    store.delete(PATH)
    store.sync()  # nothing is left to make durable
    assert not store.has(PATH)
    assert store.put(PATH, HELLO)
    assert store.get(PATH, 5) == b"hello"


def test_a_scan_delivers_each_object_once(shared: Shared) -> None:
    writer, reader = shared.open(), shared.open()
    folder = board_folder((shared.domain, 1, KIND))
    delivered: list[bytes] = []

    def accept(data: bytes) -> bool:
        delivered.append(data)
        return True

    cursor = FolderCursor(accept, 1_000)
    reader.scan(folder, cursor)
    assert delivered == []
    for number in range(3):
        payload = Payload.of(encode_envelope(envelope(shared, number)))
        assert writer.put(f"{folder}/{payload.digest.hex()}", payload)
        reader.scan(folder, cursor)
        assert (len(delivered), delivered[-1]) == (number + 1, payload.data)
    reader.scan(folder, cursor)
    assert len(delivered) == 3


def test_a_scan_misses_nothing_after_a_deletion(shared: Shared) -> None:
    if not shared.deletes:
        return
    store, delivered = shared.open(), set[bytes]()

    def accept(data: bytes) -> bool:
        delivered.add(data)
        return True

    cursor = FolderCursor(accept, 1_000)
    sent = [Payload.of(encode_envelope(envelope(shared, number))) for number in range(4)]
    folder = board_folder((shared.domain, 1, KIND))
    for payload in sent[:2]:
        store.put(f"{folder}/{payload.digest.hex()}", payload)
    store.scan(folder, cursor)
    store.delete(f"{folder}/{sent[0].digest.hex()}")
    for payload in sent[2:]:
        store.put(f"{folder}/{payload.digest.hex()}", payload)
        store.scan(folder, cursor)
    assert delivered == {payload.data for payload in sent}


def test_blobs_are_verified_and_removed(shared: Shared) -> None:
    blobs = ObjectBlobs(shared.open())
    digest = blobs.put(b"hello")
    blobs.sync()
    assert digest == HELLO.digest
    assert blobs.has(digest)
    assert blobs.get_payload(digest) == HELLO
    with pytest.raises(BlobError, match=r"larger than the 4 bytes|over 4 bytes"):
        blobs.get(digest, 4)
    with pytest.raises(BlobMissingError, match=sha256(b"other").hex()):
        blobs.get(sha256(b"other"))
    if shared.deletes:
        blobs.remove(digest)
        assert not blobs.has(digest)


def test_a_payload_is_stored_as_it_is_at_the_call(shared: Shared) -> None:
    blobs, row = ObjectBlobs(shared.open()), np.array([1.0, 2.0, 3.0], dtype="<f4")
    expected, payload = row.tobytes(), Payload.of(row.data)
    blobs.put_payload(payload)
    row[:] = 0
    assert blobs.get(payload.digest) == expected


def test_mailboxes_list_each_envelope_once(shared: Shared) -> None:
    writer, reader = Mailbox(shared.open()), Mailbox(shared.open())
    assert reader.listed(shared.domain, 1, KIND) == []
    for number in range(3):
        sent = envelope(shared, number)
        assert not reader.holds(sent)
        assert writer.put(sent)
        assert not reader.put(sent)
        listed = reader.listed(shared.domain, 1, KIND)
        assert (len(listed), listed[-1]) == (number + 1, sent)
    assert reader.listed(shared.domain, 1, KIND, 3) == []
    assert reader.listed(shared.domain, 2, KIND) == []
    reader.forget(shared.domain, 2)
    assert len(reader.listed(shared.domain, 1, KIND)) == 3
