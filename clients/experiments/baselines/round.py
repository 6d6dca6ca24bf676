"""One round of a system without a ledger: what every such system can say of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.runs.metrics import Quality
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class RoundSeconds:
    """Wall-clock seconds of a round's parts.

    Attributes:
        training: of all participants.
        aggregating: at the server; of a system without one, all the merging.
    """

    training: float
    aggregating: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRound:
    """One round, measured after it.

    Attributes:
        round: from 1.
        quality: what the system is judged by; all None if it was not measured.
        participants: who trained, ascending.
        used: whose updates (or models) the new model is made of, ascending: all, or those that a
            selecting aggregator chose; empty where the model does not change.
        malicious: how many of the participants attack.
        malicious_used: how many of those used attack.
        seconds: what it took; no part of what rounds are compared by.
    """

    round: int
    quality: Quality
    participants: tuple[ClientId, ...]
    used: tuple[ClientId, ...]
    malicious: int
    malicious_used: int
    seconds: RoundSeconds = field(compare=False)

    @property
    def accuracy(self) -> float | None:
        """Share of the test set classified right; None if it was not measured."""
        return self.quality.accuracy

    @property
    def loss(self) -> float | None:
        """Mean cross-entropy on it; None if it was not measured, or is not finite."""
        return self.quality.loss

    @property
    def training_loss(self) -> float | None:
        """Mean cross-entropy on all training samples; None where it was not measured."""
        return self.quality.training_loss
