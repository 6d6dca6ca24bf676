"""Blobs by their sha256, for remote auditors."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import StreamingResponse

from api.http.byte_range import MEDIA_TYPE, send_blob
from api.http.encoded_answer import IMMUTABLE, is_known
from api.http.openapi import ASKED, declared
from api.http.parameters import refuse_unknown
from api.http.problems import BLOB_DAMAGED, BLOB_NOT_FOUND, RANGE_UNSATISFIABLE, ProblemError
from api.http.request_view import histories_of
from ledger.protocol import digest_patterns
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.types import Digest

blobs_router = APIRouter(prefix="/v1/blobs", tags=["blobs"], dependencies=[Depends(refuse_unknown)])

Sha256 = Annotated[
    str,
    Path(
        description="of the blob, 64 hex digits in lower case",
        pattern=f"^{digest_patterns.BARE}$",
        max_length=64,
        examples=["5c" * 32],
    ),
]
Prefix = Annotated[
    str,
    Path(
        description="the digest's first two digits, as in a folder of blobs",
        pattern=r"^[0-9a-f]{2}$",
        max_length=2,
        examples=["5c"],
    ),
]
_BYTES = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_ANSWERS = declared(*ASKED, BLOB_NOT_FOUND, BLOB_DAMAGED, RANGE_UNSATISFIABLE) | {
    200: {"description": "the blob's bytes", "content": _BYTES},
    206: {"description": "the one range of them that `Range` names", "content": _BYTES},
}


@blobs_router.get(
    "/{digest}",
    summary="A blob",
    operation_id="read_blob",
    responses=_ANSWERS,
    response_class=StreamingResponse,
)
def blob(request: Request, digest: Sha256) -> Response:
    """Return a blob's bytes: a payload, a model, a score vector, a record, a configuration.

    The bytes are checked against their digest before the first of them is sent. They are always
    sent as a download, never as a page. `Range` with one range gets this part alone.
    """
    return _sent(request, digest)


@blobs_router.get(
    "/{prefix}/{digest}",
    summary="A blob, as in a folder of blobs",
    operation_id="read_blob_in_folder",
    responses=_ANSWERS,
    response_class=StreamingResponse,
)
def blob_in_folder(request: Request, prefix: Prefix, digest: Sha256) -> Response:
    """Return a blob's bytes by its path in a folder of blobs: `cmfl audit --blobs URL/v1/blobs`."""
    return _sent(request, digest, prefix)


def _sent(request: Request, name: str, prefix: str = "") -> Response:
    """Return the answer that streams a blob's bytes."""
    if not name.startswith(prefix):
        raise ProblemError(BLOB_NOT_FOUND, f"{name} does not begin with {prefix}")
    headers = {
        "ETag": f'"{name}"',
        "Cache-Control": IMMUTABLE,
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    histories = histories_of(request)
    digest = Digest(bytes.fromhex(name))
    if is_known(request.headers.get("if-none-match"), headers["ETag"]) and histories.blobs.has(
        digest
    ):
        return Response(status_code=304, headers=headers)
    stack = ExitStack()
    try:
        file, size = stack.enter_context(histories.blobs.opened(digest, histories.largest_blob))
    except BlobMissingError as error:
        raise ProblemError(BLOB_NOT_FOUND, f"{name} is not here") from error
    except BlobError as error:
        raise ProblemError(BLOB_DAMAGED, str(error)) from error
    with stack:
        return send_blob(request, stack, file, size, headers)
