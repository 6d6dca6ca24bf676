"""Answers of a request: the view that it reads, its bytes, and its caching headers.

A problem's `type` names a fact that a program can act on; plain HTTP errors are `about:blank`. No
answer holds a traceback, a path of this machine or a node's address.

A round that has ended in a final block cannot change any more. Its answers name that block in
`as_of`, so that a URL always gives the same bytes, with a strong ETag and `immutable`. All other
answers, for example with a blob missing, carry a weak ETag, which changes with every block, and
`no-cache`. The compressed form has its own tag; a client may name either.
"""

from __future__ import annotations

import gzip
import hashlib
import http
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends
from fastapi.routing import APIRoute
from pydantic_core import to_json, to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response

from api.schemas import MAX_ERRORS, MAX_SHOWN, MEDIA_TYPE, FieldError, Problem
from ledger.chain.round_ledger import RecordedEvent
from ledger.history.answers_rounds import LocalHistory
from ledger.history.fields import AsOf
from ledger.protocol.encoding import eip55, to_hex
from ledger.protocol.errors import ChainError, CmflError

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

    from api.histories import HistoryService, PinnedChain, ServedDeployment
    from ledger.history.history import FoldedHistory


def root_path_of(request: Request) -> str:
    """Return the path without a slash at its end; empty without a proxy, and for a store."""
    app: Any = request.scope.get("app")
    return str(app.state.settings.root_path) if hasattr(app, "openapi") else ""


def to_rooted_json(request: Request, answer: object) -> bytes:
    """Return an answer as JSON, with its links below the service's root path."""
    root = root_path_of(request)
    return to_json(_rooted(to_jsonable_python(answer), root) if root else answer)


def _rooted(value: Any, root: str) -> Any:
    if isinstance(value, list):
        return [_rooted(each, root) for each in value]
    if not isinstance(value, dict):
        return value
    rooted = {name: _rooted(each, root) for name, each in value.items()}
    links = rooted.get("links")
    if isinstance(links, dict):
        rooted["links"] = {
            name: f"{root}{link}" if isinstance(link, str) and link.startswith("/v1/") else link
            for name, link in links.items()
        }
    return rooted


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem; plain HTTP errors have no name."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        return f"urn:cmfl:problem:{self.name}" if self.name else "about:blank"


REQUEST_INVALID = ProblemKind("request-invalid", 422, "The request is not valid")
CHAIN_NOT_FOUND = ProblemKind("chain-not-found", 404, "There is no such chain")
CURSOR_INVALID = ProblemKind("cursor-invalid", 400, "The cursor is not one of this query's")
DEPLOYMENT_NOT_FOUND = ProblemKind("deployment-not-found", 404, "There is no such deployment")
ROUND_NOT_FOUND = ProblemKind("round-not-found", 404, "The round has not opened")
ROUND_NOT_ENDED = ProblemKind("round-not-ended", 409, "The round has not ended")
CLIENT_NOT_FOUND = ProblemKind("client-not-found", 404, "There is no such client")
VOTES_NOT_FOUND = ProblemKind(
    "votes-not-found", 404, "The signatures are not in the ledger's call data"
)
BLOB_NOT_FOUND = ProblemKind("blob-not-found", 404, "There is no such blob")
BLOB_DAMAGED = ProblemKind("blob-damaged", 503, "The blob cannot be given")
OF_BLOB = (BLOB_NOT_FOUND, BLOB_DAMAGED)
RANGE_UNSATISFIABLE = ProblemKind("range-unsatisfiable", 416, "The blob has no such range")
FEDERATION_NOT_WATCHED = ProblemKind(
    "federation-not-watched", 404, "No live federation is watched here"
)
STREAMS_EXHAUSTED = ProblemKind("streams-exhausted", 503, "There are too many streams")
STREAMS_OF_ADDRESS = ProblemKind(
    "streams-of-address-exhausted", 429, "This address has too many streams"
)
BUSY = ProblemKind("busy", 503, "The service is busy")
MAILBOX_UNREADABLE = ProblemKind("mailbox-unreadable", 503, "The mailbox cannot be read")
VERIFICATION_NOT_FOUND = ProblemKind("verification-not-found", 404, "There is no such verification")
REPORT_NOT_FOUND = ProblemKind("report-not-found", 404, "There is no such report")
VERIFICATION_REFUSED = ProblemKind("verification-refused", 403, "You may not start a verification")
VERIFICATION_RUNNING = ProblemKind("verification-running", 409, "Another verification runs")
HOST_NOT_SERVED = ProblemKind("host-not-served", 421, "The server has another name")
BODY_TOO_LARGE = ProblemKind("body-too-large", 413, "The request's body is too large")
MAX_BODY_BYTES = 16_384
BODY_RULE = f"a request's body has at most {MAX_BODY_BYTES} bytes"
TOKEN_NEEDED = ProblemKind("token-needed", 401, "A token is needed")
RATE_EXCEEDED = ProblemKind("rate-exceeded", 429, "Too many requests")
CHAIN_UNREACHABLE = ProblemKind("chain-unreachable", 503, "The chain cannot be read")
CHAIN_NOT_SERVED = ProblemKind("chain-not-served", 502, "The chain's answers are not whole")
CHAIN_DAMAGED = ProblemKind("chain-damaged", 503, "The chain contradicts itself")
CHAIN_MOVED = ProblemKind("chain-moved", 503, "The chain was reorganised while it was read")

