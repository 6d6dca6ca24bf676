"""Endpoint of the places of a digest."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from api.http.caching import respond
from api.http.openapi import OF_PAGE, declared
from api.http.parameters import Address, OneChain, Paged, of_deployment
from ledger.history.responses.digests import DigestAnswer
from ledger.history.serialise.serialise_digests import digest_page
from ledger.protocol import digest_patterns
from ledger.protocol.types import Digest

digests_router = of_deployment("/digests")

DigestAsked = Annotated[
    str,
    Path(
        description="64 hex digits in any case, as `sha256sum` prints them, or with 0x before them",
        pattern=f"^{digest_patterns.EITHER_FORM_ANY_CASE}$",
        max_length=66,
        examples=["5c" * 32],
    ),
]


@digests_router.get(
    "/{digest}",
    summary="Where a digest stands",
    operation_id="find_digest",
    response_model=DigestAnswer,
    responses=declared(*OF_PAGE),
)
def digest(
    request: Request, reading: OneChain, address: Address, digest: DigestAsked, page: Paged
) -> Response:
    """Return the kind, the round and the client of each place of a digest or a hash.

    Files (payloads, models, score vectors, records, incidents, the configuration) by their sha256;
    commitments, seeds, roots, results, heads; hashes of blocks and of transactions. Payloads and
    score vectors are found through the rounds' records, where these are available. An unknown
    digest has no places.
    """
    history = reading.history(address)
    sought = Digest(bytes.fromhex(digest.removeprefix("0x")))
    return respond(request, reading, digest_page(history, sought, page.limit, page.cursor))
