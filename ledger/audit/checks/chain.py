"""Steps 1, 2 and 4: deployment parameters, the chain of heads, and sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ledger.audit.checks.common import AuditCheck
from ledger.audit.observations import (
    ClosedRound,
    KeptHeadPosition,
    Observation,
    RunStart,
    StateComparison,
)
from ledger.audit.report import (
    AuditStep,
    Contradiction,
    Fact,
    FindingKind,
    Need,
    StepResult,
    listed,
    text_of,
)
from ledger.protocol.encoding import set_digest, to_hex, word_client
from ledger.protocol.errors import Refusal
from ledger.protocol.ledger_state import (
    ClientsRegistered,
    Deployment,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
)
from ledger.protocol.types import NO_DIGEST

CHAIN_UNREADABLE = Fact("chain unreadable", "the chain can be read", "it cannot: {true}")
CHAIN_FILE_DAMAGED = Fact(
    "chain file", "the chain file is what the EVM made of it", "it is not: {true}"
)
ROLLED_BACK = Fact(
    "rolled back",
    "this home has acknowledged block {subject}, {recorded}",
    "the chain does not have it, {true}: it was rolled back, by a backup or by damage",
    is_recorded=False,
)
KEPT_HEAD_ABSENT = Fact(
    "kept head",
    "the head {recorded} was kept as one of this run",
    "none of its heads up to block {subject} is that one: it does not reach it, as an older copy "
    "of the run does not, or it is another run",
    is_recorded=False,
)
SIGNED_ROUNDS_ABSENT = Fact(
    "signed rounds",
    "{subject} has signed {recorded} rounds of this run",
    "{true} have ended here: this is an older copy of the run, or another run",
    is_recorded=False,
)
SIGNED_TREE_DIFFERS = Fact(
    "signed tree",
    "{subject} has signed rounds whose heads have the root {recorded}",
    "as many rounds have the root {true} here: this is another history of the run",
    is_recorded=False,
)
SIGNED_TREES_CONFLICT = Fact(
    "two trees",
    "{subject} has signed the root {recorded}",
    "it has signed {true} for as many rounds, too: it tells two histories",
    is_recorded=False,
)
EARLIER_BLOCK_DIFFERS = Fact(
    "earlier block",
    "the earlier audit ended with block {subject}, {recorded}",
    "that block is {true} here: another branch, or another chain",
    is_recorded=False,
)
EARLIER_HEAD_DIFFERS = Fact(
    "earlier head",
    "the earlier audit ended with block {subject} and the head {recorded}",
    "the transactions up to there lead to {true}",
    is_recorded=False,
)
STATE_UNREADABLE = Fact(
    "state unreadable", "the contract says where it stands", "it does not: {true}"
)
STATE_DIFFERS = Fact(
    "state", "the contract's {subject} is {recorded}", "its transactions lead to {true}"
)
LOGS_UNREADABLE = Fact("logs unreadable", "blocks {subject} are whole", "they are not: {true}")
LOG_ORDER = Fact(
    "log order", "{recorded} follows {subject}", "a chain has its logs in ascending order"
)
LOG_ADDRESS = Fact("log address", "a log is of this contract", "it is of {true}")
BLOCK_UNREADABLE = Fact(
    "block unreadable", "block {subject} holds an event", "it cannot be read: {true}"
)
LOG_BLOCK = Fact("log block", "a log of block {subject} lies in {recorded}", "that block is {true}")
PARENT_BLOCK = Fact(
    "parent block", "block {subject} follows {recorded}", "the block before it is {true}"
)
CHAIN_FILE_UNCHECKED = Need("chain file", "the chain file could not check itself: {detail}")
HEAD_NOTE_UNREADABLE = Need(
    "head note", "the note of the newest acknowledged block cannot be read: {detail}"
)
STATE_UNAVAILABLE = Need("state", "the contract's own state cannot be had: {detail}")
HEAD_BLOCK_UNAVAILABLE = Need(
    "head block", "whether the chain stayed as it was during the audit: {detail}"
)
KEPT_HEAD_UNCHECKED = Need(
    "kept head", "whether the run passes through {detail}, since it was not read to its end"
)
NOT_WITNESSED = Need("witnesses", "no quorum of witnesses stands for this run: {detail}")
CHECKPOINT_WITHHELD = Need("withheld checkpoint", "nobody shows a larger checkpoint: {detail}")
CHECKPOINT_UNCHECKED = Need(
    "checkpoint",
    "whether the run has the rounds that logs have signed, since it was not read to its end",
)
ROUNDS_NOT_WITNESSED = FindingKind(
    "rounds not witnessed",
    "it ended after the newest checkpoint that a quorum of witnesses has cosigned, as did all "
    "later ones: none stands for them yet",
    is_remark=True,
)


def check_heads(observation: Observation) -> Iterator[StepResult]:
    """Yield the contradictions among the chain, its heads and the contract's state."""
    match observation:
        case StateComparison():
            yield from _check_state(observation)
        case KeptHeadPosition(block, head, None):
            yield Contradiction(KEPT_HEAD_ABSENT, None, (), str(block), to_hex(head))
        case _:
            pass


