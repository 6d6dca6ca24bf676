"""Step 8: who is ranked, the threshold, both sets, and the roots and the reveal over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.checks.objections import objected
from ledger.audit.codes import Fact, Need, Step
from ledger.audit.observations import DecidedRound, WatchedRound
from ledger.audit.report import Contradiction, MissingInput
from ledger.audit.sentences import hexed, text_of
from ledger.protocol.encoding import float_from_bits, word_client
from ledger.protocol.judgement import Ranking, result_preimage, sets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.ledger_state import Deployment, RoundDecided

NUMBER = Step.RANKING
TITLE = "ranking, accepted set and election"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield what does not follow from the scores, the record and the ranking.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case WatchedRound(_, replayed_round) if replayed_round.known:
            event, sizes = replayed_round.decided, replayed_round.before.deployment
            if not replayed_round.is_in_range:
                yield Contradiction(Fact.RANKING_RANGE, replayed_round.round)
            elif event is not None:
                yield from _of_sets(event, sizes)
        case DecidedRound(_, found) if found.record is not None:
            yield from objected(NUMBER, found)
            yield from _of_threshold(found)
            yield from _of_ranked(found, found.record)
        case _:
            pass


def _of_sets(event: RoundDecided, sizes: Deployment) -> Iterator[StepResult]:
    """Yield a set that is not the one that the contract derives from the ranking."""
    accepted, elected = sets_of(sizes, event.ranking, event.threshold_bits)
    for fact, recorded, true in (
        (Fact.ACCEPTED_SET, event.accepted, accepted),
        (Fact.NEXT_COMMITTEE, event.next_committee, elected),
    ):
        if recorded != true:
            yield Contradiction(fact, event.round, (), "", text_of(recorded), text_of(true))


def _of_threshold(found: RoundEvidence) -> Iterator[StepResult]:
    event, ranking = found.event, found.ranking
    if ranking is None:
        yield MissingInput(Need.RIGHT_VECTORS, event.round)
    elif event.threshold_bits != ranking.threshold_bits:
        values = (repr(float_from_bits(b)) for b in (event.threshold_bits, ranking.threshold_bits))
        yield Contradiction(Fact.THRESHOLD, event.round, (), "", *values)


def _of_ranked(found: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    event = found.event
    ranked = set(map(word_client, event.ranking))
    trainers = set(found.inputs.participants.trainers)
    odd = ranked ^ trainers.intersection(record.clients)
    if odd:
        yield Contradiction(Fact.RANKED, event.round, tuple(sorted(odd)))
    if ranked <= record.payloads().keys():
        yield from _of_opening(event, record)


def _of_opening(event: RoundDecided, record: RoundRecord) -> Iterator[StepResult]:
    """Yield what the result binds and does not follow from the record and the ranking."""
    sets = event.accepted, event.next_committee
    true = result_preimage(record, Ranking(event.ranking, event.threshold_bits, *sets), event.model)
    for fact, one, other in (
        (Fact.UPDATES_ROOT, event.updates_root, true.updates_root),
        (Fact.SCORES_ROOT, event.scores_root, true.scores_root),
        (Fact.REVEAL, event.reveal, true.reveal),
    ):
        if one != other:
            yield Contradiction(fact, event.round, (), "", hexed(one), hexed(other))
