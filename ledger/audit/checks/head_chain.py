"""Step 2: heads and seeds follow from one another, up to where the contract says it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.codes import Fact, Step
from ledger.audit.observations import ChainRollback, KeptHeadPosition, StateComparison
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed, text_of
from ledger.protocol.encoding import set_digest
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.HEAD
TITLE = "head chain and seeds"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield where the chain, its heads and the contract's state contradict one another.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case StateComparison():
            yield from _of_state(seen)
        case ChainRollback(_, newest, number, digest, found):
            true = (
                f"it ends with block {newest}" if found is None else f"there it is {hexed(found)}"
            )
            values = str(number), hexed(digest), true
            yield Contradiction(Fact.ROLLED_BACK, None, (), *values)
        case KeptHeadPosition(block, head, None):
            yield Contradiction(Fact.KEPT_HEAD, None, (), str(block), hexed(head))
        case _:
            pass


def _of_state(seen: StateComparison) -> Iterator[StepResult]:
    """Yield how the contract's own state differs from the one that its transactions lead to."""
    state = seen.state
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
        recorded = getattr(seen.snapshot, name)
        if recorded != true:
            values = text_of(recorded), text_of(true)
            yield Contradiction(Fact.STATE, None, (), name, *values)
