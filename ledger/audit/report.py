"""The report of an audit as plain data: ten steps with their outcomes, and findings.

A check's codes and sentences are in its own file under `checks/`; here are their types. Programs
compare codes; sentences are made when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, Protocol, Self, TypeAlias

from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import (
    DROPOUTS,
    PHASES,
    REFUSALS,
    ClientId,
    DropoutReason,
    Phase,
    RefusalReason,
)
from ledger.transparency.policy import CheckpointEvidence

MAX_CHARACTERS = 300
"""The longest text of others that a sentence or a report holds."""

_STATEMENTS: dict[StatementKind, str] = {
    StatementKind.REQUEST: "requests",
    StatementKind.REPLY: "replies",
    StatementKind.SCORES: "score vectors",
}


def reason_text(
    code: DropoutReason | RefusalReason | StatementKind | None, victims: Sequence[ClientId] = ()
) -> str:
    """Return a reason, or the kind of statement that was signed twice, in words."""
    if isinstance(code, DropoutReason):
        return DROPOUTS[code]
    if isinstance(code, RefusalReason):
        return REFUSALS[code] + (f": that to client {listed(victims)}" if victims else "")
    return "" if code is None else _STATEMENTS[code]


def vote_slot_text(round_number: int, phase: int, view: int) -> str:
    """Return the slot of a vote, to follow a sentence; a score vector has phase 0."""
    if phase == 0:
        return f" in round {round_number}"
    # Two votes for a phase that does not exist are two votes as well.
    phases = {int(phase): name for phase, name in PHASES.items()}
    return f" in view {view + 1} of {phases.get(phase, f'phase {phase}')} of round {round_number}"


def subject_prefix(round_number: int | None, clients: tuple[ClientId, ...]) -> str:
    """Return the round and clients that a sentence begins with; empty without any."""
    subjects = [f"round {round_number}"] if round_number is not None else []
    if clients:
        subjects.append(f"client{'s' * (len(clients) > 1)} {listed(clients)}")
    return f"{', '.join(subjects)}: " if subjects else ""


def listed(values: Sequence[int], limit: int = 20) -> str:
    """Return numbers as text, the first of them if there are many."""
    text = ", ".join(str(value) for value in values[:limit])
    return text if len(values) <= limit else f"{text} and {len(values) - limit} more"


def text_of(value: object, limit: int = 16) -> str:
    """Return a recorded value as text: bytes as 0x-hex, tuples up to `limit` entries."""
    if isinstance(value, bytes):
        return to_hex(value)
    if isinstance(value, tuple):
        rest = f", ... {len(value)} in all" if len(value) > limit else ""
        return f"({', '.join(text_of(entry) for entry in value[:limit])}{rest})"
    return str(value)


def bounded(text: str) -> str:
    """Return the first characters of a text that others wrote."""
    return text[:MAX_CHARACTERS]


def plain(text: str) -> str:
    """Return bounded text without line ends, control characters and the brackets of markup."""
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in bounded(text))
    return printable.replace("[", "(").replace("]", ")")


REPORT_VERSION = 3
MAX_NAMED = 50
"""Missing inputs that a step names; of the others only the number is kept."""
MAX_FINDINGS = 10_000
"""Findings that are kept; of the others only the number by kind is."""


class AuditStep(IntEnum):
    """The ten steps of an audit, each with its title."""

    title: str

    def __new__(cls, number: int, title: str) -> Self:
        """Take the number for the value."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.title = title
        return member

    DEPLOYMENT = 1, "deployment and parameters"
    HEAD = 2, "head chain and seeds"
    CERTIFICATES = 3, "certificates, signatures and bases"
    SAMPLING = 4, "sampling from the seed"
    BLOBS = 5, "blobs equal to their commitments"
    DISTANCES = 6, "each member's distances"
    MEANS = 7, "mean distances, bit for bit"
    RANKING = 8, "ranking, accepted set and election"
    MODEL = 9, "the model, bit for bit"
    COMPLETENESS = 10, "nothing missing in between"


