"""Malicious clients of a run, and the updates that they send."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clients.attacks.registry import attack_named
from clients.attacks.updates import (
    AttackHistory,
    AttackInput,
    AttackParameters,
    ServerRule,
    Update,
    UpdateAttack,
)
from clients.datasets.federated_data import FederatedData, frozen_samples, named_stream
from clients.models.model import Model, ParameterVector
from clients.training.jobs import train_alone
from clients.training.port import LocalTraining, TrainingError, Workload
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.direction import displacement
from ledger.protocol.types import ClientId


def false_model(  # noqa: PLR0913, PLR0917 - everything that a training needs
    model: Model,
    data: FederatedData,
    malicious: Collection[ClientId],
    training: LocalTraining,
    initial: ParameterVector,
    device: str,
    seed: int,
) -> ParameterVector:
    """Return w_bad, 40 times as long trained as a client, on all attackers' samples of y + 1."""
    if data.form.task != "classify":
        raise ConfigurationError(f"this attack needs classes, and the task is {data.form.task}")
    own = [data.train[client] for client in sorted(malicious)]
    x, y = (np.concatenate(parts) for parts in zip(*own, strict=True))
    steps, epochs = (
        None if count is None else 40 * count
        for count in (training.local_steps, training.local_epochs)
    )
    changed = {"proximal": None, "calibrated": False, "local_steps": steps, "local_epochs": epochs}
    samples = frozen_samples(x, (y + 1) % data.form.classes)
    longer = training.model_copy(update=changed)
    work = Workload(model, [samples], {}, data.collate, longer, device, path="plain")
    update = train_alone(work, initial, named_stream(seed, "false labels").bytes(32))
    if not np.isfinite(update).all():
        raise TrainingError("the attackers' false-label model diverged; lower the rate")
    return initial - update


WINDOW = 10  # rounds between two models that are remembered


