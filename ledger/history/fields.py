"""Field types that the answers share, the values that go into them, and queries for rounds.

256-bit integers are decimal strings, bytes 0x-hex, addresses EIP-55. A distance is a JSON number,
which every reader parses to the same float64, and with it its bit pattern as a decimal string.
Positions, ranks and views count from 0.

A contract has the same address in every fresh home. So every path also holds the chain's id and the
first bytes of its block 0's hash, and an answer that was cached for one chain is never shown for
another.

A cursor is base64url of version, position, the number of entries that were listed there (left out
if it is 0), and a checksum over these and the query's scope. The checksum is public: it detects a
cursor that was cut, altered or used for another query by accident. A forged cursor reaches nothing:
the query checks its bounds again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from math import isfinite
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import ConfigDict, Field, JsonValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from ledger.history.round import RoundRole, RoundStatus, ScoresOutcome, UpdateOutcome
from ledger.protocol import types
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import CmflError
from ledger.protocol.ledger_state import StatementKind

EXAMPLE_DIGEST = "0x" + "5c" * 32
EXAMPLE_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


class Response(TypedDict):
    """Base of all responses: no unknown fields, no NaN, no infinity."""


# mypy takes no assignment in the body of a TypedDict; pydantic reads it from the base.
Response.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]


def doc(description: str, **more: Any) -> Any:
    """Return a field's description for OpenAPI, with its bounds and examples."""
    return Field(description=description, **more)


class EnumLiteral:
    """Describe an enum by its values in place, not as a separate schema."""

    def __init__(self, *values: str) -> None:
        self._values = values

    def __get_pydantic_core_schema__(
        self, source: type[StrEnum], handler: Any
    ) -> core_schema.CoreSchema:
        del handler
        values = self._values or [member.value for member in source]
        return core_schema.no_info_after_validator_function(
            source, core_schema.literal_schema(list(values))
        )


Digest32 = Annotated[str, Field(pattern=f"^{types.PREFIXED}$", examples=[EXAMPLE_DIGEST])]
"""32 bytes as 0x-hex."""

Signature65 = Annotated[
    str, Field(pattern=r"^0x[0-9a-f]{130}$", examples=["0x" + "1f" * 64 + "1b"])
]
"""65 bytes r, s, v as 0x-hex."""

Eip55 = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$", examples=[EXAMPLE_ADDRESS])]
"""An address with its checksum in the case of its letters."""

Uint = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,77})$", examples=["4602678819172646912"])]
"""A whole number of up to 256 bits, in decimal."""

Client = Annotated[int, Field(ge=0, lt=2**32, examples=[7])]  # the index of a registered client

RoundNumber = Annotated[int, Field(ge=1, lt=2**32, examples=[2])]  # t, from 1

Count = Annotated[int, Field(ge=0, examples=[4])]

BlockNumber = Annotated[int, Field(ge=0, examples=[17])]

UnixTime = Annotated[int, doc("Unix seconds", ge=0, lt=2**64, examples=[1_767_225_600])]

Rfc3339 = Annotated[
    str | None,
    doc("the same time in RFC 3339; null after the year 9999", examples=["2026-01-01T00:00:00Z"]),
]

Distance = Annotated[float, Field(ge=0, examples=[0.5])]
"""A finite distance; its shortest decimal form, which reads back as the same float64."""

Bits = Annotated[
    Uint, doc("the float64's bit pattern as an integer; such integers sort as the numbers do")
]

Status = Annotated[RoundStatus, EnumLiteral("decided", "abandoned", "open")]

PhaseName = Literal["aggregation", "election"]

StageName = Literal["open", "registering", "finished"]

Role = Annotated[RoundRole, EnumLiteral()]

TrainerOutcome = Annotated[UpdateOutcome, EnumLiteral()]

MemberScores = Annotated[ScoresOutcome, EnumLiteral()]

EvidenceKind = Literal["ban", "refused_scores", "incident", "dropout"]