class StepOutcome(StrEnum):
    """The outcome of one step."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKABLE = "not checkable"


class AuditOutcome(StrEnum):
    """The outcome of an audit."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


class BlobKind(StrEnum):
    """The expected content of a blob."""

    CONFIGURATION = "configuration"
    RECORD = "record"
    INCIDENTS = "incidents document"
    PAYLOAD = "payload"
    VECTOR = "score vector"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ResultCode:
    """A code that programs compare; what more there is makes its sentence."""

    code: str

    def __str__(self) -> str:
        return self.code


@dataclass(frozen=True, slots=True)
class Fact(ResultCode):
    """A statement of the record that a check can contradict.

    Attributes:
        recorded: the statement, with `subject`, `recorded` and `true` filled in.
        step: the check that fails where two answers of the chain disagree about it.
        is_recorded: whether the run's record states it; else the auditor kept it from before.
    """

    recorded: str
    true: str
    step: AuditStep = AuditStep.HEAD
    is_recorded: bool = True


@dataclass(frozen=True, slots=True)
class Need(ResultCode):
    """An input that is missing, so that something cannot be checked.

    Attributes:
        steps: the checks that are left open where the chain does not serve it.
    """

    sentence: str
    steps: tuple[AuditStep, ...] = (AuditStep.HEAD,)


@dataclass(frozen=True, slots=True)
class FindingKind(ResultCode):
    """A kind of misbehaviour or misfortune that a run's record names.

    Attributes:
        sentence: with `reason`, `statements`, `named` and `slot` filled in.
        is_remark: whether it can be neither confirmed nor refuted; it then accuses no client.
    """

    sentence: str
    is_remark: bool = False


class Reported:
    """A part of a report: its fields in their order, and its sentence, if it has one."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        names += ["sentence"] if hasattr(self, "sentence") else []
        return {name: shown(getattr(self, name), is_bounded=name != "sentence") for name in names}


def shown(value: Any, *, is_bounded: bool = True) -> Any:
    """Return a value of a report as plain data; text of others is bounded."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    match value:
        case ResultCode():
            return value.code
        case Enum():
            return value.value
        case str():
            return bounded(value) if is_bounded else value
        case tuple():
            return [shown(each) for each in value]
        case Mapping():
            return dict(value)
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Contradiction(Reported):
    """A difference between the record and the truth.

    Attributes:
        round: t; None where it concerns no round.
        recorded: the recorded value, if there is one.
        true: the true value, or the error in its place.
    """

    fact: Fact
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: str = ""
    recorded: str = ""
    true: str = ""

    @property
    def sentence(self) -> str:
        """The contradiction as one sentence."""
        values = {name: plain(getattr(self, name)) for name in ("subject", "recorded", "true")}
        recorded, true = (text.format(**values) for text in (self.fact.recorded, self.fact.true))
        source = "the record says that " if self.fact.is_recorded else ""
        return f"{subject_prefix(self.round, self.clients)}{source}{recorded}; in truth {true}"