def _check_state(comparison: StateComparison) -> Iterator[StepResult]:
    """Yield how the contract's own state differs from the one that its transactions lead to."""
    state = comparison.state
    opened = state.stage is not LedgerStage.REGISTERING
    expected = {
        "head": state.head,
        "seed": state.seed,
        "model": state.model,
        "round": state.round,
        "stage": state.stage,
        "committee": set_digest(state.committee) if opened else NO_DIGEST,
        "commitments": state.commitments,
        "opened_block": state.opened_block,
    }
    for name, true in expected.items():
        recorded = getattr(comparison.snapshot, name)
        if recorded != true:
            yield Contradiction(STATE_DIFFERS, None, (), name, text_of(recorded), text_of(true))


HEADS_CHECK = AuditCheck(
    AuditStep.HEAD,
    "head chain and seeds",
    check_heads,
    event_fields=frozenset({"head", "next_seed", "seed"}),
)


DEPLOYMENT_UNREADABLE = Fact(
    "deployment unreadable",
    "the contract names its parameters",
    "it does not: {true}",
    AuditStep.DEPLOYMENT,
)
DEPLOYMENT_UNLOGGED = Fact(
    "deployment unlogged",
    "clients are registered",
    "the log begins without LedgerDeployed, which the constructor makes",
    AuditStep.DEPLOYMENT,
)
DEPLOYMENT_IMPOSSIBLE = Fact(
    "deployment impossible",
    "the contract has {recorded} clients, trainers and members",
    "no contract of this code can",
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
    "code", "code and creation of the contract are not compared: {detail}", (AuditStep.DEPLOYMENT,)
)


def check_parameters(observation: Observation) -> Iterator[StepResult]:
    """Yield how the deployment, its registrations and its code differ from the configuration."""
    match observation:
        case RunStart():
            yield from _check_start(observation)
        case StateComparison():
            yield from _check_registry(observation)
        case _:
            pass


def _check_start(start: RunStart) -> Iterator[StepResult]:
    recorded = start.recorded
    if start.malformed:
        config = to_hex(recorded.config)
        yield Contradiction(CONFIGURATION_MALFORMED, recorded=config, true=start.malformed)
    if not start.is_possible:
        sizes = f"{recorded.clients}, {recorded.trainers} and {recorded.members}"
        yield Contradiction(DEPLOYMENT_IMPOSSIBLE, recorded=sizes)
    for name in (field.name for field in fields(Deployment)):
        deployed, demanded = getattr(recorded, name), getattr(start.deployment, name)
        if deployed != demanded:
            values = text_of(deployed), text_of(demanded)
            yield Contradiction(DEPLOYMENT_DIFFERS, None, (), name, *values)
    if start.code:
        yield Contradiction(CODE_DIFFERS, subject=start.address, true=start.code)
    if start.model is not None and start.model.malformed:
        model = to_hex(start.model.recorded)
        yield Contradiction(FIRST_MODEL_MALFORMED, recorded=model, true=start.model.malformed)


def _check_registry(comparison: StateComparison) -> Iterator[StepResult]:
    """Yield how the contract's registrations differ from those that were sent to it."""
    state = comparison.state
    expected: dict[str, object] = {"registered": len(state.registry)}
    if state.stage is not LedgerStage.REGISTERING or not comparison.believes_registry:
        expected["registry_rest"] = state.registry_rest
    for name, true in expected.items():
        recorded = getattr(comparison.snapshot, name)
        if recorded != true:
            values = text_of(recorded), text_of(true)
            yield Contradiction(STATE_DIFFERS, None, (), name, *values)


PARAMETERS_CHECK = AuditCheck(
    AuditStep.DEPLOYMENT,
    "deployment and parameters",
    check_parameters,
    refusals=(
        Refusal.NOT_REGISTERING,
        Refusal.REGISTRY_MISMATCH,
        Refusal.MALFORMED_CLIENT,
        Refusal.CLIENTS_NOT_ASCENDING,
        Refusal.REGISTRY_END,
    ),
    events=(LedgerDeployed, ClientsRegistered, LedgerOpened),
)


NOT_SAMPLED = Fact("not sampled", "sampled trainers only are ranked", "the seed samples {true}")


def check_sampling(observation: Observation) -> Iterator[StepResult]:
    """Yield clients that are ranked though the seed does not sample them."""
    if not isinstance(observation, ClosedRound) or observation.replayed.decided is None:
        return
    trainers = observation.participants.trainers
    sampled = set(trainers)
    ranked = map(word_client, observation.replayed.decided.ranking)
    foreign = tuple(client for client in ranked if client not in sampled)
    if foreign:
        true = listed(trainers, 256)
        yield Contradiction(NOT_SAMPLED, observation.replayed.round, foreign, true=true)


SAMPLING_CHECK = AuditCheck(
    AuditStep.SAMPLING,
    "sampling from the seed",
    check_sampling,
    refusals=(Refusal.WRONG_COMMITTEE, Refusal.MEMBER_RANKED),
    event_fields=frozenset({"committee"}),
)
