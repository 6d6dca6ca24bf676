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

from ledger.protocol import types
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import ClientId, DropoutReason, Phase, RefusalReason
from ledger.transparency.policy import CheckpointEvidence

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
        return types.DROPOUTS[code]
    if isinstance(code, RefusalReason):
        return types.REFUSALS[code] + (f": the one to client {listed(victims)}" if victims else "")
    return "" if code is None else _STATEMENTS[code]


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


def text_of(value: object) -> str:
    """Return a recorded value as text: bytes as 0x-hex, of a tuple the first 16 entries."""
    if isinstance(value, bytes):
        return to_hex(value)
    if isinstance(value, tuple):
        rest = f", ... {len(value)} in all" if len(value) > 16 else ""
        return f"({', '.join(text_of(entry) for entry in value[:16])}{rest})"
    return str(value)


MAX_CHARACTERS = 300  # the longest text of others that a sentence or a report holds


def plain(text: str) -> str:
    """Return bounded text without line ends, control characters and the brackets of markup."""
    text = text[:MAX_CHARACTERS]
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return printable.replace("[", "(").replace("]", ")")


REPORT_VERSION = 3
MAX_NAMED = 50  # missing inputs that a step names; of the others only the number is kept
MAX_FINDINGS = 10_000  # findings that are kept; of the others only the number by kind is


class AuditStep(IntEnum):
    """The ten steps of an audit, each with its title."""

    title: str

    def __new__(cls, number: int, title: str) -> Self:
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
    COMPLETENESS = 10, "completeness of the rounds"


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
    """A code that programs compare; the other fields make its sentence."""

    code: str

    def __str__(self) -> str:
        return self.code


@dataclass(frozen=True, slots=True)
class Fact(ResultCode):
    """A statement of the record that a check can contradict."""

    recorded: str  # the statement, with `subject`, `recorded` and `true` filled in
    true: str
    step: AuditStep = AuditStep.HEAD  # fails where two answers of the chain disagree
    is_recorded: bool = True  # false for a statement that the auditor kept from before


@dataclass(frozen=True, slots=True)
class Need(ResultCode):
    """An input that can be missing; without it, `steps` cannot be checked."""

    sentence: str
    steps: tuple[AuditStep, ...] = (AuditStep.HEAD,)


@dataclass(frozen=True, slots=True)
class FindingKind(ResultCode):
    """A kind of misbehaviour or misfortune that a run's record names."""

    sentence: str  # with `reason`, `statements`, `named` and `slot` filled in
    is_remark: bool = False  # it can be neither confirmed nor refuted, and accuses no client


class Reported:
    """A part of a report: its fields in their order, and its sentence, if it has one."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        own = {each.name: shown(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]
        return own | {"sentence": self.sentence} if hasattr(self, "sentence") else own


def shown(value: Any) -> Any:
    """Return a value of a report as plain data; text of others is bounded."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    match value:
        case ResultCode():
            return value.code
        case Enum():
            return value.value
        case str():
            return value[:MAX_CHARACTERS]
        case tuple():
            return [shown(each) for each in value]
        case Mapping():
            return dict(value)
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Contradiction(Reported):
    """A difference between the record and the truth; `round` is None for the run."""

    fact: Fact
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: str = ""
    recorded: str = ""  # the recorded value, if there is one
    true: str = ""  # the true value, or the error in its place

    @property
    def sentence(self) -> str:
        values = {name: plain(getattr(self, name)) for name in ("subject", "recorded", "true")}
        recorded, true = (text.format(**values) for text in (self.fact.recorded, self.fact.true))
        source = "the record claims that " if self.fact.is_recorded else ""
        return f"{subject_prefix(self.round, self.clients)}{source}{recorded}; in fact {true}"


@dataclass(frozen=True, slots=True)
class MissingInput(Reported):
    """Something that could not be checked because an input is missing."""

    need: Need
    round: int | None = None
    clients: tuple[ClientId, ...] = ()
    subject: BlobKind | None = None
    detail: str = ""  # digest of a blob, hash of a transaction, or message of a node or store

    @property
    def sentence(self) -> str:
        text = self.need.sentence.format(subject=self.subject or "", detail=plain(self.detail))
        return f"{subject_prefix(self.round, self.clients)}{text.removesuffix(': ')}"


class Step(Protocol):
    """A step of any check: one of an audit's ten, or a comparison of a proof or a bundle."""

    @property
    def outcome(self) -> StepOutcome: ...

    def as_dict(self) -> dict[str, Any]: ...

    def lines(self) -> list[str]:
        """Return it as lines of text, without anything that could be markup."""


