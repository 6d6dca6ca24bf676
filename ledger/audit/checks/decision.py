"""Steps 3 and 8: certificates, ranking, sets and roots of a decision.

The replay recovers every signature. The findings that two signatures prove against their signer
are made here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import AuditCheck, contradictions_of
from ledger.audit.evidence import UNPROVEN, RoundEvidence
from ledger.audit.observations import (
    ClosedRound,
    DecidedRound,
    EndedRound,
    Observation,
    ReplayedEvent,
)
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
    text_of,
)
from ledger.chain.contract.codec import ReportCall
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.errors import Refusal
from ledger.protocol.judgement import Ranking, result_preimage, sets_of
from ledger.protocol.ledger_state import ClientBanned, Deployment, RoundDecided
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import IncidentKind, Vote
from ledger.protocol.validation import ViolationCode

RANKING_RANGE = Fact(
    "ranking range",
    "there is a ranking",
    "its words, clients or length are out of range, or it is not sorted",
)
RANKED_DIFFER = Fact(
    "ranked", "those are ranked who have a usable update", "of these only one of both is true"
)
ACCEPTED_SET_DIFFERS = Fact(
    "accepted set", "the accepted set is {recorded}", "the ranking gives {true}"
)
NEXT_COMMITTEE_DIFFERS = Fact(
    "next committee", "the next committee is {recorded}", "the ranking gives {true}"
)
UPDATES_ROOT_DIFFERS = Fact(
    "updates root", "the updates root is {recorded}", "the record's updates have {true}"
)
SCORES_ROOT_DIFFERS = Fact(
    "scores root", "the scores root is {recorded}", "the record's scores have {true}"
)
REVEAL_DIFFERS = Fact(
    "reveal", "the reveal is {recorded}", "the payloads of the ranked trainers give {true}"
)
TOO_FEW_TRAINERS = Fact("too few trainers", "the trainers suffice", "fewer than a committee remain")

RANKING_VIOLATIONS = {ViolationCode.TOO_FEW_TRAINERS: TOO_FEW_TRAINERS}


def check_ranking(observation: Observation) -> Iterator[StepResult]:
    """Yield what does not follow from the scores, the record and the ranking."""
    match observation:
        case EndedRound(_, replayed) if replayed.known:
            event, sizes = replayed.decided, replayed.before.deployment
            if not replayed.is_in_range:
                yield Contradiction(RANKING_RANGE, replayed.round)
            elif event is not None:
                yield from _check_sets(event, sizes)
        case DecidedRound(_, evidence) if evidence.record is not None:
            yield from contradictions_of(evidence, RANKING_VIOLATIONS)
            yield from _check_ranked(evidence, evidence.record)
        case _:
            pass


def _check_sets(event: RoundDecided, sizes: Deployment) -> Iterator[StepResult]:
    derived = sets_of(sizes, event.ranking)
    elected = derived.elected(sizes.members, event.next_seed)
    for fact, recorded, true in (
        (ACCEPTED_SET_DIFFERS, event.accepted, derived.accepted),
        (NEXT_COMMITTEE_DIFFERS, event.next_committee, elected),
    ):
        if recorded != true:
            yield Contradiction(fact, event.round, (), "", text_of(recorded), text_of(true))


def _check_ranked(evidence: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    event = evidence.event
    ranked = set(map(word_client, event.ranking))
    trainers = set(evidence.inputs.participants.trainers)
    odd = ranked ^ trainers.intersection(record.clients)
    if odd:
        yield Contradiction(RANKED_DIFFER, event.round, tuple(sorted(odd)))
    if ranked <= record.payloads().keys():
        yield from _check_preimage(event, record)


def _check_preimage(event: RoundDecided, record: RoundRecord) -> Iterator[StepResult]:
    """Yield what the result binds and does not follow from the record and the ranking."""
    # The result does not bind the candidates.
    ranking = Ranking(event.ranking, event.accepted, candidates=())
    computed = result_preimage(record, ranking, event.model)
    for fact, recorded, true in (
        (UPDATES_ROOT_DIFFERS, event.updates_root, computed.updates_root),
        (SCORES_ROOT_DIFFERS, event.scores_root, computed.scores_root),
        (REVEAL_DIFFERS, event.reveal, computed.reveal),
    ):
        if recorded != true:
            yield Contradiction(fact, event.round, (), "", to_hex(recorded), to_hex(true))


RANKING_CHECK = AuditCheck(
    AuditStep.RANKING,
    "ranking, accepted set and election",
    check_ranking,
    refusals=(
        Refusal.RANKING_TOO_LONG,
        Refusal.RANKING_TOO_SHORT,
        Refusal.RANKING_NOT_SORTED,
        Refusal.DISTANCE_NOT_FINITE,
        Refusal.REPEATED_CLIENT,
        Refusal.WRONG_AGGREGATION_SET,
        Refusal.WRONG_CANDIDATES,
    ),
    event_fields=frozenset({"accepted", "next_committee"}),
)


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

CERTIFICATE_VIOLATIONS = {ViolationCode.OTHER_ROUND_OR_BASE: RECORD_OF_ANOTHER}
_INCIDENTS = {
    IncidentKind.SILENT: SILENT_PRIMARY,
    IncidentKind.NO_QUORUM: NO_QUORUM,
    IncidentKind.WRONG_PROPOSAL: WRONG_PROPOSAL,
    IncidentKind.EQUIVOCATION: EQUIVOCATION,
}


def check_certificates(observation: Observation) -> Iterator[StepResult]:
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
            yield from contradictions_of(observation.evidence, CERTIFICATE_VIOLATIONS)
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


CERTIFICATES_CHECK = AuditCheck(
    AuditStep.CERTIFICATES, "certificates, signatures and bases", check_certificates
)