@dataclass(slots=True, eq=False)
class AttackMemory:
    """Attackers' memory: two models, the honest updates of two rounds, and their drift."""

    bad_model: ParameterVector
    attackers: frozenset[ClientId] = frozenset()
    _models: dict[int, ParameterVector] = field(default_factory=dict)
    _published: list[tuple[Update, ...]] = field(default_factory=list)
    _drift: NDArray[np.float64] | None = None

    def history(self, round_number: int, model: ParameterVector) -> AttackHistory:
        first = 1 + WINDOW * max(0, (round_number - 1) // WINDOW - 1)
        if round_number % WINDOW == 1:
            self._models[round_number] = np.array(model)
        self._models = {number: held for number, held in self._models.items() if number >= first}
        before = self._models.get(first) if first < round_number else None
        return AttackHistory(
            bad_model=self.bad_model,
            published=tuple(self._published),
            drift=self._drift,
            travel=None if before is None else displacement(before, model),
        )

    def round_ended(self, published: Mapping[ClientId, Update | None]) -> None:
        honest = tuple(
            np.array(update)
            for client, update in sorted(published.items())
            if client not in self.attackers and update is not None and np.isfinite(update).all()
        )
        if honest:
            self._published = [honest, *self._published][:2]
            mean = np.mean(honest, axis=0, dtype=np.float64)
            direction = mean / (np.linalg.norm(mean) or 1.0)
            before = np.zeros_like(mean) if self._drift is None else self._drift
            self._drift = 0.85 * before + direction


@dataclass(frozen=True, slots=True, eq=False)
class AttackRound:
    """The public state of a round; `starts` has the model that each client has trained from."""

    seed: bytes
    starts: Mapping[ClientId, ParameterVector]
    members: frozenset[ClientId] = frozenset()
    parameters: Parameters | None = None
    travel: Update | None = None
    history: AttackHistory | None = None
    server: ServerRule | None = None


@dataclass(frozen=True, slots=True)
class Attackers:
    """Colluding clients: each knows the honest updates of all of them, and no others."""

    clients: frozenset[ClientId] = frozenset()
    attack: str | None = None
    parameters: AttackParameters = field(default_factory=AttackParameters)

    def _made(self) -> UpdateAttack | None:
        return attack_named(self.attack) if self.attack is not None and self.clients else None

    @property
    def need_history(self) -> bool:
        attack = self._made()
        return attack is not None and attack.needs_history

    def declared_samples(self, counts: Sequence[int]) -> tuple[int, ...]:
        attack = self._made()
        if attack is None or not attack.multiplies_samples:
            return tuple(counts)
        factor = attack.factor_for(self.parameters)
        return tuple(
            math.floor(factor * count + 0.5) if client in self.clients else count
            for client, count in enumerate(counts)
        )

    def corrupt(
        self, updates: Mapping[ClientId, Update], context: AttackRound
    ) -> dict[ClientId, Update]:
        """Return what the clients of a round send, in their order; honest updates stay the same."""
        sent = dict(updates)
        active = sorted(self.clients.intersection(updates))
        if self.attack is None or not active:
            return sent
        attack, starts = attack_named(self.attack), context.starts
        is_on_weights = self.parameters.on == "weights"
        # An update that overflows, or was not finite before, does not count.
        with np.errstate(over="ignore", invalid="ignore"):
            honest = {
                client: starts[client] - updates[client] if is_on_weights else updates[client]
                for client in active
            }
            known = self._known(attack, honest, context, len(updates.keys() - context.members))
            for client, vector in self._forged(attack, known, active, context).items():
                sent[client] = starts[client] - vector if is_on_weights else vector
        return sent

    def _known(
        self,
        attack: UpdateAttack,
        honest: Mapping[ClientId, Update],
        context: AttackRound,
        trainers: int,
    ) -> AttackInput:
        """Return what the colluders share: no honest update of the round is in it."""
        history, travel = context.history, context.travel
        if attack.needs_history and history is None:
            raise ConfigurationError(f"attack {attack.name!r} needs one model of all clients")
        if travel is None and history is not None:
            travel = history.travel
        clients, colluders = list(honest), np.stack(list(honest.values()))
        seats = tuple(row for row, client in enumerate(clients) if client in context.members)
        # With `only`, the others are honest.
        is_idle = {None: (), "members": set(range(len(clients))) - {*seats}, "trainers": seats}
        return AttackInput(
            own=colluders[0],
            colluders=colluders,
            rng=named_stream(context.seed, "attack"),
            factor=attack.factor_for(self.parameters),
            trainers=trainers,
            attacking_trainers=len(clients) - len(seats),
            is_member=0 in seats,
            parameters=context.parameters,
            travel=travel,
            members=len(context.members),
            seats=seats,
            idle=tuple(sorted(is_idle[self.parameters.only])),
            server=context.server,
            model=None if history is None else context.starts[clients[0]],
            history=history,
        )

    def _forged(
        self,
        attack: UpdateAttack,
        known: AttackInput,
        clients: Sequence[ClientId],
        context: AttackRound,
    ) -> dict[ClientId, Update]:
        attacking = [row for row in range(len(clients)) if row not in known.idle]
        if attack.forge_all is not None:
            rows = attack.forge_all(known)
            return {clients[row]: rows[row] for row in attacking}
        forged: dict[ClientId, Update] = {}
        common: dict[bool, Update] = {}
        for row in attacking:
            is_member = row in known.seats
            if not attack.is_common or is_member not in common:
                rng = named_stream(context.seed, "attack", int(clients[row]))
                own = known.colluders[row]
                given = replace(known, own=own, rng=rng, is_member=is_member)
                common[is_member] = attack.forge(given)
            forged[clients[row]] = common[is_member]
        return forged


def malicious_clients(
    clients: int, malicious_rate: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return the malicious clients of the whole run, floor(rate · K + 1/2) of them, ascending."""
    if not 0 <= malicious_rate <= 1:
        raise ConfigurationError(f"malice.malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))
