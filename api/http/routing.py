"""What all endpoints take: bounded path and query values, and no others."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from api.answers.scanning import Order
from api.http.paging import MAX_CURSOR
from api.http.problems import MEDIA_TYPE, REQUEST_INVALID, FieldError, ProblemError

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

_WHOLE = re.compile(r"0|[1-9][0-9]{0,9}")
MAX_INDEX = 2**32 - 1


def _whole(value: object) -> object:
    """Return the number behind plain digits: one number, one URL.

    Raises:
        ValueError: it is written otherwise.
    """
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError("must be a whole number in plain digits, at most 4294967295")
        return int(value)
    return value


Address = Annotated[
    str,
    Path(
        description="of the contract, EIP-55, or in one case",
        pattern=r"^0x[0-9a-fA-F]{40}$",
        max_length=42,
        examples=["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"],
    ),
]
RoundIndex = Annotated[
    int, BeforeValidator(_whole), Path(ge=1, le=MAX_INDEX, description="t", examples=[2])
]
ClientIndex = Annotated[
    int, BeforeValidator(_whole), Path(ge=0, le=MAX_INDEX, description="its index", examples=[7])
]
Limit = Annotated[
    int,
    BeforeValidator(_whole),
    Query(ge=1, le=100, description="entries on a page; refused out of range", examples=[20]),
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
class Page:
    """Which page is asked for.

    Attributes:
        cursor: where it begins; None for the beginning.
        limit: how many entries at most.
    """

    cursor: str | None
    limit: int


def _page(cursor: Cursor = None, limit: Limit = 20) -> Page:
    return Page(cursor, limit)


Paged = Annotated[Page, Depends(_page)]
OrderQuery = Annotated[Order, Query(description="which come first", examples=["newest"])]
ClientFilter = Annotated[
    int | None,
    BeforeValidator(_whole),
    Query(ge=0, le=MAX_INDEX, description="only rounds with this client", examples=[7]),
]


def refuse_unknown(request: Request) -> None:
    """Refuse query parameters that the endpoint does not know, or that come twice.

    Args:
        request: the request.

    Raises:
        ProblemError: names them.
    """
    route = request.scope.get("route")
    known = _known(route.dependant) if isinstance(route, APIRoute) else set()
    counted = Counter(name for name, _ in request.query_params.multi_items())
    errors = [
        FieldError(
            place="query",
            name=name[:100],
            detail="is given more than once" if name in known else "is no parameter here",
        )
        for name, times in counted.items()
        if times > 1 or name not in known
    ]
    if errors:
        first = errors[0]
        raise ProblemError(REQUEST_INVALID, f"query {first.name} {first.detail}", errors)


def _known(dependant: Dependant) -> set[str]:
    """Return the query parameters of an endpoint and of what it depends on."""
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_known(inner) for inner in dependant.dependencies))


def declared(**problems: str) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's declaration of the problems that an endpoint answers with.

    Args:
        problems: description by status, as `_404="..."`.
    """
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        cast("int | str", int(status.removeprefix("_"))): {
            "description": description,
            "content": content,
        }
        for status, description in problems.items()
    }


NOT_SERVED = "what the chain must hold is not served: a node hides or alters it"
UNAVAILABLE = "the chain is unreachable, damaged or being reorganised"
INVALID = "a value is malformed or out of range, or a parameter unknown"
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "what If-None-Match names is still right"}
}
