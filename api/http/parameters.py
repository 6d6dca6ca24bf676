"""Path and query parameters of the endpoints, with their bounds.

The dependencies do not wait, and are asynchronous: FastAPI would run a plain function in a thread.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from api.http.answers import REQUEST_INVALID, ProblemError, RequestView, histories_of
from api.schemas.service import FieldError
from ledger.history.history import MAX_CURSOR
from ledger.history.queries import CHAIN_NAME, AskedRole, Order, Span
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

_WHOLE = re.compile(r"0|[1-9][0-9]{0,9}")
MAX_INDEX = 2**32 - 1


def whole_number(value: object) -> object:
    """Return the number in canonical digits: one number has one URL."""
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError("must be a whole number in plain digits, at most 4294967295")
        return int(value)
    return value


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
    int, Path(ge=1, le=MAX_INDEX, description="t", examples=[2]), BeforeValidator(whole_number)
]
ClientIndex = Annotated[
    int,
    Path(ge=0, le=MAX_INDEX, description="its index", examples=[7]),
    BeforeValidator(whole_number),
]
Limit = Annotated[
    int,
    Query(ge=1, le=100, description="entries on a page; refused out of range", examples=[20]),
    BeforeValidator(whole_number),
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
OrderQuery = Annotated[Order, Query(description="which come first", examples=["newest"])]
ClientFilter = Annotated[
    int | None,
    Query(ge=0, le=MAX_INDEX, description="only rounds with this client", examples=[7]),
    BeforeValidator(whole_number),
]


async def _asked_of(
    client: ClientFilter = None,
    role: Annotated[
        AskedRole | None,
        Query(
            description="what `client` was or did: `any`, `trained`, `accepted`, `not_accepted`, "
            "`dropped_out`, `member`, `served` (a member with a seat), `refused` (its scores), "
            "`voted`",
            examples=["served"],
        ),
    ] = None,
) -> tuple[ClientId | None, AskedRole]:
    if role is not None and client is None:
        errors = [FieldError(place="query", name="role", detail="needs `client`")]
        raise ProblemError(REQUEST_INVALID, "query role: needs `client`", errors)
    return None if client is None else ClientId(client), role or AskedRole.ANY


AskedOf = Annotated[tuple[ClientId | None, AskedRole], Depends(_asked_of)]


async def _within(
    since_block: Annotated[
        int | None,
        Query(ge=0, le=MAX_INDEX, description="rounds that ended in this block or later"),
        BeforeValidator(whole_number),
    ] = None,
    until_block: Annotated[
        int | None,
        Query(ge=0, le=MAX_INDEX, description="rounds that ended in this block or before"),
        BeforeValidator(whole_number),
    ] = None,
    since: Annotated[
        int | None,
        Query(ge=0, le=MAX_INDEX, description="ended at this Unix time or later"),
        BeforeValidator(whole_number),
    ] = None,
    until: Annotated[
        int | None,
        Query(ge=0, le=MAX_INDEX, description="ended at this Unix time or before"),
        BeforeValidator(whole_number),
    ] = None,
) -> tuple[Span, Span]:
    return Span(since_block, until_block), Span(since, until)


Within = Annotated[tuple[Span, Span], Depends(_within)]


async def _reading(request: Request, chain: ChainName) -> RequestView:
    """Return the chain that a path names; its name is checked when it is read."""
    return RequestView(histories_of(request), chain)


OneChain = Annotated[RequestView, Depends(_reading)]


async def refuse_unknown(request: Request) -> None:
    """Reject unknown and repeated query parameters."""
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    declared = _parameters(route.dependant) if isinstance(route, APIRoute) else set()
    counted = Counter(name for name, _ in request.query_params.multi_items())
    errors = [
        FieldError(
            place="query",
            name=name[:100],
            detail="is given more than once" if name in declared else "is no parameter here",
        )
        for name, times in counted.items()
        if times > 1 or name not in declared
    ]
    if errors:
        first = errors[0]
        raise ProblemError(REQUEST_INVALID, f"query {first.name} {first.detail}", errors)


def _parameters(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_parameters(inner) for inner in dependant.dependencies))


def of_deployment(part: str, tag: str = "rounds") -> APIRouter:
    """Return a router below the path of a deployment."""
    prefix = f"/v1/chains/{{chain}}/deployments/{{address}}{part}"
    return APIRouter(prefix=prefix, tags=[tag], dependencies=[Depends(refuse_unknown)])
