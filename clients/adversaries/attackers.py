"""The clients of a run that attack their updates: who they are, and what they send."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clients.attacks.registry import attack_named
from clients.attacks.updates.update_attack import AttackInput, AttackParameters
from clients.random_streams import named_stream
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.attacks.updates.update_attack import Update, UpdateAttack
    from clients.models.model import ParameterVector
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.rules.distance import Layout
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True, eq=False)
class AttackRound:
    """What a round tells everybody, and so the attackers too.

    Attributes:
        seed: of the round; each attacker's stream follows from it.
        starts: the model that each client has trained from, shape (d,): the same array for all
            but where every client has a model of its own.
        members: who sits on the committee.
        parameters: the rules in force; None where there is no committee.
        travel: the way that the model went in the rounds before, as an update points, shape (d,);
            None where the rules have none.
        layout: the model's tensors; empty where no rule asks for them.
    """

    seed: bytes
    starts: Mapping[ClientId, ParameterVector]
    members: frozenset[ClientId] = frozenset()
    parameters: Parameters | None = None
    travel: Update | None = None
    layout: Layout = ()


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

    def corrupt(
        self, updates: Mapping[ClientId, Update], context: AttackRound
    ) -> dict[ClientId, Update]:
        """Return what all clients of a round send: the honest their own update.

        Args:
            updates: of the round's honest training, by client, each of shape (d,); the
                attackers among them are those that collude.
            context: the round; it has a start for each of the attackers.

        Returns:
            What each client sends, in the order of `updates`, which are left alone: an honest
            client's is the very array that was given.

        Raises:
            ConfigurationError: an unknown attack, or a factor that it does not take.
        """
        sent = dict(updates)
        active = sorted(self.clients.intersection(updates))
        if self.attack is None or not active:
            return sent
        attack = attack_named(self.attack)
        starts = context.starts
        is_on_weights = self.parameters.on == "weights"
        # What overflows, or was not finite before, is an update that nobody counts.
        with np.errstate(over="ignore", invalid="ignore"):
            honest = {
                client: starts[client] - updates[client] if is_on_weights else updates[client]
                for client in active
            }
            forged = self._forged(attack, honest, context, len(updates.keys() - context.members))
            for client, one in forged.items():
                sent[client] = starts[client] - one if is_on_weights else one
        return sent

    def _forged(
        self,
        attack: UpdateAttack,
        honest: Mapping[ClientId, Update],
        context: AttackRound,
        trainers: int,
    ) -> dict[ClientId, Update]:
        """Return what the attackers make of what they have, be it updates or weights."""
        members = context.members
        attacking = members.intersection(honest) if self.parameters.only else honest.keys()
        colluders = np.stack(list(honest.values()))
        forged: dict[ClientId, Update] = {}
        common: dict[bool, Update] = {}
        for client in sorted(attacking):
            is_member = client in members
            if attack.is_common and is_member in common:
                forged[client] = common[is_member]
                continue
            asked = AttackInput(
                own=honest[client],
                colluders=colluders,
                rng=named_stream(context.seed, "attack", int(client)),
                factor=attack.factor_for(self.parameters),
                trainers=trainers,
                attacking_trainers=len(honest.keys() - members),
                is_member=is_member,
                parameters=context.parameters,
                travel=context.travel,
                layout=context.layout,
            )
            forged[client] = common[is_member] = attack.forge(asked)
        return forged


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
        raise ConfigurationError(f"malice.malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))
