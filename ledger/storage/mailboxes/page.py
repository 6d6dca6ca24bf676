"""A page of envelopes, as `cmfl blobs serve` gives it: canonical msgpack, bounded.

The server numbers what it finds in an order of its own, which begins anew when it does: the
epoch, random bytes, says which order the numbers belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.protocol import canonical
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.errors import EncodingError

EPOCH_BYTES = 16
MOST_ENVELOPES = 256
MOST_BYTES = 2 * 2**20
"""Of the envelopes of a page, of which there is one at least, whatever its size."""

MAX_PAGE_BYTES = MOST_BYTES + MAX_DOCUMENT_BYTES + 16 * MOST_ENVELOPES + 1_000
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Page:
    """Envelopes of one board.

    Attributes:
        epoch: says which order `after` counts in.
        after: how many of that order come before the first.
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
    """Return the page behind bytes from anybody; its envelopes are not decoded.

    Args:
        data: at most `MAX_PAGE_BYTES`.

    Raises:
        EncodingError: not a page.
    """
    # A map and a list: what is more is no page, however much memory it would take.
    found = canonical.decode(data, MAX_PAGE_BYTES, containers=2, longest=MOST_ENVELOPES)
    if set(found) != {"version", "epoch", "after", "envelopes"} or found["version"] != _VERSION:
        raise EncodingError("a page of envelopes has version 1, epoch, after and envelopes")
    epoch, after, envelopes = found["epoch"], found["after"], found["envelopes"]
    if type(epoch) is not bytes or len(epoch) != EPOCH_BYTES:
        raise EncodingError(f"a page's epoch is {EPOCH_BYTES} bytes")
    if type(after) is not int or after < 0:
        raise EncodingError("a page begins after a number of envelopes")
    if type(envelopes) is not list:
        raise EncodingError("a page has a list of envelopes")
    if any(type(one) is not bytes for one in envelopes):
        raise EncodingError("a page's envelopes are bytes")
    return Page(epoch, after, tuple(envelopes))
