"""Step 7: what is ranked by follows bit for bit from the counted scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.codes import Fact, Need, Step
from ledger.audit.observations import DecidedRound
from ledger.audit.report import Contradiction, MissingInput
from ledger.protocol.encoding import float_from_bits, word_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.MEANS
TITLE = "means and medians, bit for bit"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield the ranked distances that the counted scores do not give.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    if not isinstance(seen, DecidedRound) or seen.found.record is None:
        return
    event, ranking = seen.found.event, seen.found.ranking
    if ranking is None:
        yield MissingInput(Need.RIGHT_VECTORS, event.round)
        return
    true = {word_client(word): word for word in ranking.words}
    for word in event.ranking:
        client = word_client(word)
        if true.get(client, word) != word:
            values = (repr(float_from_bits(one >> 32)) for one in (word, true[client]))
            yield Contradiction(Fact.DISTANCE, event.round, (client,), "", *values)
