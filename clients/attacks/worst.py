"""Attacks that know the rule, its history and a goal (ours): target, noise, worst and half.

The colluders play a round for each candidate, by the run's own rule, and send the one that moves w
most along their aim. All that is sent or played lies in the span of the vectors that an attacker
knows, so that lengths and angles follow from one table of inner products. Stand-ins for honest
clients are what these published in one of the two rounds before, then the colluders' own updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates import AttackInput, Factor, Update, UpdateAttack, joint_attack
from ledger.distances import fast_distances
from ledger.protocol.documents.record import ScoreVector
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import Inputs, Participants, RoundClosing
from ledger.protocol.judgement import next_model, rank_trainers
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Domain

LENGTH = 2.0  # s: multiple of the median length, beyond which distances of directions grow
Floats = NDArray[np.float64]  # vectors, or coefficients of a frame's vectors, shape (rows, k)
_NOBODY = Address(bytes(20))


@dataclass(frozen=True, eq=False)
class Frame:
    """Unit vectors known in a round; a zero vector stays zero. Other fields are rows of them."""

    # Shape (k, d): the colluders' updates, the updates published in the two rounds before, noise of
    # each colluder, p, h, e, and the server's last aggregate.
    vectors: Floats
    norms: Floats  # lengths of the vectors before they were divided by them, shape (k,)
    own: NDArray[np.int64]
    published: tuple[NDArray[np.int64], ...]
    noise: NDArray[np.int64]
    goal: int  # p, the direction of w_t − w_bad
    travel: int  # h, the displacement of the model
    # e, the direction that honest clients took before, at first the colluders' own mean's.
    drift: int
    last: int

    @classmethod
    def of(cls, attacker: AttackInput, rounds: int = 2) -> Frame:
        """Return the frame of a round of finite updates; the last `rounds` are known."""
        history = attacker.history
        if attacker.model is None or history is None:
            raise ConfigurationError(
                "this attack needs one model for all clients, and a model trained by the "
                "attackers on false labels; use it against a committee or a server"
            )
        own, dimension = attacker.colluders, attacker.colluders.shape[1]
        noise = attacker.rng.standard_normal(own.shape)
        goal = attacker.model.astype(np.float64) - history.bad_model
        travel = np.zeros(dimension) if attacker.travel is None else attacker.travel
        drift = attacker.mean if history.drift is None else history.drift
        last = np.zeros(dimension) if attacker.server is None else attacker.server.last
        if last is None:
            last = attacker.mean
        special = goal, travel, drift, last
        published = history.published[:rounds]
        known = [update for updates in published for update in updates]
        raw = np.stack([*own, *known, *noise, *special], dtype=np.float64)
        norms = np.sqrt((raw * raw).sum(axis=1))
        vectors = np.divide(raw, norms[:, None], out=np.zeros_like(raw), where=norms[:, None] > 0)
        count, end = len(own), 2 * len(own) + len(known)
        ends = np.cumsum([count, *map(len, published)]).tolist()
        spans = tuple(np.arange(*pair) for pair in pairwise(ends))
        rows = np.arange(count), spans, np.arange(end - count, end)
        return cls(vectors, norms, *rows, goal=end, travel=end + 1, drift=end + 2, last=end + 3)

    @cached_property
    def table(self) -> Floats:
        """Inner products of the vectors, shape (k, k)."""
        return np.asarray(self.vectors @ self.vectors.T)

    @cached_property
    def length(self) -> float:
        return float(np.median(self.norms[self.own]))

    @property
    def honest(self) -> NDArray[np.int64]:
        """Rows of all known honest updates of others, else of the colluders' own."""
        return np.concatenate(self.published or (self.own,))

    def row(self, rows: NDArray[np.int64] | int) -> Floats:
        return np.asarray(np.eye(len(self.vectors))[np.atleast_1d(rows)])

    def unit(self, coefficients: Floats) -> Floats:
        """Return each combination divided by its length; zeros if only rounding error remains."""
        squares = np.einsum("ij,jk,ik->i", coefficients, self.table, coefficients)[:, None]
        lengths = np.sqrt(np.maximum(squares, 0.0))
        # Below this square of a length, a combination of unit vectors is rounding error.
        zeros, is_something = np.zeros_like(coefficients), squares > 1e-12
        return np.asarray(np.divide(coefficients, lengths, out=zeros, where=is_something))

    def mean(self, rows: NDArray[np.int64]) -> Floats:
        return self.unit(self.row(rows).mean(axis=0, keepdims=True))

    def residual(self, coefficients: Floats) -> Floats:
        """Return unit combinations without their part along the travel, shape (rows, k)."""
        along = coefficients @ self.table[:, self.travel]
        return self.unit(coefficients - along[:, None] * self.row(self.travel))

    @cached_property
    def coordinates(self) -> Floats:
        """The vectors in as few dimensions as they span, with the same inner products."""
        if len(self.vectors) >= self.vectors.shape[1]:
            return self.vectors
        values, axes = np.linalg.eigh(self.table)
        return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))


