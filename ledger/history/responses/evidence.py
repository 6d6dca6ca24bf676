"""Responses about evidence against clients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.history.responses.fields import (
    Answer,
    BlockNumber,
    Client,
    Count,
    Digest32,
    NextCursor,
    RefusalWhy,
    Response,
    RoundNumber,
    Signature65,
    StatementWhat,
)
from ledger.history.responses.rounds import Base, IncidentEntry


class Statement(Response):
    """One of two signed statements that exclude each other."""

    kind: Literal["Request", "Reply", "Scores"]
    base: Base
    set: Annotated[Digest32, Field(description="set digest that the statement names")]
    result: Annotated[Digest32 | None, Field(description="of a vote; null for scores")]
    digest: Annotated[
        Digest32 | None, Field(description="sha256 of the score vector; null for a vote")
    ]
    signature: Signature65


class Ban(Response):
    """Two contradicting statements for one slot, which the contract has verified."""

    block: BlockNumber
    transaction: Digest32
    signed_twice: Annotated[
        StatementWhat | None, Field(description="null where the call data are not to be had")
    ]
    statements: Annotated[
        list[Statement] | None,
        Field(description="both; null where the call data are not to be had"),
    ]


class RefusedClaim(Response):
    """A signed score claim that does not count."""

    digest: Annotated[Digest32, Field(description="sha256 of the score vector's blob")]
    signature: Annotated[Signature65, Field(description="over EIP-712 `Scores`")]
    reason: RefusalWhy
    named: Annotated[
        Client | None, Field(description="the client whose distance is false, if that is why")
    ]


class EvidenceEntry(Response):
    """One piece of evidence against a client in a round."""

    round: RoundNumber
    client: Client
    kind: Literal["ban", "refused_scores", "incident"]
    ban: Ban | None
    scores: RefusedClaim | None
    incident: IncidentEntry | None


class EvidencePage(Response):
    """Evidence against clients in the rounds of a page."""

    evidence: list[EvidenceEntry]
    scanned: Annotated[Count, Field(description="rounds that this page examined")]
    next_cursor: NextCursor


class EvidenceAnswer(Answer, EvidencePage):
    """Evidence against clients in the rounds of a page."""
