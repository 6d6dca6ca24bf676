"""Steps 1, 2 and 4: deployment parameters, the chain of heads, and sampling.

Here is also which step fails for what a replay finds. Every look-up of a step has an answer, so
that no difference is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial

from ledger.audit.evidence import RunStart
from ledger.audit.report import (
    AuditStep,
    CheckResult,
    Contradiction,
    Fact,
    FindingKind,
    Need,
    StepResult,
    listed,
    text_of,
)
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import (
    ClientsRegistered,
    Deployment,
    Event,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
)
from ledger.protocol.types import ClientId

_ALL = tuple(AuditStep)
_FROM_RECORD = _ALL[AuditStep.BLOBS - 1 :]
_FROM_ROUND_BEFORE = (AuditStep.SAMPLING, *_ALL[AuditStep.DISTANCES - 1 :])
_FROM_REPLAY = (*_ALL[: AuditStep.SAMPLING], AuditStep.RANKING, AuditStep.COMPLETENESS)

DEPLOYMENT_UNKNOWN = Need("deployment", "the deployment is unknown: {detail}", _ALL)
CHAIN_UNAVAILABLE = Need("chain", "the rest of the chain cannot be read: {detail}", _ALL)
REORGANISED = Need(
    "reorganised", "the node's chain was reorganised during the audit; audit again", _ALL
)
LOGS_INCOMPLETE = Need(
    "logs",
    "the node's logs do not match the contract's state, so they prove nothing: {detail}",
    _ALL,
)
NOT_FINAL = Need(
    "finality",
    "a possible contradiction ({detail}) depends on a block that the chain may still revert; "
    "audit again when the block is final",
)
BLOCK_UNAVAILABLE = Need("block", "a block is not available: {detail}", _FROM_REPLAY)
PARAMETERS_UNKNOWN = Need(
    "parameters",
    "the parameters are unknown without run document {detail}",
    (AuditStep.DEPLOYMENT, *_FROM_RECORD),
)
ROUND_BEFORE_UNKNOWN = Need(
    "round before", "seed and committee are unknown without the previous round", _FROM_ROUND_BEFORE
)
RECORD_UNREADABLE = Need("record", "the record is missing or unreadable", _FROM_RECORD)
OWN_RULE_MISSING = Need(
    "own rule", "the rule {detail} is code of the run's owner; name your copy with --rules FILE"
)
UPDATES_MISSING = Need("updates", "no update is available")
VECTORS_UNUSABLE = Need("right vectors", "the counted score vectors cannot be combined")

REFUSED_CALL = Fact(
    "refused call", "the contract accepted transaction {subject}", "its rules reject it: {true}"
)
EVENT_MALFORMED = Fact("event malformed", "a log is an event of the contract", "it is not: {true}")
EVENT_KIND = Fact("event kind", "the event is {recorded}", "its transaction made {true}")
EVENT_FIELD = Fact("event field", "{subject} is {recorded}", "its transaction gives {true}")
EVENT_UNFOUNDED = Fact("event unfounded", "{subject} is {recorded}", "the state gives {true}")

_REFUSALS = {
    AuditStep.DEPLOYMENT: "NOT_REGISTERING REGISTRY_MISMATCH MALFORMED_CLIENT "
    "CLIENTS_NOT_ASCENDING REGISTRY_END",
    AuditStep.SAMPLING: "WRONG_COMMITTEE MEMBER_RANKED",
    AuditStep.RANKING: "RANKING_TOO_LONG RANKING_TOO_SHORT RANKING_NOT_SORTED DISTANCE_NOT_FINITE "
    "REPEATED_CLIENT WRONG_AGGREGATION_SET WRONG_CANDIDATES",
    AuditStep.COMPLETENESS: "NO_ROUND_OPEN NOT_OPENED WRONG_ROUND NO_COMMITMENT NO_COMMITMENTS "
    "NOTHING_TAKEN COMMITMENTS_CLOSED RANKING_TOO_EARLY DEADLINE_NOT_REACHED",
}
_BY_REFUSAL = {RefusalCode[name]: at for at, names in _REFUSALS.items() for name in names.split()}
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
    """Return that a log is not an event of the contract, though one of a kind was made."""
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


CHAIN_UNREADABLE = Fact("chain unreadable", "the chain can be read", "it cannot: {true}")
CHAIN_FILE_DAMAGED = Fact(
    "chain file", "the chain file is what the EVM made of it", "it is not: {true}"
)
_kept = partial(Fact, is_recorded=False)  # what the auditor has kept from before

ROLLED_BACK = _kept(
    "rolled back",
    "this home acknowledged block {subject}, {recorded}",
    "the chain lacks it ({true}): an old backup was restored, or the chain is damaged",
)
KEPT_HEAD_ABSENT = _kept(
    "kept head",
    "you kept the head {recorded} of this run",
    "no head up to block {subject} equals it: this is an older copy of the run, or another run",
)
SIGNED_ROUNDS_ABSENT = _kept(
    "signed rounds",
    "{subject} signed {recorded} rounds of this run",
    "only {true} have ended here: this is an older copy of the run, or another run",
)
SIGNED_TREE_DIFFERS = _kept(
    "signed tree",
    "{subject} have the signed root {recorded}",
    "they have the root {true} here: this is another history of the run",
)
SIGNED_TREES_CONFLICT = _kept(
    "two trees",
    "{subject} have the signed root {recorded}",
    "the log also signed the root {true} for them: it signed two histories",
)
ANCHORED_HEAD_DIFFERS = _kept(
    "anchored head",
    "the anchor {subject} holds the head {recorded}",
    "the run's head is {true}: this is another history or an older copy, or the anchor is false",
)
EARLIER_BLOCK_DIFFERS = _kept(
    "earlier block",
    "the earlier audit ended with block {subject}, {recorded}",
    "that block is {true} here: this is another branch or another chain",
)
EARLIER_HEAD_DIFFERS = _kept(
    "earlier head",
    "the earlier audit ended with block {subject} and the head {recorded}",
    "the transactions up to there lead to {true}",
)
STATE_UNREADABLE = Fact("state unreadable", "the contract's state can be read", "it cannot: {true}")
STATE_DIFFERS = Fact(
    "state", "the contract's {subject} is {recorded}", "its transactions lead to {true}"
)
LOGS_UNREADABLE = Fact("logs unreadable", "blocks {subject} are complete", "they are not: {true}")
LOG_ORDER = Fact("log order", "{recorded} follows {subject}", "logs must be in ascending order")
LOG_ADDRESS = Fact("log address", "a log belongs to this contract", "it belongs to {true}")
BLOCK_UNREADABLE = Fact(
    "block unreadable", "block {subject} holds an event", "it cannot be read: {true}"
)
LOG_BLOCK = Fact("log block", "a log of block {subject} is in {recorded}", "that block is {true}")
PARENT_BLOCK = Fact(
    "parent block", "block {subject} follows {recorded}", "the block before it is {true}"
)
CHAIN_FILE_UNCHECKED = Need("chain file", "the chain file could not be checked: {detail}")
HEAD_NOTE_UNREADABLE = Need(
    "head note", "the note of the newest acknowledged block cannot be read: {detail}"
)
STATE_UNAVAILABLE = Need("state", "the contract's state is not available: {detail}")
HEAD_BLOCK_UNAVAILABLE = Need("head block", "whether the chain changed during the audit: {detail}")
KEPT_HEAD_UNCHECKED = Need(
    "kept head", "whether the run contains the head {detail}: the run was not read to its end"
)
NOT_WITNESSED = Need("witnesses", "no quorum of witnesses confirms this run: {detail}")
CHECKPOINT_WITHHELD = Need("withheld checkpoint", "a larger checkpoint is not published: {detail}")
CHECKPOINT_UNCHECKED = Need(
    "checkpoint",
    "whether the run has the rounds that logs signed: the run was not read to its end",
)
ANCHORS_UNCHECKED = Need(
    "anchors", "whether the run has the anchored heads: the run was not read to its end"
)
ROUNDS_NOT_WITNESSED = FindingKind(
    "rounds not witnessed",
    "this round and all later ones ended after the newest cosigned checkpoint; no quorum of "
    "witnesses confirms them yet",
    is_remark=True,
)


def check_state(snapshot: LedgerSnapshot, state: LedgerState) -> Iterator[StepResult]:
    """Yield how the contract's own state differs from the one that its transactions lead to."""
    true = LedgerSnapshot.of(state, state.registry_rest)
    names = ("head", "seed", "model", "round", "stage", "committee", "commitments", "opened_block")
    for name in names:
        yield from compared(None, STATE_DIFFERS, getattr(snapshot, name), getattr(true, name), name)


