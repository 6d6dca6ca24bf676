"""Responses about the coverage of a run's training by attestations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.history.responses.fields import (
    Answer,
    Client,
    Count,
    Digest32,
    Eip55,
    Response,
    RoundNumber,
)

CoverageVerdict = Literal["same", "other", "disputed", "none"]


class AttestationEntry(Response):
    """The verdict of an auditor who has repeated an update; it is the auditor's word alone."""

    auditor: Eip55
    verdict: Literal["same", "other"]
    environment: Annotated[
        str,
        Field(
            description="in which it was repeated",
            examples=["torch 2.13.0, plain, x86_64 avx2, cpu, 1 thread"],
        ),
    ]
    witness: Annotated[Digest32, Field(description="of the losses of all local steps, withheld")]


class AttestedUpdate(Response):
    """An update that the chain has, and the attestations about it."""

    round: RoundNumber
    client: Client
    verdict: Annotated[
        CoverageVerdict,
        Field(description="of all attestations; disputed where they differ, none without any"),
    ]
    attestations: Annotated[
        list[AttestationEntry],
        Field(description="genuine ones, by auditor; an auditor may have several"),
    ]


class VerdictCounts(Response):
    """Number of updates by verdict."""

    same: Count
    other: Count
    disputed: Count
    none: Count


class TrainingCoverage(Response):
    """Coverage of some ended rounds: which updates auditors have repeated."""

    first: Annotated[Count, Field(description="first round that is covered here")]
    last: Annotated[Count, Field(description="last one; below `first` where none has ended")]
    ended: Annotated[Count, Field(description="number of rounds that have ended")]
    next_from: Annotated[
        RoundNumber | None,
        Field(description="first round that was asked for and is not covered here; else null"),
    ]
    clients: Annotated[Count, Field(description="registered ones")]
    counts: VerdictCounts
    auditors: Annotated[list[Eip55], Field(description="who have attested anything here")]
    updates: Annotated[list[AttestedUpdate], Field(description="ascending by round and client")]


class TrainingAnswer(Answer, TrainingCoverage):
    """Coverage of some ended rounds: which updates auditors have repeated."""
