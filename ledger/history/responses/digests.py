"""Responses about the places where a digest is recorded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ledger.history.digests import DigestKind
from ledger.history.responses.fields import (
    Answer,
    Client,
    Digest32,
    Links,
    NextCursor,
    Response,
    RoundNumber,
    name_of,
    one_of,
)


class DigestPlace(Response):
    """One place of a digest."""

    kind: Annotated[
        str,
        Field(description="what it is there"),
        one_of(map(name_of, DigestKind)),
    ]
    round: Annotated[
        RoundNumber | None, Field(description="null for what belongs to the deployment")
    ]
    client: Annotated[Client | None, Field(description="its client; null if it belongs to none")]
    links: Links


class DigestPage(Response):
    """A page of the places of a digest."""

    digest: Digest32
    items: Annotated[
        list[DigestPlace],
        Field(description="the deployment's first, then ascending by round; empty if nowhere"),
    ]
    next_cursor: NextCursor


class DigestAnswer(Answer, DigestPage):
    """A page of the places of a digest."""
