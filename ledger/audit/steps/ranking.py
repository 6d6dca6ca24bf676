"""Step 8: who is ranked, both sets, and the roots and the reveal over them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed, text_of
from ledger.protocol.encoding import INFINITY_BITS, word_client
from ledger.protocol.judgement import Ranking, opening_of, sets_of

if TYPE_CHECKING:
    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.ledger_state import Deployment, RoundDecided


def is_sane(event: RoundDecided, deployment: Deployment, log: AuditLog) -> bool:
    """Say whether a decision's numbers are in range; a believed event may hold anything.

    Args:
        event: the decision.
        deployment: its bounds.
        log: where a contradiction is written down.
    """
    ranked = [word_client(word) for word in event.ranking]
    clients = [*ranked, *event.accepted, *event.next_committee]
    sane = (
        all(0 <= word < INFINITY_BITS << 32 for word in event.ranking)
        and all(client < deployment.clients for client in clients)
        and all(one < other for one, other in pairwise(event.ranking))
        and len(set(ranked)) == len(ranked)
        and deployment.members <= len(ranked) <= deployment.trainers
    )
    if not sane:
        log.contradict(Step.RANKING, Contradiction(Fact.RANKING_RANGE, event.round))
    return sane


def check_sets(event: RoundDecided, deployment: Deployment, log: AuditLog) -> None:
    """Check that both sets are those that the contract derives from the ranking.

    Args:
        event: the decision.
        deployment: the sizes that the contract enforces.
        log: where contradictions are written down.
    """
    accepted, elected = sets_of(deployment, event.ranking, event.threshold_bits)
    for fact, recorded, true in (
        (Fact.ACCEPTED_SET, event.accepted, accepted),
        (Fact.NEXT_COMMITTEE, event.next_committee, elected),
    ):
        if recorded != true:
            values = text_of(recorded), text_of(true)
            log.contradict(Step.RANKING, Contradiction(fact, event.round, (), "", *values))


def check_ranking(found: RoundEvidence, log: AuditLog) -> None:
    """Check who is ranked, and the roots and the reveal over them.

    Args:
        found: of a decided round.
        log: where contradictions are written down.
    """
    record, event = found.record, found.event
    if record is None:
        return
    ranked = set(map(word_client, event.ranking))
    trainers = set(found.inputs.participants.trainers)
    odd = ranked ^ trainers.intersection(record.clients)
    if odd:
        contradiction = Contradiction(Fact.RANKED, event.round, tuple(sorted(odd)))
        log.contradict(Step.RANKING, contradiction)
    if ranked <= record.payloads().keys():
        _check_opening(event, record, log)


def _check_opening(event: RoundDecided, record: RoundRecord, log: AuditLog) -> None:
    """Compare what the result binds with what follows from the record and the ranking."""
    sets = event.accepted, event.next_committee
    true = opening_of(record, Ranking(event.ranking, event.threshold_bits, *sets), event.model)
    for fact, one, other in (
        (Fact.UPDATES_ROOT, event.updates_root, true.updates_root),
        (Fact.SCORES_ROOT, event.scores_root, true.scores_root),
        (Fact.REVEAL, event.reveal, true.reveal),
    ):
        if one != other:
            values = hexed(one), hexed(other)
            log.contradict(Step.RANKING, Contradiction(fact, event.round, (), "", *values))
