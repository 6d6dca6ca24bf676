"""Queries for rounds, their orders and status, cursors, and paths.

A contract has the same address in every fresh home, so an address alone is no name: every path
holds the chain's id and the beginning of its block 0's hash. An answer that was cached for one
chain is never shown for another.

A cursor is base64url of version, position and a checksum over both and the query's scope. The
checksum is no secret: it detects a cursor that was cut, altered or used for another query by
accident. A forged cursor reaches nothing: the query checks its own bounds again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass
from enum import StrEnum

from ledger.protocol.errors import CmflError
from ledger.protocol.types import ClientId


class RoundStatus(StrEnum):
    """Status of a round."""

    OPEN = "open"
    DECIDED = "decided"
    ABANDONED = "abandoned"


class Order(StrEnum):
    """Order of a list of rounds."""

    NEWEST = "newest"
    OLDEST = "oldest"


class AskedRole(StrEnum):
    """Filter for rounds by the part of a client in them."""

    ANY = "any"
    TRAINED = "trained"
    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    DROPPED_OUT = "dropped_out"
    MEMBER = "member"
    SERVED = "served"
    REFUSED = "refused"
    VOTED = "voted"


ROUND_PARTS = ("updates", "scores", "votes", "committee", "aggregation", "explanation")
CHAIN_NAME = re.compile(r"(0|[1-9][0-9]{0,77})-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class ChainPath:
    """The path of a chain, by its id and the hash of its block 0."""

    chain_id: int
    genesis: bytes

    @property
    def name(self) -> str:
        return f"{self.chain_id}-{self.genesis[:4].hex()}"

    def __str__(self) -> str:
        return f"/v1/chains/{self.name}"


@dataclass(frozen=True, slots=True)
class DeploymentPath:
    """The path of a deployment and of its parts; the address is EIP-55."""

    chain: ChainPath
    address: str

    def __str__(self) -> str:
        return f"{self.chain}/deployments/{self.address}"

    def links(self) -> dict[str, str]:
        parts = ("rounds", "clients", "evidence", "series", "events", "verifications")
        return {"self": str(self)} | {part: f"{self}/{part}" for part in parts}

    def round_links(self, number: int) -> dict[str, str]:
        path = f"{self}/rounds/{number}"
        return {"self": path} | {part: f"{path}/{part}" for part in ROUND_PARTS}

    def client_links(self, client: int) -> dict[str, str]:
        path = f"{self}/clients/{client}"
        return {"self": path, "rounds": f"{path}/rounds"}


@dataclass(frozen=True, slots=True)
class Span:
    """A range with both ends included; None for no bound."""

    first: int | None = None
    last: int | None = None

    @property
    def is_unbounded(self) -> bool:
        return self.first is None and self.last is None

    def contains(self, value: int) -> bool:
        too_low = self.first is not None and value < self.first
        return not too_low and (self.last is None or value <= self.last)


UNBOUNDED = Span()


@dataclass(frozen=True, slots=True)
class RoundQuery:
    """A query for rounds: filters and order.

    Attributes:
        listing: the endpoint, so that cursors of different ones do not mix.
        order: newest or oldest first.
        status: None for any.
        client: a participant; None for any.
        view_min: the least view, from 0, in which one of the phases was decided; 0 for any round.
        blocks: numbers of the block that ended the round; an open round matches no bound.
        times: of that block, in Unix seconds.
    """

    listing: str = "rounds"
    order: Order = Order.NEWEST
    status: RoundStatus | None = None
    client: ClientId | None = None
    role: AskedRole = AskedRole.ANY
    view_min: int = 0
    blocks: Span = UNBOUNDED
    times: Span = UNBOUNDED

    @property
    def matches_all(self) -> bool:
        is_any = self.status is None and self.client is None and not self.view_min
        return is_any and self.blocks.is_unbounded and self.times.is_unbounded


VERSION = 1
MAX_CURSOR = 64
_CHECKSUM_BYTES = 12
_HEAD = struct.Struct(">BI")


class CursorError(CmflError):
    """A cursor that does not belong to its query."""


def encode_cursor(position: int, scope: str) -> str:
    """Return a cursor as text for a URL; the position is below 2³²."""
    head = _HEAD.pack(VERSION, position)
    checksum = hashlib.sha256(head + scope.encode()).digest()[:_CHECKSUM_BYTES]
    return base64.urlsafe_b64encode(head + checksum).rstrip(b"=").decode()


def decode_cursor(cursor: str, scope: str, last: int, first: int = 0) -> int:
    """Return the position behind a cursor.

    Args:
        first: the least position.
    """
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        version, position = _HEAD.unpack_from(data)
    except (ValueError, binascii.Error, struct.error) as error:
        raise CursorError("it is cut or altered") from error
    if version != VERSION or encode_cursor(position, scope) != cursor:
        raise CursorError("it is altered, or of another query or version")
    if not first <= position <= last:
        raise CursorError("it points to nothing that is there")
    return int(position)