_WHOLE = re.compile(r"0|[1-9][0-9]{0,9}")


class ProblemError(CmflError):
    """A request that cannot be answered, with the values at fault if they are known."""

    def __init__(self, kind: ProblemKind, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.errors = tuple(errors)


def invalid(place: str, name: str, detail: str) -> ProblemError:
    """Return the error for one value of the request."""
    errors = [FieldError(place=place, name=name, detail=detail)]
    return ProblemError(REQUEST_INVALID, f"{place} {name}: {detail}", errors)


def whole_number(value: object) -> object:
    """Return the number in canonical digits: one number has one URL."""
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError("must be a whole number of at most 10 plain digits")
        return int(value)
    return value


class StrictRoute(APIRoute):
    """A route that rejects unknown and repeated query parameters."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, allowed = super().get_route_handler(), _parameters(self.dependant)

        async def strictly(request: Request) -> Response:
            if request.scope["query_string"]:
                _refuse_unknown(request, allowed)
            return await handle(request)

        return strictly


def _refuse_unknown(request: Request, allowed: set[str]) -> None:
    counted = Counter(name for name, _ in request.query_params.multi_items())
    errors = [
        FieldError(
            place="query",
            name=name[:100],
            detail="is given more than once" if name in allowed else "is not a parameter here",
        )
        for name, times in counted.items()
        if times > 1 or name not in allowed
    ]
    if errors:
        first = errors[0]
        raise ProblemError(REQUEST_INVALID, f"query {first.name} {first.detail}", errors)


def _parameters(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_parameters(inner) for inner in dependant.dependencies))


def problem(
    request: Request,
    kind: ProblemKind,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer for a problem, with additional headers."""
    raw: bytes = request.scope.get("raw_path") or b"/"
    body = Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=detail[:MAX_SHOWN],
        instance=(root_path_of(request) + raw.decode("latin-1"))[:MAX_SHOWN],
        errors=tuple(errors[:MAX_ERRORS]) or None,
    )
    is_temporary = kind.name and kind.status in {429, 502, 503}
    return Response(
        body.model_dump_json(exclude_none=True),
        kind.status,
        {
            **({"Retry-After": "1"} if is_temporary else {}),
            **(headers or {}),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        },
        MEDIA_TYPE,
    )


_DETAILS = {404: "there is nothing at this path", 405: "this method is not answered here"}


