"""Endpoints of blobs and mail, and the integrity of the folder's blobs."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from api.http.answers import (
    BLOB_NOT_FOUND,
    IMMUTABLE,
    ProblemError,
    ProblemKind,
    invalid,
    is_known,
)
from api.http.streams import MEDIA_TYPE, send_blob
from api.settings import StoreSettings
from api.store import receiver as uploads
from ledger.history.training import is_genuine
from ledger.io.home import open_file
from ledger.protocol import types
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import Attestation, Envelope, EnvelopeKind, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError
from ledger.protocol.types import Digest, Upload
from ledger.storage.blobs import MAX_FOLDER_BYTES, MAX_FOLDER_OBJECTS, FolderObjects
from ledger.storage.mailbox import (
    EPOCH_BYTES,
    MAX_ENVELOPE_BYTES,
    MAX_PAGE_ENVELOPES,
    Board,
    Mailbox,
    Page,
    decode_mail,
    encode_page,
)

if TYPE_CHECKING:
    from ledger.storage.blobs import FolderBlobs


FRESH_SECONDS = 60.0
"""For this long an intact file counts as intact until it is written: hashing it may take a second.
"""
MAX_CACHED = 16_384


class IntegrityCache:
    """Checks whether blobs are undamaged, by a monotonic clock; safe to share between threads."""

    def __init__(self, blobs: FolderBlobs, clock: Callable[[], float] = time.monotonic) -> None:
        self._blobs = blobs
        self._clock = clock
        self._hashed: dict[Digest, tuple[tuple[int, ...], float]] = {}
        self._lock = threading.Lock()

    def is_intact(self, digest: Digest, size: int) -> bool:
        try:
            status = self._blobs.path_of(digest).stat()
        except OSError:
            return False
        # It differs after each write of the file.
        stamp = status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        if status.st_size != size:
            return False
        with self._lock:
            hashed, hashed_at = self._hashed.get(digest, ((), 0.0))
        if stamp == hashed and self._clock() - hashed_at < FRESH_SECONDS:
            return True
        try:
            with self._blobs.opened(digest, size):
                pass
        except BlobError:
            return False
        with self._lock:
            self._hashed.pop(digest, None)
            self._hashed[digest] = stamp, self._clock()
            while len(self._hashed) > MAX_CACHED:
                del self._hashed[next(iter(self._hashed))]
        return True


HASHED_AT_ONCE = 2  # blobs that are hashed at once for HEAD; the other threads serve readers
_NAME = re.compile(types.BARE)
_NO_STORE = {"Cache-Control": "no-store"}


class BlobRoutes:
    """Routes of a folder's blobs."""

    def __init__(self, receiver: uploads.Receiver, blobs: FolderBlobs) -> None:
        self._receiver = receiver
        self._blobs = blobs
        self._integrity = IntegrityCache(blobs)
        self._hashing = CapacityLimiter(HASHED_AT_ONCE)

    async def answer(self, request: Request) -> Response:
        # One route, so that 405 names all methods.
        return await (self.put if request.method == "PUT" else self.get)(request)

    async def get(self, request: Request) -> Response:
        """Return a blob's bytes or a range of them, unverified: the reader has its name."""
        digest = _digest_of(request)
        name = digest.hex()
        headers = {
            "ETag": f'"{name}"',
            "Cache-Control": IMMUTABLE,
            "Accept-Ranges": "bytes",
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        with ExitStack() as stack:
            try:
                path = self._blobs.path_of(digest)
                file = await to_thread.run_sync(stack.enter_context, open_file(path))
            except FileNotFoundError:
                raise ProblemError(BLOB_NOT_FOUND, f"{name} is missing") from None
            size = os.fstat(file.fileno()).st_size
            if is_known(request, headers["ETag"]):
                return Response(status_code=304, headers=headers)
            if request.method == "GET":
                return send_blob(request, stack, file, size, headers)
            # A client that asks before it uploads would not replace a damaged blob.
            is_intact = partial(self._integrity.is_intact, digest, size)
            if not await to_thread.run_sync(is_intact, limiter=self._hashing):
                raise ProblemError(BLOB_NOT_FOUND, f"this store's copy of {name} is damaged")
            headers["Content-Length"] = str(size)
            return Response(headers=headers, media_type=MEDIA_TYPE)

    async def put(self, request: Request) -> Response:
        """Store a blob: 201 once it is durable, 200 if it was there."""
        digest = _digest_of(request)
        receiver, settings = self._receiver, self._receiver.settings
        upload, _ = await to_thread.run_sync(
            receiver.authorize, request, digest, settings.max_blob_bytes
        )
        if await to_thread.run_sync(self._integrity.is_intact, digest, upload.size):
            await to_thread.run_sync(receiver.charges.note, upload, uploads.ChargeKind.BLOB)
            # The body is read too, so that its sender receives the answer.
            await receiver.receive(request, upload, lambda _: None)
            return Response(status_code=200, headers=_NO_STORE)
        quota = settings.quota_blobs, settings.quota_bytes
        await to_thread.run_sync(receiver.charge, upload, uploads.ChargeKind.BLOB, quota)
        is_stored = False
        try:
            await receiver.receive_file(request, upload, self._blobs.path_of(digest))
            is_stored = True
        finally:
            settle = partial(
                receiver.charges.settle, upload, uploads.ChargeKind.BLOB, is_stored=is_stored
            )
            # A server that stops cancels its transfers.
            with CancelScope(shield=True):
                await to_thread.run_sync(settle)
        return Response(status_code=201, headers=_NO_STORE)


def _digest_of(request: Request) -> Digest:
    name = str(request.path_params["digest"])
    if not _NAME.fullmatch(name) or request.path_params["prefix"] != name[:2]:
        raise ProblemError(
            BLOB_NOT_FOUND, "a blob's path is its sha256 behind its first two digits"
        )
    return Digest(bytes.fromhex(name))


ENVELOPE_INVALID = ProblemKind(
    "envelope-invalid", 422, "The bytes are not an envelope of this mailbox"
)
BOARD_NOT_FOUND = ProblemKind("board-not-found", 404, "There is no such board")

LEAST_ENVELOPES = 256
LEAST_MAIL_BYTES = 4 * 2**20  # of any client in a round; an honest one sends far less
_READ_BY_AUDITORS = {EnvelopeKind.ENVIRONMENT, EnvelopeKind.ATTESTATION}
_NUMBER = re.compile("0|[1-9][0-9]{0,19}")


class MailRoutes:
    """Routes of one contract's mail; a random epoch identifies this process's numbering."""

    def __init__(self, receiver: uploads.Receiver, mailbox: Mailbox) -> None:
        self._receiver = receiver
        self._mailbox = mailbox
        self._epoch = secrets.token_bytes(EPOCH_BYTES)

    async def get(self, request: Request) -> Response:
        """Return a page of a board's envelopes, those after the first `after`."""
        board = self._board(request)
        (name, text), *others = request.query_params.multi_items() or [("after", "0")]
        if name != "after" or others:
            raise invalid("query", name[:100], "the only parameter is `after`, given once")
        after = _number(text, partial(invalid, "query", "after"))
        page = await to_thread.run_sync(self._page, board, after)
        return Response(page, headers=_NO_STORE, media_type="application/octet-stream")

    async def put(self, request: Request) -> Response:
        """Store an envelope, and charge its sender: 201 once it is durable, 200 if it was there."""
        board, name = self._board(request), str(request.path_params["digest"])
        if not _NAME.fullmatch(name):
            raise ProblemError(BOARD_NOT_FOUND, "an envelope's name is its sha256")
        digest, body = Digest(bytes.fromhex(name)), bytearray()
        upload, permissions = await to_thread.run_sync(self._authorize, request, digest, board)
        await self._receiver.receive(request, upload, body.extend)
        # Not on the event loop: a megabyte is hashed and decoded.
        envelope = await to_thread.run_sync(_decode, bytes(body), digest, board, permissions)
        if isinstance(upload, uploads.AttestationUpload):
            _require_own(envelope, upload, permissions)
        quota = _quota(self._receiver.settings, len(permissions.registry), upload)
        # The charge is for the board's round: the envelope names it, and the signature does not.
        charged = replace(upload, round=envelope.round)
        is_new = await to_thread.run_sync(self._store, envelope, charged, quota)
        return Response(status_code=201 if is_new else 200, headers=_NO_STORE)

    def _authorize(
        self, request: Request, digest: Digest, board: Board
    ) -> tuple[Upload, uploads.WritePermissions]:
        if board[2] is EnvelopeKind.ATTESTATION:
            return self._receiver.authorize_attestation(request, digest, board[1])
        upload, permissions = self._receiver.authorize(request, digest, MAX_DOCUMENT_BYTES)
        uploads.require_round(permissions, board[1])
        return upload, permissions

    def _store(self, envelope: Envelope, upload: Upload, quota: tuple[int, int]) -> bool:
        if self._mailbox.holds(envelope):
            return False
        is_attestation = isinstance(upload, uploads.AttestationUpload)
        kind = uploads.ChargeKind.ATTESTATION if is_attestation else uploads.ChargeKind.ENVELOPE
        self._receiver.charge(upload, kind, quota)
        is_new: bool | None = None
        try:
            is_new = self._mailbox.put(envelope)
        finally:
            self._receiver.charges.settle(upload, kind, is_stored=is_new is not None)
        return is_new

    def _page(self, board: Board, after: int) -> bytes:
        """Return a page; for old rounds it has only the data that auditors read."""
        current = self._receiver.permissions.now().round
        oldest = current - self._receiver.settings.mail_rounds + 1
        self._mailbox.forget(board[0], oldest)
        first = 1 if board[2] in _READ_BY_AUDITORS else oldest
        if not first <= board[1] <= current + 1:
            return encode_page(Page(self._epoch, after, ()))
        epoch = self._epoch
        if board[1] >= oldest:
            found = self._mailbox.listed(*board, after)[:MAX_PAGE_ENVELOPES]
            listed = iter([encode_envelope(one) for one in found])
        else:
            # Old boards are read for each page; a reader begins again after a change.
            mailbox = Mailbox(FolderObjects(self._receiver.settings.folder))
            all_of_them = sorted(map(encode_envelope, mailbox.listed(*board)))
            epoch = sha256(epoch + sha256(b"".join(all_of_them)))[:EPOCH_BYTES]
            listed = iter(all_of_them[after : after + MAX_PAGE_ENVELOPES])
        envelopes: list[bytes] = []
        size = 0
        for data in listed:
            size += len(data)
            if envelopes and size > MAX_ENVELOPE_BYTES:
                break
            envelopes.append(data)
        return encode_page(Page(epoch, after, tuple(envelopes)))

    def _board(self, request: Request) -> Board:
        domain, path = self._receiver.permissions.domain, request.path_params
        number = _number(path["round"], partial(ProblemError, BOARD_NOT_FOUND))
        kinds = {str(int(kind)): kind for kind in EnvelopeKind}
        run = (path["chain"], path["contract"], path["salt"])
        own = (str(domain.chain_id), domain.contract.hex(), domain.salt.hex())
        if run != own:
            raise ProblemError(BOARD_NOT_FOUND, f"this store has the mail of {'/'.join(own)}")
        if path["kind"] not in kinds:
            raise ProblemError(BOARD_NOT_FOUND, "there are no envelopes of this kind")
        return domain, number, kinds[path["kind"]]


def _decode(
    data: bytes, digest: Digest, board: Board, permissions: uploads.WritePermissions
) -> Envelope:
    if sha256(data) != digest:
        raise ProblemError(uploads.BODY_WRONG, f"the sha256 of the bytes is not {digest.hex()}")
    envelope = decode_mail(data, board)
    if envelope is None:
        raise ProblemError(ENVELOPE_INVALID, "the bytes are not an envelope of this mailbox")
    clients = len(permissions.registry)
    if envelope.client >= clients:
        detail = f"client {envelope.client} is not one of the {clients} registered ones"
        raise ProblemError(ENVELOPE_INVALID, detail)
    return envelope


def _require_own(
    envelope: Envelope, upload: uploads.AttestationUpload, permissions: uploads.WritePermissions
) -> None:
    """Reject an attestation that its auditor has not signed for this run, or that another sends."""
    body = envelope.body
    assert isinstance(body, Attestation), "it is of this board"
    auditor = f"0x{body.auditor.hex()}"
    if body.auditor != upload.auditor:
        detail = f"{auditor} attests, and {uploads.writer_of(upload)[1]} sends it: each its own"
        raise ProblemError(uploads.UPLOAD_REFUSED, detail)
    if not is_genuine(body, envelope.domain, permissions.run, envelope.round, envelope.client):
        detail = f"it is of another run, or its signature is not {auditor}'s"
        raise ProblemError(ENVELOPE_INVALID, detail)


def _quota(settings: StoreSettings, clients: int, upload: Upload) -> tuple[int, int]:
    """Return the number and bytes of the envelopes that a writer may put in one round.

    Readers bound what they accept of a board. With larger quotas a few clients could fill a board
    before the others have sent anything. Half of the board of attestations is for the clients, the
    other half for the auditors that the operator names.
    """
    envelopes, size = settings.quota_envelopes, settings.quota_mail_bytes
    if not isinstance(upload, uploads.AttestationUpload):
        envelopes = min(envelopes, max(LEAST_ENVELOPES, MAX_FOLDER_OBJECTS // clients))
        size = min(size, max(LEAST_MAIL_BYTES, MAX_FOLDER_BYTES // clients))
    elif upload.auditor not in settings.auditors:
        envelopes = min(envelopes, MAX_FOLDER_OBJECTS // (2 * clients))
    return envelopes, size


def _number(text: str, error: Callable[[str], ProblemError]) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= 2**64:
        raise error(f"{text} must be a whole number below 2**64")
    return int(text)