VoteName = Literal["Request", "Reply"]


def name_of(code: IntEnum) -> str:
    """Return the stable name of a code: its member's, in lower case."""
    return code.name.lower()


def one_of(values: Iterable[int | str]) -> Any:
    """Return a field that lists its values; the first is its example."""
    listed: list[JsonValue] = [*values]
    return Field(json_schema_extra={"enum": listed}, examples=listed[:1])


def rule_of(values: Iterable[str]) -> Any:
    """Return a field that lists its values; names of users' own rules are allowed, too."""
    listed = [*values]
    return doc(
        f"{', '.join(listed)}, or a user's own function with the digest of its code: "
        f"file.py:function@sha256:DIGEST",
        examples=listed[:1],
    )


def _codes(kind: type[IntEnum]) -> Any:
    return one_of(int(code) for code in kind)


def _names(kind: type[IntEnum]) -> Any:
    return one_of(name_of(code) for code in kind)


Place = Annotated[int, doc("place on the committee, from 0", ge=0, examples=[1])]

Payload = Annotated[
    Digest32 | None,
    doc(
        "sha256 of the payload, as the round's record has it; null where the record "
        "is not there or has none"
    ),
]

CommitmentWord = Annotated[
    Digest32 | None, doc("keccak256(client ‖ payload digest), on the chain; null without")
]

Committed = Annotated[bool | None, doc("whether its commitment came in time", examples=[True])]

NamedClient = Annotated[Client | None, doc("the client whose distance is false, if that is why")]

Links = Annotated[
    dict[str, str],
    doc(
        "related paths, by name",
        examples=[{"self": f"/v1/chains/131277322940537-5c5c5c5c/deployments/{EXAMPLE_ADDRESS}"}],
    ),
]

NextCursor = Annotated[
    str | None,
    doc(
        "give this as `cursor` for the next page; null after the last one",
        examples=["AQAAAAKHGfi3lW8gD0c"],
    ),
]


Scanned = Annotated[Count, doc("rounds that this page examined; a page may be short of `limit`")]


class Code(Response):
    """A code with its stable name; the classes below list the values."""

    code: int
    name: str


def code_of(code: IntEnum) -> Code:
    """Return a code as programs compare it: its number and its stable name."""
    return {"code": int(code), "name": name_of(code)}


class DropoutWhy(Response):
    """Reason why an active client has no usable update; the codes of the round's record."""

    code: Annotated[int, _codes(types.DropoutReason)]
    name: Annotated[str, _names(types.DropoutReason)]


NoUpdateWhy = Annotated[DropoutWhy | None, doc("reason why it has no usable update, if known")]


class RefusalWhy(Response):
    """Reason why a signed score vector does not count; the codes of the round's record."""

    code: Annotated[int, _codes(types.RefusalReason)]
    name: Annotated[str, _names(types.RefusalReason)]


class IncidentWhat(Response):
    """Kind of an incident; the codes of the incidents document."""

    code: Annotated[int, _codes(types.IncidentKind)]
    name: Annotated[str, _names(types.IncidentKind)]


class StatementWhat(Response):
    """Kind of the two contradicting statements; the codes of the contract's call."""

    code: Annotated[int, _codes(StatementKind)]
    name: Annotated[str, _names(StatementKind)]


class SelectionForm(Response):
    """The contract's rule for S_a, given a ranking; the code in its constructor."""

    code: Annotated[int, _codes(types.AcceptanceForm)]
    name: Annotated[str, _names(types.AcceptanceForm)]


class Time(Response):
    """A time as Unix seconds and as RFC 3339."""

    time: UnixTime
    at: Rfc3339


def time_of(seconds: int) -> Time:
    """Return a time as Unix seconds and as RFC 3339, which ends with the year 9999."""
    text = None
    if seconds <= 253_402_300_799:  # a node may send any number
        text = f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"
    return {"time": seconds, "at": text}


