"""Step 4: only clients that the seed samples are ranked."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import AuditCheck
from ledger.audit.formatting import listed
from ledger.audit.observations import ClosedRound, Observation
from ledger.audit.report import AuditStep, Contradiction, Fact, StepResult
from ledger.protocol import errors
from ledger.protocol.encoding import word_client

NOT_SAMPLED = Fact("not sampled", "sampled trainers only are ranked", "the seed samples {true}")


def check(observation: Observation) -> Iterator[StepResult]:
    """Yield clients that are ranked though the seed does not sample them."""
    if not isinstance(observation, ClosedRound) or observation.replayed.decided is None:
        return
    trainers = observation.participants.trainers
    sampled = set(trainers)
    ranked = map(word_client, observation.replayed.decided.ranking)
    foreign = tuple(client for client in ranked if client not in sampled)
    if foreign:
        true = listed(trainers, 256)
        yield Contradiction(NOT_SAMPLED, observation.replayed.round, foreign, true=true)


CHECK = AuditCheck(
    AuditStep.SAMPLING,
    "sampling from the seed",
    check,
    refusals=(errors.WrongCommitteeError, errors.MemberRankedError),
    event_fields=frozenset({"committee"}),
)
