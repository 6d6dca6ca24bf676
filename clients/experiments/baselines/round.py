"""One round of a system without a ledger: what every such system can say of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from clients.runs.metrics import Quality

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clients.experiments.baselines.traffic import RoundTraffic
    from clients.models.model import ParameterVector
    from clients.runs.metrics import ModelGauge
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecentralisedRound(BaselineRound):
    """One round, measured after it where it is due; its participants are the same in every round.

    The system is judged in BrainTorrent by the initiator's model, in gossip by the mean quality of
    all participants' models.

    Attributes:
        beside: second quality: in BrainTorrent the mean over the participants, in gossip that of
            the average model, weighted by samples.
        traffic: what was sent.
        initiator: of BrainTorrent; None in gossip, where everybody acts at once.
    """

    beside: Quality
    traffic: RoundTraffic
    initiator: ClientId | None = None


def mean_quality(gauge: ModelGauge, models: Iterable[ParameterVector]) -> Quality:
    """Return the mean quality over models; None where one has no such number.

    Args:
        gauge: measures.
        models: at least one, each of shape (d,).
    """
    qualities = [gauge.quality(gauge.begin(model)) for model in models]
    clients = [quality.client_accuracy for quality in qualities]
    measured = [quality for quality in clients if quality is not None]
    return Quality(
        accuracy=_mean([quality.accuracy for quality in qualities]),
        loss=_mean([quality.loss for quality in qualities]),
        training_loss=_mean([quality.training_loss for quality in qualities]),
        client_accuracy=tuple(map(_mean, zip(*measured, strict=True))) if measured else None,
        backdoor_success=_mean([quality.backdoor_success for quality in qualities]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fmean(measured) if len(measured) == len(values) else None
