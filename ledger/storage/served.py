"""Blobs of `cmfl blobs serve`: read as from any server, written with a client's signature."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from ledger.io.http import HttpFailureError, HttpServer
from ledger.protocol.errors import BlobError
from ledger.protocol.payload import Payload
from ledger.storage.http import HttpBlobs, path_of
from ledger.storage.patience import PATIENT, SILENCE_SECONDS, asked

if TYPE_CHECKING:
    from ledger.io.http import HttpResponse
    from ledger.io.retry import RetryPolicy
    from ledger.protocol.types import Digest
    from ledger.storage.uploads import UploadSigner

MAX_ANSWER_BYTES = 65_536
ASKED_FIRST_BYTES = 65_536
"""Of what is larger it is asked whether it is there before it is sent."""

ELSEWHERE = "upload-elsewhere"
"""The code of a store that is known under another URL than the one that was signed."""

_TAKEN = {HTTPStatus.OK, HTTPStatus.CREATED}
_NEXT_CLIENT = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
"""What is said of a client that may not, or not so much; another one may."""
_PROBLEM = re.compile(r"urn:cmfl:problem:([a-z-]{1,40})")


class UploadRefusedError(HttpFailureError):
    """A store does not keep what it was sent; the message names its reason's code."""


class StoreServer:
    """Sends to a store what clients have signed for.

    Args:
        server: the store.
        uploads: signs; None for a reader, who may send nothing.
        patience: how often it is asked.
    """

    def __init__(
        self, server: HttpServer, uploads: UploadSigner | None, patience: RetryPolicy
    ) -> None:
        self._server = server
        self._uploads = uploads
        self._patience = patience

    def keep(self, path: str, payload: Payload) -> bool:
        """Have bytes kept, durably, and say whether they were not there before.

        Args:
            path: where, beginning with a slash.
            payload: the bytes.

        Raises:
            UploadRefusedError: the store does not keep them, or nobody here can sign.
            HttpFailureError: there is no whole answer.
        """
        if self._uploads is None:
            raise UploadRefusedError(f"{self._server.shown_url}: nobody here signs uploads")
        body, answer = bytes(payload.data), None
        url = f"{self._server.base_url}{path}"
        for header in self._uploads.authorizations(url, payload.digest, payload.size):
            answer = self._sent(path, body, header)
            if answer.status in _TAKEN:
                return answer.status == HTTPStatus.CREATED
            if answer.status not in _NEXT_CLIENT:
                break
        assert answer is not None, "there is one client at least"
        code = _code(answer)
        shown = f" ({code})" if code else ""
        if code == ELSEWHERE:
            shown += f": its owner does not call it {self._server.base_url}; ask which URL to give"
        raise UploadRefusedError(
            f"{self._server.shown_url} answers with HTTP status {answer.status}{shown}"
        )

    def _sent(self, path: str, body: bytes, authorization: str) -> HttpResponse:
        headers = {"Authorization": authorization, "Content-Type": "application/octet-stream"}
        return asked(
            self._patience,
            lambda: self._server.put(path, body, headers, MAX_ANSWER_BYTES),
            lambda answer: answer.status,
        )


class ServedBlobs(HttpBlobs):
    """Blobs of a store that takes them from registered clients; what it has taken is durable.

    Args:
        url: of the store, http or https.
        uploads: signs; None to read only.
        timeout_seconds: for one attempt at one blob.
        patience: how often it is asked.

    Raises:
        BlobError: the URL is none, or holds a user or a password.
    """

    def __init__(
        self,
        url: str,
        uploads: UploadSigner | None,
        timeout_seconds: float = 60.0,
        patience: RetryPolicy = PATIENT,
    ) -> None:
        super().__init__(url, timeout_seconds, patience=patience, silence_seconds=SILENCE_SECONDS)
        require_no_user("blobs", url)
        self._store = StoreServer(self._server, uploads, patience)

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest.

        Args:
            data: the bytes.

        Raises:
            BlobError: the store does not take it.
        """
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        """Store what this process has hashed, under the digest that it found.

        Args:
            payload: the bytes.

        Raises:
            BlobError: the store does not take it.
        """
        if payload.size > ASKED_FIRST_BYTES and self._is_there(payload.digest):
            return
        try:
            self._store.keep(path_of(payload.digest), payload)
        except HttpFailureError as error:
            raise BlobError(f"blob {payload.digest.hex()} cannot be stored: {error}") from None

    def remove(self, digest: Digest) -> None:
        """Refuse: a store that others read has a rule of its own for what is old.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobError: always.
        """
        raise BlobError(
            f"blob {digest.hex()} is not ours to remove: who serves the store says how many "
            f"rounds it keeps"
        )

    def sync(self) -> None:
        """Nothing is left to do: the store answers once it is durable."""

    def _is_there(self, digest: Digest) -> bool:
        try:
            return self.has(digest)
        except BlobError:
            return False


def require_no_user(what: str, url: str) -> None:
    """Refuse a URL whose user and password would take the place of a client's signature.

    Args:
        what: is looked for there, for an error.
        url: of the store.

    Raises:
        BlobError: it has some, or a query, behind which no path can stand.
    """
    if "@" in url.partition("://")[2].partition("/")[0] or "?" in url:
        raise BlobError(
            f"{what}: the store's URL has a user, a password or a query; a client's signature is "
            f"shown instead"
        )


def _code(answer: HttpResponse) -> str:
    """Return the code of a problem, and nothing else of what a server says; empty without one."""
    if answer.media_type != "application/problem+json":
        return ""
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ""
    found = _PROBLEM.fullmatch(str(told.get("type"))) if isinstance(told, dict) else None
    return found[1] if found else ""
