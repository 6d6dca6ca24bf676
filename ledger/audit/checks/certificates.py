"""Step 3: certificates and signatures hold, and speak of the inputs that the chain closed.

The replay recovers every signature. The findings that two signatures prove against their signer
are made here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import AuditCheck, contradictions_of
from ledger.audit.evidence.incidents import UNPROVEN
from ledger.audit.observations import ClosedRound, DecidedRound, Observation, ReplayedEvent
from ledger.audit.report import (
    AuditStep,
    Contradiction,
    CountIncrement,
    Fact,
    Finding,
    FindingKind,
    Need,
    StepResult,
    VoteSlot,
)
from ledger.chain.contract.codec import ReportCall
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import ClientBanned, RoundDecided
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import IncidentKind, Vote
from ledger.protocol.validation import ViolationCode

TRANSACTION_DIFFERS = Fact(
    "transaction", "transaction {subject} made an event", "{true}", AuditStep.CERTIFICATES
)
INPUTS_OPEN = Fact(
    "inputs open", "the round was decided in block {recorded}", "its inputs close with block {true}"
)
BASE_DIFFERS = Fact(
    "base",
    "the base is {recorded}",
    "the commitments up to the closing block {subject} make it {true}",
)
RECORD_OF_ANOTHER = Fact(
    "record of another", "the record is of this round and base", "it is of another round or base"
)
CALL_DATA_UNAVAILABLE = Need(
    "call data",
    "what transaction {detail} asked for, and its signatures: its call data are not to be had, or "
    "not the ledger's",
    (AuditStep.CERTIFICATES,),
)
WRONG_PROPOSAL = FindingKind("wrong proposal", "it signed a wrong request{slot}")
EQUIVOCATION = FindingKind("equivocation", "it signed two different votes{slot}")
SILENT_PRIMARY = FindingKind(
    "silent primary", "as primary it is said to have sent no request{slot}"
)
NO_QUORUM = FindingKind("no quorum", "its request is said to have found no quorum{slot}")
BAN = FindingKind("ban", "it was banned for two different {statements}{slot}")
VOTES = "votes"
IGNORED_INCIDENTS = "ignored incidents"

VIOLATIONS = {ViolationCode.OTHER_ROUND_OR_BASE: RECORD_OF_ANOTHER}
_INCIDENTS = {
    IncidentKind.SILENT: SILENT_PRIMARY,
    IncidentKind.NO_QUORUM: NO_QUORUM,
    IncidentKind.WRONG_PROPOSAL: WRONG_PROPOSAL,
    IncidentKind.EQUIVOCATION: EQUIVOCATION,
}


def check(observation: Observation) -> Iterator[StepResult]:
    """Yield wrong bases, and the clients whom signatures or incidents accuse."""
    match observation:
        case ReplayedEvent(event=ClientBanned() as event):
            yield _ban(observation, event)
        case ReplayedEvent(event=RoundDecided() as event) if observation.call is not None:
            votes = 2 + sum(signers.bit_count() for signers in event.signers)
            yield CountIncrement(VOTES, votes)
        case ClosedRound():
            yield from _check_base(observation)
        case DecidedRound():
            yield from contradictions_of(observation.evidence, VIOLATIONS)
            yield from _accusations(observation)
        case _:
            pass


def _check_base(closed: ClosedRound) -> Iterator[StepResult]:
    """Yield whether a decision names another base than the closing block's, or came earlier."""
    event, closing, ended = closed.replayed.decided, closed.closing, closed.block
    if event is None:
        return
    if ended < closing.block:
        yield Contradiction(INPUTS_OPEN, event.round, (), "", str(ended), str(closing.block))
    if event.base != closing.base:
        values = to_hex(event.base), to_hex(closing.base)
        yield Contradiction(BASE_DIFFERS, event.round, (), str(closing.block), *values)


def _ban(replayed: ReplayedEvent, event: ClientBanned) -> Finding:
    """Return the ban; both signatures were recovered if they could be read."""
    before, clients = replayed.before, (event.client,)
    transaction = to_hex(replayed.transaction)
    if not isinstance(replayed.call, ReportCall):
        return Finding(BAN, before.round, clients, (transaction,), proven=False)
    report = replayed.call.report
    first, second = report.first.statement, report.second.statement
    signed = (to_hex(typed_digest(before.domain, statement)) for statement in (first, second))
    phase, view = (first.phase, first.view) if isinstance(first, Vote) else (0, 0)
    return Finding(
        BAN,
        before.round,
        clients,
        (*signed, transaction),
        proven=True,
        reason=report.kind,
        place=VoteSlot(first.round, phase, view),
    )


def _accusations(decided: DecidedRound) -> Iterator[StepResult]:
    """Yield whom the incidents document accuses, and the number of accusations that fail."""
    at, domain = decided.evidence.event.round, decided.evidence.inputs.domain
    for incident in decided.accusations.holding:
        yield Finding(
            _INCIDENTS[incident.kind],
            at,
            (incident.member,),
            tuple(to_hex(typed_digest(domain, signed.vote)) for signed in incident.votes),
            proven=incident.kind not in UNPROVEN,
            place=VoteSlot(at, incident.phase, incident.view),
        )
    yield CountIncrement(IGNORED_INCIDENTS, decided.accusations.ignored)


CHECK = AuditCheck(AuditStep.CERTIFICATES, "certificates, signatures and bases", check)
