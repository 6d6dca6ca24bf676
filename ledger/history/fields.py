"""Field types that the answers share, and the values that go into them.

256-bit integers are decimal strings, bytes 0x-hex, addresses EIP-55. A distance is a JSON number,
which every reader parses to the same float64, and with it its bit pattern as a decimal string.
Positions, ranks and views count from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from math import isfinite
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, JsonValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from ledger.history.queries import RoundStatus
from ledger.history.round import RoundRole, ScoresOutcome, UpdateOutcome
from ledger.protocol import types
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import AcceptanceForm, DropoutReason, IncidentKind, Phase, RefusalReason

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

Client = Annotated[int, Field(ge=0, lt=2**32, examples=[7])]
"""The index of a registered client."""

RoundNumber = Annotated[int, Field(ge=1, lt=2**32, examples=[2])]
"""t, from 1."""

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

VoteName = Literal["Request", "Reply"]


def name_of(code: IntEnum) -> str:
    """Return the stable name of a code: its member's, in lower case."""
    return code.name.lower()


def one_of(values: Iterable[int | str]) -> Any:
    """Return a field that lists its values; the first is its example."""
    listed: list[JsonValue] = [*values]
    return Field(json_schema_extra={"enum": listed}, examples=listed[:1])


def rule_of(values: Iterable[str]) -> Any:
    """Return a field that lists its values, beside the names of users' own rules."""
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


Place = Annotated[int, doc("on the committee, from 0", ge=0, examples=[1])]

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


class Code(Response):
    """A code with its stable name; the classes below list the values."""

    code: int
    name: str


def code_of(code: IntEnum) -> Code:
    """Return a code as programs compare it: its number and its stable name."""
    return {"code": int(code), "name": name_of(code)}


class DropoutWhy(Response):
    """Reason why an active client has no usable update; the codes of the round's record."""

    code: Annotated[int, _codes(DropoutReason)]
    name: Annotated[str, _names(DropoutReason)]


NoUpdateWhy = Annotated[DropoutWhy | None, doc("why it has no usable update, if that is told")]


class RefusalWhy(Response):
    """Reason why a signed score vector does not count; the codes of the round's record."""

    code: Annotated[int, _codes(RefusalReason)]
    name: Annotated[str, _names(RefusalReason)]


class IncidentWhat(Response):
    """Kind of an incident; the codes of the incidents document."""

    code: Annotated[int, _codes(IncidentKind)]
    name: Annotated[str, _names(IncidentKind)]


class StatementWhat(Response):
    """Kind of the two contradicting statements; the codes of the contract's call."""

    code: Annotated[int, _codes(StatementKind)]
    name: Annotated[str, _names(StatementKind)]


class SelectionForm(Response):
    """Rule by which the contract derives S_a from a ranking; the code of its constructor."""

    code: Annotated[int, _codes(AcceptanceForm)]
    name: Annotated[str, _names(AcceptanceForm)]


class Time(Response):
    """A time as Unix seconds and as RFC 3339."""

    time: UnixTime
    at: Rfc3339


_LAST_SECOND = 253_402_300_799
"""Of the year 9999; RFC 3339 has no later one, and a node may send any number."""


def time_of(seconds: int) -> Time:
    """Return a time as Unix seconds and as RFC 3339, which ends with the year 9999."""
    text = None
    if seconds <= _LAST_SECOND:
        text = f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"
    return {"time": seconds, "at": text}


def to_hex_or_none(data: bytes | None) -> str | None:
    """Return bytes as 0x-hex, None for None."""
    return None if data is None else to_hex(data)


def finite(number: float) -> float | None:
    """Return a number that JSON can express; None for an infinity or NaN."""
    return number if isfinite(number) else None


def phase_name(phase: Phase) -> PhaseName:
    """Return the name of a phase."""
    return "aggregation" if phase is Phase.AGGREGATION else "election"


class AsOf(Response):
    """The block at which the whole answer was read."""

    number: BlockNumber
    hash: Digest32
    finalized: Annotated[bool, doc("whether the block is regarded as final", examples=[True])]


class Answer(Response):
    """An answer; the service puts the block at which it was read first, and `--json` has none."""

    as_of: NotRequired[AsOf]
