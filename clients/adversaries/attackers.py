"""The clients of a run that attack their updates: who they are, and what they send."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.registry import attack_named
from clients.adversaries.updates.attack import AttackInput, AttackParameters
from clients.chance import named_stream
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.adversaries.updates.attack import Update
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class Attackers:
    """Clients that collude: each knows the honest updates of all of them, and of nobody else.

    Attributes:
        clients: who they are, for the whole run.
        attack: name of what they do, None for nothing.
        parameters: what the attack leaves open.
    """

    clients: frozenset[ClientId] = frozenset()
    attack: str | None = None
    parameters: AttackParameters = field(default_factory=AttackParameters)

    def corrupt(self, updates: Mapping[ClientId, Update], seed: bytes) -> dict[ClientId, Update]:
        """Return what all clients of a round send: the honest their own update.

        Args:
            updates: of the round's honest training, by client, each of shape (d,); the
                attackers among them are those that collude.
            seed: of the round; each attacker's stream follows from it.

        Returns:
            What each client sends, in the order of `updates`, which are left alone.

        Raises:
            ConfigurationError: an unknown attack, or a factor that it does not take.
        """
        sent = dict(updates)
        active = sorted(self.clients.intersection(updates))
        if self.attack is None or not active:
            return sent
        attack = attack_named(self.attack)
        factor = attack.factor_for(self.parameters)
        colluders = np.stack([updates[client] for client in active])
        for client in active:
            rng = named_stream(seed, "attack", int(client))
            sent[client] = attack.forge(AttackInput(updates[client], colluders, rng, factor))
        return sent


def malicious_clients(
    clients: int, malicious_rate: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return which clients are malicious for the whole run, floor(rate · K + 1/2) of them.

    Args:
        clients: number of clients K.
        malicious_rate: epsilon, their share of all clients, in [0, 1].
        rng: the assignment's own stream.

    Returns:
        Ascending client indices.

    Raises:
        ConfigurationError: a rate outside [0, 1].
    """
    if not 0 <= malicious_rate <= 1:
        raise ConfigurationError(f"malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))
