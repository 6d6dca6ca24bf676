"""What the ten checks share: the form of a result, and which step fails for what a replay finds.

Every look-up of a step has an answer, so that no difference is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.audit.evidence import RoundEvidence
from ledger.audit.report import (
    AuditStep,
    Contradiction,
    Fact,
    MissingInput,
    Need,
    StepResult,
    text_of,
)
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import (
    ClientsRegistered,
    Event,
    LedgerDeployed,
    LedgerOpened,
    RoundAbandoned,
)
from ledger.protocol.validation import ViolationCode


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A result of one step, before it is known whether it is confirmed and final.

    Attributes:
        block: number of the newest block that it rests on.
        rests_on_all_logs: whether a missing log could be its cause.
    """

    step: AuditStep
    result: StepResult
    block: int
    rests_on_all_logs: bool = False


def results_of(
    block: int, *checks: tuple[AuditStep, Iterable[StepResult]], rests_on_all_logs: bool = True
) -> Iterator[CheckResult]:
    """Yield the results of checks, each with its step."""
    for step, results in checks:
        for result in results:
            yield CheckResult(step, result, block, rests_on_all_logs)


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


_FROM_ROUND_BEFORE = (
    AuditStep.SAMPLING,
    AuditStep.DISTANCES,
    AuditStep.MEANS,
    AuditStep.RANKING,
    AuditStep.MODEL,
    AuditStep.COMPLETENESS,
)
_FROM_RECORD = (AuditStep.BLOBS, *_FROM_ROUND_BEFORE[1:])
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

REFUSED_CALL = Fact(
    "refused call", "the contract took transaction {subject}", "it refuses it: {true}"
)
EVENT_MALFORMED = Fact("event malformed", "a log is an event of the contract", "it is not: {true}")
EVENT_KIND = Fact("event kind", "the event is {recorded}", "its transaction made {true}")
EVENT_FIELD = Fact("event field", "{subject} is {recorded}", "its transaction gives {true}")
EVENT_UNFOUNDED = Fact("event unfounded", "{subject} is {recorded}", "it follows as {true}")

_REFUSALS: dict[AuditStep, tuple[RefusalCode, ...]] = {
    AuditStep.DEPLOYMENT: (
        RefusalCode.NOT_REGISTERING,
        RefusalCode.REGISTRY_MISMATCH,
        RefusalCode.MALFORMED_CLIENT,
        RefusalCode.CLIENTS_NOT_ASCENDING,
        RefusalCode.REGISTRY_END,
    ),
    AuditStep.SAMPLING: (RefusalCode.WRONG_COMMITTEE, RefusalCode.MEMBER_RANKED),
    AuditStep.RANKING: (
        RefusalCode.RANKING_TOO_LONG,
        RefusalCode.RANKING_TOO_SHORT,
        RefusalCode.RANKING_NOT_SORTED,
        RefusalCode.DISTANCE_NOT_FINITE,
        RefusalCode.REPEATED_CLIENT,
        RefusalCode.WRONG_AGGREGATION_SET,
        RefusalCode.WRONG_CANDIDATES,
    ),
    AuditStep.COMPLETENESS: (
        RefusalCode.NO_ROUND_OPEN,
        RefusalCode.NOT_OPENED,
        RefusalCode.WRONG_ROUND,
        RefusalCode.NO_COMMITMENT,
        RefusalCode.NO_COMMITMENTS,
        RefusalCode.NOTHING_TAKEN,
        RefusalCode.COMMITMENTS_CLOSED,
        RefusalCode.RANKING_TOO_EARLY,
        RefusalCode.DEADLINE_NOT_REACHED,
    ),
}
_BY_REFUSAL = {refusal: step for step, refusals in _REFUSALS.items() for refusal in refusals}
_BY_EVENT = dict.fromkeys((LedgerDeployed, ClientsRegistered, LedgerOpened), AuditStep.DEPLOYMENT)
_BY_FIELD = {
    **dict.fromkeys(("head", "next_seed", "seed"), AuditStep.HEAD),
    "committee": AuditStep.SAMPLING,
    **dict.fromkeys(("accepted", "next_committee"), AuditStep.RANKING),
    **dict.fromkeys(("round", "client"), AuditStep.COMPLETENESS),
}
_FIELDS_FROM_ALL_BEFORE = frozenset(
    {"first", "registry", "seed", "committee", "round", "clients", "commitments"}
    | {"primaries", "next_seed", "head"}
)


def step_of_refusal(refusal: RefusalCode) -> AuditStep:
    """Return the step that fails where the specification refuses a recorded transaction."""
    return _BY_REFUSAL.get(refusal, AuditStep.CERTIFICATES)


def step_of_event(kind: type[Event] | None) -> AuditStep:
    """Return the step that fails where a log is not the event that it must be."""
    return AuditStep.HEAD if kind is None else _BY_EVENT.get(kind, AuditStep.CERTIFICATES)


def step_of_field(kind: type[Event], name: str) -> AuditStep:
    """Return the step that fails where a field of an event is wrong."""
    if (kind, name) == (RoundAbandoned, "next_committee"):
        return AuditStep.SAMPLING  # without a ranking the seed draws it
    return _BY_FIELD.get(name, step_of_event(kind))


def malformed_event(block: int, at: int | None, made: type[Event] | None, true: str) -> CheckResult:
    """Return that a log is none of the contract's events, instead of one of a kind."""
    return CheckResult(step_of_event(made), Contradiction(EVENT_MALFORMED, at, true=true), block)


def wrong_field(
    block: int,
    at: int | None,
    kind: type[Event],
    name: str,
    values: Sequence[object],
    *,
    is_made: bool,
) -> CheckResult:
    """Return that a field of an event is not what its transaction, or the state before, makes."""
    fact = EVENT_FIELD if is_made else EVENT_UNFOUNDED
    is_drawn = kind is RoundAbandoned and name == "next_committee"
    rests = is_drawn or name in _FIELDS_FROM_ALL_BEFORE
    wrong = Contradiction(fact, at, (), f"{kind.__name__}.{name}", *map(text_of, values))
    return CheckResult(step_of_field(kind, name), wrong, block, rests)


def contradictions_of(
    evidence: RoundEvidence, facts: Mapping[ViolationCode, Fact]
) -> Iterator[Contradiction]:
    """Yield the violations of a record that contradict one of these facts."""
    for violation in evidence.violations:
        if violation.code in facts:
            yield Contradiction(facts[violation.code], evidence.event.round, violation.clients)
