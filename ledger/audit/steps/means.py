"""Step 7: what is ranked by, and the threshold, follow bit for bit from the counted scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.protocol.doubts import Objection
from ledger.protocol.encoding import float_from_bits, word_client
from ledger.protocol.judgement import counted_vectors, rank_trainers
from ledger.protocol.types import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.protocol.doubts import Doubt
    from ledger.protocol.judgement import Ranking

_UNRANKABLE = {Objection.TOO_FEW_SCORES, Objection.TOO_FEW_TRAINERS, Objection.VECTOR_MISSING}
"""Objections after which the counted vectors make no ranking."""


def check_means(found: RoundEvidence, doubts: Iterable[Doubt], log: AuditLog) -> None:
    """Recompute what is ranked by, and the threshold.

    Args:
        found: of a decided round.
        doubts: about its scores.
        log: where contradictions are written down.
    """
    if found.record is None:
        return
    at, event = found.event.round, found.event
    if any(_prevents_ranking(doubt) for doubt in doubts):
        log.lack(Missing(Need.RIGHT_VECTORS, at), Step.MEANS, Step.RANKING)
        return
    vectors = counted_vectors(found.record, found.evidence)
    ranking = rank_trainers(found.inputs.parameters, vectors)
    _check_words(found, ranking, log)
    if event.threshold_bits != ranking.threshold_bits:
        values = (repr(float_from_bits(b)) for b in (event.threshold_bits, ranking.threshold_bits))
        log.contradict(Step.RANKING, Contradiction(Fact.THRESHOLD, at, (), "", *values))


def _check_words(found: RoundEvidence, ranking: Ranking, log: AuditLog) -> None:
    true = {word_client(word): word for word in ranking.words}
    for word in found.event.ranking:
        client = word_client(word)
        if true.get(client, word) == word:
            continue
        values = (repr(float_from_bits(one >> 32)) for one in (word, true[client]))
        contradiction = Contradiction(Fact.DISTANCE, found.event.round, (client,), "", *values)
        log.contradict(Step.MEANS, contradiction)


def _prevents_ranking(doubt: Doubt) -> bool:
    """Say whether vectors with such a doubt cannot be put together; false ones still can."""
    if doubt.objection is Objection.SCORES_DO_NOT_COUNT:
        return doubt.reason is not RefusalReason.FALSE_DISTANCE
    return doubt.objection in _UNRANKABLE
