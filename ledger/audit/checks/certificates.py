"""Step 3: certificates and signatures hold, and speak of the inputs that the chain closed.

The replay recovers every signature. What two signatures prove against their signer is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.checks.objections import objected
from ledger.audit.codes import AuditCount, Fact, FindingKind, Step
from ledger.audit.evidence.incidents import UNPROVEN
from ledger.audit.observations import ClosedRound, DecidedRound, ReplayedEvent
from ledger.audit.report import Contradiction, CountIncrement, Finding, VoteSlot
from ledger.audit.sentences import hexed
from ledger.chain.contract.calls import ReportCall
from ledger.protocol.ledger_state import ClientBanned, RoundDecided
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import IncidentKind, Vote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.CERTIFICATES
TITLE = "certificates, signatures and bases"

_KINDS = {
    IncidentKind.SILENT: FindingKind.SILENT_PRIMARY,
    IncidentKind.NO_QUORUM: FindingKind.NO_QUORUM,
    IncidentKind.WRONG_PROPOSAL: FindingKind.WRONG_PROPOSAL,
    IncidentKind.EQUIVOCATION: FindingKind.EQUIVOCATION,
}


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield false signatures, wrong bases, and whom signatures or incidents accuse.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case ReplayedEvent(event=ClientBanned() as event):
            yield _ban(seen, event)
        case ReplayedEvent(event=RoundDecided() as event) if seen.call is not None:
            votes = 2 + sum(signers.bit_count() for signers in event.signers)
            yield CountIncrement(AuditCount.VOTES, votes)
        case ClosedRound():
            yield from _of_base(seen)
        case DecidedRound():
            yield from objected(NUMBER, seen.found)
            yield from _accusations(seen)
        case _:
            pass


def _of_base(seen: ClosedRound) -> Iterator[StepResult]:
    """Yield whether a decision names the base of the closing block, and came no earlier."""
    event, closing, ended = seen.replayed.decided, seen.closing, seen.block
    if event is None:
        return
    if ended < closing.block:
        values = str(ended), str(closing.block)
        yield Contradiction(Fact.INPUTS_OPEN, event.round, (), "", *values)
    if event.base != closing.base:
        values = hexed(event.base), hexed(closing.base)
        yield Contradiction(Fact.BASE, event.round, (), str(closing.block), *values)


def _ban(seen: ReplayedEvent, event: ClientBanned) -> Finding:
    """Return who was banned; both signatures were recovered if they could be read."""
    at, who, transaction = seen.before.round, (event.client,), hexed(seen.transaction)
    if not isinstance(seen.call, ReportCall):
        return Finding(FindingKind.BAN, at, who, (transaction,), proven=False)
    report = seen.call.report
    first, second = report.first.statement, report.second.statement
    signed = (hexed(typed_digest(seen.before.domain, one)) for one in (first, second))
    phase, view = (first.phase, first.view) if isinstance(first, Vote) else (0, 0)
    return Finding(
        FindingKind.BAN,
        at,
        who,
        (*signed, transaction),
        proven=True,
        reason=report.kind,
        place=VoteSlot(first.round, phase, view),
    )


def _accusations(seen: DecidedRound) -> Iterator[StepResult]:
    """Yield whom the incidents document accuses, and how often it does so in vain."""
    at, domain = seen.found.event.round, seen.found.inputs.domain
    for incident in seen.accusations.holding:
        yield Finding(
            _KINDS[incident.kind],
            at,
            (incident.member,),
            tuple(hexed(typed_digest(domain, signed.vote)) for signed in incident.votes),
            proven=incident.kind not in UNPROVEN,
            place=VoteSlot(at, incident.phase, incident.view),
        )
    yield CountIncrement(AuditCount.IGNORED_INCIDENTS, seen.accusations.ignored)
