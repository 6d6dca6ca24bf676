"""Step 1: what was deployed is what the run's configuration says."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.codes import Fact, FindingKind, Step
from ledger.audit.observations import RunStart, StateComparison
from ledger.audit.report import Contradiction, Finding
from ledger.audit.sentences import hexed, text_of
from ledger.protocol.ledger_state import Deployment, LedgerStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.DEPLOYMENT
TITLE = "deployment and parameters"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield how the deployment, its registrations and its code differ from the configuration.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case RunStart():
            yield from _of_start(seen)
        case StateComparison():
            yield from _of_registry(seen)
        case _:
            pass


def _of_start(start: RunStart) -> Iterator[StepResult]:
    recorded = start.recorded
    if start.malformed:
        config = hexed(recorded.config)
        yield Contradiction(Fact.CONFIGURATION, recorded=config, true=start.malformed)
    if not start.is_possible:
        sizes = f"{recorded.clients}, {recorded.trainers} and {recorded.members}"
        yield Contradiction(Fact.DEPLOYMENT_IMPOSSIBLE, recorded=sizes)
    for name in (field.name for field in fields(Deployment)):
        one, other = getattr(recorded, name), getattr(start.deployment, name)
        if one != other:
            yield Contradiction(Fact.DEPLOYMENT, None, (), name, text_of(one), text_of(other))
    if start.code:
        yield Contradiction(Fact.CODE, subject=start.address, true=start.code)
    if start.model is not None and start.model.malformed:
        model = hexed(start.model.recorded)
        yield Contradiction(Fact.FIRST_MODEL, recorded=model, true=start.model.malformed)
    if start.document is not None and not start.document.parameters.scores_checked:
        yield Finding(FindingKind.SCORES_UNCHECKED, None, (), (), proven=True)


def _of_registry(seen: StateComparison) -> Iterator[StepResult]:
    """Yield how the contract's registrations differ from those that were sent to it."""
    snapshot, state = seen.snapshot, seen.state
    expected: dict[str, object] = {"registered": len(state.registry)}
    if state.stage is not LedgerStage.REGISTERING or not seen.believes_registry:
        expected["registry_rest"] = state.registry_rest
    for name, true in expected.items():
        recorded = getattr(snapshot, name)
        if recorded != true:
            yield Contradiction(Fact.STATE, None, (), name, text_of(recorded), text_of(true))
