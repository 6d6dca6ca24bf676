"""Bytes and digests of protocol version 3 (docs/reference/protocol/encoding.md).

Integers are big-endian of fixed width; a list of clients is the join of their u32; what the
contract recomputes follows Solidity's ABI encoding, so that both hash the same bytes. Ethereum
addresses are 20 bytes inside the ledger's chain, EIP-55 text everywhere else: each one from outside
passes `eip55` or `to_canonical` once.

Merkle trees have the format of OpenZeppelin's StandardMerkleTree. Leaves are hashed twice over
their ABI encoding, sorted by hash, and laid out from the end of the tree's array; an inner node
hashes its two children in sorted order. Verifiers in Solidity and JavaScript accept these proofs.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import rlp  # type: ignore[import-untyped]
from eth_hash.auto import keccak
from eth_hash.main import Keccak256
from eth_hash.utils import get_backend_in_environment, load_backend
from eth_typing import Address as EthAddress
from eth_utils.address import to_checksum_address
from numpy.typing import NDArray

from ledger.protocol.errors import ChainError, ConfigurationError, EncodingError
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest

__all__ = ["keccak", "prefer_pysha3"]


def prefer_pysha3(shared: Keccak256) -> None:
    """Make pysha3 the backend of a hash, unless ETH_HASH_BACKEND names one."""
    if get_backend_in_environment():
        try:
            shared(b"")  # else eth-hash would say so in the midst of reading a chain
        except (ImportError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
        return
    try:
        chosen = Keccak256(load_backend("pysha3"))
    except ImportError:
        return
    chosen(b"")  # on its first call eth-hash holds a backend against a known hash
    shared.hasher, shared.preimage = chosen.hasher, chosen.preimage


prefer_pysha3(keccak)  # all Ethereum libraries share this object, the EVM too

INFINITY_BITS = 0x7FF0_0000_0000_0000  # of +infinity; a finite float64 >= 0 has a smaller one


def sha256(data: bytes | memoryview) -> Digest:
    """Return the content address of a blob."""
    return Digest(hashlib.sha256(data).digest())


def to_hex(data: bytes) -> str:
    """Return bytes as 0x-hex."""
    return f"0x{data.hex()}"


def keccak256(data: bytes) -> Digest:
    """Return the hash that the contract computes."""
    return Digest(keccak(data))


def u32(value: int) -> bytes:
    """Return four big-endian bytes."""
    return value.to_bytes(4)


def u64(value: int) -> bytes:
    """Return eight big-endian bytes."""
    return value.to_bytes(8)


def word(value: int | bytes) -> bytes:
    """Return the 32-byte ABI word of a number, padded in front, or of 32 bytes as they are."""
    return value if isinstance(value, bytes) else value.to_bytes(32)


def words(*values: int | bytes) -> bytes:
    """Return the ABI encoding of static values: their words, joined."""
    return b"".join(map(word, values))


def array_words(values: Sequence[int]) -> bytes:
    """Return length and elements of an array as ABI encoding has them after its offset."""
    return words(len(values), *values)


def client_list(clients: Sequence[ClientId]) -> bytes:
    """Return the join of the clients' u32, in the order given."""
    return struct.pack(f">{len(clients)}I", *clients)


def float_bits(value: float) -> int:
    """Return the bit pattern of a float64; for non-negative numbers it sorts as the number does."""
    return int.from_bytes(struct.pack(">d", value))


def float_from_bits(bits: int) -> float:
    """Return the float64 with this bit pattern."""
    return float(struct.unpack(">d", u64(bits))[0])


def ranking_word(distance: float, client: ClientId) -> int:
    """Return float64 bits << 32 | client, below 2**96: it sorts by distance, then by client."""
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
    return _set_digest(tuple(clients))


@lru_cache(maxsize=256)
def _set_digest(clients: tuple[ClientId, ...]) -> Digest:
    # All members of a process ask for the same few sets, again and again.
    return keccak256(word(32) + array_words(clients))


def ranking_digest(ranking: Sequence[int]) -> Digest:
    """Return keccak256(abi.encode(uint256[])) of the ranking words."""
    return keccak256(word(32) + array_words(ranking))


