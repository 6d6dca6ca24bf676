"""Step 4: nobody is ranked but those whom the seed samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import listed
from ledger.protocol.encoding import word_client

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.protocol.inputs import Participants
    from ledger.protocol.ledger_state import RoundDecided


def check_sampling(event: RoundDecided, participants: Participants, log: AuditLog) -> None:
    """Check that the ranking holds sampled trainers only.

    Args:
        event: the decision.
        participants: who takes part, by seed and registry.
        log: where a contradiction is written down.
    """
    sampled = set(participants.trainers)
    ranked = map(word_client, event.ranking)
    foreign = tuple(client for client in ranked if client not in sampled)
    if foreign:
        true = listed(participants.trainers, 256)
        log.contradict(
            Step.SAMPLING, Contradiction(Fact.NOT_SAMPLED, event.round, foreign, true=true)
        )
