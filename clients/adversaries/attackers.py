"""Malicious clients of a run, and the updates that they send."""

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
    """The public state of a round, which attackers know too.

    Attributes:
        seed: of the round; each attacker's stream follows from it.
        starts: the model that each client has trained from, shape (d,): the same array for all,
            unless models differ by client.
        members: of the committee.
        parameters: of the protocol; None without a committee.
        travel: recent displacement of the model, as an update points, shape (d,); None if no rule
            needs it.
        layout: the model's tensors; empty if no rule needs them.
    """

    seed: bytes
    starts: Mapping[ClientId, ParameterVector]
    members: frozenset[ClientId] = frozenset()
    parameters: Parameters | None = None
    travel: Update | None = None
    layout: Layout = ()


@dataclass(frozen=True, slots=True)
class Attackers:
    """Colluding clients: each knows the honest updates of all of them, and no others.

    Attributes:
        clients: for the whole run.
        attack: name of the attack; None for none.
        parameters: settings of the attack.
    """

    clients: frozenset[ClientId] = frozenset()
    attack: str | None = None
    parameters: AttackParameters = field(default_factory=AttackParameters)

    def corrupt(
        self, updates: Mapping[ClientId, Update], context: AttackRound
    ) -> dict[ClientId, Update]:
        """Return the updates that the clients of a round send.

        Args:
            updates: of honest training, by client, each of shape (d,); the attackers among them
                collude.
            context: the round; it has a start for each of the attackers.

        Returns:
            The update of each client, in the order of `updates`; an honest client's is the very
            array that was passed.

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
        # An update that overflows, or was not finite before, does not count.
        with np.errstate(over="ignore", invalid="ignore"):
            honest = {
                client: starts[client] - updates[client] if is_on_weights else updates[client]
                for client in active
            }
            forged = self._forged(attack, honest, context, len(updates.keys() - context.members))
            for client, vector in forged.items():
                sent[client] = starts[client] - vector if is_on_weights else vector
        return sent

    def _forged(
        self,
        attack: UpdateAttack,
        honest: Mapping[ClientId, Update],
        context: AttackRound,
        trainers: int,
    ) -> dict[ClientId, Update]:
        """Return the attackers' forged updates or weights."""
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
            attack_input = AttackInput(
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
            forged[client] = common[is_member] = attack.forge(attack_input)
        return forged


def malicious_clients(
    clients: int, malicious_rate: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return the malicious clients of the whole run, floor(rate · K + 1/2) of them, ascending.

    Raises:
        ConfigurationError: a rate outside [0, 1].
    """
    if not 0 <= malicious_rate <= 1:
        raise ConfigurationError(f"malice.malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))