@lru_cache(maxsize=4096)  # trainers, views and records of one process ask for the same ones
def commitment_of(client: ClientId, payload: Digest) -> Digest:
    """Return what a client commits of a payload: another's commitment repeated is worth nothing."""
    return keccak256(u32(client) + payload)


def commitments_digest(previous: Digest, client: ClientId, commitment: Digest) -> Digest:
    """Return the running digest of a round's commitments after one more of them."""
    return keccak256(previous + u32(client) + commitment)


def commitments_chain(
    commitments: Iterable[tuple[ClientId, Digest]], digest: Digest = NO_DIGEST
) -> Digest:
    """Return the running digest of a round's commitments after more of them, in chain order."""
    for client, commitment in commitments:
        digest = commitments_digest(digest, client, commitment)
    return digest


def reveal_of(payloads: Mapping[ClientId, Digest], ranked: Iterable[ClientId]) -> Digest:
    """Return keccak256 of the ranked trainers' joined payload digests, ascending by client."""
    return keccak256(b"".join(payloads[client] for client in sorted(ranked)))


@dataclass(frozen=True, slots=True)
class ResultPreimage:
    """Preimage of an aggregation result; see `aggregation_result`."""

    model: Digest  # sha256 of w_{t+1}
    updates_root: Digest
    scores_root: Digest
    ranking_digest: Digest
    reveal: Digest  # of the ranked trainers' payload digests
    record: Digest  # sha256 of the round's record


def aggregation_result(opening: ResultPreimage) -> Digest:
    """Return the result that the committee votes on: keccak256 of the preimage's ABI encoding."""
    roots = opening.updates_root, opening.scores_root
    others = opening.ranking_digest, opening.reveal, opening.record
    return keccak256(words(opening.model, *roots, *others))


def domain_salt(config: Digest, registry: Digest, beacon: Digest) -> Digest:
    """Return the salt of a contract's EIP-712 domain: it tells two runs of one address apart."""
    return keccak256(config + registry + beacon)


def first_seed(config: Digest, beacon: Digest) -> Digest:
    """Return seed_1."""
    return keccak256(config + beacon)


def next_seed(seed: Digest, reveal: Digest, beacon: Digest) -> Digest:
    """Return seed_{t+1} after a decided round; the last to act cannot influence the reveal."""
    return keccak256(seed + reveal + beacon)


def seed_after_abandoned(seed: Digest, beacon: Digest) -> Digest:
    """Return seed_{t+1} after a round without a decision."""
    return keccak256(seed + b"abandoned" + beacon)


def votes_digest(views: tuple[int, int], signers: tuple[int, int], incidents: Digest) -> Digest:
    """Return the digest of a vote: of both views, both bitmaps of repliers and the incidents."""
    return keccak256(words(*views, *signers, incidents))


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """One client as the contract keeps it."""

    address: Address
    samples: int  # n_k, as claimed at deployment
    banned_in: int = 0  # the round in which its ban was recorded, 0 without one

    def is_banned_in(self, round_number: int) -> bool:
        """Say whether the client was banned before this round: a ban counts from the next."""
        return 0 < self.banned_in < round_number


def registry_word(client: RegisteredClient) -> int:
    """Return a client as the contract keeps it: u32 round of the ban ‖ address ‖ u64 samples."""
    return client.banned_in << 224 | int.from_bytes(client.address) << 64 | client.samples


def registered_client(word: int) -> RegisteredClient:
    """Return the client of a registry word."""
    address = Address((word >> 64 & (1 << 160) - 1).to_bytes(20))
    return RegisteredClient(address, word & 0xFFFF_FFFF_FFFF_FFFF, word >> 224)


def registry_digest(batch: Sequence[int], rest: Digest) -> Digest:
    """Return the digest of a batch of words and of the batches after it, zeros after the last."""
    return keccak256(word(64) + rest + array_words(batch))


# Client, payload digest, rank from 0, distance bits, accepted.
UPDATE_LEAF = ("uint32", "bytes32", "uint32", "uint64", "bool")
SCORES_LEAF = ("uint32", "bytes32")  # member, digest of its score vector
DATA_LEAF = ("uint32", "uint64", "bytes32")  # client, number and digest of its training samples
_LEAF_BOUNDS = {"uint32": 2**32, "uint64": 2**64, "bool": 2}

Leaf = tuple[Any, ...]


