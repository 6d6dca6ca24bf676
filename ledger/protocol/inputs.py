"""Inputs of a round: its closing block with the commitments that count, and published evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import commitments_chain
from ledger.protocol.parameters import Parameters
from ledger.protocol.payload import Payload
from ledger.protocol.payload_forms import FLOAT32, PayloadForm
from ledger.protocol.rules.distance import Layout
from ledger.protocol.sampling import sample_trainers
from ledger.protocol.types import AcceptanceForm, ClientId, Digest, Domain, RegisteredClient


@dataclass(frozen=True, slots=True)
class MinedCommitment:
    """A commitment as the chain holds it."""

    block: int
    client: ClientId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class RoundClosing:
    """The closing block of a round and its consequences."""

    block: int
    base: Digest
    commitments: dict[ClientId, Digest]


class RoundSizes(Protocol):
    """Sizes of a round; a run's parameters and its deployment both have them."""

    @property
    def clients(self) -> int:
        """K, registered clients."""

    @property
    def trainers(self) -> int:
        """The number n of training clients in a round."""

    @property
    def members(self) -> int:
        """The number C of members of a committee."""

    @property
    def aggregation_ppm(self) -> int:
        """α in parts per million."""

    @property
    def form(self) -> AcceptanceForm:
        """Form from which both sets follow from the ranking."""

    @property
    def rounds(self) -> int:
        """T, the last round."""

    @property
    def commit_blocks(self) -> int:
        """Blocks after the opening one that accept commitments."""


def window_end(sizes: RoundSizes, opened_block: int) -> int:
    """Return the last block in which a round takes commitments."""
    return opened_block + sizes.commit_blocks


def round_closing(
    end: int,
    expected: Collection[ClientId],
    final_block: int,
    commitments: Sequence[MinedCommitment],
) -> RoundClosing | None:
    """Return the closing of a round, None while its closing block is not final.

    It follows from the chain alone: the block with the commitment of the last expected client, or
    the `end` of the window, whichever is first. A stray's commitment moves neither.
    """
    last = closing_block(end, expected, commitments)
    if last > final_block:
        return None
    counted = [(mined.client, mined.commitment) for mined in commitments if mined.block <= last]
    return RoundClosing(last, commitments_chain(counted), dict(counted))


def closing_block(
    last: int, expected: Collection[ClientId], commitments: Iterable[MinedCommitment]
) -> int:
    """Return the block with the last expected client's commitment, or the window's last block."""
    missing = set(expected)
    for mined in commitments:
        missing.discard(mined.client)
        if not missing:
            return min(last, mined.block)
    return last


@dataclass(frozen=True, slots=True)
class Participants:
    """Participants of a round, as they follow from chain and seed.

    Attributes:
        committee: S_c, by seats.
        trainers: S_b, ascending.
        banned: members that were banned when the round opened: their seats are vacant.
    """

    committee: tuple[ClientId, ...]
    trainers: tuple[ClientId, ...]
    banned: frozenset[ClientId]

    @property
    def active(self) -> tuple[ClientId, ...]:
        """Trainers and members, ascending."""
        return tuple(sorted({*self.trainers, *self.committee}))

    @property
    def expected(self) -> frozenset[ClientId]:
        """The active clients that are not banned."""
        return frozenset(self.active) - self.banned

    @property
    def members(self) -> tuple[ClientId, ...]:
        """The members who may vote and score, by seats."""
        return tuple(member for member in self.committee if member not in self.banned)


def participants_of(
    parameters: RoundSizes,
    registry: Sequence[RegisteredClient],
    round_number: int,
    seed: Digest,
    committee: tuple[ClientId, ...],
) -> Participants:
    """Return the participants of a round, given seed_t and all clients with their bans."""
    banned = {
        ClientId(index)
        for index, client in enumerate(registry)
        if client.is_banned_in(round_number)
    }
    excluded = banned.union(committee)
    trainers = sample_trainers(seed, parameters.clients, excluded, parameters.trainers)
    return Participants(committee, trainers, frozenset(banned.intersection(committee)))


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a round that the chain has closed before the vote.

    Attributes:
        domain: the contract and chain that signatures are bound to.
    """

    parameters: Parameters
    layout: Layout
    domain: Domain
    registry: tuple[RegisteredClient, ...]
    round: int
    seed: Digest
    participants: Participants
    closing: RoundClosing

    @property
    def needs_displacement(self) -> bool:
        """True if the round's distances depend on the recent global displacement."""
        return needs_displacement(self.parameters, self.round)


def needs_displacement(parameters: Parameters, round_number: int) -> bool:
    """Return whether distances depend on the displacement: strategy 3's from round 2 on."""
    return parameters.compares_directions and round_number > 1


@dataclass(frozen=True)
class Evidence:
    """Published payloads, vectors and models of a round, as far as they are available.

    Attributes:
        model: w_t, shape (d,); None if it is unavailable.
        payloads: each client's payload, whose digest opens the client's commitment.
        vectors: bytes of score vectors, by sha256.
        dimension: d, to be given only where the model is unavailable.
        displacement: w_s − w_t, shape (d,); None if it is unavailable, or not needed.
    """

    model: NDArray[np.float32] | None
    payloads: Mapping[ClientId, Payload]
    vectors: Mapping[Digest, bytes]
    dimension: int = 0
    displacement: NDArray[np.float32] | None = None
    form: PayloadForm = FLOAT32

    def __post_init__(self) -> None:
        """Take the dimension from the model."""
        length = self.dimension if self.model is None else len(self.model)
        if not length or self.dimension not in {0, length}:
            raise ValueError(f"a model of {length} numbers, and d = {self.dimension}")
        if self.displacement is not None and len(self.displacement) != length:
            raise ValueError(
                f"a displacement of {len(self.displacement)} numbers, and d = {length}"
            )
        object.__setattr__(self, "dimension", length)

    def with_vectors(self, vectors: Mapping[Digest, bytes]) -> Evidence:
        """Return the same payloads with other vectors; no payload is decoded again."""
        return self._with_updates(replace(self, vectors=vectors), self.updates)

    def with_payloads(self, payloads: Mapping[ClientId, Payload]) -> Evidence:
        """Return more payloads; none of the old is decoded again."""
        updates = {**self.updates, **self._updates_of(payloads)}
        return self._with_updates(replace(self, payloads={**self.payloads, **payloads}), updates)

    def without(self, clients: Collection[ClientId]) -> Evidence:
        """Return the evidence without the payloads of these clients."""
        payloads = {c: payload for c, payload in self.payloads.items() if c not in clients}
        updates = {client: self.updates[client] for client in payloads}
        return self._with_updates(replace(self, payloads=payloads), updates)

    @cached_property
    def updates(self) -> Mapping[ClientId, NDArray[np.float32] | None]:
        """Δ of each client with a payload, shape (d,); None where it is malformed."""
        return self._updates_of(self.payloads)

    def _updates_of(
        self, payloads: Mapping[ClientId, Payload]
    ) -> dict[ClientId, NDArray[np.float32] | None]:
        return {
            client: self.form.update_of(payload.data, self.dimension)
            if payload.update is None
            else payload.update
            for client, payload in payloads.items()
        }

    @staticmethod
    def _with_updates(
        evidence: Evidence, updates: Mapping[ClientId, NDArray[np.float32] | None]
    ) -> Evidence:
        evidence.__dict__["updates"] = updates
        return evidence
