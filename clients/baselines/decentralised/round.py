"""One round of a decentralised system, and what its participants' models come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from clients.runs.metrics import Quality

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clients.baselines.federated import Seconds
    from clients.baselines.traffic import RoundTraffic
    from clients.models.model import ParameterVector
    from clients.runs.metrics import Gauge
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class DecentralisedRound:
    """One round, measured after it where it is due.

    Attributes:
        round: from 1.
        quality: what the system is judged by: in BrainTorrent the initiator's model, in gossip the
            mean over the participants of what their models come to.
        beside: in BrainTorrent the mean over the participants, in gossip the average model,
            weighted by samples.
        participants: who trained, ascending: the same in every round.
        used: whose models were merged into another's, ascending.
        malicious: how many of the participants attack.
        malicious_used: how many of those used attack.
        traffic: what was sent.
        seconds: what it took to train and to merge all of them here; no part of what rounds are
            compared by.
        initiator: of BrainTorrent; None in gossip, where everybody acts at once.
    """

    round: int
    quality: Quality
    beside: Quality
    participants: tuple[ClientId, ...]
    used: tuple[ClientId, ...]
    malicious: int
    malicious_used: int
    traffic: RoundTraffic
    seconds: Seconds = field(compare=False)
    initiator: ClientId | None = None

    @property
    def accuracy(self) -> float | None:
        """Share of the test set classified right, as `quality` has it."""
        return self.quality.accuracy

    @property
    def loss(self) -> float | None:
        """Mean cross-entropy on the test set, as `quality` has it."""
        return self.quality.loss

    @property
    def training_loss(self) -> float | None:
        """Mean cross-entropy on the training samples, as `quality` has it."""
        return self.quality.training_loss


def mean_quality(gauge: Gauge, models: Iterable[ParameterVector]) -> Quality:
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
