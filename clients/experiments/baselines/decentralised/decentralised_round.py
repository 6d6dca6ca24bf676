"""One round of a decentralised system, and the quality of its participants' models."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from clients.experiments.baselines.round import BaselineRound
from clients.runs.metrics import Quality

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clients.experiments.baselines.traffic import RoundTraffic
    from clients.models.model import ParameterVector
    from clients.runs.metrics import ModelGauge
    from ledger.protocol.types import ClientId


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