def plain_problem(
    request: Request, status: int, detail: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer for a plain HTTP error, with additional headers such as Allow."""
    kind = ProblemKind("", status, http.HTTPStatus(status).phrase)
    return problem(request, kind, detail or _DETAILS.get(status, kind.title), headers=headers)


IMMUTABLE = "public, max-age=31536000, immutable"
CHANGING = "no-cache"
WORTH_COMPRESSING = 1_024  # fewer bytes fit into one packet
_MAX_HEADER = 4_096
_GZIP = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[0-9.]{1,5})\s*)?(?=,|$)", re.IGNORECASE
)
_ZIPPED = "-gzip"


def encoded(request: Request, body: bytes, *, immutable: bool = False) -> Response:
    """Return an answer in the form that a request accepts, or 304 if the client has it already."""
    plain_tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    accepted = request.headers.get("accept-encoding", "")
    match = _GZIP.search(accepted) if len(accepted) <= _MAX_HEADER else None
    takes_gzip = match is not None and (match["weight"] or "1").strip("0.") != ""
    zips = len(body) >= WORTH_COMPRESSING and takes_gzip
    tag = f'{plain_tag[:-1]}{_ZIPPED}"' if zips else plain_tag
    headers = {
        "ETag": tag if immutable else f"W/{tag}",
        "Cache-Control": IMMUTABLE if immutable else CHANGING,
        "Vary": "Accept-Encoding",
    }
    if is_known(request, plain_tag):
        return Response(status_code=304, headers=headers)
    if zips:
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=5, mtime=0)  # the same for the same body
    return Response(body, 200, headers, "application/json")


def is_known(request: Request, tag: str) -> bool:
    """Return whether a client has these bytes, plain or compressed, by RFC 9110, 13.1.2 (weak)."""
    header = request.headers.get("if-none-match", "")
    if len(header) > _MAX_HEADER:
        return False
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return header.strip() == "*" or tag in {each.replace(f'{_ZIPPED}"', '"') for each in tags}


class RequestView:
    """The chain of one request, by its name or any: blocks after `chain.block` are not read.

    The chain is pinned when it is first needed, in the thread of the endpoint: a dependency that
    waits for a chain would take a thread.
    """

    def __init__(self, request: Request, chain: str | None = None) -> None:
        self.request = request
        self._name = chain
        self._chain: PinnedChain | None = None

    @property
    def chain(self) -> PinnedChain:
        """The chain as of its newest block when it was first needed."""
        # A cached_property of Python 3.11 has one lock for all requests: a slow node stops all.
        if self._chain is None:
            chain = histories_of(self.request).now()
            name = chain.path.name
            if self._name not in {None, name}:
                raise ProblemError(CHAIN_NOT_FOUND, f"chain {self._name} is not served; {name} is")
            self._chain = chain
        return self._chain

    @property
    def as_of(self) -> AsOf:
        block = self.chain.block
        finalized = block.number <= self.chain.final
        return {"number": block.number, "hash": to_hex(block.hash), "finalized": finalized}

    def deployment(self, address: str) -> ServedDeployment:
        try:
            name = eip55(address)
        except ChainError as error:
            raise invalid("path", "address", str(error)) from error
        served = self.chain.deployments.find(name)
        if served is None:
            raise ProblemError(DEPLOYMENT_NOT_FOUND, f"no deployment at {name} is served")
        return served

    def history(self, address: str) -> FoldedHistory:
        return self.chain.history(self.deployment(address))

    def local(self, address: str) -> LocalHistory:
        return LocalHistory(self.history(address))

    def verify_unmoved(self) -> None:
        if not self.chain.is_unmoved():
            number = self.chain.block.number
            raise ProblemError(CHAIN_MOVED, f"block {number} was replaced by another block")

    def respond(self, answer: Mapping[str, Any], ended: RecordedEvent | None = None) -> Response:
        """Return an answer, or 304; `ended` ends the round that it follows from, if any."""
        self.verify_unmoved()
        as_of, is_final = self.as_of, False
        if ended is not None and ended.block_number <= self.chain.final:
            number, block_hash, is_final = ended.block_number, to_hex(ended.block_hash), True
            as_of = {"number": number, "hash": block_hash, "finalized": True}
        body = to_rooted_json(self.request, {"as_of": as_of, **answer})
        return encoded(self.request, body, immutable=is_final)


def histories_of(request: Request) -> HistoryService:
    """Return the service that all requests of an app share."""
    return cast("HistoryService", request.app.state.histories)


async def _reading(request: Request) -> RequestView:
    """Return the chain of a request; asynchronous, because it needs no thread."""
    return RequestView(request)


AnyChain = Annotated[RequestView, Depends(_reading)]
