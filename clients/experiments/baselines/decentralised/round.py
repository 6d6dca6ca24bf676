"""One round of a decentralised system, and what its participants' models come to."""

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

    The system is judged in BrainTorrent by the initiator's model, in gossip by the mean over the
    participants of what their models come to.

    Attributes:
        beside: in BrainTorrent the mean over the participants, in gossip the average model,
            weighted by samples.
        traffic: what was sent.
        initiator: of BrainTorrent; None in gossip, where everybody acts at once.
    """

    beside: Quality
    traffic: RoundTraffic
    initiator: ClientId | None = None


def mean_quality(gauge: ModelGauge, models: Iterable[ParameterVector]) -> Quality:
    """Return the mean over models of what each comes to; None where one has no such number.

    Args:
        gauge: measures.
        models: at least one, each of shape (d,).
    """
    found = [gauge.quality(gauge.begin(model)) for model in models]
    clients = [one.client_accuracy for one in found]
    given = [one for one in clients if one is not None]
    return Quality(
        accuracy=_mean([one.accuracy for one in found]),
        loss=_mean([one.loss for one in found]),
        training_loss=_mean([one.training_loss for one in found]),
        client_accuracy=tuple(map(_mean, zip(*given, strict=True))) if given else None,
        backdoor_success=_mean([one.backdoor_success for one in found]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
