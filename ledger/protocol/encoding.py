"""Bytes and digests of protocol version 1 (design table "Encodings, version 1").

Integers are big-endian of fixed width; a list of clients is the join of their u32; what the
contract recomputes follows Solidity's ABI encoding, so that both hash the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np
from eth_abi.abi import encode
from eth_hash.auto import keccak

from ledger.protocol.errors import EncodingError
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest, RegisteredClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

PROTOCOL_VERSION = 1
INFINITY_BITS = 0x7FF0_0000_0000_0000
"""Bit pattern of +infinity: every finite non-negative float64 has a smaller one."""


def sha256(data: bytes) -> Digest:
    """Return the content address of a blob."""
    return Digest(hashlib.sha256(data).digest())


def keccak256(data: bytes) -> Digest:
    """Return the hash that the contract computes."""
    return Digest(keccak(data))


def u8(value: int) -> bytes:
    """Return one byte."""
    return value.to_bytes(1)


def u32(value: int) -> bytes:
    """Return four big-endian bytes."""
    return value.to_bytes(4)


def u64(value: int) -> bytes:
    """Return eight big-endian bytes."""
    return value.to_bytes(8)


def client_list(clients: Iterable[ClientId]) -> bytes:
    """Return the join of the clients' u32, in the order given."""
    return b"".join(u32(client) for client in clients)


def float_bits(value: float) -> int:
    """Return the bit pattern of a float64; for non-negative numbers it sorts as the number does."""
    return int.from_bytes(struct.pack(">d", value))


def float_from_bits(bits: int) -> float:
    """Return the float64 with this bit pattern."""
    return float(struct.unpack(">d", u64(bits))[0])


def ranking_word(distance: float, client: ClientId) -> int:
    """Return distance and client as one integer that sorts by distance, then by client.

    Args:
        distance: a finite, non-negative distance.
        client: its trainer.

    Returns:
        float64 bits << 32 | client, below 2**96.

    Raises:
        EncodingError: the distance is negative, -0.0, infinite or not a number.
    """
    bits = float_bits(distance)
    if bits >= INFINITY_BITS:
        raise EncodingError(f"distance {distance!r} of client {client} is not finite and >= 0")
    return bits << 32 | client


def word_client(word: int) -> ClientId:
    """Return the client of a ranking word."""
    return ClientId(word & 0xFFFF_FFFF)


def word_distance(word: int) -> float:
    """Return the distance of a ranking word."""
    return float_from_bits(word >> 32)


def set_digest(clients: Sequence[ClientId]) -> Digest:
    """Return keccak256(abi.encode(uint32[])) of the clients in ranking order."""
    return keccak256(encode(["uint32[]"], [list(clients)]))


def ranking_digest(ranking: Sequence[int]) -> Digest:
    """Return keccak256(abi.encode(uint256[])) of the ranking words."""
    return keccak256(encode(["uint256[]"], [list(ranking)]))


def commitments_digest(previous: Digest, client: ClientId, payload: Digest) -> Digest:
    """Return the running digest of a round's commitments after one more of them."""
    return keccak256(previous + u32(client) + payload)


def commitments_chain(commitments: Iterable[tuple[ClientId, Digest]]) -> Digest:
    """Return the running digest of a whole round's commitments, in chain order."""
    digest = NO_DIGEST
    for client, payload in commitments:
        digest = commitments_digest(digest, client, payload)
    return digest


def aggregation_result(
    model: Digest,
    updates_root: Digest,
    scores_root: Digest,
    ranking: Digest,
    threshold_bits: int,
) -> Digest:
    """Return what the committee votes on in the aggregation phase, beside the set.

    Args:
        model: sha256 of the next model.
        updates_root: Merkle root over the ranked updates.
        scores_root: Merkle root over the counted score vectors.
        ranking: digest of the ranking.
        threshold_bits: float64 bits of strategy III's threshold, 0 for I and II.

    Returns:
        keccak256 of the ABI encoding of the five.
    """
    types = ["bytes32", "bytes32", "bytes32", "bytes32", "uint64"]
    return keccak256(encode(types, [model, updates_root, scores_root, ranking, threshold_bits]))


