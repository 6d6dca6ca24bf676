"""Step 3: certificates speak of the inputs that the chain closed; signatures are `replay.py`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.audit.replay import ReplayedRound
    from ledger.protocol.closing import Closing
    from ledger.protocol.ledger_state import RoundDecided


def check_base(
    replayed: ReplayedRound, event: RoundDecided, closing: Closing, log: AuditLog
) -> None:
    """Check that the decision names the base of the closing block, and came no earlier.

    Args:
        replayed: the round.
        event: its decision.
        closing: where its inputs end.
        log: where contradictions are written down.
    """
    if replayed.ended_block < closing.block:
        values = str(replayed.ended_block), str(closing.block)
        contradiction = Contradiction(Fact.INPUTS_OPEN, event.round, (), "", *values)
        log.contradict(Step.CERTIFICATES, contradiction)
    if event.base != closing.base:
        values = hexed(event.base), hexed(closing.base)
        contradiction = Contradiction(Fact.BASE, event.round, (), str(closing.block), *values)
        log.contradict(Step.CERTIFICATES, contradiction)
