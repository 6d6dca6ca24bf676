"""Several places for the same blobs: written to all of them, read from the first that has it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.blobs.store import BlobReader, BlobStore

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SeveralReaders:
    """Reads from the first place that gives the right bytes.

    A place that is away, gives other bytes or lacks the blob is passed over. A blob is missing only
    if every place says so.

    Args:
        places: at least one.
    """

    def __init__(self, places: Sequence[BlobReader]) -> None:
        self._readers = tuple(places)

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
        for place in self._readers:
            try:
                return ask(place)
            except BlobMissingError:
                continue
            except BlobError as error:
                faults.append(error)
        if not faults:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        raise BlobUnreachableError(
            f"{faults[0]} (and no other of {len(self._readers)} places gives it)"
        )


class SeveralStores(SeveralReaders):
    """Writes to every place; what one place has kept is stored, so that one may be away.

    Args:
        places: at least one.
    """

    def __init__(self, places: Sequence[BlobStore]) -> None:
        super().__init__(places)
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
        taken = self._each(lambda place: place.put_payload(payload))
        for number in taken:
            self._unsynced[number].add(payload.digest)

    def remove(self, digest: Digest) -> None:
        """Remove a blob wherever it is ours to remove.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobError: no place removes it.
        """
        self._each(lambda place: place.remove(digest))

    def sync(self) -> None:
        """Return once everything put so far survives a power cut in some place.

        Raises:
            BlobError: something cannot be made durable anywhere.
        """
        asked = frozenset[Digest]().union(*self._unsynced)
        if not asked:
            return
        durable = self._each(lambda place: place.sync())
        covered = frozenset[Digest]().union(*(self._unsynced[number] for number in durable))
        self._unsynced = [pending - covered for pending in self._unsynced]
        if left := asked - covered:
            raise BlobError(f"blob {min(left).hex()} cannot be made durable in any place")

    def _each(self, act: Callable[[BlobStore], object]) -> list[int]:
        """Return where an act succeeded, at least one place.

        Raises:
            BlobError: nowhere; it is the first place's.
        """
        done, faults = [], []
        for number, place in enumerate(self._stores):
            try:
                act(place)
                done.append(number)
            except BlobError as error:
                faults.append(error)
        if not done:
            raise faults[0]
        for fault in faults:
            _log.warning("another place has it: %s", fault)
        return done
