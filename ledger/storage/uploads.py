"""Signatures by which clients and auditors ask a store server to keep their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ledger.protocol.errors import SignatureError
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import ClientId, Digest, Domain, Upload

SCHEME = "CMFL"
MAX_URL_CHARACTERS = 4_000
AUDITOR = ClientId(2**32 - 1)
"""Stands for a client's index where an auditor signs, who has none; no run has so many clients."""

_HEADER = re.compile(
    rf"{SCHEME} (0|[1-9]\d{{0,9}})\.(0|[1-9]\d{{0,19}})\.([0-9a-f]{{130}}) "
    rf"([!-~]{{1,{MAX_URL_CHARACTERS}}})"
)


@dataclass(slots=True)
class UploadSigner:
    """Signs uploads for the clients of one process.

    Attributes:
        others: more clients of this process with their keys; where the quota of one is used up,
            the next one's is.
        round: t; to be set when a round begins.
    """

    domain: Domain
    signer: Signer
    client: ClientId
    others: tuple[tuple[ClientId, Signer], ...] = ()
    round: int = 0
    _first: int = field(default=0, repr=False)

    def authorizations(self, url: str, digest: Digest, size: int) -> Iterator[str]:
        """Yield the header for some bytes, signed by one client after the other.

        The last client that was tried is the first the next time.

        Args:
            url: where they are put, below the store's URL as this process was given it. Never what
                a server says of itself: it could name another, and pass the header on to that.
            digest: their sha256.
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
    """Return the upload of an untrusted header, and its signature, which is not verified here.

    Args:
        digest: of the bytes that come with it.
    """
    match = _HEADER.fullmatch(header)
    if match is None or int(match[1]) >= 2**32 or int(match[2]) >= 2**64:
        raise SignatureError(f"the header of an upload is `{SCHEME} client.round.signature url`")
    upload = Upload(int(match[2]), ClientId(int(match[1])), match[4], digest, size)
    return upload, bytes.fromhex(match[3])
