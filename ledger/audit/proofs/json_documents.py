"""Strict models of JSON documents from untrusted sources, and the basis that all of them share.

A proof and a bundle rest on the same run, path of heads and participants of a round.
There is one way of writing each value.
Bytes are 0x and lower-case hex digits, numbers that may be beyond 2^53 decimal strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, Never, TypeAlias, TypeVar

from eth_utils.address import to_checksum_address
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ledger.audit.proofs.proof import HeadPath, RecordedBan, RoundBasis
from ledger.io.json import parse_json, picked
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.encoding import INFINITY_BITS, to_hex
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import AbandonmentLink, BanLink, DecisionLink, Link
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS
from ledger.protocol.types import NO_DIGEST, PROTOCOL_VERSION, Address, Beacon, ClientId, Digest

M = TypeVar("M", bound="StrictDocument")
T = TypeVar("T")

_HEX = re.compile(r"0x(?:[0-9a-f]{2})*")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,77}")
_MAX_INPUT_BYTES = 4 << 20


class StrictDocument(BaseModel):
    """A JSON object with exactly the fields of its model, each of exactly its type."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _require_exact_fields(cls, value: object) -> object:
        # One error, however many fields a hostile document has.
        if type(value) is not dict:
            raise PydanticCustomError("map", "is not a map")
        if value.keys() != cls.model_fields.keys():
            odd = f"{sorted(value.keys() ^ cls.model_fields.keys())!s:.200}"
            raise PydanticCustomError("fields", "fields {odd} are missing or unknown", {"odd": odd})
        return value


def parse_document(data: bytes, limit: int) -> Any:
    """Return the plain data of a JSON document.

    Args:
        limit: how many bytes it may have.
    """
    if len(data) > limit:
        raise EncodingError(f"the document has {len(data)} bytes, and at most {limit}")
    try:
        return parse_json(data, _refuse_constant, unique_keys=True)
    except ValueError as error:
        raise EncodingError(f"no JSON document: {error!s:.200}") from error


