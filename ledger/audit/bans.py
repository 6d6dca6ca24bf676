"""Who was banned, and by which two signed statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import FindingKind
from ledger.audit.report import Finding, VotePlace
from ledger.audit.sentences import hexed
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import Vote

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.chain.contract.calls import ReportCall
    from ledger.protocol.ledger_state import ClientBanned, LedgerState


def find_ban(
    state: LedgerState,
    event: ClientBanned,
    call: ReportCall | None,
    transaction: bytes,
    log: AuditLog,
) -> None:
    """Name who was banned; the replay has recovered both signatures if it could read them.

    Args:
        state: of the contract before.
        event: the ban.
        call: the proof; None if it cannot be read.
        transaction: that holds it.
        log: where the finding is written down.
    """
    evidence: tuple[str, ...] = (hexed(transaction),)
    if call is None:
        found = Finding(FindingKind.BAN, state.round, (event.client,), evidence, proven=False)
        log.find(found)
        return
    statements = (call.report.first.statement, call.report.second.statement)
    evidence = (*(hexed(typed_digest(state.domain, one)) for one in statements), *evidence)
    first = statements[0]
    phase, view = (first.phase, first.view) if isinstance(first, Vote) else (0, 0)
    log.find(
        Finding(
            FindingKind.BAN,
            state.round,
            (event.client,),
            evidence,
            proven=True,
            reason=call.report.kind,
            place=VotePlace(first.round, phase, view),
        )
    )
