"""Stores at the locations that an operator names; of several stores, all but one may be away.

A store whose host drips, or falls silent, costs its whole time-out for each object and each scan;
a circuit breaker skips it for a while where another store serves.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.errors import BlobError
from ledger.protocol.payloads import Payload
from ledger.storage import blobs
from ledger.storage.bucket import LEAST_BYTES_PER_SECOND, BucketObjects
from ledger.storage.http import HttpObjects, UploadSigner, static_server, store_server
from ledger.storage.mailbox import Mailbox


def reader_at(text: str) -> blobs.BlobReader:
    """Return a reader of blobs in existing folders, and at URLs of any server or for fsspec."""
    require_folders("blobs", text)
    return _blobs(_open("blobs", text, partial(static_server, max_failures=5)))


def store_at(text: str, signer: UploadSigner | None = None) -> blobs.ObjectBlobs:
    """Return a store of blobs; a `cmfl blobs serve` is read only without signer."""
    return _blobs(_open("blobs", text, partial(store_server, signer=signer, timeout_seconds=60.0)))


def mailbox_at(text: str, signer: UploadSigner | None = None) -> Mailbox:
    """Return the mailbox at one location, or at several; see `store_at`."""
    return Mailbox(mail_objects_at(text, signer))


def mail_objects_at(text: str, signer: UploadSigner | None = None) -> blobs.ObjectStore:
    """Return the objects of the mailbox at one location, or at several; see `store_at`."""
    connect = partial(store_server, signer=signer, timeout_seconds=30.0)
    return _replicated(_open("mailbox", text, connect))


def require_folders(option: str, text: str) -> None:
    """Refuse to read locations if one is a missing folder."""
    for location in blobs.parse_locations(option, text):
        if location.kind is blobs.LocationKind.FOLDER and not Path(location.text).is_dir():
            raise BlobError(f"{option}: {location.text!r} is not a local folder or an http(s) URL")


def folder_at(option: str, location: blobs.Location) -> Path:
    """Return a folder that is there, or can be made in one that is."""
    folder = Path(location.text)
    if folder.is_dir() or (not folder.exists() and folder.parent.is_dir()):
        return folder
    raise BlobError(f"{option}: the parent folder of {location.text!r} is missing")


def _open(option: str, text: str, connect: Callable[[str], HttpObjects]) -> list[blobs.ObjectStore]:
    stores: list[blobs.ObjectStore] = []
    for location in blobs.parse_locations(option, text):
        match location.kind:
            case blobs.LocationKind.SERVER:
                stores.append(connect(location.text))
            case blobs.LocationKind.REMOTE:
                stores.append(BucketObjects(location))
            case blobs.LocationKind.FOLDER:
                stores.append(blobs.FolderObjects(folder_at(option, location)))
    return stores


def _blobs(stores: list[blobs.ObjectStore]) -> blobs.ObjectBlobs:
    # The blobs of one folder can be enumerated, and streamed.
    if len(stores) == 1 and isinstance(stores[0], blobs.FolderObjects):
        return blobs.FolderBlobs(stores[0].folder)
    return blobs.ObjectBlobs(_replicated(stores))


def _replicated(stores: list[blobs.ObjectStore]) -> blobs.ObjectStore:
    return stores[0] if len(stores) == 1 else ReplicatedObjects(stores)


T = TypeVar("T")

GRACE_SECONDS = 5.0
# A slow store is skipped for this many times as long as it took: a quarter of the time is lost.
OPEN_FACTOR = 3

_log = logging.getLogger(__name__)


class CircuitBreaker:
    """Decides which of several stores are skipped for a while; safe to share between threads."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._skipped_until = [-math.inf] * count
        self.now = clock

    def order(self) -> list[tuple[int, bool]]:
        """Return the stores in the order to try them, each with whether it is to be skipped."""
        # Slow ones come last, for when no other serves. If all were slow, the fault may be this
        # machine's own, and none is skipped.
        now = self.now()
        slow = [until > now for until in self._skipped_until]
        order = [(index, is_slow and not all(slow)) for index, is_slow in enumerate(slow)]
        return sorted(order, key=lambda entry: entry[1])

    def record(self, index: int, start: float, size: int = 0) -> None:
        """Note an attempt's end; a store that moved too few bytes a second is slow from then."""
        now = self.now()
        is_slow = now - start > GRACE_SECONDS + size / LEAST_BYTES_PER_SECOND
        self._skipped_until[index] = now + OPEN_FACTOR * (now - start) if is_slow else -math.inf


