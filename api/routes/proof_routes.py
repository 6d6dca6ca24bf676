"""Endpoints of proofs and bundles, which a caller checks without trusting this service."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from api.http.encoded_answer import encoded
from api.http.openapi import OF_ROUND, declared
from api.http.parameters import Address, ClientIndex, OneChain, RoundIndex, of_deployment
from api.http.problems import BLOB_NOT_FOUND, BUSY, CLIENT_NOT_FOUND, ROUND_NOT_FOUND, ProblemError
from api.http.request_view import require_client, require_round
from ledger.audit.bundles.bundle_export import RoundExport, prepare_export
from ledger.audit.bundles.container import container_parts
from ledger.audit.proofs.proof_document import as_dict
from ledger.audit.proofs.proof_maker import make_proof
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.protocol.types import ClientId

proofs_router = of_deployment("/rounds/{number}", "proofs")
_one_at_a_time = threading.Lock()

Whole = Annotated[
    bool,
    Query(
        description="give all links from the run's beginning to its newest head, so that a head "
        "alone suffices to check it; they take about 0.5 kB a round"
    ),
]


@proofs_router.get(
    "/proof/{client}",
    summary="What became of a client, as a proof",
    operation_id="read_proof",
    responses=declared(*OF_ROUND, CLIENT_NOT_FOUND)
    | {
        200: {
            "description": "a document `cmfl-client-proof`, for `cmfl verify client --proof FILE`",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def proof(
    request: Request,
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
    require_round(history, number)
    require_client(client, served.fixed.clients)
    with reading.chain.snapshot(served) as ledger:
        made = make_proof(ledger, history.blobs, number, ClientId(client), whole=whole)
    reading.verify_unmoved()
    return encoded(request, to_json(as_dict(made)))


@proofs_router.get(
    "/bundle",
    summary="A whole round as one file",
    operation_id="read_bundle",
    response_class=StreamingResponse,
    responses=declared(*OF_ROUND, BLOB_NOT_FOUND, BUSY, tagged=False)
    | {
        200: {
            "description": "a tar file, for `cmfl verify bundle FILE`",
            "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def bundle(
    reading: OneChain, address: Address, number: RoundIndex, whole: Whole = False
) -> Response:
    """Return all that checking a round needs: events, documents, score vectors, payloads, models.

    One is made at a time, because the round is checked meanwhile.
    """
    export = _exported(reading, address, number, whole=whole)
    parts = container_parts(export.manifest, export.blobs.read, export.blobs)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="round-{number}.bundle.tar"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(parts, headers=headers, media_type="application/x-tar")


def _exported(reading: OneChain, address: str, number: int, *, whole: bool) -> RoundExport:
    """Return a round's bundle."""
    served = reading.deployment(address)
    history = reading.chain.history(served)
    require_round(history, number)
    if not _one_at_a_time.acquire(blocking=False):
        raise ProblemError(BUSY, "another bundle is being made")
    try:
        with reading.chain.snapshot(served) as ledger:
            return prepare_export(ledger, history.blobs, number, whole=whole)
    except ConfigurationError as error:
        raise ProblemError(ROUND_NOT_FOUND, str(error)) from error
    except BlobError as error:
        raise ProblemError(BLOB_NOT_FOUND, str(error)) from error
    finally:
        _one_at_a_time.release()
