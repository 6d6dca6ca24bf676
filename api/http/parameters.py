"""How an endpoint is declared: its path and query parameters with their bounds, and its answers.

The dependencies do not wait, and are asynchronous: FastAPI would run a plain function in a thread.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from api.http.answers import REQUEST_INVALID, ProblemError, ProblemKind, RequestView
from api.http.openapi import Declared, declared
from api.schemas import FieldError
from ledger.chain.ports import NotServedError
from ledger.history.export import CsvTable, Row, csv_lines
from ledger.history.fields import CHAIN_NAME, MAX_CURSOR, Order

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


IN_PLAIN_DIGITS = BeforeValidator(whole_number)
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

EXPORT_PAGE = 100
"""Entries of a whole list that are read at once; a long file is never in memory as a whole."""

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
        first = read(EXPORT_PAGE, None)  # rejections precede the first byte
        headers = {
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{table.name}.csv"',
            "X-As-Of-Block": f"{reading.as_of['number']} {reading.as_of['hash']}",
            "X-Content-Type-Options": "nosniff",
        }
        lines = csv_lines(table, _rows(reading, table, first, read))
        return StreamingResponse(lines, headers=headers, media_type="text/csv; charset=utf-8")


def _rows(
    reading: RequestView, table: CsvTable[A], page: A, read: Callable[[int, str | None], A]
) -> Iterator[list[Row]]:
    yield table.rows(page)
    while (cursor := cast("dict[str, str | None]", page)["next_cursor"]) is not None:
        page = read(EXPORT_PAGE, cursor)
        yield table.rows(page)
    if not reading.chain.is_unmoved():
        raise NotServedError("the chain was reorganised while it was read")


async def _list(
    format: Annotated[  # noqa: A002 - the query's own word
        Format,
        Query(
            description="`json` for a page; `csv` for the whole list in flat rows, without "
            "`cursor` and `limit`",
            examples=["csv"],
        ),
    ] = Format.JSON,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> ListQuery:
    return ListQuery(cursor, limit, format)


Listed = Annotated[ListQuery, Depends(_list)]
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


async def refuse_unknown(request: Request) -> None:
    """Reject unknown and repeated query parameters."""
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    allowed = _parameters(route.dependant) if isinstance(route, APIRoute) else set()
    counted = Counter(name for name, _ in request.query_params.multi_items())
    errors = [
        FieldError(
            place="query",
            name=name[:100],
            detail="is given more than once" if name in allowed else "is no parameter here",
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


class Endpoints(APIRouter):
    """Endpoints of one subject; the name of a function is its operation's id."""

    def __init__(self, prefix: str, tag: str) -> None:
        super().__init__(
            prefix=prefix,
            tags=[tag],
            dependencies=[Depends(refuse_unknown)],
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
        """Return a decorator that serves a function at a path.

        Args:
            answer: type of the JSON answer; None for the media that are declared.
            tagged: whether answers have an entity tag.
        """
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