def compared(
    at: int | None, fact: Fact, recorded: object, true: object, subject: str = ""
) -> Iterator[Contradiction]:
    """Yield the contradiction between a recorded value and the true one, if they differ."""
    if recorded != true:
        yield Contradiction(fact, at, (), subject, text_of(recorded), text_of(true))


DEPLOYMENT_UNREADABLE = Fact(
    "deployment unreadable",
    "the contract's parameters can be read",
    "they cannot: {true}",
    AuditStep.DEPLOYMENT,
)
DEPLOYMENT_UNLOGGED = Fact(
    "deployment unlogged",
    "clients are registered",
    "the log begins without LedgerDeployed, which the constructor emits",
    AuditStep.DEPLOYMENT,
)
DEPLOYMENT_IMPOSSIBLE = Fact(
    "deployment impossible",
    "the contract has {recorded} clients, trainers and members",
    "this code does not allow these numbers",
)
DEPLOYMENT_DIFFERS = Fact(
    "deployment", "the contract's {subject} is {recorded}", "the configuration gives {true}"
)
CODE_DIFFERS = Fact("code", "the code at {subject} is the contract's", "{true}")
CONFIGURATION_MALFORMED = Fact(
    "configuration", "blob {recorded} is a run document", "it is not: {true}"
)
FIRST_MODEL_MALFORMED = Fact(
    "first model", "blob {recorded} is the first model", "it is not: {true}"
)
CODE_UNAVAILABLE = Need(
    "code", "the contract's code and creation were not compared: {detail}", (AuditStep.DEPLOYMENT,)
)


