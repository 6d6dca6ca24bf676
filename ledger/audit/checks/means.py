"""Step 7: the ranked distances follow bit for bit from the counted scores."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import VECTORS_UNUSABLE, AuditCheck
from ledger.audit.observations import DecidedRound, Observation
from ledger.audit.report import AuditStep, Contradiction, Fact, MissingInput, StepResult
from ledger.protocol.encoding import float_from_bits, word_client

DISTANCE_DIFFERS = Fact(
    "distance", "its distance is {recorded}", "the counted scores make it {true}"
)


def check(observation: Observation) -> Iterator[StepResult]:
    """Yield ranked distances that do not follow from the counted scores."""
    if not isinstance(observation, DecidedRound) or observation.evidence.record is None:
        return
    event, ranking = observation.evidence.event, observation.evidence.ranking
    if ranking is None:
        yield MissingInput(VECTORS_UNUSABLE, event.round)
        return
    true = {word_client(word): word for word in ranking.words}
    for word in event.ranking:
        client = word_client(word)
        if true.get(client, word) != word:
            values = (repr(float_from_bits(bits >> 32)) for bits in (word, true[client]))
            yield Contradiction(DISTANCE_DIFFERS, event.round, (client,), "", *values)


CHECK = AuditCheck(AuditStep.MEANS, "mean distances, bit for bit", check)
