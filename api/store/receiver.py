"""Uploads of permitted writers and their charges, bounded in size and time.

A charge is made before the bytes arrive, so that a client cannot exceed its quota by sending many
blobs at once, and taken back if they do not arrive. The same bytes are charged once, however often
they are being sent: another sender may repeat a header that it has seen, with any bytes. Bytes that
the store has already cost nothing, but are noted: their round needs them.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request

from api.http.answers import BODY_TOO_LARGE, ROUND_NOT_ENDED, ProblemError, ProblemKind
from api.settings import StoreSettings
from ledger.chain.contract.event_log import EventLog
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import last_ended
from ledger.io.home import DISK, WRITING, Disk
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ChainError, EncodingError, SignatureError
from ledger.protocol.ledger_state import registry_with_bans
from ledger.protocol.signing import is_signed_by, recover, typed_digest
from ledger.protocol.types import Address, Digest, Domain, Upload
from ledger.storage import http
from ledger.storage.http import AUDITOR, parse_authorization

Writer = int | Address  # index of a client, or address of an auditor


@dataclass(frozen=True, slots=True)
class AttestationUpload(Upload):
    """An upload of an attestation, charged to the address that signed it."""

    auditor: Address


def writer_of(upload: Upload) -> tuple[Writer, str]:
    """Return the writer that is charged for an upload, and its name for people."""
    if isinstance(upload, AttestationUpload):
        return upload.auditor, f"auditor 0x{upload.auditor.hex()}"
    return int(upload.client), f"client {upload.client}"


FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0  # a store uses older permissions for this long while the chain cannot be read


@dataclass(frozen=True, slots=True)
class WritePermissions:
    """The clients that may write, and their rounds; `run` is the config digest."""

    round: int
    ended: int
    run: Digest
    registry: tuple[RegisteredClient, ...]


class PermissionCache:
    """The permissions of one contract, by a monotonic clock; safe to share between threads."""

    def __init__(
        self, ledger: CommitteeLedger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.domain = ledger.domain()
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._log = EventLog()
        self._latest: tuple[float, WritePermissions] | None = None
        self._failure: tuple[float, str] | None = None

    def now(self) -> WritePermissions:
        """Return the permissions; one thread asks the chain, none waits once that has failed."""
        latest = self._latest
        if latest is not None and self._clock() - latest[0] < FRESH_SECONDS:
            return latest[1]
        if self._lock.acquire(blocking=self._failure is None):
            try:
                self._refresh()
            finally:
                self._lock.release()
        failure, latest = self._failure, self._latest
        if failure is not None and (latest is None or self._clock() - latest[0] > STALE_SECONDS):
            raise ChainError(failure[1])
        assert latest is not None, "a refresh succeeds or fails"
        return latest[1]

    def _refresh(self) -> None:
        """Read the chain, unless another thread has just done so, or has just failed to."""
        start = self._clock()
        for previous in (self._latest, self._failure):
            if previous is not None and start - previous[0] < FRESH_SECONDS:
                return
        try:
            state, ledger = self._ledger.state(), self._log.up_to(self._ledger)
            registry = registry_with_bans(ledger.registry(), ledger.bans())
            config = ledger.deployment().config
        except ChainError as error:
            self._failure = (self._clock(), str(error))
        else:
            permissions = WritePermissions(state.round, last_ended(state), config, registry)
            self._latest, self._failure = (start, permissions), None


_SCHEMA = """
CREATE TABLE IF NOT EXISTS charged (  -- client: index of a client, or address of an auditor
    round BLOB NOT NULL, client INTEGER NOT NULL, kind INTEGER NOT NULL, digest BLOB NOT NULL,
    size INTEGER NOT NULL, costs INTEGER NOT NULL,
    PRIMARY KEY (round, client, kind, digest)
) WITHOUT ROWID
"""
_THIS_ROW = "FROM charged WHERE round = ? AND client = ? AND kind = ? AND digest = ?"
_INTO = "INTO charged VALUES (?, ?, ?, ?, ?, ?)"


class ChargeKind(IntEnum):
    """Kinds of uploads, each with its quota."""

    BLOB = 1
    ENVELOPE = 2
    ATTESTATION = 3


_Key = tuple[bytes, Writer, int, bytes]


@dataclass(slots=True)
class _Arrival:
    """Attempts to upload the same bytes, and the row (size and costs) that stays if all fail."""

    settled: tuple[int, int] | None
    sizes: list[int] = field(default_factory=list)

    @property
    def charged(self) -> int:
        paid = self.settled[0] if self.settled is not None and self.settled[1] else 0
        return max(paid, *self.sizes, 0)


class Charges:
    """The charges of one contract in an SQLite file, shared by threads; methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._arrivals: dict[_Key, _Arrival] = {}
        with self._translated():
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_SCHEMA)

    def charge(self, upload: Upload, kind: ChargeKind, quota: tuple[int, int]) -> bool:
        """Charge a client for an upload until `settle`; return False above its number or bytes."""
        key = _key(upload, kind)
        with self._lock:
            ((count, total),) = self._query(
                "SELECT count(*), coalesce(sum(size), 0) FROM charged "
                "WHERE round = ? AND client = ? AND kind = ? AND costs AND digest <> ?",
                *key,
            )
            arrival = self._arrivals.get(key)
            if arrival is None:
                rows = self._query(f"SELECT size, costs {_THIS_ROW}", *key)
                arrival = _Arrival(rows[0] if rows else None)
            size = max(arrival.charged, upload.size)
            if count + 1 > quota[0] or total + size > quota[1]:
                return False
            arrival.sizes.append(upload.size)
            self._put_row(key, (size, 1))
            self._arrivals[key] = arrival
        return True

    def settle(self, upload: Upload, kind: ChargeKind, *, is_stored: bool) -> None:
        """Make a charge final, or take it back if not stored; earlier ones of the bytes stay."""
        key = _key(upload, kind)
        with self._lock:
            arrival = self._arrivals[key]
            arrival.sizes.remove(upload.size)
            if not arrival.sizes:
                del self._arrivals[key]
            if is_stored:
                arrival.settled = (upload.size, 1)
            self._put_row(key, (arrival.charged, 1) if arrival.sizes else arrival.settled)

    def note(self, upload: Upload, kind: ChargeKind) -> None:
        """Note that a round needs bytes which the store has already."""
        key = _key(upload, kind)
        with self._lock:
            arrival = self._arrivals.get(key)
            if arrival is not None and arrival.settled is None:
                arrival.settled = (upload.size, 0)
            self._query(f"INSERT OR IGNORE {_INTO}", *key, upload.size, 0)

    def blobs_of(self, round_number: int) -> set[Digest]:
        query = "SELECT digest FROM charged WHERE round = ? AND kind = ?"
        rows = self._query(query, _number(round_number), ChargeKind.BLOB)
        return {Digest(digest) for (digest,) in rows}

    def rounds(self) -> list[int]:
        query = "SELECT DISTINCT round FROM charged WHERE kind <> ? ORDER BY round"
        return [int.from_bytes(number) for (number,) in self._query(query, ChargeKind.ATTESTATION)]

    def forget(self, round_number: int) -> None:
        """Drop a round's charges except attestations: an auditor can write to an old round."""
        query = "DELETE FROM charged WHERE round = ? AND kind <> ?"
        self._query(query, _number(round_number), ChargeKind.ATTESTATION)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _put_row(self, key: _Key, row: tuple[int, int] | None) -> None:
        if row is None:
            self._query(f"DELETE {_THIS_ROW}", *key)
        else:
            self._query(f"INSERT OR REPLACE {_INTO}", *key, *row)

    def _query(self, statement: str, *values: bytes | int) -> list[tuple[Any, ...]]:
        with self._lock, self._translated():
            return self._file.execute(statement, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            number = errno.ENOSPC if is_full else errno.EIO
            reason = f"the charges cannot be written: {error}"
            raise OSError(number, reason, str(self._path)) from error


def charges_file(folder: Path, domain: Domain) -> Path:
    """Return the path of a contract's charges in a store's folder."""
    return folder / f"charges-{domain.chain_id}-{domain.contract.hex()}-{domain.salt.hex()}.sqlite"


def other_charges(folder: Path, domain: Domain) -> list[Path]:
    """Return the charges of other contracts in this folder."""
    own = charges_file(folder, domain)
    return sorted(path for path in folder.glob("charges-*.sqlite") if path != own)


def _key(upload: Upload, kind: ChargeKind) -> _Key:
    return _number(upload.round), writer_of(upload)[0], int(kind), upload.digest


def _number(round_number: int) -> bytes:
    """Return a round as ordered bytes: SQLite's integers end at 2**63."""
    return round_number.to_bytes(8)


LENGTH_NEEDED = ProblemKind("length-needed", 411, "A body needs a Content-Length")
UPLOAD_UNSIGNED = ProblemKind("upload-unsigned", 401, "An upload needs a client's signature")
UPLOAD_ELSEWHERE = ProblemKind(http.UPLOAD_ELSEWHERE, 401, "The upload is signed for another store")
UPLOAD_REFUSED = ProblemKind("upload-refused", 403, "The client may not write here")
ROUND_NOT_TAKEN = ProblemKind(
    "round-not-taken", 409, "The round is neither open nor next to the open one"
)
QUOTA_EXCEEDED = ProblemKind("quota-exceeded", 429, "The client has used up its quota of the round")
BODY_WRONG = ProblemKind("body-wrong", 422, "The bytes differ from the announced ones")
TOO_SLOW = ProblemKind("too-slow", 408, "The body did not arrive in time")
DISK_FULL = ProblemKind("disk-full", 507, "The store's disk is full")
DISK_FAILS = ProblemKind("disk-fails", 503, "The store's folder cannot be used")

MAX_ATTESTATION_BYTES = 2_000  # of an envelope with an attestation, whose environment has 1,000
PIECE = 1 << 20
INCOMING_FOLDER = "incoming"  # the folder of unfinished files, beside the folders that others read


@dataclass(frozen=True, slots=True)
class Receiver:
    """Receives the bodies that registered clients and auditors send."""

    settings: StoreSettings
    permissions: PermissionCache
    charges: Charges

    def authorize(
        self, request: Request, digest: Digest, max_bytes: int
    ) -> tuple[Upload, WritePermissions]:
        """Return the upload that a registered client has signed; the body is not read."""
        upload, signature = self._signed_for_here(request, digest, max_bytes)
        permissions, name = self.permissions.now(), f"client {upload.client}"
        clients = len(permissions.registry)
        if upload.client >= clients:
            detail = f"{name} is not one of the {clients} registered ones"
            raise ProblemError(UPLOAD_REFUSED, detail)
        client = permissions.registry[upload.client]
        if not is_signed_by(client.address, self.permissions.domain, upload, signature):
            detail = f"the signature is not {name}'s for this contract, this place and these bytes"
            raise ProblemError(UPLOAD_REFUSED, detail)
        require_round(permissions, upload.round)
        if client.is_banned_in(max(permissions.round, upload.round)):
            detail = f"{name} was banned in round {client.banned_in}"
            raise ProblemError(UPLOAD_REFUSED, detail)
        return upload, permissions

    def authorize_attestation(
        self, request: Request, digest: Digest, round_number: int
    ) -> tuple[AttestationUpload, WritePermissions]:
        """Return the upload that an auditor has signed for an ended round; the body is not read."""
        upload, signature = self._signed_for_here(request, digest, MAX_ATTESTATION_BYTES)
        if (upload.client, upload.round) != (AUDITOR, round_number):
            detail = f"an attestation about round {round_number} is signed for {AUDITOR} and it"
            raise ProblemError(UPLOAD_REFUSED, detail)
        permissions = self.permissions.now()
        try:
            address = recover(typed_digest(self.permissions.domain, upload), signature)
        except SignatureError as error:
            raise ProblemError(UPLOAD_REFUSED, str(error)) from error
        now = permissions.round
        writers = {one.address for one in permissions.registry if not one.is_banned_in(now)}
        if address not in self.settings.auditors and address not in writers:
            detail = (
                f"0x{address.hex()}, whose signature it is for this contract, this place and "
                "these bytes, is neither an auditor of this store nor a client that may write"
            )
            raise ProblemError(UPLOAD_REFUSED, detail)
        if not 1 <= round_number <= permissions.ended:
            detail = f"round {round_number} is not one of the {permissions.ended} ended ones"
            raise ProblemError(ROUND_NOT_ENDED, detail)
        fields = (upload.round, upload.client, upload.url, upload.digest, upload.size)
        return AttestationUpload(*fields, address), permissions

    def charge(self, upload: Upload, kind: ChargeKind, quota: tuple[int, int]) -> None:
        if not self.charges.charge(upload, kind, quota):
            detail = (
                f"{writer_of(upload)[1]} may put {quota[0]} of them and {quota[1]} bytes in round "
                f"{upload.round}; {upload.size} more are too many"
            )
            raise ProblemError(QUOTA_EXCEEDED, detail)

    async def receive_file(self, request: Request, upload: Upload, target: Path) -> None:
        """Write a body under its name, durably, if it is what was announced."""
        file: IncomingFile | None = None

        def write(piece: bytes) -> None:
            # Made with the first bytes: a header that is shown and followed by none makes no file.
            nonlocal file
            if file is None:
                file = IncomingFile(self.settings.folder, upload.digest, upload.size)
            file.write(piece)

        try:
            await self.receive(request, upload, write)
            assert file is not None, "even an empty body is written"
            await to_thread.run_sync(file.finish, target)
        except EncodingError as error:
            raise ProblemError(BODY_WRONG, str(error)) from error
        finally:
            if file is not None:
                await to_thread.run_sync(file.discard)

    async def receive(
        self, request: Request, upload: Upload, take: Callable[[bytes], object]
    ) -> None:
        """Pass a body on in pieces, each on a worker thread."""
        buffer, received, size = bytearray(), 0, upload.size
        seconds = self.settings.grace_seconds + size / self.settings.least_bytes_per_second
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    is_first = received == 0
                    received += len(part)
                    if received > size:
                        raise ProblemError(BODY_WRONG, f"the body has more than {size} bytes")
                    buffer += part
                    if is_first or len(buffer) >= PIECE:
                        await to_thread.run_sync(take, bytes(buffer))
                        buffer.clear()
                await to_thread.run_sync(take, bytes(buffer))
        except TimeoutError:
            detail = f"{received} of {size} bytes arrived in the {seconds:.0f} s that they may take"
            raise ProblemError(TOO_SLOW, detail) from None
        except ClientDisconnect:
            raise ProblemError(BODY_WRONG, f"only {received} of {size} bytes arrived") from None

    def _signed_for_here(
        self, request: Request, digest: Digest, max_bytes: int
    ) -> tuple[Upload, bytes]:
        """Return the upload that a header states, and its signature, whose signer is not checked.

        An upload for another store is refused: that store may be showing it here. Its URL is
        compared with the owner's URLs, not with `Host`, which the sender chooses.
        """
        header = request.headers.get("authorization", "")
        length = request.headers.get("content-length", "")
        if "transfer-encoding" in request.headers or not (length.isascii() and length.isdigit()):
            raise ProblemError(LENGTH_NEEDED, "the request needs a Content-Length header")
        if int(length[:20]) > max_bytes:
            detail = f"a body of {length[:20]} bytes is over the limit of {max_bytes}"
            raise ProblemError(BODY_TOO_LARGE, detail)
        try:
            upload, signature = parse_authorization(header, digest, int(length))
        except SignatureError as error:
            raise ProblemError(UPLOAD_UNSIGNED, str(error)) from error
        here = [f"{url}{request.scope['path']}" for url in self.settings.public_urls]
        if upload.url not in here:
            detail = f"the upload is signed for {upload.url}, not for {' or '.join(here)}"
            raise ProblemError(UPLOAD_ELSEWHERE, detail if here else "this store is read only")
        return upload, signature


class IncomingFile:
    """A file of announced digest and size that arrives in pieces: seen whole or not at all."""

    def __init__(self, folder: Path, digest: Digest, size: int, *, disk: Disk = DISK) -> None:
        self._disk = disk
        self._digest = digest
        self._size = self._missing = size
        self._hash = hashlib.sha256()
        incoming = folder / INCOMING_FOLDER
        for path in (folder, incoming):
            if not path.is_dir():
                disk.make_folder(path)
        self._path = disk.create(incoming, b"")

    def write(self, piece: bytes) -> None:
        self._missing -= len(piece)
        if self._missing < 0:
            raise EncodingError("the body is longer than announced")
        self._hash.update(piece)
        self._disk.append(self._path, piece)

    def finish(self, target: Path) -> None:
        """Give the file its name, durably, if its bytes are the announced ones."""
        if self._missing:
            raise EncodingError(f"{self._missing} announced bytes are missing")
        if self._hash.digest() != self._digest:
            raise EncodingError(f"the sha256 of the bytes is not {self._digest.hex()}")
        # A process that cleans up the folder removes the file, or its first part.
        if self._path.stat().st_size != self._size:
            raise OSError(errno.EIO, "a part of the file has been removed", str(self._path))
        self._disk.make_folders(target.parent)
        self._disk.sync_files([self._path])
        self._disk.rename(self._path, target)
        self._disk.sync([target])

    def discard(self) -> None:
        self._disk.remove(self._path)


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files of a killed store; no other may be writing meanwhile."""
    for path in (folder / INCOMING_FOLDER).glob(f"{WRITING}*"):
        path.unlink(missing_ok=True)


def require_round(permissions: WritePermissions, round_number: int) -> None:
    """Refuse a round that is neither open nor next to the open one."""
    if abs(round_number - permissions.round) > 1:
        detail = f"round {round_number} is not taken while round {permissions.round} is open"
        raise ProblemError(ROUND_NOT_TAKEN, detail)
