"""What an audit found, as plain data: ten steps with their outcomes, and who was caught at what.

Codes and numbers are compared, sentences are made from them when they are read: `readable` makes
lines of them for people, `as_dict` data for programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.audit import sentences
from ledger.audit.codes import (
    REMARKS,
    AuditCount,
    AuditOutcome,
    BlobKind,
    Fact,
    FindingKind,
    Need,
    Step,
    StepOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.protocol.ledger_state import StatementKind
    from ledger.protocol.types import ClientId, DropoutReason, Phase, RefusalReason

REPORT_VERSION = 3
MAX_NAMED = 50
"""Missing things that a step names; of the others only the number is kept."""
MAX_FINDINGS = 10_000
"""Findings that are kept; of the others only the number by kind is."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Where the record and the truth part.

    Attributes:
        fact: what is contradicted.
        round: t; None where it concerns no round.
        clients: clients or members whom it concerns.
        subject: of what exactly: a field's name, a hash, a block.
        recorded: the recorded value, if there is one.
        true: the true value, or the error that stands for it.
    """

    fact: Fact
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: str = ""
    recorded: str = ""
    true: str = ""

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        said, so = sentences.recorded_and_true(self.fact, self.subject, self.recorded, self.true)
        who = "" if self.fact in sentences.KEPT else "the record says that "
        return f"{sentences.whom(self.round, self.clients)}{who}{said}; in truth {so}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "fact": str(self.fact),
            "round": self.round,
            "clients": list(self.clients),
            "subject": sentences.bounded(self.subject),
            "recorded": sentences.bounded(self.recorded),
            "true": sentences.bounded(self.true),
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class MissingInput:
    """What could not be checked, or for want of what.

    Attributes:
        need: what is missing.
        round: t; None where it concerns no round.
        clients: whose it is.
        subject: the kind of blob, where one is missing.
        detail: the digest of a blob, the hash of a transaction, or what a node or store said.
    """

    need: Need
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: BlobKind | None = None
    detail: str = ""

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        what = sentences.missing(self.need, self.subject, self.detail)
        return f"{sentences.whom(self.round, self.clients)}{what}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "need": str(self.need),
            "round": self.round,
            "clients": list(self.clients),
            "subject": None if self.subject is None else str(self.subject),
            "detail": sentences.bounded(self.detail),
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class StepReport:
    """One of the ten steps over the whole run.

    Attributes:
        number: which.
        title: what is checked.
        outcome: how it ended.
        contradiction: the first one, if it failed.
        contradictions: how many there are.
        missing: the first things that could not be checked.
        missing_count: how many things could not be checked.
    """

    number: Step
    title: str
    outcome: StepOutcome
    contradiction: Contradiction | None
    contradictions: int
    missing: tuple[MissingInput, ...]
    missing_count: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        first = self.contradiction
        return {
            "number": int(self.number),
            "title": self.title,
            "outcome": str(self.outcome),
            "contradiction": None if first is None else first.as_dict(),
            "contradictions": self.contradictions,
            "missing": [missing.as_dict() for missing in self.missing],
            "missing_count": self.missing_count,
        }


@dataclass(frozen=True, slots=True)
class VoteSlot:
    """Where a vote was signed; the phase may be one that does not exist."""

    round: int
    phase: Phase | int
    view: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Misbehaviour or misfortune that the record names; it does not make the audit fail.

    Attributes:
        kind: what happened.
        round: t; None where it concerns the whole run.
        clients: who.
        evidence: 0x-hex digests that prove it: of blobs, signed messages or transactions.
        proven: whether the evidence proves it; silence, for one, cannot be proven.
        reason: why something was left out, or what was signed twice.
        named: the client whose distance is false.
        place: in which view.
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
        """What happened, in words."""
        place, reason = self.place, sentences.why(self.reason)
        at = "" if place is None else sentences.where(place.round, int(place.phase), place.view)
        named = "" if self.named is None else str(self.named)
        return sentences.happened(
            self.kind, reason=reason, named=named, place=at, statements=reason
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        place = self.place
        return {
            "kind": str(self.kind),
            "round": self.round,
            "clients": list(self.clients),
            "evidence": list(self.evidence),
            "proven": self.proven,
            "reason": None if self.reason is None else int(self.reason),
            "named": self.named,
            "place": None
            if place is None
            else {"round": place.round, "phase": int(place.phase), "view": place.view},
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class CountIncrement:
    """So much more of something that an audit counts."""

    count: AuditCount
    number: int


StepResult: TypeAlias = Contradiction | MissingInput | Finding | CountIncrement
"""What a step can say."""


@dataclass(frozen=True, slots=True)
class KeptHeadReport:
    """The head that an auditor had kept, and where the run has it.

    Attributes:
        head: 0x-hex.
        found: whether the run passes through it.
        round: in which round; 0 for the head that the run starts with, None if it was not found.
        event: what made it; empty for the head that the run starts with, or if it was not found.
    """

    head: str
    found: bool
    round: int | None
    event: str

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        return sentences.kept_head(self.head, self.round, self.event)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "head": self.head,
            "found": self.found,
            "round": self.round,
            "event": self.event,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class TrustedEarlierAudit:
    """The earlier audit that this one trusts for the first rounds.

    Attributes:
        report: sha256 of its report's bytes, 0x-hex.
        head: of the ledger, as it ended, 0x-hex.
        block: number of the newest block that it read.
        block_hash: of that block, 0x-hex.
        rounds: whose records, blobs, distances and models are taken from it: 1 to this one.
        audits: how many audits stand behind it, its own among them.
        found: whether the run was found to stand where it ended.
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
        """All of it as one sentence."""
        return sentences.built_on(
            self.rounds, self.audits, self.head, self.report, is_found=self.found
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "report": self.report,
            "head": self.head,
            "block": self.block,
            "block_hash": self.block_hash,
            "rounds": self.rounds,
            "audits": self.audits,
            "found": self.found,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        version: of this report's format.
        deployment: which contract on which chain, and where it stands; the block and the head
            that all of the report is as of.
        rounds: how many rounds have ended, all of them audited: those that `built_on` names by
            an earlier audit.
        steps: the ten steps in order.
        findings: who was caught at what, in the order of rounds.
        finding_counts: number of findings by kind, those not kept too.
        counts: what was read and recomputed.
        kept: what became of the head that the auditor had kept; None if none was given.
        strict: whether what can be told neither true nor false leaves the audit incomplete.
        built_on: the earlier audit that was trusted for the first rounds; None if none was.
    """

    version: int
    deployment: Mapping[str, Any]
    rounds: int
    steps: tuple[StepReport, ...]
    findings: tuple[Finding, ...]
    finding_counts: Mapping[str, int]
    counts: Mapping[str, int]
    kept: KeptHeadReport | None = None
    strict: bool = False
    built_on: TrustedEarlierAudit | None = None

    @property
    def outcome(self) -> AuditOutcome:
        """Failed if a step failed, else incomplete if something could not be checked."""
        found = {step.outcome for step in self.steps}
        if StepOutcome.FAILED in found:
            return AuditOutcome.FAILED
        is_open = StepOutcome.NOT_CHECKABLE in found or (self.strict and self.remarks > 0)
        return AuditOutcome.INCOMPLETE if is_open else AuditOutcome.PASSED

    @property
    def remarks(self) -> int:
        """How many findings can be told neither true nor false, by anyone."""
        return sum(self.finding_counts.get(str(kind), 0) for kind in REMARKS)

    def step(self, number: Step) -> StepReport:
        """Return one of the ten steps."""
        return self.steps[number - 1]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {
            "version": self.version,
            "outcome": str(self.outcome),
            "strict": self.strict,
            "whole": self.built_on is None,
            "built_on": None if self.built_on is None else self.built_on.as_dict(),
            "deployment": dict(self.deployment),
            "kept_head": None if self.kept is None else self.kept.as_dict(),
            "remarks": self.remarks,
            "rounds": self.rounds,
            "steps": [step.as_dict() for step in self.steps],
            "findings": [finding.as_dict() for finding in self.findings],
            "finding_counts": dict(self.finding_counts),
            "counts": dict(self.counts),
        }
