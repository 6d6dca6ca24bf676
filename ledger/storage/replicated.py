"""Several places for the same blobs: written to all of them, read from the first that has it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.protocol.types import Digest
from ledger.storage.blobs import MAX_BLOB_BYTES
from ledger.storage.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.storage.blobs import BlobReader, BlobStore

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SeveralReaders:
    """Reads from the first place that gives the right bytes.

    A place that is away, gives other bytes or lacks the blob is passed over, and one that holds up
    whoever asks it is left alone for a while. A blob is missing only if every place says so.

    Args:
        places: at least one.
        clock: seconds that only go forward.
    """

    def __init__(
        self, places: Sequence[BlobReader], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers = tuple(places)
        self._resting = CircuitBreaker(len(self._readers), clock)

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Raises:
            BlobMissingError: no place has it.
            BlobUnreachableError: no place gives it, and one of them may have it.
        """
        return self._first(digest, lambda place: place.get(digest, limit))

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, and the digest that was found; see `get`."""
        return Payload(self.get(digest, limit), digest)

    def has(self, digest: Digest) -> bool:
        """Say whether a place has something under this digest, without reading it.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobUnreachableError: none says that it has, and one of them cannot tell.
        """

        def found(place: BlobReader) -> bool:
            if place.has(digest):
                return True
            raise BlobMissingError(f"blob {digest.hex()} is missing")

        try:
            return self._first(digest, found)
        except BlobMissingError:
            return False

    def _first(self, digest: Digest, ask: Callable[[BlobReader], T]) -> T:
        faults: list[BlobError] = []
        is_asked_all = True
        for number, rests in self._resting.order():
            if rests and not faults:
                is_asked_all = False
                continue
            begun, size = self._resting.now(), 0
            try:
                found = ask(self._readers[number])
                size = len(found) if isinstance(found, bytes) else 0
            except BlobMissingError:
                continue
            except BlobError as error:
                faults.append(error)
            else:
                return found
            finally:
                self._resting.answered(number, begun, size)
        if not is_asked_all:
            faults.append(
                BlobUnreachableError(
                    f"blob {digest.hex()} was not asked for where it takes long at present"
                )
            )
        if not faults:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        raise BlobUnreachableError(
            f"{faults[0]} (and no other of {len(self._readers)} places gives it)"
        )


class SeveralStores(SeveralReaders):
    """Writes to every place; what one place has kept is stored, so that one may be away.

    Args:
        places: at least one.
        clock: seconds that only go forward.
    """

    def __init__(
        self, places: Sequence[BlobStore], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(places, clock)
        self._stores = tuple(places)
        self._unsynced: list[set[Digest]] = [set() for _ in places]

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest.

        Args:
            data: the bytes.

        Raises:
            BlobError: no place takes it.
        """
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        """Store what this process has hashed, under the digest that it found.

        Args:
            payload: the bytes.

        Raises:
            BlobError: no place takes it.
        """

        def put(number: int, place: BlobStore) -> None:
            begun = self._resting.now()
            try:
                place.put_payload(payload)
            finally:
                self._resting.answered(number, begun, payload.size)

        taken = self._each(put, spares=True)
        for number in taken:
            self._unsynced[number].add(payload.digest)

    def remove(self, digest: Digest) -> None:
        """Remove a blob wherever it is ours to remove.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobError: no place removes it.
        """
        self._each(lambda _, place: place.remove(digest))

    def sync(self) -> None:
        """Return once everything put so far survives a power cut in some place.

        Raises:
            BlobError: something cannot be made durable anywhere.
        """
        asked = frozenset[Digest]().union(*self._unsynced)
        if not asked:
            return
        durable = self._each(lambda _, place: place.sync())
        covered = frozenset[Digest]().union(*(self._unsynced[number] for number in durable))
        self._unsynced = [pending - covered for pending in self._unsynced]
        if left := asked - covered:
            raise BlobError(f"blob {min(left).hex()} cannot be made durable in any place")

    def _each(self, act: Callable[[int, BlobStore], object], *, spares: bool = False) -> list[int]:
        """Return where an act succeeded, at least one place.

        Args:
            act: takes a place and its number.
            spares: whether places that rest are asked only where no other does it.

        Raises:
            BlobError: nowhere; it is that of the place that was asked first.
        """
        done: list[int] = []
        faults: list[BlobError] = []
        for number, rests in self._resting.order():
            if spares and rests and done:
                continue
            try:
                act(number, self._stores[number])
                done.append(number)
            except BlobError as error:
                faults.append(error)
        if not done:
            raise faults[0]
        for fault in faults:
            _log.warning("another place has it: %s", fault)
        return done
