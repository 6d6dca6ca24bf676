"""Random choices that everybody can repeat from a public seed.

Trainers are the clients with the smallest keys, read from a SHAKE-256 stream; the first committee
and one after an abandoned round are drawn by keccak256, which the contract can repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from ledger.protocol.encoding import keccak256, sha256, u32
from ledger.protocol.types import ClientId, Digest

MAX_DRAWS = 4_096
"""Draws after which a committee cannot be drawn and the ledger ends.

While 2C clients and a tenth of all K are not banned, so many fall short with a probability below
10^-12; a ledger that has C clients left can end only if nearly all others are banned. More draws
would not fit a transaction: the contract pays up to 2,700 gas for each.
"""


def sample_trainers(
    seed: Digest, clients: int, excluded: Collection[ClientId], trainers: int
) -> tuple[ClientId, ...]:
    """Return S_b, ascending: the n clients outside `excluded` with the smallest keys.

    Algorithm 3, line 16. S_c and the clients banned when the round opened are excluded; if
    fewer than n remain, all of them train.
    """
    outside = set(range(clients)).difference(excluded)
    stream = hashlib.shake_256(seed + b"sample").digest(8 * clients)
    keys = {client: stream[8 * client : 8 * client + 8] for client in outside}
    order = sorted(outside, key=lambda client: (keys[client], client))
    return tuple(ClientId(client) for client in sorted(order[:trainers]))


def drawn_committee(
    seed: Digest, clients: int, members: int, banned: Collection[ClientId]
) -> tuple[ClientId, ...]:
    """Return the first committee, or the one after an abandoned round, in the order drawn.

    Clients with any ban are skipped; fewer than C are returned only if `MAX_DRAWS` do not suffice.
    """
    drawn: list[ClientId] = []
    for draw in range(MAX_DRAWS):
        if len(drawn) == members:
            break
        client = ClientId(int.from_bytes(keccak256(seed + u32(draw))) % clients)
        if client not in banned and client not in drawn:
            drawn.append(client)
    return tuple(drawn)


def training_seed(seed: Digest, client: ClientId) -> Digest:
    """Return the seed of a client's batch order in a round, so that it can repeat its work."""
    return sha256(seed + u32(client))