@dataclass(frozen=True, slots=True)
class MissingInput(Reported):
    """Something that could not be checked for want of an input.

    Attributes:
        round: t; None where it concerns no round.
        detail: the digest of a blob, the hash of a transaction, or a node's or store's message.
    """

    need: Need
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: BlobKind | None = None
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The missing input as one sentence."""
        text = self.need.sentence.format(subject=self.subject or "", detail=plain(self.detail))
        return f"{subject_prefix(self.round, self.clients)}{text.removesuffix(': ')}"


class Step(Protocol):
    """A step of any check: one of an audit's ten, or a comparison of a proof or a bundle."""

    @property
    def outcome(self) -> StepOutcome:
        """The outcome of this step."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""

    def lines(self) -> list[str]:
        """Return it as lines of text, without anything that could be markup."""


def outcome_of(steps: Iterable[Step]) -> AuditOutcome:
    """Return failed if a step failed, else incomplete if one could not be checked."""
    outcomes = {step.outcome for step in steps}
    if StepOutcome.FAILED in outcomes:
        return AuditOutcome.FAILED
    is_open = StepOutcome.NOT_CHECKABLE in outcomes
    return AuditOutcome.INCOMPLETE if is_open else AuditOutcome.PASSED


@dataclass(frozen=True, slots=True)
class StepReport(Reported):
    """One of the ten steps over the whole run."""

    number: AuditStep
    title: str
    outcome: StepOutcome
    contradiction: Contradiction | None
    contradictions: int
    missing: tuple[MissingInput, ...]
    missing_count: int

    def lines(self) -> list[str]:
        """Return the step as lines of text, without anything that could be markup."""
        lines = [f"{self.number:2d} {self.title:<36} {self.outcome}"]
        if self.contradiction is not None:
            lines.append(f"     {self.contradiction.sentence}")
            if self.contradictions > 1:
                lines.append(f"     and {self.contradictions - 1} more contradictions")
        lines += [f"     not checkable: {what.sentence}" for what in self.missing[:5]]
        if self.missing_count > 5:
            lines.append(f"     and {self.missing_count - 5} more things that could not be checked")
        return lines


@dataclass(frozen=True, slots=True)
class VoteSlot(Reported):
    """The slot of a signed vote; the phase may be one that does not exist."""

    round: int
    phase: Phase | int
    view: int


@dataclass(frozen=True, slots=True)
class Finding(Reported):
    """Misbehaviour or misfortune that the record names; it does not make the audit fail.

    Attributes:
        round: t; None where it concerns the whole run.
        evidence: 0x-hex digests that prove it: of blobs, signed messages or transactions.
        proven: whether the evidence proves it; silence, for one, cannot be proven.
        reason: of an exclusion, or the kind of statement that was signed twice.
    """

    kind: FindingKind
    round: int | None
    clients: tuple[ClientId, ...]
    evidence: tuple[str, ...]
    proven: bool
    reason: DropoutReason | RefusalReason | StatementKind | None = None
    named: ClientId | None = None
    place: VoteSlot | None = None

    @property
    def sentence(self) -> str:
        """The finding in words."""
        place, reason = self.place, reason_text(self.reason)
        return self.kind.sentence.format(
            reason=reason,
            statements=reason or "statements",
            named="" if self.named is None else str(self.named),
            slot="" if place is None else vote_slot_text(place.round, int(place.phase), place.view),
        )


@dataclass(frozen=True, slots=True)
class CountIncrement:
    """An addition to one of the report's counts."""

    count: str
    number: int


StepResult: TypeAlias = Contradiction | MissingInput | Finding | CountIncrement
"""A result of one check."""

_HEADS = {
    "": "before round 1",
    "RoundDecided": "after round {round}",
    "RoundAbandoned": "after round {round}, which was abandoned",
    "ClientBanned": "after a ban in round {round}",
}


@dataclass(frozen=True, slots=True)
class KeptHeadReport(Reported):
    """The position of a head that the auditor kept.

    Attributes:
        head: 0x-hex.
        round: of the head; 0 for the head that the run starts with, None if it was not found.
        event: that made it; empty for the head that the run starts with, or if it was not found.
    """

    head: str
    found: bool
    round: int | None
    event: str

    @property
    def sentence(self) -> str:
        """The position as one sentence."""
        if self.round is None:
            return f"The run was not found to pass through the head that you kept, {self.head}."
        position = _HEADS[self.event].format(round=self.round)
        return f"The run passes through the head that you kept, {self.head}, {position}."


