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
from clients.datasets.federated_data import FederatedData, frozen_samples
from clients.models.model import Model, ParameterVector
from clients.random_streams import named_stream
from clients.training.jobs import as_training_error, trainer_of
from clients.training.port import LocalTraining, TrainingError, TrainingJob, Workload
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.direction import displacement
from ledger.protocol.types import ClientId

ROUNDS = 40
"""Local trainings, one after another, that the model gets."""


def false_model(  # noqa: PLR0913, PLR0917 - everything that a training needs
    model: Model,
    data: FederatedData,
    malicious: Collection[ClientId],
    training: LocalTraining,
    initial: ParameterVector,
    device: str,
    seed: int,
) -> ParameterVector:
    """Return w_bad, trained on the attackers' samples with label y + 1, modulo the classes.

    Plain SGD from w_1 as in a client's training, but 40 times as long, on the samples of all
    attackers, of which there is at least one.
    """
    if data.form.task != "classify":
        raise ConfigurationError(
            f"this attack trains on false classes of samples, and the task is {data.form.task}"
        )
    own = [data.train[client] for client in sorted(malicious)]
    x, y = (np.concatenate(parts) for parts in zip(*own, strict=True))
    longer = replace(
        training,
        proximal=None,
        calibrated=False,
        local_steps=None if training.local_steps is None else ROUNDS * training.local_steps,
        local_epochs=None if training.local_epochs is None else ROUNDS * training.local_epochs,
    )
    workload = Workload(
        model=model,
        train=[frozen_samples(x, (y + 1) % data.form.classes)],
        sets={},
        collate=data.collate,
        training=longer,
        device=device,
        path="plain",
    )
    update = np.empty(model.dimension, dtype=np.float32)
    job = TrainingJob(0, named_stream(seed, "false labels").bytes(32))
    with as_training_error():
        trainer_of(workload).train(initial, [job], [update])
    if not np.isfinite(update).all():
        raise TrainingError("the attackers' model of false labels diverged: lower the rate")
    return initial - update


WINDOW = 10
"""Rounds between two models that are remembered."""

PUBLISHED_ROUNDS = 2
"""Rounds whose honest updates are remembered."""

KEPT = 0.85
"""Part of the honest drift that is left after a round."""


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
        """Return what is known when a round opens with model w_t."""
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
        """Remember the usable updates that were published in a round that has ended."""
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


@dataclass(frozen=True, slots=True, eq=False)
class AttackRound:
    """The public state of a round, which attackers know too.

    Attributes:
        seed: of the round; each attacker's stream follows from it.
        starts: the model that each client has trained from, shape (d,): the same array for all,
            unless models differ by client.
        parameters: of the protocol; None without a committee.
        travel: recent displacement of the model, as an update points, shape (d,); None if no rule
            needs it.
        history: what lies before the round; None unless the attack needs it.
        server: the rule of a run without a committee; None if there is one.
    """

    seed: bytes
    starts: Mapping[ClientId, ParameterVector]
    members: frozenset[ClientId] = frozenset()
    parameters: Parameters | None = None
    travel: Update | None = None
    history: AttackHistory | None = None
    server: ServerRule | None = None


@dataclass(frozen=True, slots=True)
class Attackers:
    """Colluding clients: each knows the honest updates of all of them, and no others.

    Attributes:
        attack: name of the attack; None for none.
    """

    clients: frozenset[ClientId] = frozenset()
    attack: str | None = None
    parameters: AttackParameters = field(default_factory=AttackParameters)

    @property
    def need_history(self) -> bool:
        is_idle = self.attack is None or not self.clients
        return not is_idle and attack_named(self.attack or "").needs_history

    def declared_samples(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Return the number of samples that each client registers."""
        attack = attack_named(self.attack) if self.attack is not None and self.clients else None
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
        """Return the updates that the clients of a round send, in the order of `updates`.

        The attackers among them collude, and `context` has a start for each. An honest client's
        update is the very array that was passed.
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
        if attack.needs_history and context.history is None:
            raise ConfigurationError(
                f"attack {attack.name!r} needs a committee's or a server's one model"
            )
        members = context.members
        attacking = {
            None: honest.keys(),
            "members": honest.keys() & members,
            "trainers": honest.keys() - members,
        }[self.parameters.only]
        clients, history = list(honest), context.history
        colluders = np.stack(list(honest.values()))
        seats = tuple(row for row, client in enumerate(clients) if client in members)
        travel = context.travel
        if travel is None and history is not None:
            travel = history.travel
        # What the colluders share: no honest update of the round is in it.
        base = AttackInput(
            own=colluders[0],
            colluders=colluders,
            rng=named_stream(context.seed, "attack"),
            factor=attack.factor_for(self.parameters),
            trainers=trainers,
            attacking_trainers=len(clients) - len(seats),
            is_member=0 in seats,
            parameters=context.parameters,
            travel=travel,
            members=len(members),
            seats=seats,
            idle=tuple(row for row, client in enumerate(clients) if client not in attacking),
            server=context.server,
            model=None if history is None else context.starts[clients[0]],
            history=history,
        )
        forged: dict[ClientId, Update] = {}
        if attack.forge_all is not None:
            rows = attack.forge_all(base)
            return {c: row for c, row in zip(honest, rows, strict=True) if c in attacking}
        common: dict[bool, Update] = {}
        for row, client in enumerate(honest):
            is_member = client in members
            if client not in attacking:
                continue
            if attack.is_common and is_member in common:
                forged[client] = common[is_member]
                continue
            attack_input = replace(
                base,
                own=colluders[row],
                rng=named_stream(context.seed, "attack", int(client)),
                is_member=is_member,
            )
            forged[client] = common[is_member] = attack.forge(attack_input)
        return forged


def malicious_clients(
    clients: int, malicious_rate: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return the malicious clients of the whole run, floor(rate · K + 1/2) of them, ascending."""
    if not 0 <= malicious_rate <= 1:
        raise ConfigurationError(f"malice.malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))