def validate_document(model: type[M], value: object) -> M:
    """Return the document behind plain data."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        field = ".".join(map(str, first["loc"])) or "document"
        raise EncodingError(f"{field}: {first['msg']:.300}") from None


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is no number")


def _hex_bytes(least: int, most: int) -> Callable[[object], bytes]:
    """Return the parser of bytes whose number is within these bounds."""

    def parse(value: object) -> bytes:
        if (
            type(value) is str
            and 2 + 2 * least <= len(value) <= 2 + 2 * most
            and _HEX.fullmatch(value)
        ):
            return bytes.fromhex(value[2:])
        rule = f"{most}" if least == most else f"at most {most}"
        raise PydanticCustomError("hex", "is not 0x and hex digits of {rule} bytes", {"rule": rule})

    return parse


def _decimal(limit: int) -> Callable[[object], int]:
    """Return the parser of numbers below a limit that are written as decimal strings."""

    def parse(value: object) -> int:
        if type(value) is str and _DECIMAL.fullmatch(value) and int(value) < limit:
            return int(value)
        raise PydanticCustomError(
            "decimal", "is not a decimal string below {limit}", {"limit": limit}
        )

    return parse


def _contract(value: object) -> Address:
    if type(value) is not str or not re.fullmatch("0x[0-9a-fA-F]{40}", value):
        raise PydanticCustomError("address", "is not 0x and 40 hex digits")
    address = Address(bytes.fromhex(value[2:]))
    if to_checksum_address(address) != value:
        raise PydanticCustomError("checksum", "has another EIP-55 checksum")
    return address


U32: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 32)]
U53: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 53)]
U64: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 64)]
JsonClient: TypeAlias = Annotated[ClientId, Field(ge=0, lt=1 << 32)]
Decimal32: TypeAlias = Annotated[int, PlainValidator(_decimal(1 << 32))]
Decimal64: TypeAlias = Annotated[int, PlainValidator(_decimal(1 << 64))]
Decimal96: TypeAlias = Annotated[int, PlainValidator(_decimal(1 << 96))]
Decimal256: TypeAlias = Annotated[int, PlainValidator(_decimal(1 << 256))]
FiniteBits: TypeAlias = Annotated[int, PlainValidator(_decimal(INFINITY_BITS))]
"""The float64 bits of a finite number from 0 on."""
JsonDigest: TypeAlias = Annotated[Digest, PlainValidator(_hex_bytes(32, 32))]
JsonSignature: TypeAlias = Annotated[bytes, PlainValidator(_hex_bytes(65, 65))]
JsonBlob: TypeAlias = Annotated[bytes, PlainValidator(_hex_bytes(0, MAX_DOCUMENT_BYTES))]
JsonInput: TypeAlias = Annotated[bytes, PlainValidator(_hex_bytes(0, _MAX_INPUT_BYTES))]
JsonContract: TypeAlias = Annotated[Address, PlainValidator(_contract)]
JsonList: TypeAlias = Annotated[tuple[T, ...], Strict(False), FailFast()]
"""A JSON array, of which no more than the first wrong item is named."""


MAX_LINKS = 1_000_000


class _DecisionLinkDocument(StrictDocument):
    kind: Literal["decided"]
    round: U64
    seed: JsonDigest
    commitments: JsonDigest
    accepted: JsonDigest
    committee: JsonDigest
    result: JsonDigest
    votes: JsonDigest


class _AbandonmentLinkDocument(StrictDocument):
    kind: Literal["abandoned"]
    round: U64
    seed: JsonDigest
    commitments: JsonDigest
    committee: JsonDigest


class _BanLinkDocument(StrictDocument):
    kind: Literal["banned"]
    round: U64
    client: JsonClient


_LinkDocument: TypeAlias = Annotated[
    _DecisionLinkDocument | _AbandonmentLinkDocument | _BanLinkDocument, Field(discriminator="kind")
]
_LINKS: dict[str, Callable[..., Link]] = {
    "decided": DecisionLink,
    "abandoned": AbandonmentLink,
    "banned": BanLink,
}


class PathDocument(StrictDocument):
    """A path of heads."""

    start: JsonDigest
    links: Annotated[JsonList[_LinkDocument], Field(max_length=MAX_LINKS)]

    def path(self) -> HeadPath:
        """Return the path."""
        links = map(dict[str, Any], self.links)
        return HeadPath(self.start, tuple(_LINKS[link.pop("kind")](**link) for link in links))


class BasisDocument(StrictDocument):
    """The basis of a round; the configuration is a field of each kind of document."""

    chain_id: U64
    genesis_hash: JsonDigest
    address: JsonContract
    deployed_after: JsonDigest
    round: U32
    seed: JsonDigest
    committee: Annotated[JsonList[JsonClient], Field(max_length=MAX_MEMBERS)]
    bans: Annotated[
        JsonList[Annotated[tuple[U32, JsonClient], Strict(False)]], Field(max_length=MAX_CLIENTS)
    ]
    path: PathDocument

    def basis_fields(self, configuration: bytes) -> dict[str, Any]:
        """Return the fields of a `RoundBasis`.

        Args:
            configuration: the run document's bytes.
        """
        return {
            "chain_id": self.chain_id,
            "contract": self.address,
            "deployment_parent_hash": self.deployed_after,
            "genesis_hash": self.genesis_hash,
            "round": self.round,
            "configuration": configuration,
            "path": self.path.path(),
            "seed": self.seed,
            "committee": self.committee,
            "bans": tuple(RecordedBan(*ban) for ban in self.bans),
        }


def path_dict(path: HeadPath) -> dict[str, Any]:
    """Return a path of heads as plain data."""
    return {"start": to_hex(path.start), "links": [_link_dict(link) for link in path.links]}


def basis_dict(basis: RoundBasis, kind: str) -> dict[str, Any]:
    """Return the basis of a round as plain data, with the kind of document and its version."""
    return {
        "format": kind,
        "version": PROTOCOL_VERSION,
        "chain_id": basis.chain_id,
        "genesis_hash": to_hex(basis.genesis_hash),
        "address": to_checksum_address(basis.contract),
        "deployed_after": to_hex(basis.deployment_parent_hash),
        "round": basis.round,
        "configuration": to_hex(basis.config),
        "path": path_dict(basis.path),
        "seed": to_hex(basis.seed),
        "committee": list(basis.committee),
        "bans": [[ban.round, ban.client] for ban in basis.bans],
    }


def require_possible_basis(basis: RoundBasis) -> None:
    """Refuse a round that no run with its configuration can have."""
    sizes = basis.deployment
    if not 1 <= basis.round <= sizes.rounds:
        raise EncodingError(f"round {basis.round} is none of the run's {sizes.rounds}")
    if sizes.beacon is Beacon.NONE and basis.deployment_parent_hash != NO_DIGEST:
        raise EncodingError("deployed_after is not zero, though the run has beacon = none")
    require_clients("committee", basis.committee, sizes)
    if len(basis.committee) != sizes.members:
        raise EncodingError(f"committee of {len(basis.committee)} is not of {sizes.members}")
    require_clients("bans", [ban.client for ban in basis.bans], sizes)
    for ban in basis.bans:
        if not 1 <= ban.round < basis.round:
            raise EncodingError(f"a ban in round {ban.round} is not before round {basis.round}")


def require_clients(name: str, clients: Sequence[int], sizes: Deployment) -> None:
    """Refuse clients that the run does not have, or that come twice."""
    for client in clients:
        if client >= sizes.clients:
            raise EncodingError(f"{name}: client {client} is none of the run's {sizes.clients}")
    if len(set(clients)) != len(clients):
        raise EncodingError(f"{name}: a client comes twice")


def _link_dict(link: Link) -> dict[str, Any]:
    kind = next(name for name, build in _LINKS.items() if build is type(link))
    return picked(" ".join(["kind", *(field.name for field in fields(link))]), link, kind=kind)
