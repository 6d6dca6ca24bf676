"""Declaration of an endpoint: parameters with their bounds, answers and problems.

The OpenAPI document is made of these declarations, with an example of every answer and problem.
Dependencies do not wait, and are asynchronous: FastAPI would run a plain function in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator

from api.http import answers as kinds
from api.http.answers import ProblemKind, RequestView
from api.schemas import MEDIA_TYPE, FieldError, Problem
from ledger.chain.ports import NotServedError
from ledger.history.export import PAGE, CsvTable, Row, csv_lines, pages
from ledger.history.fields import CHAIN_NAME, MAX_CURSOR, Order, Span

MAX_INDEX = 2**32 - 1
IN_PLAIN_DIGITS = BeforeValidator(kinds.whole_number)
ChainName = Annotated[
    str,
    Path(
        description="chain id and the first 8 hex digits of its block 0's hash, as in `/v1/chains`",
        pattern=f"^{CHAIN_NAME.pattern}$",
        max_length=90,
        examples=["131277322940537-5c5c5c5c"],
    ),
]
Address = Annotated[
    str,
    Path(
        description="of the contract, EIP-55, or in one case",
        pattern=r"^0[xX][0-9a-fA-F]{40}$",
        max_length=42,
        examples=["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"],
    ),
]
RoundIndex = Annotated[
    int, Path(ge=1, le=MAX_INDEX, description="t", examples=[2]), IN_PLAIN_DIGITS
]
ClientIndex = Annotated[
    int, Path(ge=0, le=MAX_INDEX, description="its index", examples=[7]), IN_PLAIN_DIGITS
]
Limit = Annotated[
    int,
    Query(ge=1, le=100, description="entries on a page; refused out of range", examples=[20]),
    IN_PLAIN_DIGITS,
]
Cursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the page before, from the same query",
        max_length=MAX_CURSOR,
        examples=["AQAAAAKHGfi3lW8gD0c"],
    ),
]


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The requested page of a list."""

    cursor: str | None
    limit: int


async def _page(cursor: Cursor = None, limit: Limit = 20) -> PageQuery:
    return PageQuery(cursor, limit)


Paged = Annotated[PageQuery, Depends(_page)]

A = TypeVar("A")


class Format(StrEnum):
    """Format of a list."""

    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class ListQuery(PageQuery):
    """The requested page of a list, or the whole list as CSV."""

    format: Format

    def answer(
        self, reading: RequestView, table: CsvTable[A], read: Callable[[int, str | None], A]
    ) -> Response:
        """Return the page, or all pages one after the other, as of the block in X-As-Of-Block."""
        if self.format is Format.JSON:
            return reading.respond(cast("dict[str, object]", read(self.limit, self.cursor)))
        first = read(PAGE, None)  # rejections precede the first byte
        headers = {
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{table.name}.csv"',
            "X-As-Of-Block": f"{reading.as_of['number']} {reading.as_of['hash']}",
        }
        lines = csv_lines(table, _rows(reading, table, first, read))
        return StreamingResponse(lines, headers=headers, media_type="text/csv; charset=utf-8")


def _rows(
    reading: RequestView, table: CsvTable[A], page: A, read: Callable[[int, str | None], A]
) -> Iterator[list[Row]]:
    yield from map(table.rows, pages(read, page))
    if not reading.chain.is_unmoved():
        raise NotServedError("the chain was reorganised while it was read")


