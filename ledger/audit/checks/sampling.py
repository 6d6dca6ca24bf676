"""Step 4: nobody is ranked but those whom the seed samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.codes import Fact, Step
from ledger.audit.observations import ClosedRound
from ledger.audit.report import Contradiction
from ledger.audit.sentences import listed
from ledger.protocol.encoding import word_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.SAMPLING
TITLE = "sampling from the seed"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield who is ranked though the seed does not sample it.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    if not isinstance(seen, ClosedRound) or seen.replayed.decided is None:
        return
    trainers = seen.participants.trainers
    sampled = set(trainers)
    ranked = map(word_client, seen.replayed.decided.ranking)
    foreign = tuple(client for client in ranked if client not in sampled)
    if foreign:
        true = listed(trainers, 256)
        yield Contradiction(Fact.NOT_SAMPLED, seen.replayed.round, foreign, true=true)