def check_start(start: RunStart) -> Iterator[StepResult]:
    """Yield how the deployment and its code differ from the configuration."""
    recorded = start.recorded
    if start.malformed:
        config = to_hex(recorded.config)
        yield Contradiction(CONFIGURATION_MALFORMED, recorded=config, true=start.malformed)
    if not start.is_possible:
        sizes = f"{recorded.clients}, {recorded.trainers} and {recorded.members}"
        yield Contradiction(DEPLOYMENT_IMPOSSIBLE, recorded=sizes)
    for name in (field.name for field in fields(Deployment)):
        pair = getattr(recorded, name), getattr(start.deployment, name)
        yield from compared(None, DEPLOYMENT_DIFFERS, *pair, name)
    if start.code:
        yield Contradiction(CODE_DIFFERS, subject=start.address, true=start.code)
    if start.model is not None and start.model.malformed:
        model = to_hex(start.model.recorded)
        yield Contradiction(FIRST_MODEL_MALFORMED, recorded=model, true=start.model.malformed)


def check_registry(
    snapshot: LedgerSnapshot, state: LedgerState, *, believes_registry: bool
) -> Iterator[StepResult]:
    """Yield differing registrations; the call of one that is only believed cannot be read."""
    pair = snapshot.registered, len(state.registry)
    yield from compared(None, STATE_DIFFERS, *pair, "registered")
    if state.stage is not LedgerStage.REGISTERING or not believes_registry:
        rest = snapshot.registry_rest, state.registry_rest
        yield from compared(None, STATE_DIFFERS, *rest, "registry_rest")


NOT_SAMPLED = Fact("not sampled", "only sampled trainers are ranked", "the seed samples {true}")


def check_sampling(event: RoundDecided, trainers: tuple[ClientId, ...]) -> Iterator[StepResult]:
    """Yield clients that are ranked though the seed does not sample them."""
    sampled = set(trainers)
    foreign = tuple(client for client in map(word_client, event.ranking) if client not in sampled)
    if foreign:
        yield Contradiction(NOT_SAMPLED, event.round, foreign, true=listed(trainers, 256))