async def _list(
    request: Request,
    format: Annotated[  # noqa: A002 - the query's own word
        Format,
        Query(
            description="`json` for a page; `csv` for the whole list in flat rows, without "
            "`cursor`, `limit` and `full`",
            examples=["csv"],
        ),
    ] = Format.JSON,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> ListQuery:
    if format is Format.CSV:
        for name in ("cursor", "limit", "full"):
            if name in request.query_params:
                raise kinds.invalid("query", name, "is not for `format=csv`")
    return ListQuery(cursor, limit, format)


Listed = Annotated[ListQuery, Depends(_list)]


def _round(alias: str, description: str) -> Any:
    return Query(alias=alias, ge=1, le=MAX_INDEX, description=description)


FirstRound = Annotated[int | None, _round("from", "first round; else the first"), IN_PLAIN_DIGITS]
LastRound = Annotated[int | None, _round("to", "last round; else the newest"), IN_PLAIN_DIGITS]


async def _rounds(first: FirstRound = None, last: LastRound = None) -> Span:
    return Span(first, last)


RoundsQuery = Annotated[Span, Depends(_rounds)]
OrderQuery = Annotated[Order, Query(description="which come first", examples=["newest"])]
ClientFilter = Annotated[
    int | None,
    Query(ge=0, le=MAX_INDEX, description="only rounds with this client", examples=[7]),
    IN_PLAIN_DIGITS,
]


async def _reading(request: Request, chain: ChainName) -> RequestView:
    """Return the chain that a path names; its name is checked when it is read."""
    return RequestView(request, chain)


OneChain = Annotated[RequestView, Depends(_reading)]


class Endpoints(APIRouter):
    """Endpoints of one subject; the name of a function is its operation's id."""

    def __init__(self, prefix: str, tag: str) -> None:
        super().__init__(
            prefix=prefix,
            tags=[tag],
            route_class=kinds.StrictRoute,
            generate_unique_id_function=attrgetter("name"),
        )

    def answers(
        self,
        path: str,
        summary: str,
        answer: Any,
        problems: Sequence[ProblemKind],
        *,
        media: Declared | None = None,
        tagged: bool = True,
        **options: Any,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that serves a function; `answer` is None for `media` but JSON."""
        responses = declared(*problems, tagged=tagged) | (media or {})
        options = {"methods": ["GET"], "response_model": answer} | options
        return self.api_route(path, summary=summary, responses=responses, **options)


def of_deployment(part: str = "", tag: str = "rounds") -> Endpoints:
    """Return endpoints below the path of a deployment."""
    return Endpoints(f"/v1/chains/{{chain}}/deployments/{{address}}{part}", tag)


def success(media_type: str, description: str, **schema: str) -> Declared:
    """Return the declaration of a success of a media type; bytes without a schema."""
    schema = schema or {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


EXPORTED = success("text/csv", "a page, or the whole list")
"""The declaration of a list in any format."""


Declared: TypeAlias = dict[int | str, dict[str, Any]]

ASKED = (kinds.REQUEST_INVALID, kinds.TOKEN_NEEDED, kinds.RATE_EXCEEDED, kinds.HOST_NOT_SERVED)
"""Problems of any request but one for /health."""

OF_CHAIN = (
    *ASKED,
    kinds.CHAIN_NOT_SERVED,
    kinds.CHAIN_UNREACHABLE,
    kinds.CHAIN_DAMAGED,
    kinds.CHAIN_MOVED,
)
"""Problems of any request that reads a chain."""

OF_DEPLOYMENTS = (*OF_CHAIN, kinds.CHAIN_NOT_FOUND)
OF_DEPLOYMENT = (*OF_DEPLOYMENTS, kinds.DEPLOYMENT_NOT_FOUND)
OF_PAGE = (*OF_DEPLOYMENT, kinds.CURSOR_INVALID)
OF_CLIENT_PAGE = (*OF_PAGE, kinds.CLIENT_NOT_FOUND)
OF_ROUND = (*OF_DEPLOYMENT, kinds.ROUND_NOT_FOUND)
OF_CLIENT = (*OF_DEPLOYMENT, kinds.CLIENT_NOT_FOUND)

_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_NAME = "5c" * 8
DETAILS: dict[ProblemKind, str] = {
    kinds.REQUEST_INVALID: "query limit: Input should be less than or equal to 100",
    kinds.CHAIN_NOT_FOUND: "chain 5-1f1f1f1f is not served; 131277322940537-5c5c5c5c is",
    kinds.CURSOR_INVALID: "it was changed, or belongs to another query or version",
    kinds.DEPLOYMENT_NOT_FOUND: f"no deployment at {_ADDRESS} is served",
    kinds.ROUND_NOT_FOUND: "round 77 has not opened; the newest is 5",
    kinds.CLIENT_NOT_FOUND: "client 99 is not registered; there are 14",
    kinds.VOTES_NOT_FOUND: "the transaction is not to the contract: an account with code of its "
    "own called it",
    kinds.ROUND_NOT_ENDED: "round 6 has not ended, so it has no bundle",
    kinds.BLOB_NOT_FOUND: f"blob {'5c' * 32} is missing",
    kinds.BLOB_DAMAGED: f"blob {'5c' * 32} is damaged: its bytes have another sha256",
    kinds.RANGE_UNSATISFIABLE: "the blob has 120 bytes and does not include this range",
    kinds.FEDERATION_NOT_WATCHED: "this service does not read a mailbox",
    kinds.STREAMS_EXHAUSTED: "64 streams are open; retry later",
    kinds.STREAMS_OF_ADDRESS: "8 streams of this address are open",
    kinds.BUSY: "another bundle is being built; retry later",
    kinds.MAILBOX_UNREADABLE: "the mailbox does not respond; retry later",
    kinds.VERIFICATION_NOT_FOUND: f"there is no verification {_NAME}",
    kinds.REPORT_NOT_FOUND: f"verification {_NAME} has no report",
    kinds.VERIFICATION_REFUSED: "no token is set, so only a request from the service's own machine "
    "starts a verification",
    kinds.VERIFICATION_RUNNING: f"verification {_NAME} runs; one runs at a time",
    kinds.HOST_NOT_SERVED: "header Host: rebound.example is not a name of this server",
    kinds.BODY_TOO_LARGE: kinds.BODY_RULE,
    kinds.TOKEN_NEEDED: "send a valid bearer token",
    kinds.RATE_EXCEEDED: "at most 60 a minute",
    kinds.CHAIN_UNREACHABLE: "chain.sqlite cannot be opened: No such file or directory",
    kinds.CHAIN_NOT_SERVED: "the logs hold the registration of 3 clients, not of 14: they are not "
    "whole",
    kinds.CHAIN_DAMAGED: "block 17: has other transactions than its header",
    kinds.CHAIN_MOVED: "block 17 was replaced by another block",
}
"""An example of the detail of each kind: the value and the rule."""
TITLE = "CMFL ledger"
DESCRIPTION = """View of committee-based federated learning, as a chain records it.

Answers about the chain are read as of one block and name it in `as_of`. The contract has enforced
the data on the chain. The committee's majority has voted for a round's record (payload digests,
dropout reasons, score claims), and incidents are claims of the decision's sender. The service does
not verify its answers: `cmfl audit` verifies them, and `verifications` run the same audit here, for
clients that trust this service.

A round that ended in a final block never changes: its parts name the block that ended it and carry
a strong ETag and `Cache-Control: immutable`, as blobs do. Bundles, whole lists as CSV, streams,
verifications, health and problems are `no-store`. All other answers, among them explanations and
proofs, are `no-cache` with a weak ETag. A `Host` header that is no host gets 400, and any body that
is too large 413. Errors are `application/problem+json`. Reasons are codes of the protocol's
documents, each with a stable name, never sentences. 256-bit integers and float64 bit patterns are
decimal strings, bytes are 0x-hex, addresses EIP-55. Unknown query parameters are rejected."""
TAGS = [
    {"name": "service", "description": "Health, readiness and status."},
    {"name": "deployments", "description": "Contracts and their parameters."},
    {"name": "rounds", "description": "Rounds, their parts and events."},
    {"name": "clients", "description": "Clients and their rounds."},
    {
        "name": "proofs",
        "description": "Proofs and bundles, to check without trust in this service.",
    },
    {"name": "blobs", "description": "The documents, updates and models themselves."},
    {"name": "verifications", "description": "Audits that this service runs on request."},
]


PUBLISHED = {"AuditOutcome": "Outcome", "RequestedAudit": "Verification"}
"""Components whose published name is not that of the class."""


def declared(*answers: ProblemKind, tagged: bool = True) -> Declared:
    """Return OpenAPI's declaration of the problems of an endpoint, and of 304 if it has a tag."""
    declaration: Declared = {}
    if tagged:
        declaration[304] = {"description": "what If-None-Match names is still right"}
    for status in sorted({kind.status for kind in answers}):
        own = [kind for kind in dict.fromkeys(answers) if kind.status == status]
        examples = {kind.name: {"$ref": f"#/components/examples/{kind.name}"} for kind in own}
        declaration[status] = {
            "description": "; ".join(kind.title for kind in own),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": examples,
                }
            },
        }
    return declaration