def to_hex_or_none(data: bytes | None) -> str | None:
    """Return bytes as 0x-hex, None for None."""
    return None if data is None else to_hex(data)


class EndBlock(Response):
    """The block with a round's decision or abandonment."""

    number: BlockNumber
    hash: Digest32
    transaction: Digest32
    time: UnixTime
    at: Rfc3339


def picked(names: str, source: object, **given: object) -> dict[str, Any]:
    """Return fields in this order, as given or of the source: bytes as 0x-hex, tuples as lists."""
    return {
        name: _plain(given[name] if name in given else getattr(source, name))
        for name in names.split()
    }


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def picked_or_null(names: str, source: object) -> dict[str, Any]:
    """Return fields of a source; all None without one."""
    return dict.fromkeys(names.split()) if source is None else picked(names, source)


def finite(number: float) -> float | None:
    """Return a number that JSON can express; None for an infinity or NaN."""
    return number if isfinite(number) else None


def phase_name(phase: types.Phase) -> PhaseName:
    """Return the name of a phase."""
    return "aggregation" if phase is types.Phase.AGGREGATION else "election"


class AsOf(Response):
    """The block of the whole answer."""

    number: BlockNumber
    hash: Digest32
    finalized: Annotated[bool, doc("whether the block is regarded as final", examples=[True])]


class Answer(Response):
    """An answer; the service puts its block first, and `--json` omits the block."""

    as_of: NotRequired[AsOf]


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


class DeploymentPath(str):
    """The path of a deployment, and of its parts; the address is EIP-55."""

    def __new__(cls, chain: ChainPath, address: str) -> Self:
        return super().__new__(cls, f"{chain}/deployments/{address}")

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
    """A query for rounds, or for the evidence in them: filters and order."""

    listing: str = "rounds"  # the endpoint, so that cursors of different ones do not mix
    order: Order = Order.NEWEST  # newest or oldest first
    status: RoundStatus | None = None  # None for any
    client: int | None = None  # a participant; None for any
    role: AskedRole = AskedRole.ANY
    view_min: int = 0  # least view, from 0, in which a phase was decided
    blocks: Span = UNBOUNDED  # of the round's end; an open round matches no bound
    times: Span = UNBOUNDED  # of that block, in Unix seconds
    rounds: Span = UNBOUNDED  # by number
    kind: EvidenceKind | None = None  # of evidence; None for any

    @property
    def matches_all(self) -> bool:
        is_any = self.status is None and self.client is None and not self.view_min
        return is_any and self.blocks.is_unbounded and self.times.is_unbounded


VERSION = 1
MAX_CURSOR = 64
_HEAD = struct.Struct(">BI")
_CHECKSUM_BYTES = 12


class CursorError(CmflError):
    """A cursor that does not belong to its query."""


def encode_cursor(position: int, scope: str, listed: int = 0) -> str:
    """Return a cursor as text for a URL; `position` and `listed` are below 2³²."""
    head = _HEAD.pack(VERSION, position) + (listed.to_bytes(4, "big") if listed else b"")
    checksum = hashlib.sha256(head + scope.encode()).digest()[:_CHECKSUM_BYTES]
    return base64.urlsafe_b64encode(head + checksum).rstrip(b"=").decode()


def decode_cursor(cursor: str, scope: str, last: int, first: int = 0) -> tuple[int, int]:
    """Return a position, from `first` to `last`, and how many entries were listed there."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        version, position = _HEAD.unpack_from(data)
        listed = int.from_bytes(data[_HEAD.size : -_CHECKSUM_BYTES][:4], "big")
    except (ValueError, binascii.Error, struct.error) as error:
        raise CursorError("it was cut or changed") from error
    if version != VERSION or encode_cursor(position, scope, listed) != cursor:
        raise CursorError("it was changed, or belongs to another query or version")
    if not first <= position <= last:
        raise CursorError("it points to an unknown entry")
    return position, listed