@dataclass(frozen=True, slots=True)
class WitnessedRounds(Reported):
    """The rounds that a quorum of witnesses stands for.

    Attributes:
        log: origin of the log; empty if there is no checkpoint with a quorum.
        rounds: 1 to this one; 0 for none.
        root: of the tree of their heads, 0x-hex; empty if there is no quorum.
        time: as of which nothing newer exists, seconds since 1970; None if there is no quorum.
        failures: why logs or witnesses gave nothing that counts.
    """

    log: str
    rounds: int
    root: str
    witnesses: tuple[str, ...]
    time: int | None
    failures: tuple[str, ...]

    @classmethod
    def of(cls, evidence: CheckpointEvidence) -> Self:
        """Return what an auditor collected, for a report."""
        witnessed, failures = evidence.witnessed, evidence.failures
        if witnessed is None:
            return cls("", 0, "", (), None, failures)
        tree = witnessed.checkpoint
        root = f"0x{tree.root.hex()}"
        return cls(tree.origin, tree.size, root, witnessed.witnesses, witnessed.time, failures)

    @property
    def sentence(self) -> str:
        """The rounds as one sentence."""
        if self.time is None:
            return "No quorum of witnesses stands for any round."
        day = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        names = plain(", ".join(self.witnesses))
        return (
            f"A quorum of witnesses ({names}) says that as of {day} UTC the log {plain(self.log)} "
            f"had {self.rounds} rounds, and no more."
        )


@dataclass(frozen=True, slots=True)
class TrustedEarlierAudit(Reported):
    """The earlier audit that this one trusts for the first rounds.

    Attributes:
        report: sha256 of its report's bytes, 0x-hex.
        head: of the ledger at its end, 0x-hex.
        block: number of the newest block that it read.
        block_hash: of that block, 0x-hex.
        rounds: whose records, blobs, distances and models are taken from it: 1 to this one.
        audits: number of audits behind it, its own included.
        found: whether the run passes through the block and head of its end.
    """

    report: str
    head: str
    block: int
    block_hash: str
    rounds: int
    audits: int
    found: bool

    @property
    def sentence(self) -> str:
        """The use of the earlier audit in words."""
        if not self.found:
            return f"The run was not found to stand at {self.head}, where the earlier audit ended."
        by = (
            "an earlier audit, which"
            if self.audits == 1
            else f"{self.audits} earlier audits, which"
        )
        rounds = {0: "No round", 1: "Round 1"}.get(self.rounds, f"Rounds 1 to {self.rounds}")
        return (
            f"{rounds} by {by} this one trusts: sha256 of its report {self.report}, head "
            f"{self.head}. Their transactions were replayed again; their records, blobs, distances "
            f"and models were not read."
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        deployment: the contract, its chain and its state; all of the report is as of that block
            and head.
        rounds: number of ended rounds, all of them audited: those of `built_on` by an earlier
            audit.
        finding_counts: number of findings by kind, those not kept too.
        remarks: number of findings that can be neither confirmed nor refuted.
        kept: the position of the head that the auditor had kept; None if none was given.
        strict: whether a remark leaves the audit incomplete.
        built_on: the earlier audit that was trusted for the first rounds; None if none was.
        witnessed: the rounds that witnesses stand for; None if there was no policy.
    """

    version: int
    deployment: Mapping[str, Any]
    rounds: int
    steps: tuple[StepReport, ...]
    findings: tuple[Finding, ...]
    finding_counts: Mapping[str, int]
    remarks: int
    counts: Mapping[str, int]
    kept: KeptHeadReport | None = None
    strict: bool = False
    built_on: TrustedEarlierAudit | None = None
    witnessed: WitnessedRounds | None = None

    @property
    def outcome(self) -> AuditOutcome:
        """Failed if a step failed, else incomplete if something could not be checked."""
        outcome = outcome_of(self.steps)
        is_open = outcome is AuditOutcome.PASSED and self.strict and self.remarks > 0
        return AuditOutcome.INCOMPLETE if is_open else outcome

    def step(self, number: AuditStep) -> StepReport:
        """Return one of the ten steps."""
        return self.steps[number - 1]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {
            "version": self.version,
            "outcome": str(self.outcome),
            "strict": self.strict,
            "whole": self.built_on is None,
            "built_on": shown(self.built_on),
            "deployment": dict(self.deployment),
            "kept_head": shown(self.kept),
            "witnessed": shown(self.witnessed),
            "remarks": self.remarks,
            "rounds": self.rounds,
            "steps": shown(self.steps),
            "findings": shown(self.findings),
            "finding_counts": dict(self.finding_counts),
            "counts": dict(self.counts),
        }