def _example(kind: ProblemKind) -> dict[str, Any]:
    detail = DETAILS[kind]
    errors = None
    if kind is kinds.REQUEST_INVALID:
        place, _, rule = detail.partition(": ")
        where, _, name = place.partition(" ")
        errors = (FieldError(place=where, name=name, detail=rule),)
    problem = Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance="/v1/chains",
        errors=errors,
    )
    return problem.model_dump(mode="json", exclude_none=True)


def document(app: FastAPI, root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of an app with all its routes."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
        servers=[{"url": root_path}] if root_path else None,
    )
    for name, published in PUBLISHED.items():
        made = _renamed(made, name, published)
    schemas = made["components"]["schemas"]
    for kind in (Problem, FieldError):
        own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        own.pop("$defs", None)
        schemas[kind.__name__] = own
    for schema in schemas.values():
        if "as_of" in schema.get("properties", ()):  # `--json` alone has answers without it
            required = {"as_of", *schema["required"]}
            schema["required"] = [name for name in schema["properties"] if name in required]
        schema["examples"] = [example_of(schema, schemas)]
    for kind in (Problem, FieldError):
        schemas[kind.__name__] = dict(sorted(schemas[kind.__name__].items()))
    for operations in made["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                content = answer.get("content", {}).get("application/json", {})
                if "$ref" in content.get("schema", {}):
                    content["example"] = example_of(content["schema"], schemas)
    made["components"]["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "needed if the operator set tokens",
        }
    }
    made["security"] = [{}, {"token": []}]
    made["components"]["examples"] = {
        kind.name: {"summary": kind.title, "value": _example(kind)} for kind in DETAILS
    }
    return made


def _renamed(made: dict[str, Any], name: str, published: str) -> dict[str, Any]:
    path = '"#/components/schemas/{}"'
    text = json.dumps(made).replace(path.format(name), path.format(published))
    renamed: dict[str, Any] = json.loads(text)
    schemas = renamed["components"]["schemas"]
    schemas[published] = schemas.pop(name) | {"title": published}
    renamed["components"]["schemas"] = dict(sorted(schemas.items()))
    return renamed


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return an example that a JSON schema accepts, built from the examples of its fields."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "properties" in schema:
        fields = {name: example_of(own, schemas) for name, own in schema["properties"].items()}
        return dict(sorted(fields.items()))
    for kind in schema.get("anyOf", ()):
        if kind.get("type") != "null":
            return example_of(kind, schemas)
    if "items" in schema:
        return [example_of(schema["items"], schemas)]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    raise TypeError(f"{schema} has no example")
