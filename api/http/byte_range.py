"""Ranges of a blob's bytes (RFC 9110, section 14), and the answers that send them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.http.problems import RANGE_UNSATISFIABLE, problem

MEDIA_TYPE = "application/octet-stream"

_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


def send_blob(
    request: Request, stack: ExitStack, file: BufferedReader, size: int, headers: Mapping[str, str]
) -> Response:
    """Return the answer to GET: a blob's bytes, or the one range that the request asks for.

    Args:
        stack: closes the file; emptied if the file is still needed.
    """
    version = request.headers.get("if-range")
    asked = request.headers.get("range") if version in {None, headers["ETag"]} else None
    try:
        part = parse_range(asked, size)
    except ValueError as error:
        answer = problem(request, RANGE_UNSATISFIABLE, str(error))
        answer.headers["Content-Range"] = f"bytes */{size}"
        return answer
    status, sent, more = 200, part or ByteRange(0, size), {"Accept-Ranges": "bytes"}
    if part is not None:
        status = 206
        more["Content-Range"] = f"bytes {part.first}-{part.end - 1}/{size}"
    file.seek(sent.first)
    pieces = _pieces(stack.pop_all(), file, sent.size)
    more["Content-Length"] = str(sent.size)
    return StreamingResponse(pieces, status, {**headers, **more}, MEDIA_TYPE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes from the first to the one before `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.first


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the one range that a request asks for (RFC 9110, section 14); None for the whole blob.

    Several ranges in one request are answered by the whole blob, as servers may.
    """
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < first:
            return None  # not a range at all: it is ignored
    if first >= end:
        raise ValueError(f"a blob of {size} bytes has none of these")
    return ByteRange(first, end)


def _pieces(stack: ExitStack, file: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield the next bytes of a file, and close it at their end or when the iteration ends."""
    with stack:
        remaining = size
        while remaining and (piece := file.read(min(_PIECE, remaining))):
            remaining -= len(piece)
            yield piece
