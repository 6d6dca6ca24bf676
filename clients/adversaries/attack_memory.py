"""What attackers remember of a run: their own model, public models, and published updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.update_attack import Update
from ledger.protocol.rules.direction import displacement
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.models.model import ParameterVector

WINDOW = 10
"""Rounds between two models that are remembered."""

PUBLISHED_ROUNDS = 2
"""Rounds whose honest updates are remembered."""

KEPT = 0.85
"""Part of the honest drift that is left after a round."""


@dataclass(frozen=True, slots=True, eq=False)
class AttackHistory:
    """What attackers know in a round of what lies before it.

    Attributes:
        bad_model: w_bad, shape (d,).
        published: usable updates that honest clients published in the last two rounds that have
            any, the later round first, each ascending by client, of shape (d,).
        drift: e, shape (d,): e = .85 e + unit(mean of the usable honest updates) after each round;
            None before anything is published.
        travel: displacement of the model over the last 10 to 19 rounds, as an update points, shape
            (d,); None in the first round.
    """

    bad_model: ParameterVector
    published: tuple[tuple[Update, ...], ...] = ()
    drift: NDArray[np.float64] | None = None
    travel: Update | None = None


@dataclass(slots=True, eq=False)
class AttackMemory:
    """Grows with nothing: two models, the honest updates of two rounds, and their drift.

    Attributes:
        bad_model: w_bad, shape (d,).
        attackers: clients whose updates are known not to be honest.
    """

    bad_model: ParameterVector
    attackers: frozenset[ClientId] = frozenset()
    _models: dict[int, ParameterVector] = field(default_factory=dict)
    _published: list[tuple[Update, ...]] = field(default_factory=list)
    _drift: NDArray[np.float64] | None = None

    def history(self, round_number: int, model: ParameterVector) -> AttackHistory:
        """Return what is known when a round opens.

        Args:
            model: w_t, shape (d,).
        """
        first = remembered_round(round_number)
        if round_number % WINDOW == 1:
            self._models[round_number] = np.array(model)
        for number in [number for number in self._models if number < first]:
            del self._models[number]
        before = self._models.get(first) if first < round_number else None
        return AttackHistory(
            bad_model=self.bad_model,
            published=tuple(self._published),
            drift=self._drift,
            travel=None if before is None else displacement(before, model),
        )

    def round_ended(self, published: Mapping[ClientId, Update | None]) -> None:
        """Remember what was published in a round that has ended.

        Args:
            published: updates by client; those that are not usable are left out.
        """
        honest = tuple(
            np.array(update)
            for client, update in sorted(published.items())
            if client not in self.attackers and update is not None and np.isfinite(update).all()
        )
        if honest:
            self._published = [honest, *self._published][:PUBLISHED_ROUNDS]
            mean = np.mean(honest, axis=0, dtype=np.float64)
            direction = mean / (np.linalg.norm(mean) or 1.0)
            before = np.zeros_like(mean) if self._drift is None else self._drift
            self._drift = KEPT * before + direction


def remembered_round(round_number: int) -> int:
    """Return s, the round whose model the displacement of round t is taken from."""
    return 1 + WINDOW * max(0, (round_number - 1) // WINDOW - 1)
