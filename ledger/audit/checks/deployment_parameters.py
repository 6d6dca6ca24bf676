"""Step 1: what was deployed is what the run's configuration says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ledger.audit.checks.common import AuditCheck
from ledger.audit.checks.head_chain import STATE_DIFFERS
from ledger.audit.formatting import text_of
from ledger.audit.observations import Observation, RunStart, StateComparison
from ledger.audit.report import AuditStep, Contradiction, Fact, Need, StepResult
from ledger.protocol import errors
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import (
    ClientsRegistered,
    Deployment,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
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


def check(observation: Observation) -> Iterator[StepResult]:
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


CHECK = AuditCheck(
    AuditStep.DEPLOYMENT,
    "deployment and parameters",
    check,
    refusals=(
        errors.NotRegisteringError,
        errors.RegistryMismatchError,
        errors.MalformedClientError,
        errors.ClientsNotAscendingError,
        errors.RegistryEndError,
    ),
    events=(LedgerDeployed, ClientsRegistered, LedgerOpened),
)
