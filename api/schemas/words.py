"""The words that all answers are made of; each schema carries its own example.

256-bit integers are decimal strings, bytes 0x-hex, addresses EIP-55. A distance is a JSON number,
which every reader parses to the same float64, and beside it its bit pattern as a decimal string.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.fields import FieldInfo

from ledger.protocol import digest_patterns
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import AcceptanceForm, DropoutReason, IncidentKind, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum

_DIGEST = "0x" + "5c" * 32
_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def example_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Return an example of a schema, put together from the examples of its fields.

    Args:
        schema: every field of it has an example, or is made of schemas that have.

    Returns:
        Plain data that the schema accepts.
    """
    return {name: _field_example(field) for name, field in schema.model_fields.items()}


def _field_example(field: FieldInfo) -> Any:
    return field.examples[0] if field.examples else _type_example(field.annotation)


def _type_example(kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        fields = [note for note in arguments[1:] if isinstance(note, FieldInfo) and note.examples]
        return fields[0].examples[0] if fields else _type_example(arguments[0])  # type: ignore[index]
    if origin in {Union, UnionType}:
        return _type_example(next(part for part in arguments if part is not NoneType))
    if origin in {list, tuple}:
        return [_type_example(arguments[0])]
    if origin is Literal:
        return arguments[0]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return example_of(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    raise TypeError(f"{kind} has no example")


def _add_example(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    schema["examples"] = [example_of(kind)]


class Schema(BaseModel):
    """Base of all answers: no unknown fields, no NaN, no infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, json_schema_extra=_add_example
    )


Digest32 = Annotated[str, Field(pattern=f"^{digest_patterns.PREFIXED}$", examples=[_DIGEST])]
"""32 bytes as 0x-hex."""

Signature65 = Annotated[
    str, Field(pattern=r"^0x[0-9a-f]{130}$", examples=["0x" + "1f" * 64 + "1b"])
]
"""65 bytes r, s, v as 0x-hex."""

Eip55 = Annotated[
    str,
    Field(pattern=r"^0x[0-9a-fA-F]{40}$", examples=[_ADDRESS]),
]
"""An address with its checksum in the case of its letters."""

Uint = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,77})$", examples=["4602678819172646912"])]
"""A whole number of up to 256 bits, in decimal."""

Client = Annotated[int, Field(ge=0, lt=2**32, examples=[7])]
"""The index of a registered client."""

RoundNumber = Annotated[int, Field(ge=1, lt=2**32, examples=[2])]
"""t, from 1."""

Count = Annotated[int, Field(ge=0, examples=[4])]

BlockNumber = Annotated[int, Field(ge=0, examples=[17])]

UnixTime = Annotated[
    int, Field(ge=0, lt=2**64, description="Unix seconds", examples=[1_767_225_600])
]

Rfc3339 = Annotated[
    str | None,
    Field(
        description="the same time as RFC 3339 has it; null after the year 9999",
        examples=["2026-01-01T00:00:00Z"],
    ),
]

Distance = Annotated[float, Field(ge=0, examples=[0.5])]
"""A finite distance; its shortest decimal form, which reads back as the same float64."""

Bits = Annotated[
    Uint,
    Field(
        description="the float64's bit pattern as an integer; such integers sort as the numbers do"
    ),
]

Status = Literal["decided", "abandoned", "open"]
"""How a round stands."""

Phase = Literal["aggregation", "election"]
"""What is voted on."""


def name_of(code: IntEnum) -> str:
    """Return the stable name of a code: its member's, in lower case."""
    return code.name.lower()


def one_of(known: Iterable[int | str]) -> Any:
    """Return a field that says which values there are; the first is its example."""
    values: list[JsonValue] = [*known]
    return Field(json_schema_extra={"enum": values}, examples=values[:1])


def _codes(kind: type[IntEnum]) -> Any:
    return one_of(int(code) for code in kind)


def _names(kind: type[IntEnum]) -> Any:
    return one_of(name_of(code) for code in kind)


Place = Annotated[int, Field(ge=0, description="on the committee, from 0", examples=[1])]

Payload = Annotated[
    Digest32 | None,
    Field(
        description="sha256 of the payload, as the round's record has it; null where the record "
        "is not there or has none"
    ),
]

CommitmentWord = Annotated[
    Digest32 | None,
    Field(description="keccak256(client ‖ payload digest), on the chain; null without"),
]

UpdateOutcome = Literal["accepted", "not_accepted", "dropped_out", "undecided"]
"""What became of a trainer's update."""

Links = Annotated[
    dict[str, str],
    Field(
        description="paths of what belongs to this, by name",
        examples=[{"self": f"/v1/chains/131277322940537-5c5c5c5c/deployments/{_ADDRESS}"}],
    ),
]

NextCursor = Annotated[
    str | None,
    Field(
        description="give this as `cursor` for the next page; null after the last one",
        examples=["AQAAAAKHGfi3lW8gD0c"],
    ),
]


class DropoutWhy(Schema):
    """Why an active client has no usable update; the numbers are those of the round's record."""

    code: Annotated[int, _codes(DropoutReason)]
    name: Annotated[str, _names(DropoutReason)]


class RefusalWhy(Schema):
    """Why a signed score vector does not count; the numbers are those of the round's record."""

    code: Annotated[int, _codes(RefusalReason)]
    name: Annotated[str, _names(RefusalReason)]


class IncidentWhat(Schema):
    """What a member did wrong, or failed at; the numbers are those of the incidents document."""

    code: Annotated[int, _codes(IncidentKind)]
    name: Annotated[str, _names(IncidentKind)]


class StatementWhat(Schema):
    """What a client signed twice; the numbers are those of the contract's call."""

    code: Annotated[int, _codes(StatementKind)]
    name: Annotated[str, _names(StatementKind)]


class SelectionForm(Schema):
    """How the contract derives S_a from a ranking; the number is its constructor's."""

    code: Annotated[int, _codes(AcceptanceForm)]
    name: Annotated[str, _names(AcceptanceForm)]


class AsOf(Schema):
    """The block that an answer speaks of: all of it was read as of this block."""

    number: BlockNumber
    hash: Digest32
    finalized: Annotated[
        bool, Field(description="whether the block is regarded as final", examples=[True])
    ]


class Answer(Schema):
    """What every answer says about itself."""

    as_of: AsOf
