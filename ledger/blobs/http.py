"""Blobs behind any static HTTP server over a blobs folder: read, bounded, verified."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.bounded_http import HttpFailureError, HttpServer
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    from ledger.protocol.types import Digest

_ABSENT = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}


class HttpBlobs:
    """Blobs as files `ab/abcdef…` below one URL; safe to share between threads.

    The server is trusted for nothing: what comes is compared with its digest, and other bytes, too
    many or none say something of the server, not of the blob. Redirects are not followed.

    Args:
        url: of the folder, http or https.
        timeout_seconds: for one blob, from connecting to the last byte.

    Raises:
        BlobError: the URL is none.
    """

    def __init__(self, url: str, timeout_seconds: float = 60.0) -> None:
        try:
            self._server = HttpServer(url, timeout_seconds)
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
        try:
            self._verify_status(digest, self._server.head(_path(digest)))
        except BlobMissingError:
            return False
        except HttpFailureError as error:
            raise BlobUnreachableError(f"blob {digest.hex()} cannot be read: {error}") from None
        return True

    def _verified(self, digest: Digest, limit: int) -> bytes:
        try:
            answer = self._server.get(_path(digest), limit)
        except HttpFailureError as error:
            raise BlobUnreachableError(f"blob {digest.hex()} cannot be read: {error}") from None
        self._verify_status(digest, answer.status)
        if sha256(answer.body) != digest:
            raise BlobUnreachableError(
                f"blob {digest.hex()} cannot be read: {self._server.shown_url} gives other bytes"
            )
        return answer.body

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


def _path(digest: Digest) -> str:
    name = digest.hex()
    return f"/{name[:2]}/{name}"
