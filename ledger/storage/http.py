"""Objects of an HTTP server, trusted for nothing: any static one, or `cmfl blobs serve`.

Any server over a folder of objects answers GET and HEAD of `/path`. A server of `cmfl blobs serve`
also takes PUT with a client's signature, and lists the mail of a folder in pages; an object that
it has taken is durable. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.io.parsing import parse_json
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, EncodingError, SignatureError
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import ClientId, Digest, Domain, Upload
from ledger.storage.blobs import FolderCursor, ObjectStore
from ledger.storage.mailbox import MAIL_FOLDER, MAX_PAGE_BYTES, decode_page

SCHEME = "CMFL"
# Stands for a client's index where an auditor signs, who has none; no run has so many clients.
AUDITOR = ClientId(2**32 - 1)

_HEADER = re.compile(
    rf"{SCHEME} (0|[1-9]\d{{0,9}})\.(0|[1-9]\d{{0,19}})\.([0-9a-f]{{130}}) ([!-~]{{1,4000}})"
)


@dataclass(slots=True)
class UploadSigner:
    """Signs uploads of a round for the clients of one process, by one quota after the other."""

    domain: Domain
    signer: Signer
    client: ClientId
    others: tuple[tuple[ClientId, Signer], ...] = ()
    round: int = 0
    _first: int = field(default=0, repr=False)

    def authorizations(self, url: str, digest: Digest, size: int) -> Iterator[str]:
        """Yield the header for some bytes, signed by one client after the other.

        The last client that was tried is the first the next time. The URL is the one this process
        was given, never a server's own: it could name another, and pass the header on to that.
        """
        signers = ((self.client, self.signer), *self.others)
        for step in range(len(signers)):
            client, signer = signers[self._first]
            upload = Upload(self.round, client, url, digest, size)
            yield authorization_header(upload, sign(signer, self.domain, upload))
            if step + 1 < len(signers):
                self._first = (self._first + 1) % len(signers)


def authorization_header(upload: Upload, signature: bytes) -> str:
    """Return the header of a signed upload."""
    return f"{SCHEME} {upload.client}.{upload.round}.{signature.hex()} {upload.url}"


def parse_authorization(header: str, digest: Digest, size: int) -> tuple[Upload, bytes]:
    """Return the upload of an untrusted header, and its signature, which is not verified here."""
    match = _HEADER.fullmatch(header)
    if match is None or int(match[1]) >= 2**32 or int(match[2]) >= 2**64:
        raise SignatureError(f"an upload's header must be `{SCHEME} client.round.signature url`")
    upload = Upload(int(match[2]), ClientId(int(match[1])), match[4], digest, size)
    return upload, bytes.fromhex(match[3])


# How long a store server may be silent: it has nothing to compute. There is no retry after a full
# time-out: other requests are waiting.
SILENCE_SECONDS = 10.0
STORE_RETRY = RetryPolicy(Backoff(0.2, 5), attempts=3, deadline_seconds=SILENCE_SECONDS)
NO_RETRY = RetryPolicy(Backoff(0.0), attempts=1)
# Statuses that a retry may change; a full disk (507) stays full.
TRANSIENT = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
MAX_PAGES = 64  # that one scan reads; the next scan reads the rest
# After this time a scan asks for no more pages: a server that drips each would block a reader.
SCAN_SECONDS = 10.0
# Before a larger object is sent, the server is asked whether it has it.
CHECKED_FIRST_BYTES = 65_536
MAX_ANSWER_BYTES = 65_536
# The problem code of a store that has another URL than the one that was signed.
UPLOAD_ELSEWHERE = "upload-elsewhere"


@dataclass(eq=False)
class HttpObjects(ObjectStore):
    """Objects below the URL of a folder or store; safe to share between threads.

    Without a signer they are read only. After `max_failures` requests in a row without a whole
    answer the server is asked no more. The clock only goes forward.
    """

    server: HttpServer
    signer: UploadSigner | None = None
    max_failures: int | None = None
    retry: RetryPolicy = NO_RETRY
    clock: Callable[[], float] = time.monotonic
    _failures: int = field(default=0, init=False)

    def get(self, path: str, limit: int) -> bytes:
        answer = self._ask(lambda: self.server.get(f"/{path}", limit))
        self._require_found(path, answer.status)
        if sha256(answer.body).hex() != path.rpartition("/")[2]:  # the server's fault
            raise OSError(errno.EIO, f"{self.server.shown_url} returned other bytes")
        return answer.body

    def has(self, path: str) -> bool:
        answer = self._ask(lambda: self.server.head(f"/{path}"))
        try:
            self._require_found(path, answer.status)
        except FileNotFoundError:
            return False
        return True

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:  # noqa: ARG002
        if self.signer is None:
            raise OSError(
                errno.EACCES,
                f"{self.server.shown_url}: uploads need a client's key",
            )
        is_mail = path.startswith(f"{MAIL_FOLDER}/")  # which answers no HEAD
        if payload.size > CHECKED_FIRST_BYTES and not is_mail:
            with contextlib.suppress(OSError):
                if self.has(path):
                    return False
        body, answer = bytes(payload.data), None
        url = f"{self.server.base_url}/{path}"
        for header in self.signer.authorizations(url, payload.digest, payload.size):
            headers = {"Authorization": header, "Content-Type": "application/octet-stream"}
            send = partial(self.server.put, f"/{path}", body, headers, MAX_ANSWER_BYTES)
            answer = self._ask(send)
            if answer.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
                return answer.status == HTTPStatus.CREATED
            # Refusals of one client, its signature or its quota; another client may succeed.
            if answer.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
                break
        assert answer is not None, "there is one client at least"
        raise OSError(errno.EACCES, _refusal(self.server, answer))

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        end = self.clock() + SCAN_SECONDS
        for _ in range(MAX_PAGES):
            if not self._read_page(folder, cursor) or self.clock() >= end:
                break

    def delete(self, path: str) -> None:
        reason = "it is not ours to remove: the store's owner sets how many rounds it keeps"
        raise OSError(errno.EPERM, reason, path)

    def close(self) -> None:
        self.server.close()

    def _ask(self, request: Callable[[], HttpResponse]) -> HttpResponse:
        shown = self.server.shown_url
        if self.max_failures is not None and self._failures >= self.max_failures:
            raise OSError(
                errno.EIO,
                f"{shown} sent no complete response {self.max_failures} times in a row",
            )
        try:
            answer = self.retry.call(
                request,
                # Of the failures, a response over the limit is lasting.
                lambda error: type(error) is HttpFailureError,
                is_transient_result=lambda response: response.status in TRANSIENT,
            )
        except HttpFailureError as error:
            self._failures += 1
            raise OSError(errno.EIO, str(error)) from None
        self._failures = 0
        return answer

    def _require_found(self, path: str, status: int) -> None:
        if status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", path)
        if status != HTTPStatus.OK:
            raise OSError(errno.EIO, f"{self.server.shown_url} returned HTTP status {status}")

    def _read_page(self, folder: str, cursor: FolderCursor) -> bool:
        """Deliver the next page, and return whether another may follow."""
        epoch, after = cursor.position
        answer = self._ask(lambda: self.server.get(f"/{folder}?after={after}", MAX_PAGE_BYTES))
        if answer.status != HTTPStatus.OK:
            status = f"{self.server.shown_url} answers with HTTP status {answer.status}"
            raise OSError(errno.EIO, status)
        try:
            page = decode_page(answer.body)
        except EncodingError as error:
            raise OSError(errno.EIO, f"{self.server.shown_url}: not a page ({error})") from None
        if page.epoch != epoch:
            # The server has restarted, and numbers its objects anew.
            cursor.position = (page.epoch, 0)
            if after > 0:
                return True
        if page.after != after or cursor.is_full:
            return False
        cursor.position = (page.epoch, after + len(page.envelopes))
        for data in page.envelopes:
            name = sha256(data).hex()
            if cursor.wants(name, len(data), stamp=None):
                cursor.deliver(name, data, stamp=None)
        return bool(page.envelopes)


def static_server(
    url: str,
    timeout_seconds: float = 60.0,
    token: str | None = None,
    max_failures: int | None = None,
) -> HttpObjects:
    """Return the objects of any HTTP server over a folder of them."""
    return HttpObjects(_server(url, timeout_seconds, token, None), max_failures=max_failures)


def store_server(
    url: str, signer: UploadSigner | None, timeout_seconds: float, retry: RetryPolicy = STORE_RETRY
) -> HttpObjects:
    """Return the objects of `cmfl blobs serve`."""
    server = _server(url, timeout_seconds, None, SILENCE_SECONDS)
    require_plain_url("blobs or mailbox", url)
    return HttpObjects(server, signer, retry=retry)


def _server(
    url: str, timeout_seconds: float, token: str | None, silence_seconds: float | None
) -> HttpServer:
    try:
        return HttpServer(url, timeout_seconds, token, silence_seconds)
    except ValueError as error:
        raise BlobError(f"the URL of the blobs or mailbox: {error}") from None


def require_plain_url(option: str, url: str) -> None:
    """Refuse a store's URL with a user, or with a query, behind which no path can follow."""
    if "@" in url.partition("://")[2].partition("/")[0] or "?" in url:
        raise BlobError(f"{option}: the store's URL must not have a user, a password or a query")


def _refusal(server: HttpServer, answer: HttpResponse) -> str:
    """Return the status and the code of a problem, and nothing else that a server says."""
    problem, match = None, None
    if answer.media_type == "application/problem+json":
        with contextlib.suppress(ValueError):
            problem = parse_json(answer.body)
    if isinstance(problem, dict):
        match = re.fullmatch(r"urn:cmfl:problem:([a-z-]{1,40})", str(problem.get("type")))
    shown = f" ({match[1]})" if match else ""
    if match and match[1] == UPLOAD_ELSEWHERE:
        shown += f": its owner does not call it {server.base_url}; ask which URL to give"
    return f"{server.shown_url} answers with HTTP status {answer.status}{shown}"
