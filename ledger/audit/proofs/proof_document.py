"""A client's proof as one JSON document, and back: refused unless it is of a possible round.

A proof and a bundle rest on the same run, path of heads and participants of a round.
There is one way of writing each value.
Bytes are 0x and lower-case hex digits, numbers that may be beyond 2^53 decimal strings.
"""

from __future__ import annotations

import json
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

from ledger.audit.proofs.proof import (
    MAX_PROOF_BYTES,
    ClientProof,
    ClientStatement,
    ClientVerdict,
    CommittedDecision,
    CutOff,
    EventLocation,
    HeadPath,
    ProvenRole,
    Rank,
    RecordedBan,
    RecordedCommitment,
    RoundBasis,
    ScoresTaken,
    UpdateWeight,
)
from ledger.io.parsing import parse_json, picked
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES, require_ascending, require_version
from ledger.protocol.encoding import INFINITY_BITS, to_hex, word_client
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import AbandonmentLink, BanLink, DecisionLink, Link
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS
from ledger.protocol.types import (  # pydantic reads annotations
    NO_DIGEST,
    PROTOCOL_VERSION,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Digest,
    DropoutReason,
    RefusalReason,
)

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


FORMAT = "cmfl-client-proof"
_MAX_SIBLINGS = 16
_NUMBERS = ("ranking", "views", "signers")


class LocationDocument(StrictDocument):
    """The location of an event on a chain."""

    block_number: U53
    block_hash: JsonDigest
    transaction_hash: JsonDigest
    log_index: U32


class DecisionDocument(StrictDocument):
    """The parts of a decision that its head commits to."""

    ranking: Annotated[JsonList[Decimal96], Field(max_length=MAX_TRAINERS)]
    model: JsonDigest
    updates_root: JsonDigest
    scores_root: JsonDigest
    reveal: JsonDigest
    record: JsonDigest
    views: Annotated[tuple[Decimal32, Decimal32], Strict(False)]
    signers: Annotated[tuple[Decimal256, Decimal256], Strict(False)]
    incidents: JsonDigest
    next_seed: JsonDigest | None


class RankDocument(StrictDocument):
    """A trainer's rank; the distance is given twice, to be read and to be compared."""

    place: U32
    ranked: U32
    distance: float
    distance_bits: FiniteBits
    accepted: bool


class CutOffDocument(StrictDocument):
    """The end of the accepted set."""

    form: Annotated[AcceptanceForm, Strict(False)]
    accepted: U32
    edge: float
    edge_bits: FiniteBits


class WeightDocument(StrictDocument):
    """The share of an update in the model."""

    samples: U53
    total: Annotated[int, Field(gt=0, lt=1 << 53)]
    share: float


class StatementDocument(StrictDocument):
    """The claimed statement."""

    verdict: Annotated[ClientVerdict, Strict(False)]
    role: Annotated[ProvenRole, Strict(False)]
    has_committed: bool
    rank: RankDocument | None
    cut_off: CutOffDocument | None
    weight: WeightDocument | None
    dropout: Annotated[DropoutReason, Strict(False)] | None
    scores: Annotated[ScoresTaken, Strict(False)] | None
    refusal: Annotated[RefusalReason, Strict(False)] | None

    def statement(self) -> ClientStatement:
        """Return the statement."""
        rank, cut_off, weight = self.rank, self.cut_off, self.weight
        return ClientStatement(
            verdict=self.verdict,
            role=self.role,
            has_committed=self.has_committed,
            rank=None
            if rank is None
            else Rank(rank.place, rank.ranked, rank.distance_bits, rank.accepted),
            cut_off=None
            if cut_off is None
            else CutOff(cut_off.form, cut_off.accepted, cut_off.edge_bits),
            weight=None if weight is None else UpdateWeight(weight.samples, weight.total),
            dropout=self.dropout,
            scores=self.scores,
            refusal=self.refusal,
        )


class ProofDocument(BasisDocument):
    """A client's proof; parts that are not known, or not needed, are null."""

    format: Literal["cmfl-client-proof"]
    version: Literal[3]
    client: JsonClient
    configuration: JsonBlob
    commitments: Annotated[
        JsonList[Annotated[tuple[JsonClient, JsonDigest], Strict(False)]],
        Field(max_length=MAX_CLIENTS),
    ]
    decision: DecisionDocument | None
    record: JsonBlob | None
    payload: JsonDigest | None
    siblings: (
        Annotated[tuple[JsonDigest, ...], Strict(False), Field(max_length=_MAX_SIBLINGS)] | None
    )
    signature: JsonSignature | None
    committed_at: LocationDocument | None
    ended_at: LocationDocument | None
    statement: StatementDocument

    def proof(self) -> ClientProof:
        return ClientProof(
            **self.basis_fields(self.configuration),
            client=self.client,
            commitments=tuple(RecordedCommitment(*pair) for pair in self.commitments),
            decision=None if self.decision is None else CommittedDecision(**dict(self.decision)),
            record=self.record,
            payload=self.payload,
            siblings=self.siblings,
            signature=self.signature,
            committed_at=_event_location(self.committed_at),
            ended_at=_event_location(self.ended_at),
            statement=self.statement.statement(),
        )