def first_seed(config: Digest, beacon: Digest) -> Digest:
    """Return seed_1."""
    return keccak256(config + beacon)


def next_seed(
    seed: Digest, accepted: Digest, result: Digest, next_committee: Digest, beacon: Digest
) -> Digest:
    """Return seed_{t+1} after a decided round.

    Args:
        seed: seed_t.
        accepted: digest of S_a.
        result: aggregation result.
        next_committee: digest of S_c of the next round.
        beacon: 32 zero bytes, or the parent block's hash.

    Returns:
        The seed of the next round.
    """
    return keccak256(seed + accepted + result + next_committee + beacon)


def seed_after_abandoned(seed: Digest, beacon: Digest) -> Digest:
    """Return seed_{t+1} after a round without a decision."""
    return keccak256(seed + b"abandoned" + beacon)


def head_after_decision(
    head: Digest,
    round_number: int,
    seed: Digest,
    commitments: Digest,
    sets_and_result: tuple[Digest, Digest, Digest],
) -> Digest:
    """Return head_t of a decided round.

    Args:
        head: head_{t-1}.
        round_number: t.
        seed: seed_t.
        commitments: running digest of the round's commitments.
        sets_and_result: digest of S_a, digest of the next committee, aggregation result.

    Returns:
        keccak256 over all of them, joined.
    """
    return keccak256(head + u64(round_number) + seed + commitments + b"".join(sets_and_result))


def head_after_abandoned(
    head: Digest, round_number: int, seed: Digest, commitments: Digest, committee: Digest
) -> Digest:
    """Return head_t of an abandoned round.

    Args:
        head: head_{t-1}.
        round_number: t.
        seed: seed_t.
        commitments: running digest of the round's commitments.
        committee: digest of the redrawn committee.

    Returns:
        keccak256 over all of them and the word "abandoned", joined.
    """
    return keccak256(head + u64(round_number) + seed + b"abandoned" + commitments + committee)


def head_after_ban(head: Digest, round_number: int, client: ClientId) -> Digest:
    """Return the head after a client was banned during a round."""
    return keccak256(head + u64(round_number) + b"banned" + u32(client))


def registry_word(client: RegisteredClient) -> int:
    """Return a client as the contract takes it: address << 64 | samples."""
    return int.from_bytes(client.address) << 64 | client.samples


def registered_client(word: int) -> RegisteredClient:
    """Return the client of a registry word; bit 255 is the ban."""
    address = Address((word >> 64 & (1 << 160) - 1).to_bytes(20))
    return RegisteredClient(address, word & 0xFFFF_FFFF_FFFF_FFFF, bool(word >> 255))


def registry_digest(words: Sequence[int], rest: Digest) -> Digest:
    """Return the digest that one batch of clients must match.

    Args:
        words: registry words of the batch.
        rest: the digest of the batches after it, 32 zero bytes after the last.

    Returns:
        keccak256(abi.encode(uint256[], bytes32)).
    """
    return keccak256(encode(["uint256[]", "bytes32"], [list(words), rest]))


def vector_bytes(vector: NDArray[np.float32]) -> bytes:
    """Return a model or an update as flat little-endian float32."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def vector_from_bytes(data: bytes, dimension: int) -> NDArray[np.float32]:
    """Return the vector behind a payload or a model blob, shape (dimension,), read-only.

    Args:
        data: the blob.
        dimension: the model's number of parameters, d.

    Returns:
        float32 numbers, all finite.

    Raises:
        EncodingError: another length than 4·d bytes, or a number that is not finite.
    """
    if len(data) != 4 * dimension:
        raise EncodingError(f"{len(data)} bytes are not {dimension} float32 numbers")
    vector = np.frombuffer(data, dtype="<f4")
    if not np.isfinite(vector).all():
        raise EncodingError("a number is not finite")
    return vector
