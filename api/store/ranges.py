"""The one range of a blob that a request asks for (RFC 9110, section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes from the first to the one before `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.end - self.first


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the range that is asked for; None for the whole blob.

    Several ranges in one request are answered by the whole, as servers may.

    Args:
        header: `Range`, from anybody.
        size: of the blob.

    Raises:
        ValueError: the blob has no such bytes.
    """
    found = _ONE.fullmatch(header.strip()) if header is not None else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        first, end = max(0, size - int(found[2])), size
    else:
        first, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
        if found[2] and int(found[2]) < first:
            return None  # not a range at all: it is ignored
    if first >= end:
        raise ValueError(f"a blob of {size} bytes has none of these")
    return ByteRange(first, end)