def as_dict(proof: ClientProof) -> dict[str, Any]:
    """Return a proof as plain data: 0x-hex, decimal strings and numbers below 2^53."""
    return picked(
        "format version chain_id genesis_hash address deployed_after round client statement seed "
        "committee bans commitments committed_at signature payload siblings decision ended_at path "
        "record configuration",
        proof,
        **basis_dict(proof, FORMAT) | {"configuration": proof.configuration},
        statement=proof.statement.as_dict(),
        commitments=[[entry.client, to_hex(entry.commitment)] for entry in proof.commitments],
        committed_at=_location(proof.committed_at),
        decision=None if proof.decision is None else _decision(proof.decision),
        ended_at=_location(proof.ended_at),
    )


def proof_bytes(proof: ClientProof) -> bytes:
    """Return a proof as a file has it."""
    return json.dumps(as_dict(proof), indent=1, allow_nan=False).encode() + b"\n"


def read_proof(data: bytes) -> ClientProof:
    """Return the proof that a file holds."""
    return proof_of(parse_document(data, MAX_PROOF_BYTES))


def proof_of(value: Any) -> ClientProof:
    """Return the proof behind plain data, as `as_dict` gives it."""
    require_version("proof", value)
    proof = validate_document(ProofDocument, value).proof()
    _require_possible(proof)
    # Numbers that stand twice, once to be read and once to be compared, and True, which equals 1.
    claimed = json.dumps(value["statement"], sort_keys=True)
    if json.dumps(proof.statement.as_dict(), sort_keys=True) != claimed:
        raise EncodingError(f"statement {claimed:.200} contradicts itself")
    return proof


def _decision(decision: CommittedDecision) -> dict[str, Any]:
    names = [field.name for field in fields(CommittedDecision)]
    numbers = {name: tuple(map(str, getattr(decision, name))) for name in _NUMBERS}
    return picked(" ".join(names), decision, **numbers)


def _event_location(document: LocationDocument | None) -> EventLocation | None:
    return None if document is None else EventLocation(**dict(document))


def _location(location: EventLocation | None) -> dict[str, Any] | None:
    names = "block_number block_hash transaction_hash log_index"
    return None if location is None else picked(names, location)


def _require_possible(proof: ClientProof) -> None:
    """Refuse a proof of a round that no run with its configuration can have."""
    require_possible_basis(proof)
    sizes = proof.deployment
    require_clients("client", [proof.client], sizes)
    require_clients("commitments", [entry.client for entry in proof.commitments], sizes)
    if proof.decision is not None:
        _require_possible_decision(proof.decision, sizes)
    is_decided, has_ended = proof.decision is not None, proof.path.ended(proof.round) is not None
    for name, part, is_due in (
        ("decision", proof.decision, has_ended),
        ("record", proof.record, is_decided),
        ("siblings", proof.siblings, is_decided and proof.payload is not None),
        ("payload", proof.payload, proof.commitment is not None),
        ("signature", proof.signature, proof.commitment is not None),
        ("committed_at", proof.committed_at, proof.commitment is not None),
        ("ended_at", proof.ended_at, has_ended),
    ):
        if part is not None and not is_due:
            raise EncodingError(f"{name} is given, and there is nothing that it could be of")


def _require_possible_decision(decision: CommittedDecision, sizes: Deployment) -> None:
    ranking = decision.ranking
    require_ascending("ranking words", ranking)
    if not sizes.members <= len(ranking) <= sizes.trainers:
        bounds = f"{sizes.members} to {sizes.trainers}"
        raise EncodingError(f"a ranking of {len(ranking)} is not one of {bounds}")
    if ranking[-1] >> 32 >= INFINITY_BITS:
        raise EncodingError(f"ranking word {ranking[-1]} has a distance that is not finite")
    require_clients("ranking", [word_client(word) for word in ranking], sizes)
    candidates = sets_of(sizes, ranking).candidates
    if (decision.next_seed is not None) is not (len(candidates) > sizes.members):
        needed = "must be null unless" if decision.next_seed else "must be given if"
        raise EncodingError(
            f"next_seed {needed} there are more than {sizes.members} candidates; there are "
            f"{len(candidates)}"
        )
