"""Steps 1, 2 and 4: deployment parameters, the chain of heads, and sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ledger.audit.evidence import RunStart
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
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.ledger_state import Deployment, LedgerStage, LedgerState, RoundDecided
from ledger.protocol.types import ClientId

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


def check_state(snapshot: LedgerSnapshot, state: LedgerState) -> Iterator[StepResult]:
    """Yield how the contract's own state differs from the one that its transactions lead to."""
    true = LedgerSnapshot.of(state, state.registry_rest)
    names = ("head", "seed", "model", "round", "stage", "committee", "commitments", "opened_block")
    return _differences(STATE_DIFFERS, snapshot, {name: getattr(true, name) for name in names})


def _differences(fact: Fact, recorded: object, expected: dict[str, object]) -> Iterator[StepResult]:
    """Yield each field of a recorded value that has another value than expected."""
    for name, true in expected.items():
        found = getattr(recorded, name)
        if found != true:
            yield Contradiction(fact, None, (), name, text_of(found), text_of(true))


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


def check_start(start: RunStart) -> Iterator[StepResult]:
    """Yield how the deployment and its code differ from the configuration."""
    recorded = start.recorded
    if start.malformed:
        config = to_hex(recorded.config)
        yield Contradiction(CONFIGURATION_MALFORMED, recorded=config, true=start.malformed)
    if not start.is_possible:
        sizes = f"{recorded.clients}, {recorded.trainers} and {recorded.members}"
        yield Contradiction(DEPLOYMENT_IMPOSSIBLE, recorded=sizes)
    demanded = {field.name: getattr(start.deployment, field.name) for field in fields(Deployment)}
    yield from _differences(DEPLOYMENT_DIFFERS, recorded, demanded)
    if start.code:
        yield Contradiction(CODE_DIFFERS, subject=start.address, true=start.code)
    if start.model is not None and start.model.malformed:
        model = to_hex(start.model.recorded)
        yield Contradiction(FIRST_MODEL_MALFORMED, recorded=model, true=start.model.malformed)


def check_registry(
    snapshot: LedgerSnapshot, state: LedgerState, *, believes_registry: bool
) -> Iterator[StepResult]:
    """Yield how the contract's registrations differ from those that were sent to it.

    Args:
        believes_registry: whether clients were registered by a transaction that cannot be read.
    """
    expected: dict[str, object] = {"registered": len(state.registry)}
    if state.stage is not LedgerStage.REGISTERING or not believes_registry:
        expected["registry_rest"] = state.registry_rest
    return _differences(STATE_DIFFERS, snapshot, expected)


NOT_SAMPLED = Fact("not sampled", "sampled trainers only are ranked", "the seed samples {true}")


def check_sampling(event: RoundDecided, trainers: tuple[ClientId, ...]) -> Iterator[StepResult]:
    """Yield clients that are ranked though the seed does not sample them."""
    sampled = set(trainers)
    foreign = tuple(client for client in map(word_client, event.ranking) if client not in sampled)
    if foreign:
        yield Contradiction(NOT_SAMPLED, event.round, foreign, true=listed(trainers, 256))
