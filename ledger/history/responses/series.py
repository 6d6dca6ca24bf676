"""Response about a run over its rounds: columns of equal length."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.history.responses.fields import Answer, Client, Count, Response, RoundNumber, Status

ClaimsState = Literal["read", "absent", "unreadable"]
Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Response):
    """Claims of the run's own files, which no audit checks."""

    accuracy: Annotated[
        list[Share | None],
        Field(description="on the test set, after the round; null where it was not measured"),
    ]
    floor: Annotated[
        list[Share | None], Field(description="accuracy of always answering the commonest class")
    ]
    malicious_accepted: Annotated[
        list[Count | None], Field(description="accepted updates that attackers sent")
    ]


class Series(Response):
    """A run over its rounds, ascending."""

    round: list[RoundNumber]
    status: list[Status]
    ranked: list[Count | None]
    accepted: list[Count | None]
    views: Annotated[
        list[tuple[int, int] | None],
        Field(description="of the aggregation and the election, from 0", examples=[[[0, 1]]]),
    ]
    committee: Annotated[list[list[Client]], Field(description="S_c of each round, by places")]
    claims: Annotated[
        ClaimsState,
        Field(
            description="whether the run's own files were read; unreadable ones are damaged, "
            "larger than 32 MiB, or no files"
        ),
    ]
    claimed: Annotated[Claimed | None, Field(description="null unless they were read")]


class SeriesAnswer(Answer, Series):
    """A run over its rounds, ascending."""
