"""Errors as `application/problem+json` (RFC 9457).

A problem's `type` names a fact that a program can act on; plain HTTP errors are `about:blank`. No
answer holds a traceback, a path of this machine or a node's address.
"""

from __future__ import annotations

import http
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from api.http.root_path import root_path_of
from api.schemas.problems import MAX_ERRORS, MAX_SHOWN, MEDIA_TYPE, FieldError, Problem
from ledger.protocol.errors import CmflError


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A named kind of problem."""

    name: str
    status: int
    title: str


REQUEST_INVALID = ProblemKind("request-invalid", 422, "The request is not valid")
CHAIN_NOT_FOUND = ProblemKind("chain-not-found", 404, "There is no such chain")
CURSOR_INVALID = ProblemKind("cursor-invalid", 400, "The cursor is not one of this query's")
DEPLOYMENT_NOT_FOUND = ProblemKind("deployment-not-found", 404, "There is no such deployment")
ROUND_NOT_FOUND = ProblemKind("round-not-found", 404, "The round has not opened")
CLIENT_NOT_FOUND = ProblemKind("client-not-found", 404, "There is no such client")
VOTES_NOT_FOUND = ProblemKind(
    "votes-not-found", 404, "The signatures are not in the ledger's call data"
)
BLOB_NOT_FOUND = ProblemKind("blob-not-found", 404, "There is no such blob")
BLOB_DAMAGED = ProblemKind("blob-damaged", 503, "The blob cannot be given")
RANGE_UNSATISFIABLE = ProblemKind("range-unsatisfiable", 416, "The blob has no such range")
FEDERATION_NOT_WATCHED = ProblemKind(
    "federation-not-watched", 404, "No live federation is watched here"
)
STREAMS_EXHAUSTED = ProblemKind("streams-exhausted", 503, "There are too many streams")
STREAMS_OF_ADDRESS = ProblemKind(
    "streams-of-address-exhausted", 429, "This address has too many streams"
)
BUSY = ProblemKind("busy", 503, "Somebody else is being served")
MAILBOX_UNREADABLE = ProblemKind("mailbox-unreadable", 503, "The mailbox cannot be read")
VERIFICATION_NOT_FOUND = ProblemKind("verification-not-found", 404, "There is no such verification")
REPORT_NOT_FOUND = ProblemKind("report-not-found", 404, "There is no such report")
VERIFICATION_REFUSED = ProblemKind("verification-refused", 403, "You may not start a verification")
VERIFICATION_RUNNING = ProblemKind("verification-running", 409, "Another verification runs")
HOST_NOT_SERVED = ProblemKind("host-not-served", 421, "The server has another name")
BODY_TOO_LARGE = ProblemKind("body-too-large", 413, "The request's body is too large")
TOKEN_NEEDED = ProblemKind("token-needed", 401, "A token is needed")
RATE_EXCEEDED = ProblemKind("rate-exceeded", 429, "Too many requests")
CHAIN_UNREACHABLE = ProblemKind("chain-unreachable", 503, "The chain cannot be read")
CHAIN_NOT_SERVED = ProblemKind("chain-not-served", 502, "The chain's answers are not whole")
CHAIN_DAMAGED = ProblemKind("chain-damaged", 503, "The chain contradicts itself")
CHAIN_MOVED = ProblemKind("chain-moved", 503, "The chain was reorganised while it was read")


class ProblemError(CmflError):
    """A request that cannot be answered, with the values at fault if they are known."""

    def __init__(self, kind: ProblemKind, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.errors = tuple(errors)


def problem(
    request: Request, kind: ProblemKind, detail: str, errors: Sequence[FieldError] = ()
) -> Response:
    """Return the answer for a named problem."""
    headers = {"Retry-After": "1"} if kind.status in {429, 502, 503} else {}
    type_ = f"urn:cmfl:problem:{kind.name}"
    return _answer(request, (type_, kind.title, kind.status), detail, headers, tuple(errors))


def plain_problem(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for a plain HTTP error, with additional headers such as Allow."""
    title = http.HTTPStatus(status).phrase
    return _answer(request, ("about:blank", title, status), detail, headers or {}, ())


def _answer(
    request: Request,
    kind: tuple[str, str, int],
    detail: str,
    headers: Mapping[str, str],
    errors: tuple[FieldError, ...],
) -> Response:
    type_, title, status = kind
    body = Problem(
        type=type_,
        title=title,
        status=status,
        detail=detail[:MAX_SHOWN],
        instance=instance_of(request),
        errors=errors[:MAX_ERRORS] or None,
    )
    return Response(
        body.model_dump_json(exclude_none=True),
        status,
        {**headers, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        MEDIA_TYPE,
    )


def instance_of(request: Request) -> str:
    """Return the requested path, percent-encoded and cut to a maximum length."""
    raw: bytes = request.scope.get("raw_path") or b"/"
    return (root_path_of(request) + raw.decode("latin-1"))[:MAX_SHOWN]
