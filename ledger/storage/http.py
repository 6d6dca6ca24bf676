"""Blobs behind any static HTTP server over a blobs folder: read, bounded, verified."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from ledger.io.http import HttpFailureError, HttpServer
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.storage.blobs import MAX_BLOB_BYTES
from ledger.storage.patience import AT_ONCE, asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.io.retry import RetryPolicy
    from ledger.protocol.types import Digest

T = TypeVar("T")

_ABSENT = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}


class HttpBlobs:
    """Blobs as files `ab/abcdef…` below one URL; safe to share between threads.

    The server is trusted for nothing: what comes is compared with its digest, and other bytes, too
    many or none say something of the server, not of the blob. Redirects are not followed.

    Args:
        url: of the folder, http or https.
        timeout_seconds: for one blob, from connecting to the last byte.
        token: that the server wants to see; None for none.
        most_failures: after so many blobs in a row without a whole answer the server is asked no
            more, so that one which stalls holds nobody for as long as there are blobs; None to ask
            for ever.
        patience: how often it is asked for one blob.
        silence_seconds: how long nothing may come of an answer; None for all of its time.

    Raises:
        BlobError: the URL or the token is none.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 60.0,
        token: str | None = None,
        most_failures: int | None = None,
        patience: RetryPolicy = AT_ONCE,
        silence_seconds: float | None = None,
    ) -> None:
        self._patience = patience
        self._most_failures = most_failures
        self._failures = 0
        try:
            self._server = HttpServer(url, timeout_seconds, token, silence_seconds)
        except ValueError as error:
            raise BlobError(f"the blobs' URL: {error}") from None

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.

        Raises:
            BlobMissingError: the server says that there is none.
            BlobUnreachableError: the server gives something else, or no answer.
        """
        return self._verified(digest, limit)

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, and the digest that was found; see `get`."""
        return Payload(self._verified(digest, limit), digest)

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobUnreachableError: that cannot be told.
        """
        status = self._asked(digest, lambda: self._server.head(path_of(digest)), int)
        try:
            self._verify_status(digest, status)
        except BlobMissingError:
            return False
        return True

    def _verified(self, digest: Digest, limit: int) -> bytes:
        answer = self._asked(
            digest, lambda: self._server.get(path_of(digest), limit), lambda said: said.status
        )
        self._verify_status(digest, answer.status)
        if sha256(answer.body) != digest:
            raise BlobUnreachableError(
                f"blob {digest.hex()} cannot be read: {self._server.shown_url} gives other bytes"
            )
        return answer.body

    def _asked(self, digest: Digest, ask: Callable[[], T], status_of: Callable[[T], int]) -> T:
        """Return what the server answers, and count how often it did not.

        Raises:
            BlobUnreachableError: there is no whole answer, or there was none too often.
        """
        if self._most_failures is not None and self._failures >= self._most_failures:
            raise BlobUnreachableError(
                f"blob {digest.hex()} was not asked for: {self._server.shown_url} gave no whole "
                f"answer {self._most_failures} times in a row"
            )
        try:
            found = asked(self._patience, ask, status_of)
        except HttpFailureError as error:
            self._failures += 1
            raise BlobUnreachableError(f"blob {digest.hex()} cannot be read: {error}") from None
        self._failures = 0
        return found

    def _verify_status(self, digest: Digest, status: int) -> None:
        if status in _ABSENT:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        if status != HTTPStatus.OK:
            raise BlobUnreachableError(
                f"blob {digest.hex()} cannot be read: {self._server.shown_url} answers with HTTP "
                f"status {status}"
            )

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


def path_of(digest: Digest) -> str:
    """Return where a blob is below the URL of its folder.

    Args:
        digest: sha256 of the blob.
    """
    name = digest.hex()
    return f"/{name[:2]}/{name}"
