"""Inputs of a round: its sampled clients, its closing block, and published evidence.

Trainers are the clients with the smallest keys, read from a SHAKE-256 stream; the first committee
and one after an abandoned round are drawn by keccak256, which the contract can repeat.

With the run document's `model_source`, `frozen_state` and `data_root`, an update can be repeated
bit for bit (docs/reference/protocol/environments.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import (
    DATA_LEAF,
    RegisteredClient,
    commitments_chain,
    keccak256,
    merkle_root,
    sha256,
    u32,
    u64,
)
from ledger.protocol.ledger_state import Deployment, MinedCommitment
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import FLOAT32, Payload, PayloadForm
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain, Phase

MAX_DRAWS = 4_096
"""Draws after which the ledger ends; more would not fit a transaction, at up to 2,700 gas each.

While 2C clients and a tenth of all K are not banned, so many fall short with a probability below
10^-12.
"""


def sample_trainers(
    seed: Digest, clients: int, excluded: Collection[ClientId], trainers: int
) -> tuple[ClientId, ...]:
    """Return S_b, ascending: the n clients outside `excluded` with the smallest keys.

    Algorithm 3, line 16. S_c and the clients banned when the round opened are excluded; if fewer
    than n remain, all of them train.
    """
    outside = set(range(clients)).difference(excluded)
    stream = hashlib.shake_256(seed + b"sample").digest(8 * clients)
    keys = {client: stream[8 * client : 8 * client + 8] for client in outside}
    order = sorted(outside, key=lambda client: (keys[client], client))
    return tuple(ClientId(client) for client in sorted(order[:trainers]))


def drawn_committee(
    seed: Digest, clients: int, members: int, banned: Collection[ClientId]
) -> tuple[ClientId, ...]:
    """Return C clients without a ban, in the order drawn; fewer if `MAX_DRAWS` do not suffice."""
    drawn: list[ClientId] = []
    for draw in range(MAX_DRAWS):
        if len(drawn) == members:
            break
        client = ClientId(int.from_bytes(keccak256(seed + u32(draw))) % clients)
        if client not in banned and client not in drawn:
            drawn.append(client)
    return tuple(drawn)


@lru_cache(maxsize=256)
def primary_seat(seed: Digest, phase: Phase, view: int, members: int) -> int:
    """Return the primary's seat in [0, C), random as the seed (Algorithm 2, line 2)."""
    return int.from_bytes(keccak256(seed + bytes([phase]) + u32(view))) % members