_DISTANCES = fast_distances()


@dataclass(frozen=True, eq=False)
class Game:
    """A round with stand-ins for the honest clients, whose coefficients have shape (honest, k)."""

    attacker: AttackInput
    coordinates: Floats
    travel: Update | None
    last: Floats
    honest: Floats
    clients: tuple[ClientId, ...]
    members: tuple[ClientId, ...]

    @classmethod
    def of(cls, attacker: AttackInput, frame: Frame, first: int = 0) -> Game:
        """Return the game of a round; before other rounds it uses the `first` published ones."""
        honest_members = max(attacker.members - len(attacker.seats), 0)
        honest_trainers = max(attacker.trainers - attacker.attacking_trainers, 0)
        rounds = [*frame.published[first:], *frame.published[:first]]
        drawn = [attacker.rng.permutation(span) for span in rounds]
        known = np.concatenate([*drawn, frame.own])
        rows = np.resize(known, honest_members + honest_trainers)
        honest = frame.norms[rows][:, None] * frame.row(rows)
        # Ties are broken by index, which says nothing about who is honest.
        clients = attacker.rng.permutation(len(rows) + len(attacker.colluders)).tolist()
        seated = [clients[len(rows) + seat] for seat in attacker.seats]
        is_of_angles = attacker.server is None or attacker.server.is_of_angles
        if attacker.parameters is not None:  # also where directions are compared
            is_of_angles = attacker.parameters.distance == SQUARED.name
        coordinates = frame.coordinates if is_of_angles else frame.vectors
        travel = coordinates[frame.travel].astype(np.float32)
        return cls(
            attacker=attacker,
            coordinates=coordinates,
            travel=travel if travel.any() else None,
            last=frame.norms[frame.last] * coordinates[frame.last],
            honest=honest,
            clients=tuple(map(ClientId, clients)),
            members=tuple(map(ClientId, sorted(clients[:honest_members] + seated))),
        )

    def step(self, sent: Floats) -> Floats:
        """Return how the model would move, as an update points, in coordinates."""
        rows = (np.concatenate([self.honest, sent]) @ self.coordinates).astype(np.float32)
        updates = dict(sorted(zip(self.clients, rows, strict=True)))
        if self.attacker.parameters is not None:
            return self._committee_step(self.attacker.parameters, updates)
        if self.attacker.server is not None:
            rng = np.random.default_rng(0)
            step = self.attacker.server.aggregate(list(updates.values()), self.last, rng)
            return np.zeros(rows.shape[1]) if step is None else step
        return np.asarray(rows.mean(axis=0, dtype=np.float64))

    @cached_property
    def _inputs(self) -> Inputs:
        members = set(self.members)
        trainers = tuple(client for client in sorted(self.clients) if client not in members)
        assert self.attacker.parameters is not None, "only a committee's round has inputs"
        return Inputs(
            parameters=self.attacker.parameters,
            domain=Domain(0, _NOBODY, NO_DIGEST),
            registry=(RegisteredClient(_NOBODY, 1),) * len(self.clients),
            round=1 if self.travel is None else 2,
            seed=NO_DIGEST,
            participants=Participants(self.members, trainers, frozenset()),
            closing=RoundClosing(0, NO_DIGEST, {}),
        )

    def _committee_step(self, parameters: Parameters, updates: Mapping[ClientId, Update]) -> Floats:
        inputs = self._inputs
        travel = self.travel if inputs.needs_displacement else None
        distances = _DISTANCES(parameters.distance_rule, travel, updates, self.members)
        trainers = inputs.participants.trainers
        vectors = score_vectors(inputs.round, distances, tuple(updates), trainers, self.members)
        start = np.zeros(self.coordinates.shape[1], dtype=np.float32)
        accepted = rank_trainers(parameters, vectors).accepted
        return -next_model(inputs, start, accepted, updates).astype(np.float64)


