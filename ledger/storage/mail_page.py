"""A page of envelopes, as `cmfl blobs serve` gives it: canonical msgpack, bounded.

The server numbers its envelopes anew when it starts; the epoch, random bytes, identifies the
numbering.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.protocol import canonical
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.errors import EncodingError

MAIL_FOLDER = "mail"
EPOCH_BYTES = 16
MAX_PAGE_ENVELOPES = 256
MAX_ENVELOPE_BYTES = 2 * 2**20
"""Of the envelopes of a page together; the first may have any size."""

MAX_PAGE_BYTES = MAX_ENVELOPE_BYTES + MAX_DOCUMENT_BYTES + 16 * MAX_PAGE_ENVELOPES + 1_000
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Page:
    """Envelopes of one board.

    Attributes:
        epoch: identifies the numbering that `after` counts in.
        after: number of envelopes before the first.
        envelopes: their bytes.
    """

    epoch: bytes
    after: int
    envelopes: tuple[bytes, ...]


def encode_page(page: Page) -> bytes:
    """Return the bytes of a page."""
    return canonical.encode(
        {
            "version": _VERSION,
            "epoch": page.epoch,
            "after": page.after,
            "envelopes": list(page.envelopes),
        }
    )


def decode_page(data: bytes) -> Page:
    """Return the page in untrusted bytes; its envelopes are not decoded.

    Raises:
        EncodingError: the bytes are no page, or are over `MAX_PAGE_BYTES`.
    """
    # A map and a list: more is no page, however much memory it would take.
    fields = canonical.decode(data, MAX_PAGE_BYTES, containers=2, longest=MAX_PAGE_ENVELOPES)
    if set(fields) != {"version", "epoch", "after", "envelopes"} or fields["version"] != _VERSION:
        raise EncodingError("a page of envelopes has version 1, epoch, after and envelopes")
    epoch, after, envelopes = fields["epoch"], fields["after"], fields["envelopes"]
    if type(epoch) is not bytes or len(epoch) != EPOCH_BYTES:
        raise EncodingError(f"a page's epoch is {EPOCH_BYTES} bytes")
    if type(after) is not int or after < 0:
        raise EncodingError("a page begins after a number of envelopes")
    if type(envelopes) is not list:
        raise EncodingError("a page has a list of envelopes")
    if any(type(envelope) is not bytes for envelope in envelopes):
        raise EncodingError("a page's envelopes are bytes")
    return Page(epoch, after, tuple(envelopes))
