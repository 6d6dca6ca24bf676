"""Endpoints of proofs, bundles and blobs, which a caller checks without trusting this service."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Annotated

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from api.http import answers as kinds
from api.http.answers import IMMUTABLE, ProblemError, encoded, histories_of, is_known
from api.http.endpoints import (
    ASKED,
    OF_ROUND,
    Address,
    ClientIndex,
    Endpoints,
    OneChain,
    RoundIndex,
    of_deployment,
    success,
)
from api.http.streams import MEDIA_TYPE, send_blob
from ledger.audit.proofs.bundle_verification import prepare_export
from ledger.audit.proofs.container import container_parts
from ledger.audit.proofs.documents import PROOF
from ledger.audit.proofs.recorded import make_proof
from ledger.protocol import types
from ledger.protocol.errors import ConfigurationError

_proofs = of_deployment("/rounds/{number}", "proofs")
_one_at_a_time = threading.Lock()

Whole = Annotated[
    bool,
    Query(
        description="give all links from the run's beginning to its newest head, so that a head "
        "alone suffices to check it; they take about 0.5 kB a round"
    ),
]


@_proofs.answers(
    "/proof/{client}",
    "A client's outcome, as a proof",
    None,
    (*OF_ROUND, kinds.CLIENT_NOT_FOUND, *kinds.OF_BLOB),
    media=success(
        "application/json",
        "a document `cmfl-client-proof`, for `cmfl verify client --proof FILE`",
        type="object",
    ),
)
def read_proof(
    reading: OneChain,
    address: Address,
    number: RoundIndex,
    client: ClientIndex,
    whole: Whole = False,
) -> Response:
    """Prove whether a client's update was used in a round, its rank and weight, or the reason.

    Nothing of it is verified here: check it yourself, against a head that you trust or the
    contract. The proof states what it cannot prove.
    """
    served = reading.deployment(address)
    history = reading.chain.history(served)
    history.opened(number)
    index = history.known(client)
    with reading.chain.snapshot(served) as ledger:
        made = make_proof(ledger, history.blobs, number, index, whole=whole)
    reading.verify_unmoved()
    return encoded(reading.request, to_json(PROOF.write(made)))


@_proofs.answers(
    "/bundle",
    "A whole round as one file",
    None,
    (*OF_ROUND, kinds.ROUND_NOT_ENDED, *kinds.OF_BLOB, kinds.BUSY),
    media=success("application/x-tar", "a tar file, for `cmfl verify bundle FILE`"),
    tagged=False,
    response_class=StreamingResponse,
)
def read_bundle(
    reading: OneChain, address: Address, number: RoundIndex, whole: Whole = False
) -> Response:
    """Return all that checking a round needs: events, documents, score vectors, payloads, models.

    One is made at a time, because the round is checked meanwhile.
    """
    served = reading.deployment(address)
    history = reading.chain.history(served)
    history.opened(number)
    if not _one_at_a_time.acquire(blocking=False):
        raise ProblemError(kinds.BUSY, "another bundle is being built; retry later")
    try:
        with reading.chain.snapshot(served) as ledger:
            export = prepare_export(ledger, history.blobs, number, whole=whole)
    except ConfigurationError as error:
        raise ProblemError(kinds.ROUND_NOT_ENDED, str(error)) from error
    finally:
        _one_at_a_time.release()
    parts = container_parts(export.manifest, export.blobs.read, export.blobs)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="round-{number}.bundle.tar"',
    }
    return StreamingResponse(parts, headers=headers, media_type="application/x-tar")


_blobs = Endpoints("/v1/blobs", "blobs")

Sha256 = Annotated[
    str,
    Path(
        description="of the blob, 64 hex digits in lower case",
        pattern=f"^{types.BARE}$",
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
_PROBLEMS = (*ASKED, *kinds.OF_BLOB, kinds.RANGE_UNSATISFIABLE)
_BYTES = success(MEDIA_TYPE, "the blob's bytes")
_BYTES[206] = _BYTES[200] | {"description": "the one range of them that `Range` names"}


@_blobs.answers(
    "/{digest}", "A blob", None, _PROBLEMS, media=_BYTES, response_class=StreamingResponse
)
def read_blob(request: Request, digest: Sha256) -> Response:
    """Return a blob's bytes: a payload, a model, a score vector, a record, a configuration.

    The bytes are checked against their digest before the first of them is sent. They are always
    sent as a download, never as a page. `Range` with one range gets this part alone.
    """
    return _sent(request, digest)


@_blobs.answers(
    "/{prefix}/{digest}",
    "A blob, as in a folder of blobs",
    None,
    _PROBLEMS,
    media=_BYTES,
    response_class=StreamingResponse,
)
def read_blob_in_folder(request: Request, prefix: Prefix, digest: Sha256) -> Response:
    """Return a blob's bytes by its path in a folder of blobs: `cmfl audit --blobs URL/v1/blobs`."""
    return _sent(request, digest, prefix)


def _sent(request: Request, name: str, prefix: str = "") -> Response:
    if not name.startswith(prefix):
        raise ProblemError(kinds.BLOB_NOT_FOUND, f"{name} does not begin with {prefix}")
    headers = {
        "ETag": f'"{name}"',
        "Cache-Control": IMMUTABLE,
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    histories, digest = histories_of(request), types.Digest(bytes.fromhex(name))
    if is_known(request, headers["ETag"]) and histories.blobs.has(digest):
        return Response(status_code=304, headers=headers)
    with ExitStack() as stack:
        file, size = stack.enter_context(histories.blobs.opened(digest, histories.largest_blob))
        return send_blob(request, stack, file, size, headers)


ROUTES = [*_proofs.routes, *_blobs.routes]
