"""Several places for blobs: written everywhere, read from the first that gives the right bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.storage.blobs import FolderBlobs, MemoryBlobs
from ledger.storage.opening import reader_at, store_at
from ledger.storage.replicated import SeveralReaders, SeveralStores

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.payload import Payload
    from ledger.protocol.types import Digest

HELLO = sha256(b"hello")


class FailingBlobs(MemoryBlobs):
    """Blobs that are away at times, and whose disk does not hold at others."""

    is_away = False
    is_lost = False

    def put_payload(self, payload: Payload) -> None:
        self._refuse()
        super().put_payload(payload)

    def has(self, digest: Digest) -> bool:
        self._refuse()
        return super().has(digest)

    def get(self, digest: Digest, limit: int = 1 << 30) -> bytes:
        self._refuse()
        return super().get(digest, limit)

    def sync(self) -> None:
        if self.is_lost:
            raise BlobError("cannot be made durable")

    def _refuse(self) -> None:
        if self.is_away:
            raise BlobUnreachableError("the place is away")


@pytest.fixture
def places() -> tuple[FailingBlobs, FailingBlobs]:
    return FailingBlobs(), FailingBlobs()


def test_a_blob_goes_everywhere(places: tuple[FailingBlobs, FailingBlobs]) -> None:
    both = SeveralStores(places)
    assert both.put(b"hello") == HELLO
    both.sync()
    both.sync()
    assert [place.get(HELLO) for place in places] == [b"hello"] * 2
    both.remove(HELLO)
    assert not both.has(HELLO)
    with pytest.raises(BlobMissingError):
        both.get(HELLO)


def test_one_place_may_be_away(places: tuple[FailingBlobs, FailingBlobs]) -> None:
    first, second = places
    both = SeveralStores(places)
    first.is_away = True
    both.put(b"hello")
    both.sync()
    assert both.get(HELLO) == b"hello"
    assert both.get_payload(HELLO).digest == HELLO
    assert both.has(HELLO)
    # Who is away may have what the other lacks.
    with pytest.raises(BlobUnreachableError, match="no other of 2 places gives it"):
        both.get(sha256(b"other"))
    with pytest.raises(BlobUnreachableError):
        both.has(sha256(b"other"))
    second.is_away = True
    with pytest.raises(BlobError, match="away"):
        both.put(b"other")


class Clock:
    """Seconds that only go forward, when somebody says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class DrippingBlobs(FailingBlobs):
    """Blobs of a host that takes all of the time which it is given, and then fails."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.asked = 0

    def _refuse(self) -> None:
        self.asked += 1
        if self.is_away:
            self.clock.now += 60
        super()._refuse()


def test_a_place_that_drips_holds_nobody_up_for_each_blob() -> None:
    clock = Clock()
    first, second = DrippingBlobs(clock), FailingBlobs()
    both = SeveralStores([first, second], clock)
    digests = [second.put(b"%d" % number) for number in range(20)]
    first.is_away = True
    assert [both.get(digest) for digest in digests] == [b"%d" % number for number in range(20)]
    both.put(b"hello")
    both.sync()
    assert (first.asked, clock.now) == (1, 60.0)
    # It was not asked, and may have what the other lacks.
    with pytest.raises(BlobUnreachableError, match="where it takes long"):
        both.get(sha256(b"other"))
    with pytest.raises(BlobUnreachableError):
        both.has(sha256(b"other"))
    assert first.asked == 1
    first.is_away = False
    clock.now += 180
    with pytest.raises(BlobMissingError):
        both.get(sha256(b"other"))
    both.put(b"more")
    assert first.has(sha256(b"more"))


def test_a_slow_place_is_asked_where_the_others_fail() -> None:
    clock = Clock()
    first, second = DrippingBlobs(clock), FailingBlobs()
    both = SeveralStores([first, second], clock)
    digest = both.put(b"hello")
    first.is_away = True
    assert both.get(digest) == b"hello"
    first.is_away, second.is_away = False, True
    assert both.get(digest) == b"hello"
    first.is_away, second.is_away = True, False
    assert both.get(digest) == b"hello"
    first.is_away, second.is_away = False, True
    assert first.has(both.put(b"other"))


def test_what_is_durable_nowhere_is_said(places: tuple[FailingBlobs, FailingBlobs]) -> None:
    first, second = places
    both = SeveralStores(places)
    first.is_away = True
    both.put(b"hello")
    first.is_away, second.is_away = False, True
    both.put(b"other")
    second.is_lost = True
    with pytest.raises(BlobError, match=f"blob {HELLO.hex()} cannot be made durable in any"):
        both.sync()
    first.is_lost = True
    with pytest.raises(BlobError, match="cannot be made durable"):
        both.sync()
    first.is_lost = second.is_lost = False
    both.sync()


def test_a_wrong_byte_is_fetched_elsewhere(tmp_path: Path) -> None:
    folders = [FolderBlobs(tmp_path / name) for name in ("a", "b")]
    store = store_at(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert store.put(b"hello") == HELLO
    store.sync()
    (tmp_path / "a" / HELLO.hex()[:2] / HELLO.hex()).write_bytes(b"hullo")
    with pytest.raises(BlobError, match="damaged"):
        folders[0].get(HELLO)
    reader = reader_at(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert isinstance(reader, SeveralReaders)
    assert reader.get(HELLO) == b"hello"
    (tmp_path / "b" / HELLO.hex()[:2] / HELLO.hex()).write_bytes(b"hullo")
    with pytest.raises(BlobUnreachableError, match="damaged"):
        reader.get(HELLO)