def outcome_of(steps: Iterable[Step]) -> AuditOutcome:
    """Return failed if a step failed, else incomplete if one could not be checked."""
    outcomes = {step.outcome for step in steps}
    if StepOutcome.FAILED in outcomes:
        return AuditOutcome.FAILED
    return AuditOutcome.INCOMPLETE if StepOutcome.NOT_CHECKABLE in outcomes else AuditOutcome.PASSED


@dataclass(frozen=True, slots=True)
class StepReport(Reported):
    """One of the ten steps over the whole run; the first contradiction, and the first inputs."""

    number: AuditStep
    title: str
    outcome: StepOutcome
    contradiction: Contradiction | None
    contradictions: int
    missing: tuple[MissingInput, ...]
    missing_count: int

    def lines(self) -> list[str]:
        lines = [f"{self.number:2d} {self.title:<36} {self.outcome}"]
        if self.contradiction is not None:
            lines.append(f"     {self.contradiction.sentence}")
            if self.contradictions > 1:
                lines.append(f"     and {self.contradictions - 1} more contradictions")
        lines += [f"     not checkable: {what.sentence}" for what in self.missing[:5]]
        if self.missing_count > 5:
            lines.append(f"     and {self.missing_count - 5} more inputs that are missing")
        return lines


@dataclass(frozen=True, slots=True)
class VoteSlot(Reported):
    """The slot of a signed statement: scores have phase 0, a vote may name any phase."""

    round: int
    phase: Phase | int
    view: int

    def __str__(self) -> str:
        if self.phase == 0:
            return f" in round {self.round}"
        # Two votes for a phase that does not exist are two votes as well.
        phases = {int(phase): name for phase, name in types.PHASES.items()}
        phase = phases.get(self.phase, f"phase {int(self.phase)}")
        return f" in view {self.view + 1} of {phase} of round {self.round}"


@dataclass(frozen=True, slots=True)
class Finding(Reported):
    """Misbehaviour or misfortune that the record names; it does not make the audit fail."""

    kind: FindingKind
    round: int | None  # t; None where it concerns the whole run
    clients: tuple[ClientId, ...]
    evidence: tuple[str, ...]  # 0x-hex digests: of blobs, signed messages or transactions
    proven: bool  # whether the evidence proves it; silence, for one, cannot be proven
    reason: DropoutReason | RefusalReason | StatementKind | None = None  # or what was signed twice
    named: ClientId | None = None
    place: VoteSlot | None = None

    @property
    def sentence(self) -> str:
        reason = reason_text(self.reason)
        return self.kind.sentence.format(
            reason=reason,
            statements=reason or "statements",
            named="" if self.named is None else self.named,
            slot=self.place or "",
        )


@dataclass(frozen=True, slots=True)
class CountIncrement:
    """An addition to one of the report's counts."""

    count: str
    number: int


StepResult: TypeAlias = Contradiction | MissingInput | Finding | CountIncrement
"""A result of one check."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A result of one step, before it is known whether it is confirmed and final."""

    step: AuditStep
    result: StepResult
    block: int  # number of the newest block that it rests on
    rests_on_all_logs: bool = False  # whether a missing log could be its cause


def results_of(
    block: int, *checks: tuple[AuditStep, Iterable[StepResult]], rests_on_all_logs: bool = True
) -> list[CheckResult]:
    """Run checks, one after the other, and return their results, each with its step."""
    return [
        CheckResult(step, result, block, rests_on_all_logs)
        for step, results in checks
        for result in tuple(results)
    ]


def not_served(
    block: int, need: Need, at: int | None = None, detail: str = ""
) -> tuple[CheckResult, ...]:
    """Return the steps that are left open where a chain does not serve something."""
    missing = MissingInput(need, at, detail=detail)
    return tuple(CheckResult(step, missing, block) for step in need.steps)


def contradicted(
    block: int,
    fact: Fact,
    subject: str = "",
    recorded: str = "",
    true: str = "",
    *,
    rests_on_all_logs: bool = False,
) -> CheckResult:
    """Return that two answers of a chain cannot both be true, or that one cannot be read."""
    contradiction = Contradiction(fact, None, (), subject, recorded, true)
    return CheckResult(fact.step, contradiction, block, rests_on_all_logs)


_HEADS = {
    "": "before round 1",
    "RoundDecided": "after round {round}",
    "RoundAbandoned": "after round {round}, which was abandoned",
    "ClientBanned": "after a ban in round {round}",
}


@dataclass(frozen=True, slots=True)
class KeptHeadReport(Reported):
    """The position of a head that the auditor kept."""

    head: str  # 0x-hex
    found: bool
    round: int | None  # 0 for the head that the run starts with; None if it was not found
    event: str  # that made it; empty for the head that the run starts with, or if it was not found

    @property
    def sentence(self) -> str:
        if self.round is None:
            return f"The head that you kept, {self.head}, was not found in the run."
        position = _HEADS[self.event].format(round=self.round)
        return f"The run has the head that you kept, {self.head}, {position}."


