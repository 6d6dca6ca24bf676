"""The participants of a decentralised run, each with its own model.

They are drawn once and stay: with thousands of clients, one merge a round would move nothing. Both
systems draw from one stream, so that on one seed they have the same sites.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.attackers import AttackRound
from clients.random_streams import named_stream
from clients.training.port import TrainingJob
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clients.adversaries.attackers import Attackers
    from clients.attacks.updates.update_attack import Update
    from clients.models.model import ParameterVector
    from clients.training.port import Engine
    from ledger.protocol.types import Digest

_PART = 1 << 15
"""Numbers of a model that are summed at a time: float64 copies of whole models would not fit."""


def require_sites(rounds: int, participants: int, clients: int) -> None:
    """Refuse a run that cannot be."""
    if rounds < 1:
        raise ConfigurationError(f"rounds = {rounds}: must be at least 1")
    if not 2 <= participants <= clients:
        raise ConfigurationError(
            f"participants = {participants}: must be at least 2, who send to each other, and at "
            f"most the {clients} clients"
        )


def draw_sites(clients: int, participants: int, seed: int) -> tuple[ClientId, ...]:
    """Return who takes part for the whole run, ascending."""
    rng = named_stream(seed, "decentralised", "participants")
    drawn = rng.choice(clients, participants, replace=False)
    return tuple(ClientId(client) for client in sorted(drawn.tolist()))


class Sites:
    """The models of all participants: A x d numbers.

    An attacker trains its own model honestly and merges what it gets; what it sends is another:
    its start minus the forged update. It is counted among the participants like the others.

    Attributes:
        models: w_i of each participant, shape (d,), ascending by client.

    Args:
        engine: trains.
        initial: the model that all start from, shape (d,).
        participants: ascending.
        attackers: who of them sends something else than its model.
    """

    def __init__(
        self,
        engine: Engine,
        initial: ParameterVector,
        participants: Sequence[ClientId],
        attackers: Attackers,
    ) -> None:
        self._engine = engine
        self._attackers = attackers
        self._forged: dict[ClientId, ParameterVector] = {}
        self.models: dict[ClientId, ParameterVector] = dict.fromkeys(participants, initial)

    @property
    def participants(self) -> tuple[ClientId, ...]:
        """Participants, ascending."""
        return tuple(self.models)

    def train(self, clients: Iterable[ClientId], seed: Digest) -> None:
        """Let participants train their own models.

        Args:
            clients: which of them, ascending.
            seed: of the round, from which batch orders and attacks follow.

        Raises:
            TrainingError: a worker ended before its work was done.
        """
        starts = {client: self.models[client] for client in clients}
        updates: dict[ClientId, Update] = {}
        for start, group in _by_start(starts):
            jobs = [TrainingJob(int(client), training_seed(seed, client)) for client in group]
            for client, trained in zip(group, self._engine.train(start, jobs), strict=True):
                self.models[client] = _moved(start, trained.vector)
                # The engine writes there again, and nobody reads what others have done.
                attacks = client in self._attackers.clients
                updates[client] = trained.vector.copy() if attacks else trained.vector
        for client, update in self._attackers.corrupt(updates, AttackRound(seed, starts)).items():
            self._forged.pop(client, None)
            if update is not updates[client]:
                self._forged[client] = _moved(starts[client], update)

    def sent(self, client: ClientId) -> ParameterVector:
        """Return the model that a participant sends to others, shape (d,)."""
        return self._forged.get(client, self.models[client])


def weighted_mean(
    vectors: Mapping[ClientId, ParameterVector], samples: Sequence[int]
) -> ParameterVector:
    """Return sum n_i w_i / sum n_i, in float64, clients ascending, rounded once at the end.

    Args:
        vectors: w_i, at least one, each of shape (d,).
        samples: n_i of client i at index i.
    """
    clients = sorted(vectors)
    total = sum(samples[client] for client in clients)
    result = np.empty_like(vectors[clients[0]])
    for start in range(0, len(result), _PART):
        part = slice(start, start + _PART)
        weighted = np.zeros(len(result[part]))
        with np.errstate(over="ignore", invalid="ignore"):  # what diverged stays so
            for client in clients:
                weighted += samples[client] * vectors[client][part].astype(np.float64)
            result[part] = weighted / total
    return result


def _by_start(
    starts: Mapping[ClientId, ParameterVector],
) -> list[tuple[ParameterVector, list[ClientId]]]:
    """Return participants by the array that they start from: an engine takes one at a call."""
    groups: defaultdict[int, list[ClientId]] = defaultdict(list)
    for client, start in starts.items():
        groups[id(start)].append(client)
    return [(starts[group[0]], group) for group in groups.values()]


def _moved(start: ParameterVector, update: Update) -> ParameterVector:
    """Return the model at the end of an update: w_start - update."""
    with np.errstate(over="ignore", invalid="ignore"):  # what diverged stays so
        moved: ParameterVector = start - update
    return moved
