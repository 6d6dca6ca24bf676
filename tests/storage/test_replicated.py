"""Several stores of the same objects: any but one may be away, and a slow one blocks nobody."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payloads import Payload
from ledger.storage.blobs import FolderCursor, MemoryObjects, ObjectBlobs
from ledger.storage.bucket import LEAST_BYTES_PER_SECOND
from ledger.storage.mailbox import Mailbox
from ledger.storage.opening import (
    GRACE_SECONDS,
    OPEN_FACTOR,
    CircuitBreaker,
    ReplicatedObjects,
    mailbox_at,
    reader_at,
    store_at,
)
from tests.storage.test_mailbox import envelope
from tests.support.keys import DOMAIN

HELLO = sha256(b"hello")
KIND = EnvelopeKind.PAYLOAD


class Clock:
    """Seconds that only go forward, when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class UnreliableObjects(MemoryObjects):
    """Objects that are away at times, after a full time-out, or lose what was not synced."""

    def __init__(self, clock: Clock | None = None, seconds: float = 60.0) -> None:
        super().__init__()
        self.is_away = self.is_lost = False
        self.requests = 0
        self._clock, self._seconds = clock, seconds

    def get(self, path: str, limit: int) -> bytes:
        self._answer()
        return super().get(path, limit)

    def has(self, path: str) -> bool:
        self._answer()
        return super().has(path)

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        self._answer()
        return super().put(path, payload, durable=durable)

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        self._answer()
        super().scan(folder, cursor)

    def sync(self) -> None:
        if self.is_lost:
            raise OSError(errno.EIO, "the disk fails")

    def _answer(self) -> None:
        self.requests += 1
        if self.is_away:
            if self._clock is not None:
                self._clock.now += self._seconds
            raise OSError(errno.EIO, "the store is away")


@pytest.fixture
def stores() -> tuple[UnreliableObjects, UnreliableObjects]:
    return UnreliableObjects(), UnreliableObjects()


def listed(mailbox: Mailbox, start: int = 0) -> list[Envelope]:
    return list(mailbox.listed(DOMAIN, 1, KIND, start))


def test_a_blob_goes_to_every_store(stores: tuple[UnreliableObjects, UnreliableObjects]) -> None:
    both = ObjectBlobs(ReplicatedObjects(stores))
    assert both.put(b"hello") == HELLO
    both.sync()
    both.sync()
    assert [ObjectBlobs(store).get(HELLO) for store in stores] == [b"hello"] * 2
    both.remove(HELLO)
    assert not both.has(HELLO)
    with pytest.raises(BlobMissingError):
        both.get(HELLO)


def test_one_store_may_be_away(stores: tuple[UnreliableObjects, UnreliableObjects]) -> None:
    first, second = stores
    both = ObjectBlobs(ReplicatedObjects(stores))
    first.is_away = True
    both.put(b"hello")
    both.sync()
    assert both.get(HELLO) == b"hello"
    assert both.has(HELLO)
    # The store that is away may have what the other lacks.
    for ask in (both.get, both.has):
        with pytest.raises(BlobUnreachableError, match="away"):
            ask(sha256(b"other"))
    second.is_away = True
    with pytest.raises(BlobError, match="away"):
        both.put(b"other")


def test_a_slow_store_blocks_no_blob() -> None:
    clock = Clock()
    first, second = UnreliableObjects(clock), UnreliableObjects()
    both = ObjectBlobs(ReplicatedObjects([first, second], clock))
    blobs = [b"%d" % number for number in range(20)]
    digests = [ObjectBlobs(second).put(data) for data in blobs]
    first.is_away = True
    assert [both.get(digest) for digest in digests] == blobs
    both.put(b"hello")
    both.sync()
    assert (first.requests, clock.now) == (1, 60.0)
    # It was not asked, and may have what the other lacks.
    for ask in (both.get, both.has):
        with pytest.raises(BlobUnreachableError, match="slow"):
            ask(sha256(b"other"))
    assert first.requests == 1
    first.is_away = False
    clock.now += 180
    with pytest.raises(BlobMissingError):
        both.get(sha256(b"other"))
    both.put(b"more")
    assert ObjectBlobs(first).has(sha256(b"more"))


def test_a_blob_that_is_durable_nowhere_is_an_error(
    stores: tuple[UnreliableObjects, UnreliableObjects],
) -> None:
    first, second = stores
    both = ObjectBlobs(ReplicatedObjects(stores))
    first.is_away = True
    both.put(b"hello")
    first.is_away, second.is_away = False, True
    both.put(b"other")
    second.is_lost = True
    with pytest.raises(BlobError, match=f"{HELLO.hex()} cannot be made durable"):
        both.sync()
    first.is_lost = True
    with pytest.raises(BlobError, match="cannot be made durable"):
        both.sync()
    first.is_lost = second.is_lost = False
    both.sync()


