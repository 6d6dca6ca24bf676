"""A run over its rounds: columns of equal length."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.words import Answer, Client, Count, RoundNumber, Schema, Status

Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Schema):
    """What the run's own files say; no audit checks it."""

    accuracy: Annotated[
        tuple[Share | None, ...],
        Field(description="on the test set, after the round; null where it was not measured"),
    ]
    floor: Annotated[
        tuple[Share | None, ...],
        Field(description="accuracy of always answering the commonest class"),
    ]
    malicious_accepted: Annotated[
        tuple[Count | None, ...], Field(description="accepted updates that attackers sent")
    ]


class SeriesAnswer(Answer):
    """A run over its rounds, ascending."""

    round: tuple[RoundNumber, ...]
    status: tuple[Status, ...]
    ranked: tuple[Count | None, ...]
    accepted: tuple[Count | None, ...]
    views: Annotated[
        tuple[tuple[int, int] | None, ...],
        Field(description="of the aggregation and the election, from 0", examples=[[[0, 1]]]),
    ]
    committee: Annotated[
        tuple[tuple[Client, ...], ...], Field(description="S_c of each round, by places")
    ]
    claims: Annotated[
        Literal["read", "absent", "unreadable"],
        Field(
            description="whether the run's own files were read; unreadable ones are damaged, "
            "larger than 32 MiB, or no files"
        ),
    ]
    claimed: Annotated[Claimed | None, Field(description="null unless they were read")]