def leaf_hash(types: Sequence[str], leaf: Leaf) -> Digest:
    """Return the double hash of a leaf's ABI encoding."""
    for kind, value in zip(types, leaf, strict=True):
        if kind == "bytes32":
            is_kind = isinstance(value, bytes) and len(value) == 32
        else:
            is_kind = isinstance(value, int) and 0 <= value < _LEAF_BOUNDS[kind]
        if not is_kind:
            raise ValueError(f"{value!r:.80} is not a {kind}")
    return keccak256(keccak256(words(*leaf)))


def merkle_root(types: Sequence[str], leaves: Sequence[Leaf]) -> Digest:
    """Return the root of the Merkle tree over these leaves; 32 zero bytes if there are none."""
    return _merkle_layers(types, leaves)[0] if leaves else NO_DIGEST


def merkle_proof(types: Sequence[str], leaves: Sequence[Leaf], leaf: Leaf) -> tuple[Digest, ...]:
    """Return the sibling hashes from a leaf up to the root, lowest first."""
    tree = _merkle_layers(types, leaves)
    position = tree.index(leaf_hash(types, leaf), len(leaves) - 1)
    siblings = []
    while position > 0:
        siblings.append(tree[position + 1 if position % 2 else position - 1])
        position = (position - 1) // 2
    return tuple(siblings)


def root_from_proof(types: Sequence[str], leaf: Leaf, siblings: Sequence[Digest]) -> Digest:
    """Return the root above a leaf, from its siblings, lowest first."""
    node = leaf_hash(types, leaf)
    for sibling in siblings:
        node = _merkle_parent(node, sibling)
    return node


def _merkle_layers(types: Sequence[str], leaves: Sequence[Leaf]) -> list[Digest]:
    """Return the whole tree as an array: root first, the sorted leaves at the end, reversed."""
    hashes = sorted(leaf_hash(types, leaf) for leaf in leaves)
    tree = [NO_DIGEST] * (len(hashes) - 1) + hashes[::-1]
    for node in range(len(hashes) - 2, -1, -1):
        tree[node] = _merkle_parent(tree[2 * node + 1], tree[2 * node + 2])
    return tree


def _merkle_parent(one: Digest, other: Digest) -> Digest:
    return keccak256(min(one, other) + max(one, other))


def vector_bytes(vector: NDArray[np.float32]) -> bytes:
    """Return a model or an update as flat little-endian float32."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def vector_view(vector: NDArray[np.float32]) -> memoryview:
    """Return a read-only view of the same bytes, of a vector with at least one number."""
    return np.ascontiguousarray(vector, dtype="<f4").data.cast("B").toreadonly()


def vector_from_bytes(data: bytes | memoryview, dimension: int) -> NDArray[np.float32]:
    """Return the vector behind a payload or a model blob, shape (dimension,), read-only."""
    length = memoryview(data).nbytes
    if length != 4 * dimension:
        raise EncodingError(f"{length} bytes are not {dimension} float32 numbers")
    vector = np.frombuffer(data, dtype="<f4")
    if not np.isfinite(vector).all():
        raise EncodingError("a number is not finite")
    return vector


@lru_cache(maxsize=1024)
def to_canonical(address: str) -> EthAddress:
    """Return an address as 20 bytes."""
    match = re.fullmatch("(0[xX])?([0-9a-fA-F]{40})", address)
    if match is None:
        raise ChainError(f"{address[:60]!r} is not an address: 0x and 40 hex digits")
    digits = match[2]
    canonical = EthAddress(bytes.fromhex(digits))
    is_mixed = digits not in {digits.lower(), digits.upper()}
    if is_mixed and f"0x{digits}" != checksum(canonical):
        raise ChainError(
            f"{address!r} is not an address: its checksum is wrong (EIP-55; in lower case it is "
            f"taken without one)"
        )
    return canonical


def eip55(address: str) -> str:
    """Return an address as EIP-55 text."""
    return checksum(to_canonical(address))


@lru_cache(maxsize=1024)
def checksum(address: bytes) -> str:
    """Return an address as EIP-55 text."""
    return to_checksum_address(address)


def contract_created_by(sender: bytes, nonce: int) -> bytes:
    """Return the address (20 bytes) of the contract that a transaction of `sender` creates."""
    return bytes(keccak(rlp.encode([sender, nonce]))[12:])