@lru_cache(maxsize=16)
def sending_order(seed: Digest, members: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    """Return members in their order of sending a decision, random as the seed."""
    return tuple(sorted(members, key=lambda member: keccak256(seed + b"decide" + u32(member))))


def training_seed(seed: Digest, client: ClientId) -> Digest:
    """Return the seed of a client's batch order in a round, so that it can repeat its work."""
    return sha256(seed + u32(client))


@dataclass(frozen=True, slots=True)
class RoundClosing:
    """The closing block of a round and its consequences."""

    block: int
    base: Digest
    commitments: dict[ClientId, Digest]


RoundSizes: TypeAlias = Parameters | Deployment  # both have the sizes of a round


def window_end(sizes: RoundSizes, opened_block: int) -> int:
    """Return the last block that can hold a round's commitments."""
    return opened_block + sizes.commit_blocks


def round_closing(
    end: int,
    expected: Collection[ClientId],
    final_block: int,
    commitments: Sequence[MinedCommitment],
) -> RoundClosing | None:
    """Return the closing of a round, None while its closing block is not final.

    It is the block with the commitment of the last expected client, or the `end` of the window,
    whichever is first. A stray's commitment moves neither.
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


@dataclass(frozen=True)
class Participants:
    """Participants of a round, as they follow from chain and seed."""

    committee: tuple[ClientId, ...]  # S_c, by seats
    trainers: tuple[ClientId, ...]  # S_b, ascending
    banned: frozenset[ClientId]  # members banned when the round opened: their seats are vacant

    @cached_property
    def active(self) -> tuple[ClientId, ...]:
        return tuple(sorted({*self.trainers, *self.committee}))

    @cached_property
    def expected(self) -> frozenset[ClientId]:
        return frozenset(self.active) - self.banned

    @cached_property
    def members(self) -> tuple[ClientId, ...]:
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
    """Inputs of a round that the chain has closed before the vote."""

    parameters: Parameters
    domain: Domain
    registry: tuple[RegisteredClient, ...]
    round: int
    seed: Digest
    participants: Participants
    closing: RoundClosing

    @property
    def needs_displacement(self) -> bool:
        return needs_displacement(self.parameters, self.round)


def needs_displacement(parameters: Parameters, round_number: int) -> bool:
    """Return whether distances depend on the displacement: strategy 3's from round 2 on."""
    return round_number > 1 and parameters.compares_directions


@dataclass(frozen=True)
class Evidence:
    """Published payloads, vectors and models of a round, as far as they are available."""

    model: NDArray[np.float32] | None  # w_t, shape (d,)
    payloads: Mapping[ClientId, Payload]  # each opens its client's commitment
    vectors: Mapping[Digest, bytes]  # bytes of score vectors, by sha256
    dimension: int = 0  # d, given only where the model is unavailable
    displacement: NDArray[np.float32] | None = None  # w_s − w_t, shape (d,); or not needed
    form: PayloadForm = FLOAT32

    def __post_init__(self) -> None:
        length = self.dimension if self.model is None else len(self.model)
        if not length or self.dimension not in {0, length}:
            raise ValueError(f"a model of {length} numbers, and d = {self.dimension}")
        if self.displacement is not None and len(self.displacement) != length:
            raise ValueError(f"a displacement of other than d = {length} numbers")
        object.__setattr__(self, "dimension", length)

    def with_vectors(self, vectors: Mapping[Digest, bytes]) -> Evidence:
        """Return the same payloads with other vectors; no payload is decoded again."""
        return self._with(self.updates, vectors=vectors)

    def with_payloads(self, payloads: Mapping[ClientId, Payload]) -> Evidence:
        updates = {**self.updates, **self._updates_of(payloads)}
        return self._with(updates, payloads={**self.payloads, **payloads})

    def without(self, clients: Collection[ClientId]) -> Evidence:
        payloads = {c: payload for c, payload in self.payloads.items() if c not in clients}
        return self._with({c: self.updates[c] for c in payloads}, payloads=payloads)

    def usable(self, clients: Iterable[ClientId]) -> dict[ClientId, NDArray[np.float32]]:
        """Return the updates of these clients, as far as they are there and well formed."""
        updates = {client: self.updates.get(client) for client in clients}
        return {client: update for client, update in updates.items() if update is not None}

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

    def _with(
        self, updates: Mapping[ClientId, NDArray[np.float32] | None], **changes: Any
    ) -> Evidence:
        evidence = replace(self, **changes)
        evidence.__dict__["updates"] = updates
        return evidence


@dataclass(frozen=True, slots=True)
class NamedArray:
    """A parameter, a buffer or other numbers with a name, as they are hashed."""

    name: str
    dtype: str  # as NumPy and PyTorch name it: float32, int64, bfloat16
    shape: tuple[int, ...]
    data: bytes | memoryview

    def head(self) -> bytes:
        """Return what is hashed before the numbers: their name, type and shape."""
        name = self.name.encode()
        sizes = b"".join(map(u64, self.shape))
        return u32(len(name)) + name + self.dtype.encode() + u32(len(self.shape)) + sizes


def frozen_state(arrays: Iterable[NamedArray]) -> Digest:
    """Return the digest of a model's frozen parameters and buffers, ascending by UTF-8 name."""
    ordered = sorted(arrays, key=lambda array: array.name.encode())
    return _digest_of(b"", ordered) if ordered else NO_DIGEST


def source_of_package(package: str, version: str, qualified_name: str) -> Digest:
    """Return the digest of a model class of an installed package, by its qualified name."""
    return sha256(f"{package}=={version}:{qualified_name}".encode())


def samples_digest(salt: bytes, x: NamedArray, y: NamedArray) -> Digest:
    """Return the digest of one client's training samples, in order."""
    return _digest_of(salt, (x, y))


def simulated_salt(seed: int, client: ClientId) -> bytes:
    """Return the public salt of a simulated client's samples."""
    return sha256(b"data" + u64(seed) + u32(client))


def data_root(counts: Iterable[int], digests: Iterable[Digest]) -> Digest:
    """Return the root over number and digest of each client's samples, zeros where undisclosed."""
    pairs = zip(counts, digests, strict=True)
    return merkle_root(DATA_LEAF, [(client, *pair) for client, pair in enumerate(pairs)])


def _digest_of(salt: bytes, arrays: Iterable[NamedArray]) -> Digest:
    hashed = hashlib.sha256(salt)
    for array in arrays:
        hashed.update(array.head())
        hashed.update(array.data)
    return Digest(hashed.digest())
