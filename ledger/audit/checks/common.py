"""The form of a check, and the missing inputs that leave several checks open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.observations import Observation
from ledger.audit.report import AuditStep, Contradiction, Fact, MissingInput, Need, StepResult
from ledger.protocol.errors import Refusal
from ledger.protocol.ledger_state import Event
from ledger.protocol.rules.distance import OwnRuleName

if TYPE_CHECKING:
    from ledger.audit.evidence import RoundEvidence
    from ledger.protocol.validation import ViolationCode

_FROM_ROUND_BEFORE = (
    AuditStep.SAMPLING,
    AuditStep.DISTANCES,
    AuditStep.MEANS,
    AuditStep.RANKING,
    AuditStep.MODEL,
    AuditStep.COMPLETENESS,
)
_FROM_RECORD = (
    AuditStep.BLOBS,
    AuditStep.DISTANCES,
    AuditStep.MEANS,
    AuditStep.RANKING,
    AuditStep.MODEL,
    AuditStep.COMPLETENESS,
)
_FROM_REPLAY = (
    AuditStep.DEPLOYMENT,
    AuditStep.HEAD,
    AuditStep.CERTIFICATES,
    AuditStep.SAMPLING,
    AuditStep.RANKING,
    AuditStep.COMPLETENESS,
)
_ALL = tuple(AuditStep)

DEPLOYMENT_UNKNOWN = Need("deployment", "what was deployed is not known: {detail}", _ALL)
CHAIN_UNAVAILABLE = Need("chain", "the chain cannot be read any further: {detail}", _ALL)
REORGANISED = Need(
    "reorganised", "the node's chain was reorganised during the audit: audit again", _ALL
)
LOGS_INCOMPLETE = Need(
    "logs",
    "the node's logs do not add up to what the contract says, so that nothing follows from them: "
    "{detail}",
    _ALL,
)
NOT_FINAL = Need(
    "finality",
    "what looks like a contradiction ({detail}) rests on a block that may still be taken back: "
    "audit again when it is final",
)
BLOCK_UNAVAILABLE = Need("block", "a block cannot be had: {detail}", _FROM_REPLAY)
PARAMETERS_UNKNOWN = Need(
    "parameters",
    "the parameters are not known without run document {detail}",
    (AuditStep.DEPLOYMENT, *_FROM_RECORD),
)
ROUND_BEFORE_UNKNOWN = Need(
    "round before", "seed and committee are not known without the round before", _FROM_ROUND_BEFORE
)
RECORD_UNREADABLE = Need("record", "there is no readable record", _FROM_RECORD)
OWN_RULE_MISSING = Need(
    "own rule", "the rule {detail} is code of the run's owner: name your own copy with --rules FILE"
)
UPDATES_MISSING = Need("updates", "there is no update")
VECTORS_UNUSABLE = Need("right vectors", "the counted score vectors cannot be put together")


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """One of the ten steps.

    Attributes:
        events: those that fail this step where a log is not what its transaction makes.
    """

    step: AuditStep
    title: str
    check: Callable[[Observation], Iterator[StepResult]]
    refusals: tuple[Refusal, ...] = ()
    events: tuple[type[Event], ...] = ()
    event_fields: frozenset[str] = frozenset()


def missing_rule(evidence: RoundEvidence, rule: OwnRuleName) -> MissingInput:
    """Return what is missing where the auditor has not named the code of an own rule."""
    detail = f"{rule.label} (sha256 {rule.digest})"
    return MissingInput(OWN_RULE_MISSING, evidence.event.round, detail=detail)


def contradictions_of(
    evidence: RoundEvidence, facts: Mapping[ViolationCode, Fact]
) -> Iterator[Contradiction]:
    """Yield the violations of a record that contradict one of these facts."""
    for violation in evidence.violations:
        if violation.code in facts:
            yield Contradiction(facts[violation.code], evidence.event.round, violation.clients)