def score_vectors(
    number: int,
    distances: Floats,
    clients: Sequence[ClientId],
    trainers: tuple[ClientId, ...],
    members: tuple[ClientId, ...],
) -> list[ScoreVector]:
    """Return the members' scores of the trainers, from a table of shape (members, clients)."""
    columns = {client: column for column, client in enumerate(clients)}
    of_trainers = distances[:, [columns[client] for client in trainers]]
    nothing = np.empty(0)
    return [
        ScoreVector(number, member, NO_DIGEST, trainers, row, (), nothing)
        for member, row in zip(members, of_trainers, strict=True)
    ]


class Behaviour(Enum):
    """Updates of colluding members: the trainers' one, their honest one, or its reverse."""

    SAME = auto()
    HONEST = auto()
    REVERSED = auto()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Choices of the colluders in a round."""

    base: str
    angle: float  # θ from the base to the aim, in degrees
    share: float  # of the attacking trainers that act; the others are honest
    members: Behaviour
    part: float = 0.0  # λ, of the travel


Aim = Callable[[Frame], Floats]  # makes the aim, as an update points, of shape (1, k)


def searched(
    attacker: AttackInput,
    candidates: Sequence[Candidate],
    pull: Callable[[Frame, Candidate], Floats],
    aim: Aim,
    rounds: int = 2,
    length: float = LENGTH,
) -> NDArray[np.float32]:
    """Return the updates of all colluders, (colluders, d), that move the model most along an aim.

    The best candidates differ by rounding alone, and the first is taken. `pull` returns the
    directions that colluders send, unit combinations (colluders, k); `length` is in median lengths.
    """
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    frame = Frame.of(attacker, rounds)
    # A game with each of the published rounds first; one before there are any.
    played = [Game.of(attacker, frame, first) for first in range(len(frame.published) or 1)]
    direction = (aim(frame) @ played[0].coordinates)[0]
    pulls: dict[tuple[str, float, float], Floats] = {}
    sent: list[Floats] = []
    for candidate in candidates:
        key = (candidate.base, candidate.angle, candidate.part)
        if key not in pulls:
            pulls[key] = pull(frame, candidate)
        sent.append(updates_of(attacker, frame, candidate, pulls[key], length))
    sent = list({one.tobytes(): one for one in sent}.values())  # some candidates send the same
    effects = [sum(float(game.step(one) @ direction) for game in played) for one in sent]
    largest = np.nanmax(effects)
    best = int(np.argmax(effects >= largest - 1e-5 * abs(largest)))
    return (sent[best] @ frame.vectors).astype(np.float32)


def updates_of(
    attacker: AttackInput, frame: Frame, candidate: Candidate, directions: Floats, length: float
) -> Floats:
    """Return the coefficients of what each colluder sends along its direction."""
    sent = frame.norms[frame.own][:, None] * frame.row(frame.own)
    members = [row for row in attacker.seats if row not in attacker.idle]
    passive = {*attacker.seats, *attacker.idle}
    trainers = [row for row in range(len(sent)) if row not in passive]
    acting = trainers[: int(np.ceil(candidate.share * len(trainers)))]
    if candidate.members is Behaviour.SAME:
        acting += members
    elif candidate.members is Behaviour.REVERSED:
        sent[members] *= -1
    sent[acting] = length * frame.length * directions[acting]
    return sent


def turned(frame: Frame, base: Floats, aim: Floats, degrees: float) -> Floats:
    """Return unit(cos θ b + sin θ p), shape (colluders, k), for each base b or one for all."""
    angle = np.radians(degrees)
    combined = np.cos(angle) * base + np.sin(angle) * aim
    return frame.unit(np.broadcast_to(combined, (len(frame.own), combined.shape[1])).copy())


TARGET_CANDIDATES = tuple(
    Candidate(base, angle, share, members)
    for base, angle, share, members in product(
        ("own", "reference", "travel"), (20, 30, 40, 50, 60, 70, 80, 90), (1.0, 0.5), Behaviour
    )
)


def target(attacker: AttackInput) -> NDArray[np.float32]:
    """Return the updates that move w farthest along p in the colluders' simulation of the rule."""
    return searched(attacker, TARGET_CANDIDATES, _target_pull, goal, rounds=1)


def goal(frame: Frame) -> Floats:
    """Return p, shape (1, k)."""
    return frame.row(frame.goal)


def _target_pull(frame: Frame, candidate: Candidate) -> Floats:
    if candidate.base == "reference":
        base = frame.mean(frame.own)
    else:
        base = frame.row(frame.own if candidate.base == "own" else frame.travel)
    return turned(frame, base, goal(frame), candidate.angle)


