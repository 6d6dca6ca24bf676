"""Responses about verifications: state, verdict and limits; and the request for one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from api.schemas.problems import Schema
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.history.responses.fields import (
    BlockNumber,
    Client,
    Count,
    Digest32,
    Eip55,
    Links,
    Rfc3339,
    UnixTime,
)

VERIFICATION_NAME = r"^[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}$"

VerificationName = Annotated[
    str,
    Field(
        pattern=VERIFICATION_NAME,
        max_length=28,
        description="when it was asked for, to the millisecond, and eight digits of chance",
        examples=["20260101T000000000Z-5c5c5c5c"],
    ),
]


class VerificationState(StrEnum):
    """State of a verification; only a finished one has a verdict."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"

    @property
    def is_over(self) -> bool:
        """True if the verification has ended."""
        return self not in {VerificationState.WAITING, VerificationState.RUNNING}


class WhyNoVerdict(StrEnum):
    """Reason why a verification has no verdict: a limit, or something missing."""

    MEMORY = "memory"
    CPU_SECONDS = "cpu_seconds"
    SECONDS = "seconds"
    CHAIN = "chain"
    EARLIER_REPORT = "earlier_report"
    FAULT = "fault"
    WORKER_ENDED = "worker_ended"
    SERVICE_ENDED = "service_ended"


class VerificationPermission(StrEnum):
    """Permission to begin a verification."""

    GRANTED = "granted"
    TOKEN_NEEDED = "token_needed"  # noqa: S105 - a word, no token
    THIS_MACHINE_ONLY = "this_machine_only"
    OFF = "off"


class StepStanding(Schema):
    """One of the ten steps, as far as an audit has come."""

    number: Annotated[int, Field(ge=1, le=len(AuditStep), examples=[1])]
    outcome: Annotated[
        StepOutcome | None,
        Field(
            description="while it runs, null where nothing speaks against the step so far",
            examples=["passed"],
        ),
    ]
    contradictions: Count
    missing_count: Annotated[Count, Field(description="things that could not be checked")]


class VerificationProgress(Schema):
    """Progress of an audit."""

    done: Annotated[Count, Field(description="rounds that all steps have seen")]
    total: Annotated[Count, Field(description="rounds that have ended")]
    steps: Annotated[tuple[StepStanding, ...], Field(max_length=len(AuditStep))]


class Verdict(Schema):
    """Verdict of an audit; its report has all details."""

    outcome: Annotated[
        AuditOutcome,
        Field(
            description="passed; failed: something contradicts; incomplete: nothing contradicts, "
            "but not everything could be checked",
            examples=["passed"],
        ),
    ]
    rounds: Annotated[Count, Field(description="that have ended, all of them audited")]
    whole: Annotated[
        bool, Field(description="false: it trusts an earlier one for some", examples=[True])
    ]
    block: Annotated[BlockNumber, Field(description="the newest that was read")]
    block_hash: Digest32 | None
    head: Annotated[Digest32 | None, Field(description="of the ledger at that block")]
    final_head: Annotated[
        Digest32 | None,
        Field(
            description="to keep for the next audit: of the newest final block, so it may be older "
            "than head; null: nothing is final"
        ),
    ]
    remarks: Annotated[Count, Field(description="what can be told neither true nor false")]
    named: Annotated[
        tuple[Client, ...],
        Field(description="clients whose record contradicts itself, of each failed step the first"),
    ]


class KeptReport(Schema):
    """The report's file, the same bytes that `cmfl audit --report` writes."""

    sha256: Digest32
    bytes: Count


class EarlierVerification(Schema):
    """The verification that one builds on, and where that one ended."""

    verification: VerificationName
    report: Annotated[Digest32, Field(description="sha256 of its report")]
    head: Digest32
    block: BlockNumber
    block_hash: Digest32
    rounds: Count


class Verification(Schema):
    """One verification."""

    verification: VerificationName
    chain: Annotated[str, Field(max_length=90, examples=["131277322940537-5c5c5c5c"])]
    address: Eip55
    run: Annotated[str, Field(max_length=64, examples=["first"])]
    state: Annotated[VerificationState, Field(examples=["finished"])]
    why: Annotated[
        WhyNoVerdict | None,
        Field(description="of one that was stopped or interrupted: why it has no verdict"),
    ]
    sequence: Annotated[Count, Field(description="grows with every change; the id of its events")]
    asked: UnixTime
    asked_at: Rfc3339
    begun: UnixTime | None
    begun_at: Rfc3339
    ended: UnixTime | None
    ended_at: Rfc3339
    strict: Annotated[bool, Field(examples=[False])]
    kept_head: Annotated[Digest32 | None, Field(description="that the auditor had kept")]
    since: Annotated[EarlierVerification | None, Field(description="the one that it builds on")]
    progress: Annotated[VerificationProgress | None, Field(description="null before it has begun")]
    verdict: Annotated[Verdict | None, Field(description="null unless it is finished")]
    report: KeptReport | None
    links: Links


class VerificationLimits(Schema):
    """Limits of one verification, and of their number."""

    memory_bytes: Count
    cpu_seconds: Count
    seconds: Annotated[Count, Field(description="from its beginning to its end")]
    waiting: Annotated[Count, Field(description="that may wait; one runs at a time")]
    kept: Annotated[Count, Field(description="of all deployments; the oldest go first")]


class VerificationsAnswer(Schema):
    """Verifications of a deployment, the newest first, and the permission to begin another."""

    verifications: tuple[Verification, ...]
    unreadable: Annotated[
        Count, Field(description="files beside the reports that are none of this version")
    ]
    permission: Annotated[VerificationPermission, Field(examples=["granted"])]
    bounds: VerificationLimits


class VerificationRequest(Schema):
    """Request for a verification."""

    strict: Annotated[
        bool,
        Field(strict=True, description="take a remark for something left open", examples=[False]),
    ] = False
    head: Annotated[
        Digest32 | None, Field(description="a head of this run that you have kept, of any round")
    ] = None
    since: Annotated[
        VerificationName | None,
        Field(description="a verification that passed, which you trust for its rounds"),
    ] = None
