"""Random choices that everybody can repeat from a public seed.

Trainers and the first committee are the clients with the smallest keys, read from a SHAKE-256
stream; a committee after an abandoned round is drawn by keccak256, which the contract can repeat.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ledger.protocol.encoding import keccak256, sha256, u32
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_DRAWS = 4_096
"""Draws after which a committee cannot be redrawn and the ledger ends.

While 2C clients and a tenth of all K are not banned, so many fall short with a probability below
10^-12; a ledger that has C clients left can end only if nearly all others are banned. More draws
would not fit a transaction: the contract pays up to 2,700 gas for each.
"""


def sample_trainers(
    seed: Digest, clients: int, committee: Collection[ClientId], trainers: int
) -> tuple[ClientId, ...]:
    """Return S_b: the clients outside the committee with the smallest keys (Algorithm 3, line 16).

    Args:
        seed: seed_t of the round.
        clients: K.
        committee: S_c of the round.
        trainers: n.

    Returns:
        n clients, ascending.

    Raises:
        ValueError: fewer than n clients are outside the committee.
    """
    outside = set(range(clients)).difference(committee)
    if len(outside) < trainers:
        raise ValueError(f"{len(outside)} clients outside the committee are fewer than {trainers}")
    order = [client for client in _by_key(seed, b"sample", clients) if client in outside]
    return tuple(sorted(order[:trainers]))


def first_committee(config: Digest, clients: int, members: int) -> tuple[ClientId, ...]:
    """Return S_c of round 1: the C clients with the smallest keys, in key order."""
    return tuple(_by_key(config, b"committee", clients)[:members])


def redrawn_committee(
    seed: Digest, clients: int, members: int, banned: Collection[ClientId]
) -> tuple[ClientId, ...]:
    """Return the committee after an abandoned round, in the order drawn.

    Args:
        seed: the seed of the round that opens.
        clients: K.
        members: C.
        banned: clients that are skipped.

    Returns:
        C clients; fewer only if `MAX_DRAWS` draws do not find as many.
    """
    drawn: list[ClientId] = []
    for draw in range(MAX_DRAWS):
        if len(drawn) == members:
            break
        client = ClientId(int.from_bytes(keccak256(seed + u32(draw))) % clients)
        if client not in banned and client not in drawn:
            drawn.append(client)
    return tuple(drawn)


def _by_key(seed: Digest, purpose: bytes, clients: int) -> list[ClientId]:
    """Return all clients by their 8-byte keys of SHAKE-256(seed ‖ purpose), ties by index."""
    stream = hashlib.shake_256(seed + purpose).digest(8 * clients)
    keys = [stream[8 * client : 8 * client + 8] for client in range(clients)]
    return [ClientId(client) for client in sorted(range(clients), key=lambda i: (keys[i], i))]


def training_seed(seed: Digest, client: ClientId) -> Digest:
    """Return the seed of a client's batch order in a round, so that it can repeat its work."""
    return sha256(seed + u32(client))
