"""Step 8: the ranked trainers, both sets, and the roots and reveal over them."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import AuditCheck, contradictions_of
from ledger.audit.evidence.round_evidence import RoundEvidence
from ledger.audit.formatting import text_of
from ledger.audit.observations import DecidedRound, EndedRound, Observation
from ledger.audit.report import AuditStep, Contradiction, Fact, StepResult
from ledger.protocol import errors
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.judgement import Ranking, result_preimage, sets_of
from ledger.protocol.ledger_state import Deployment, RoundDecided
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

VIOLATIONS = {ViolationCode.TOO_FEW_TRAINERS: TOO_FEW_TRAINERS}


def check(observation: Observation) -> Iterator[StepResult]:
    """Yield what does not follow from the scores, the record and the ranking."""
    match observation:
        case EndedRound(_, replayed) if replayed.known:
            event, sizes = replayed.decided, replayed.before.deployment
            if not replayed.is_in_range:
                yield Contradiction(RANKING_RANGE, replayed.round)
            elif event is not None:
                yield from _check_sets(event, sizes)
        case DecidedRound(_, evidence) if evidence.record is not None:
            yield from contradictions_of(evidence, VIOLATIONS)
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


CHECK = AuditCheck(
    AuditStep.RANKING,
    "ranking, accepted set and election",
    check,
    refusals=(
        errors.RankingTooLongError,
        errors.RankingTooShortError,
        errors.RankingNotSortedError,
        errors.DistanceNotFiniteError,
        errors.RepeatedClientError,
        errors.WrongAggregationSetError,
        errors.WrongCandidatesError,
    ),
    event_fields=frozenset({"accepted", "next_committee"}),
)