@dataclass(frozen=True, slots=True)
class WitnessedRounds(Reported):
    """The rounds that a quorum of witnesses confirms: 1 to `rounds`; 0 for none."""

    log: str  # origin of the log; empty if there is no checkpoint with a quorum
    rounds: int
    root: str  # of the tree of their heads, 0x-hex; empty if there is no quorum
    witnesses: tuple[str, ...]
    time: int | None  # Unix time as of which nothing newer exists; None without a quorum
    failures: tuple[str, ...]  # why logs or witnesses gave nothing that counts

    @classmethod
    def of(cls, evidence: CheckpointEvidence) -> Self:
        witnessed, failures = evidence.witnessed, evidence.failures
        if witnessed is None:
            return cls("", 0, "", (), None, failures)
        tree = witnessed.checkpoint
        root = f"0x{tree.root.hex()}"
        return cls(tree.origin, tree.size, root, witnessed.witnesses, witnessed.time, failures)

    @property
    def sentence(self) -> str:
        if self.time is None:
            return "No quorum of witnesses confirms any round."
        day = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        names = plain(", ".join(self.witnesses))
        return (
            f"A quorum of witnesses ({names}) confirms that the log {plain(self.log)} had exactly "
            f"{self.rounds} rounds at {day} UTC."
        )


@dataclass(frozen=True, slots=True)
class AnchoredHead(Reported):
    """A head that an anchor outside of the run holds."""

    file: str
    chain_id: int  # of the run's own chain
    address: str
    round: int
    head: str  # 0x-hex
    time: str  # in UTC, at which it existed
    by: str  # the transaction and its block, or the authority of a token

    @property
    def sentence(self) -> str:
        return (
            f"Anchor {plain(self.file)}: round {self.round} had the head {self.head} at "
            f"{self.time}, according to {plain(self.by)}."
        )


@dataclass(frozen=True, slots=True)
class TrustedEarlierAudit(Reported):
    """The earlier audit that this one trusts for rounds 1 to `rounds`; digests are 0x-hex."""

    report: str  # sha256 of its report's bytes
    head: str  # of the ledger in `block`, the newest block that it read
    block: int
    block_hash: str
    rounds: int  # whose records, blobs, distances and models are taken from it
    audits: int  # number of audits behind it, including itself
    found: bool  # whether the run passes through that block and head

    @property
    def sentence(self) -> str:
        if not self.found:
            return f"The last head of the earlier audit, {self.head}, was not found in the run."
        by = "an earlier audit" if self.audits == 1 else f"{self.audits} earlier audits"
        rounds = {0: "no round", 1: "round 1"}.get(self.rounds, f"rounds 1 to {self.rounds}")
        return (
            f"This audit trusts {by} for {rounds}: sha256 of its report {self.report}, head "
            f"{self.head}. It replayed the transactions again, and did not read records, blobs, "
            f"distances and models."
        )


_REPORT = (
    "version outcome strict whole built_on deployment kept_head witnessed remarks rounds steps "
    "findings finding_counts counts"
)
"""The parts of a report, in the order of its JSON."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit."""

    version: int
    deployment: Mapping[str, Any]  # contract, chain and state, as of which the report is
    rounds: int  # ended rounds, all audited: those of `built_on` by an earlier audit
    steps: tuple[StepReport, ...]
    findings: tuple[Finding, ...]
    finding_counts: Mapping[str, int]  # by kind, including those that are not kept
    remarks: int  # number of findings that can be neither confirmed nor refuted
    counts: Mapping[str, int]
    kept: KeptHeadReport | None = None  # None if no head was given
    strict: bool = False  # whether a remark leaves the audit incomplete
    built_on: TrustedEarlierAudit | None = None  # trusted for the first rounds
    witnessed: WitnessedRounds | None = None  # None without a policy
    anchors: tuple[AnchoredHead, ...] = ()

    @property
    def outcome(self) -> AuditOutcome:
        outcome = outcome_of(self.steps)
        is_open = outcome is AuditOutcome.PASSED and self.strict and self.remarks > 0
        return AuditOutcome.INCOMPLETE if is_open else outcome

    def step(self, number: AuditStep) -> StepReport:
        return self.steps[number - 1]

    def as_dict(self) -> dict[str, Any]:
        given = {"whole": self.built_on is None, "kept_head": self.kept}
        # Without anchors a report keeps the bytes that it had before there were any.
        names = [*_REPORT.split(), *(["anchors"] if self.anchors else [])]
        return {
            name: shown(given[name] if name in given else getattr(self, name)) for name in names
        }