def test_a_damaged_blob_is_read_elsewhere(tmp_path: Path) -> None:
    text = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    store = store_at(text)
    assert store.put(b"hello") == HELLO
    store.sync()
    damaged = [tmp_path / name / HELLO.hex()[:2] / HELLO.hex() for name in ("a", "b")]
    damaged[0].write_bytes(b"hullo")
    assert reader_at(text).get(HELLO) == b"hello"
    damaged[1].write_bytes(b"hullo")
    with pytest.raises(BlobUnreachableError, match="damaged"):
        reader_at(text).get(HELLO)


def test_mail_of_a_store_that_was_away_is_not_lost(
    stores: tuple[UnreliableObjects, UnreliableObjects],
) -> None:
    first, second = stores
    replicas = ReplicatedObjects(stores)
    both = Mailbox(replicas)
    first.is_away = True
    assert both.put(envelope(1))
    assert listed(both) == [envelope(1)]
    first.is_away, second.is_away = False, True
    assert both.put(envelope(2))
    assert listed(both) == [envelope(1), envelope(2)]
    assert replicas.outages == 2
    first.is_away = True
    with pytest.raises(OSError, match="away"):
        both.put(envelope(3))
    with pytest.raises(OSError, match="away"):
        listed(both)
    first.is_away = second.is_away = False
    assert listed(both) == [envelope(1), envelope(2)]
    assert replicas.outages == 2


def test_a_flooded_store_takes_no_room_from_another(
    stores: tuple[UnreliableObjects, UnreliableObjects], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.storage.blobs.MAX_FOLDER_BYTES", 300)
    flooded, second = (Mailbox(store) for store in stores)
    for number in range(10, 20):
        flooded.put(envelope(number))
    second.put(envelope(1))
    assert envelope(1) in listed(Mailbox(ReplicatedObjects(stores)))
    assert len(listed(flooded)) < 10


def test_a_slow_store_blocks_no_mail() -> None:
    clock = Clock()
    first, second = UnreliableObjects(clock, 30.0), UnreliableObjects()
    both = Mailbox(ReplicatedObjects([first, second], clock))
    Mailbox(first).put(envelope(2))
    Mailbox(second).put(envelope(1))
    first.is_away, first.requests = True, 0
    for _ in range(5):
        assert listed(both) == [envelope(1)]
    assert first.requests == 1
    # Where no other answers, it is asked all the same.
    second.is_away = True
    with pytest.raises(OSError, match="away"):
        listed(both)
    first.is_away = False
    assert listed(both) == [envelope(1), envelope(2)]
    assert both.put(envelope(3))
    assert Mailbox(first).holds(envelope(3))


def test_a_mailbox_may_be_at_several_locations(tmp_path: Path) -> None:
    mailbox = mailbox_at(f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    assert mailbox.is_shared
    assert mailbox.put(envelope(1))
    for folder in ("a", "b"):
        assert mailbox_at(str(tmp_path / folder)).listed(DOMAIN, 1, KIND) == [envelope(1)]
    for wrong in (str(tmp_path / "none" / "below"), "", f"{tmp_path},", "no such://x"):
        with pytest.raises(BlobError, match="mailbox"):
            mailbox_at(wrong)


def test_a_slow_store_is_skipped_for_some_times_as_long() -> None:
    now = 100.0
    breaker = CircuitBreaker(2, lambda: now)
    assert breaker.order() == [(0, False), (1, False)]
    start = breaker.now()
    now += 10
    breaker.record(0, start)
    assert breaker.order() == [(1, False), (0, True)]
    now += OPEN_FACTOR * 10 - 1
    assert breaker.order() == [(1, False), (0, True)]
    now += 1
    assert breaker.order() == [(0, False), (1, False)]


def test_many_bytes_may_take_their_time() -> None:
    now = GRACE_SECONDS
    breaker = CircuitBreaker(2, lambda: now)
    breaker.record(0, 0.0)
    assert breaker.order() == [(0, False), (1, False)]
    now += 1
    breaker.record(0, 0.0, LEAST_BYTES_PER_SECOND)
    assert breaker.order() == [(0, False), (1, False)]
    breaker.record(0, 0.0, LEAST_BYTES_PER_SECOND - 1)
    assert breaker.order() == [(1, False), (0, True)]
    breaker.record(0, now)
    assert breaker.order() == [(0, False), (1, False)]