def noise(attacker: AttackInput) -> NDArray[np.float32]:
    """Return s t (unit(cos θ z_i + sin θ p) + 0.3 h), z_i Gaussian noise, factor θ in degrees."""
    if not np.isfinite(attacker.colluders).all():
        return attacker.colluders.copy()
    frame = Frame.of(attacker)
    pulls = turned(frame, frame.row(frame.noise), goal(frame), attacker.factor)
    # About the part of an honest update that lies along the travel.
    pulls += 0.3 * frame.row(frame.travel)
    return (LENGTH * frame.length * pulls @ frame.vectors).astype(np.float32)


WORST_CANDIDATES = tuple(
    Candidate(base, angle, share, members, part)
    for base, angle, share, members, part in product(
        ("own", "noise", "stolen"),
        (15, 30, 45, 60, 75, 90, 120),
        (1.0, 0.5),
        (Behaviour.HONEST, Behaviour.SAME),
        (0.0, 0.5, 1.0),
    )
)


def back(frame: Frame) -> Floats:
    """Return the reverse of the unit mean of honest updates, shape (1, k)."""
    rows = frame.honest
    return -frame.unit((frame.norms[rows] @ frame.row(rows))[None, :])


def drift(frame: Frame) -> Floats:
    """Return the reverse of e, shape (1, k)."""
    return -frame.row(frame.drift)


def _worst(aim: Aim, attacker: AttackInput, **more: Any) -> NDArray[np.float32]:
    """Return what moves w most along an aim a, of unit(cos θ unit(r + λ h) + sin θ a)."""
    return searched(attacker, WORST_CANDIDATES, partial(_worst_pull, aim), aim, **more)


def half(attacker: AttackInput) -> NDArray[np.float32]:
    """Return honest updates until colluders send half of a round's updates, then huge ones.

    Half of a round's updates set the bound of a length that follows from the accepted ones. Then it
    is the search of `worst_full` at 10,000 lengths: one round destroys a model.
    """
    sending = len(attacker.colluders) - len(attacker.idle)
    if 2 * sending < attacker.members + attacker.trainers:
        return attacker.colluders.copy()
    return _worst(goal, attacker, length=1e4)


def tail(attacker: AttackInput) -> NDArray[np.float32]:
    """Return copies of honest updates of the last two rounds, those farthest against e."""
    history, sent = attacker.history, attacker.colluders.copy()
    assert history is not None, "the attack needs the history"
    # In the first round, their own.
    known = np.stack([update for updates in history.published for update in updates] or [*sent])
    against = attacker.mean if history.drift is None else history.drift
    order = np.argsort(known @ against, kind="stable")
    acting = [row for row in range(len(sent)) if row not in attacker.idle]
    sent[acting] = known[np.resize(order[: len(acting)], len(acting))]
    return sent


def _worst_pull(aim: Aim, frame: Frame, candidate: Candidate) -> Floats:
    if candidate.base == "stolen":
        rows = frame.honest[np.arange(len(frame.own)) % len(frame.honest)]
        base = frame.residual(frame.row(rows))
    else:
        base = frame.row(frame.own if candidate.base == "own" else frame.noise)
    shown = frame.unit(base + candidate.part * frame.row(frame.travel))
    return turned(frame, shown, aim(frame), candidate.angle)


_SEARCH = "Worst updates found by search: back, drift, full and half (ours)"
_SENDS = {
    back: "unit(cos θ unit(r + λ h) + sin θ a) that moves w most against the honest mean",
    drift: "the same form, aimed against the honest clients' movement in all earlier rounds",
    goal: "the same form, aimed at the model of false labels",
}

ATTACKS: tuple[UpdateAttack, ...] = (
    joint_attack(
        target,
        source="Target: the fastest way to a model of false labels under the rule (ours)",
    ),
    joint_attack(
        noise, factor=Factor(30.0, 0.0, 90.0), source="Noise: a step hidden in noise (ours)"
    ),
    *(
        joint_attack(partial(_worst, aim), name=f"worst-{name}", sends=_SENDS[aim], source=_SEARCH)
        for name, aim in (("back", back), ("drift", drift), ("full", goal))
    ),
    joint_attack(
        partial(_worst, drift),
        name="many-samples",
        factor=Factor(10.0, 1.0, 1000.0),
        multiplies_samples=True,
        sends="the updates of `worst-drift`, from attackers that register k times their samples",
        source=_SEARCH,
    ),
    joint_attack(half, source=_SEARCH),
    joint_attack(tail, source="Tail: old honest updates, which one round cannot detect (ours)"),
)