class ReplicatedObjects(blobs.ObjectStore):
    """Writes to every store, and reads from the first that has the right bytes.

    An object is stored once one store has it, and missing only if every store lacks it. `outages`
    are the scans of a store that failed or were skipped so far; it may alone have something.
    """

    def __init__(
        self, stores: Sequence[blobs.ObjectStore], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_shared = any(store.is_shared for store in stores)
        self.outages = 0
        self._stores = tuple(stores)
        self._breaker = CircuitBreaker(len(self._stores), clock)
        self._unsynced: list[set[str]] = [set() for _ in stores]

    def get(self, path: str, limit: int) -> bytes:
        return self._first(path, lambda store: store.get(path, limit), len)

    def has(self, path: str) -> bool:
        def require(store: blobs.ObjectStore) -> bool:
            if store.has(path):
                return True
            raise FileNotFoundError(errno.ENOENT, "there is no such object", path)

        try:
            return self._first(path, require, lambda _: 0)
        except FileNotFoundError:
            return False

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        new: list[bool] = []

        def put(_: int, store: blobs.ObjectStore) -> None:
            new.append(store.put(path, payload, durable=durable))

        for index in self._each(put, size=payload.size, size_of_failure=payload.size):
            if not durable:
                self._unsynced[index].add(path)
        return any(new)

    def scan(self, folder: str, cursor: blobs.FolderCursor) -> None:
        answered = self._each(
            lambda index, store: store.scan(folder, cursor.replica(index)), size=MAX_DOCUMENT_BYTES
        )
        self.outages += len(self._stores) - len(answered)

    def delete(self, path: str) -> None:
        self._each(lambda _, store: store.delete(path))

    def sync(self) -> None:
        pending = frozenset[str]().union(*self._unsynced)
        if not pending:
            return
        durable = self._each(lambda _, store: store.sync())
        covered = frozenset[str]().union(*(self._unsynced[index] for index in durable))
        self._unsynced = [paths - covered for paths in self._unsynced]
        if remaining := pending - covered:
            raise OSError(errno.EIO, "it is durable in no store", min(remaining))

    def _first(
        self, path: str, ask: Callable[[blobs.ObjectStore], T], size_of: Callable[[T], int]
    ) -> T:
        """Return what the first store answers that has an object."""
        faults: list[OSError] = []
        skipped = False
        for index, is_slow in self._breaker.order():
            if is_slow and not faults:
                skipped = True
                continue
            start, size = self._breaker.now(), 0
            try:
                answer = ask(self._stores[index])
                size = size_of(answer)
            except FileNotFoundError:
                continue
            except OSError as error:
                faults.append(error)
            else:
                return answer
            finally:
                self._breaker.record(index, start, size)
        if faults:
            reason = f"{faults[0].strerror or faults[0]} (and none of {len(self._stores)} has it)"
            raise OSError(errno.EIO, reason, path)
        if skipped:
            raise OSError(errno.EIO, "a store that is slow at present was not asked", path)
        raise FileNotFoundError(errno.ENOENT, "there is no such object", path)

    def _each(
        self,
        act: Callable[[int, blobs.ObjectStore], None],
        *,
        size: int | None = None,
        size_of_failure: int = 0,
    ) -> list[int]:
        """Return the stores where an act succeeded.

        A success moves `size` bytes, and their time shows whether a store is slow. Slow stores are
        asked only while no other has succeeded. With None, all are asked, and none is timed.
        """
        done: list[int] = []
        faults: list[OSError] = []
        for index, is_slow in self._breaker.order():
            if size is not None and is_slow and done:
                continue
            start, moved = self._breaker.now(), size_of_failure
            try:
                act(index, self._stores[index])
                done.append(index)
                moved = size or 0
            except OSError as error:
                faults.append(error)
            finally:
                if size is not None:
                    self._breaker.record(index, start, moved)
        if not done:
            raise faults[0]
        for fault in faults:
            _log.warning("another store serves: %s", fault.strerror or fault)
        return done
