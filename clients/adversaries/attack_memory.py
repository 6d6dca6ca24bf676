"""What attackers remember of a run: their own model, public models, and published updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.reference import displacement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.attacks.updates.update_attack import Update
    from clients.models.model import ParameterVector
    from ledger.protocol.types import ClientId

WINDOW = 10
"""Rounds between two models that are remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class AttackHistory:
    """What attackers know in a round of what lies before it.

    Attributes:
        bad_model: w_bad, shape (d,).
        published: all updates published in the round before, by client.
        travel: displacement of the model over the last 10 to 19 rounds, as an update points, shape
            (d,); None in the first round.
    """

    bad_model: ParameterVector
    published: Mapping[ClientId, Update]
    travel: Update | None


@dataclass(slots=True, eq=False)
class AttackMemory:
    """Grows with nothing: two models and the updates of one round.

    Attributes:
        bad_model: w_bad, shape (d,).
    """

    bad_model: ParameterVector
    _models: dict[int, ParameterVector] = field(default_factory=dict)
    _published: tuple[int, dict[ClientId, Update]] = (0, {})

    def history(self, round_number: int, model: ParameterVector) -> AttackHistory:
        """Return what is known when a round opens.

        Args:
            round_number: t.
            model: w_t, shape (d,).
        """
        first = remembered_round(round_number)
        if round_number % WINDOW == 1:
            self._models[round_number] = np.array(model)
        for number in [number for number in self._models if number < first]:
            del self._models[number]
        before = self._models.get(first) if first < round_number else None
        published_in, published = self._published
        return AttackHistory(
            bad_model=self.bad_model,
            published=published if published_in < round_number else {},
            travel=None if before is None else displacement(before, model),
        )

    def round_ended(self, round_number: int, published: Mapping[ClientId, Update | None]) -> None:
        """Remember what was published in a round that has ended.

        Args:
            round_number: t.
            published: updates by client; those that are not usable are left out.
        """
        usable = {
            client: np.array(update)
            for client, update in sorted(published.items())
            if update is not None and np.isfinite(update).all()
        }
        self._published = round_number, usable


def remembered_round(round_number: int) -> int:
    """Return s, the round whose model the displacement of round t is taken from."""
    return 1 + WINDOW * max(0, (round_number - 1) // WINDOW - 1)
