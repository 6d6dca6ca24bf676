"""Proofs and bundles as JSON documents, and back: refused unless they are of a possible round.

A table gives each document's fields in their order, and each value's one way of being written.
The same table writes a document and reads it. Bytes are 0x and lower-case hex digits, numbers that
may be beyond 2^53 decimal strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

from eth_utils.address import to_checksum_address

from ledger.audit.proofs import proof as parts
from ledger.audit.proofs.container import MAX_MANIFEST_BYTES
from ledger.audit.proofs.proof import (
    MAX_PROOF_BYTES,
    ClientProof,
    CommittedDecision,
    RoundBasis,
    RoundBundle,
)
from ledger.chain.ports import Block, Log, Transaction
from ledger.io.parsing import parse_json, refuse_constant
from ledger.protocol import types
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES, require_ascending, require_version
from ledger.protocol.encoding import INFINITY_BITS, float_from_bits, sha256, to_hex, word_client
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import AbandonmentLink, BanLink, DecisionLink, Deployment
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS
from ledger.protocol.types import Address, Digest
from ledger.storage.blobs import BlobReader

T = TypeVar("T")

_HEX = re.compile(r"0x(?:[0-9a-f]{2})*")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,77}")
MAX_LINKS = 1_000_000
MAX_EVENTS = 4 * MAX_CLIENTS  # every client may commit, and be banned, in a separate transaction


class DocumentFieldError(EncodingError):
    """A field of a document is missing or impossible; `place` leads from the outside in."""

    def __init__(self, why: str, *place: str) -> None:
        self.why = why
        self.place = place
        super().__init__(f"{'.'.join(place) or 'document'}: {why}"[:500])


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """One way of writing a value in JSON; `read` raises `DocumentFieldError` for any other."""

    read: Callable[[Any], T]
    write: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Derived:
    """A field that follows from the others, and must be what follows from them."""

    value: Callable[[Any], Any]


def _read_at(place: str, form: Form[T], value: object) -> T:
    try:
        return form.read(value)
    except DocumentFieldError as error:
        raise DocumentFieldError(error.why, place, *error.place) from None


def integer(least: int, limit: int) -> Form[int]:
    """Return the form of a number from `least` to below `limit`."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value < limit:
            raise DocumentFieldError(f"is not a number from {least} to below {limit}")
        return value

    return Form(read, int)


def decimal(limit: int) -> Form[int]:
    """Return the form of a number from 0 to below `limit` that may be beyond 2^53."""

    def read(value: object) -> int:
        if type(value) is not str or not _DECIMAL.fullmatch(value) or int(value) >= limit:
            raise DocumentFieldError(f"is not a decimal string below {limit}")
        return int(value)

    return Form(read, str)


def hex_bytes(least: int, most: int) -> Form[Any]:
    """Return the form of bytes whose number is within these bounds."""

    def read(value: object) -> bytes:
        if (
            type(value) is not str
            or not 2 + 2 * least <= len(value) <= 2 + 2 * most
            or not _HEX.fullmatch(value)
        ):
            rule = f"{most}" if least == most else f"at most {most}"
            raise DocumentFieldError(f"is not 0x and hex digits of {rule} bytes")
        return bytes.fromhex(value[2:])

    return Form(read, to_hex)


def choice(kind: type[Enum]) -> Form[Any]:
    """Return the form of one of some codes."""
    members = {member.value: member for member in kind}

    def read(value: object) -> Enum:
        if type(value) not in {str, int} or value not in members:
            raise DocumentFieldError(f"is not one of {', '.join(map(str, members))}")
        return members[value]

    return Form(read, lambda member: member.value)


def array(form: Form[T], most: int) -> Form[tuple[T, ...]]:
    """Return the form of a list with a maximum number of items."""

    def read(value: object) -> tuple[T, ...]:
        if type(value) is not list or len(value) > most:
            raise DocumentFieldError(f"is not a list of at most {most} items")
        return tuple(_read_at(str(place), form, each) for place, each in enumerate(value))

    return Form(read, lambda values: list(map(form.write, values)))


def row(build: Callable[..., T], *forms: Form[Any]) -> Form[T]:
    """Return the form of a list with one item for each field of a tuple."""

    def read(value: object) -> T:
        if type(value) is not list or len(value) != len(forms):
            raise DocumentFieldError(f"is not a list of {len(forms)} items")
        return build(*(_read_at(str(i), form, value[i]) for i, form in enumerate(forms)))

    return Form(read, lambda value: [form.write(x) for form, x in zip(forms, value, strict=True)])


def optional(form: Form[T]) -> Form[T | None]:
    """Return the form of a value that may be null."""
    return Form(
        lambda value: None if value is None else form.read(value),
        lambda value: None if value is None else form.write(value),
    )


def record(build: Callable[..., T], **fields: Form[Any] | Derived) -> Form[T]:
    """Return the form of an object with exactly these fields; derived ones are not built from."""
    given = {key: field for key, field in fields.items() if isinstance(field, Form)}
    derived = {key: field for key, field in fields.items() if isinstance(field, Derived)}

    def read(value: object) -> T:
        if type(value) is not dict:
            raise DocumentFieldError("is not a map")
        if value.keys() != fields.keys():
            odd = f"{sorted(value.keys() ^ fields.keys())!s:.200}"
            raise DocumentFieldError(f"fields {odd} are missing or unknown")
        made = build(**{key: _read_at(key, form, value[key]) for key, form in given.items()})
        for key, field in derived.items():
            true = field.value(made)
            # True equals 1, and -0.0 equals 0.0; as text they differ.
            if type(value[key]) is not type(true) or repr(value[key]) != repr(true):
                raise DocumentFieldError(f"is {value[key]!r:.60}; must be {true!r}", key)
        return made

    def write_field(value: Any, key: str) -> Any:
        return given[key].write(getattr(value, key)) if key in given else derived[key].value(value)

    return Form(read, lambda value: {key: write_field(value, key) for key in fields})


def constant(value: str | int) -> Derived:
    """Return a field that has the same value in every document."""
    return Derived(lambda _: value)


def either(**kinds: tuple[type[Any], dict[str, Form[Any]]]) -> Form[Any]:
    """Return the form of an object of one of these kinds, which its first field names."""
    forms = {
        name: record(build, kind=constant(name), **fields)
        for name, (build, fields) in kinds.items()
    }
    by_type = {build: forms[name] for name, (build, _) in kinds.items()}

    def read(value: object) -> Any:
        kind = value.get("kind") if type(value) is dict else None
        if type(kind) is not str or kind not in forms:
            raise DocumentFieldError(f"kind is {kind!r:.60}; must be one of {', '.join(forms)}")
        return forms[kind].read(value)

    return Form(read, lambda value: by_type[type(value)].write(value))


def _checksummed(value: object) -> str:
    if type(value) is not str or not _ADDRESS.fullmatch(value):
        raise DocumentFieldError("is not 0x and 40 hex digits")
    if to_checksum_address(value) != value:
        raise DocumentFieldError("has a wrong EIP-55 checksum")
    return value


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise DocumentFieldError("is not true or false")
    return value


U32, U53, U64 = (integer(0, 1 << bits) for bits in (32, 53, 64))
DECIMAL32, DECIMAL96, DECIMAL256 = (decimal(1 << bits) for bits in (32, 96, 256))
FINITE_BITS = decimal(INFINITY_BITS)  # the float64 bits of a finite number from 0 on
BOOLEAN = Form(_boolean, bool)
DIGEST, SIGNATURE = hex_bytes(32, 32), hex_bytes(65, 65)
BLOB, CALL_DATA = hex_bytes(0, MAX_DOCUMENT_BYTES), hex_bytes(0, 4 << 20)
CHECKSUMMED = Form(_checksummed, str)
ADDRESS = Form(lambda value: Address(bytes.fromhex(_checksummed(value)[2:])), to_checksum_address)


def _digests(names: str) -> dict[str, Form[Digest]]:
    return dict.fromkeys(names.split(), DIGEST)


_LOCATION: dict[str, Form[Any]] = {
    "block_number": U53,
    **_digests("block_hash transaction_hash"),
    "log_index": U32,
}
LOCATION = record(parts.EventLocation, **_LOCATION)
LINK = either(
    decided=(
        DecisionLink,
        {"round": U64} | _digests("seed commitments accepted committee result votes"),
    ),
    abandoned=(AbandonmentLink, {"round": U64} | _digests("seed commitments committee")),
    banned=(BanLink, {"round": U64, "client": U32}),
)
PATH = record(parts.HeadPath, start=DIGEST, links=array(LINK, MAX_LINKS))
DECISION = record(
    CommittedDecision,
    ranking=array(DECIMAL96, MAX_TRAINERS),
    **_digests("model updates_root scores_root reveal record"),
    views=row(lambda *views: views, DECIMAL32, DECIMAL32),
    signers=row(lambda *signers: signers, DECIMAL256, DECIMAL256),
    incidents=DIGEST,
    next_seed=optional(DIGEST),
)
RANK = record(
    parts.Rank,
    place=U32,
    ranked=U32,
    distance=Derived(lambda rank: float_from_bits(rank.distance_bits)),
    distance_bits=FINITE_BITS,
    accepted=BOOLEAN,
)
CUT_OFF = record(
    parts.CutOff,
    form=choice(types.AcceptanceForm),
    accepted=U32,
    edge=Derived(lambda cut_off: float_from_bits(cut_off.edge_bits)),
    edge_bits=FINITE_BITS,
)
WEIGHT = record(
    parts.UpdateWeight,
    samples=U53,
    total=integer(1, 1 << 53),
    share=Derived(lambda weight: weight.samples / weight.total),
)
STATEMENT = record(
    parts.ClientStatement,
    verdict=choice(parts.ClientVerdict),
    role=choice(parts.ProvenRole),
    has_committed=BOOLEAN,
    rank=optional(RANK),
    cut_off=optional(CUT_OFF),
    weight=optional(WEIGHT),
    dropout=optional(choice(types.DropoutReason)),
    scores=optional(choice(parts.ScoresTaken)),
    refusal=optional(choice(types.RefusalReason)),
)
_RUN: dict[str, Form[Any] | Derived] = {
    "version": constant(types.PROTOCOL_VERSION),
    "chain_id": U64,
    "genesis_hash": DIGEST,
    "address": ADDRESS,
    "deployed_after": DIGEST,
    "round": U32,
}
"""Fields that identify the run and the round of a document."""
_START: dict[str, Form[Any]] = {
    "seed": DIGEST,
    "committee": array(U32, MAX_MEMBERS),
    "bans": array(row(parts.RecordedBan, U32, U32), MAX_CLIENTS),
}
"""Fields that describe the start of the round."""
PROOF = record(
    ClientProof,
    format=constant("cmfl-client-proof"),
    **_RUN,
    client=U32,
    statement=STATEMENT,
    **_START,
    commitments=array(row(parts.RecordedCommitment, U32, DIGEST), MAX_CLIENTS),
    committed_at=optional(LOCATION),
    signature=optional(SIGNATURE),
    payload=optional(DIGEST),
    siblings=optional(array(DIGEST, 16)),
    decision=optional(DECISION),
    ended_at=optional(LOCATION),
    path=PATH,
    record=optional(BLOB),
    configuration=BLOB,
)
EARLIER = record(
    parts.EarlierDecision,
    round=U32,
    **_digests("model updates_root scores_root ranking_digest reveal record"),
)
BLOCK = record(partial(Block, timestamp=0), number=U53, **_digests("hash parent_hash"))
TRANSACTION = record(
    partial(Transaction, sender="", nonce=0),
    hash=DIGEST,
    to=optional(CHECKSUMMED),
    input=CALL_DATA,
    block_number=U53,
)
LOG = record(partial(Log, ""), **_LOCATION, topics=array(DIGEST, 4), data=CALL_DATA)
"""The address of a log is the document's."""
BUNDLE: Form[dict[str, Any]] = record(
    dict,
    format=constant("cmfl-round-bundle"),
    **_RUN,
    configuration=Form(DIGEST.read, lambda data: to_hex(sha256(data))),  # one of the blobs
    path=PATH,
    **_START,
    opened_block=U53,
    earlier=array(EARLIER, 2),
    blocks=array(BLOCK, MAX_EVENTS),
    transactions=array(TRANSACTION, MAX_EVENTS),
    logs=array(LOG, MAX_EVENTS),
)


def parse_document(data: bytes, limit: int) -> Any:
    """Return the plain data of a JSON document of at most `limit` bytes."""
    if len(data) > limit:
        raise EncodingError(f"the document has {len(data)} bytes; at most {limit} are allowed")
    try:
        return parse_json(data, refuse_constant, unique_keys=True)
    except ValueError as error:
        raise EncodingError(f"not a JSON document: {error!s:.200}") from error


def proof_bytes(proof: ClientProof) -> bytes:
    """Return a proof as a file has it."""
    return _written(PROOF.write(proof))


def manifest_bytes(bundle: RoundBundle) -> bytes:
    """Return a bundle's `bundle.json`."""
    return _written(BUNDLE.write(bundle))


def _written(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def read_proof(data: bytes) -> ClientProof:
    """Return the proof that a file holds."""
    return proof_of(parse_document(data, MAX_PROOF_BYTES))


def proof_of(value: object) -> ClientProof:
    """Return the proof behind plain data, if a run with its configuration can have its round."""
    require_version("proof", value)
    proof = PROOF.read(value)
    sizes, decision = _require_possible_basis(proof), proof.decision
    _require_clients("client", [proof.client], sizes)
    _require_clients("commitments", [entry.client for entry in proof.commitments], sizes)
    if decision is not None:
        _require_possible_decision(decision, sizes)
    is_decided, has_ended = decision is not None, proof.path.ended(proof.round) is not None
    has_committed = proof.commitment is not None
    for name, is_due in (
        ("decision", has_ended),
        ("record", is_decided),
        ("siblings", is_decided and proof.payload is not None),
        ("payload", has_committed),
        ("signature", has_committed),
        ("committed_at", has_committed),
        ("ended_at", has_ended),
    ):
        if getattr(proof, name) is not None and not is_due:
            raise EncodingError(f"{name} is given, but does not belong to anything")
    return proof


def read_manifest(data: bytes, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind a `bundle.json`."""
    return bundle_of(parse_document(data, MAX_MANIFEST_BYTES), blobs)


def bundle_of(value: object, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind plain data, without anything that its round does not need."""
    require_version("bundle", value)
    fields = BUNDLE.read(value)
    try:
        configuration = blobs.get(fields.pop("configuration"), MAX_DOCUMENT_BYTES)
    except BlobError as error:
        raise EncodingError(f"configuration: {error}") from error
    address = to_checksum_address(fields["address"])
    fields["logs"] = logs = tuple(replace(log, address=address) for log in fields["logs"])
    bundle = RoundBundle(configuration=configuration, **fields)
    _require_possible_basis(bundle)
    if bundle.path.ended(bundle.round) is None or not logs:
        raise EncodingError(f"round {bundle.round} does not end in the bundle")
    places = [(log.block_number, log.log_index) for log in logs]
    if any(earlier >= other for earlier, other in pairwise(places)):
        raise EncodingError("logs are not in the order of blocks and log indices")
    if bundle.opened_block > places[0][0]:
        raise EncodingError(f"a log of block {places[0][0]} is before block {bundle.opened_block}")
    transactions = [one.hash for one in bundle.transactions]
    named: tuple[tuple[str, list[Any], list[Any]], ...] = (
        ("blocks", [one.number for one in bundle.blocks], [log.block_number for log in logs]),
        ("transactions", transactions, [log.transaction_hash for log in logs]),
        ("earlier", [one.round for one in bundle.earlier], [one.round for one in bundle.needed()]),
    )
    for name, listed, due in named:
        if listed != list(dict.fromkeys(due)):
            raise EncodingError(f"{name} do not match the round's events")
    return bundle


def _require_possible_basis(basis: RoundBasis) -> Deployment:
    """Refuse a round that no run with its configuration can have; return the run's sizes."""
    sizes = basis.deployment
    if not 1 <= basis.round <= sizes.rounds:
        raise EncodingError(f"round {basis.round} is not one of the run's {sizes.rounds}")
    if sizes.beacon is types.Beacon.NONE and basis.deployed_after != types.NO_DIGEST:
        raise EncodingError("deployed_after is not zero, though the run has beacon = none")
    _require_clients("committee", basis.committee, sizes)
    if len(basis.committee) != sizes.members:
        raise EncodingError(f"committee of {len(basis.committee)} is not of {sizes.members}")
    _require_clients("bans", [ban.client for ban in basis.bans], sizes)
    for ban in basis.bans:
        if not 1 <= ban.round < basis.round:
            raise EncodingError(f"a ban in round {ban.round} is not before round {basis.round}")
    return sizes


def _require_clients(name: str, clients: Sequence[int], sizes: Deployment) -> None:
    for client in clients:
        if client >= sizes.clients:
            raise EncodingError(f"{name}: client {client} is not one of the run's {sizes.clients}")
    if len(set(clients)) != len(clients):
        raise EncodingError(f"{name}: a client comes twice")


def _require_possible_decision(decision: CommittedDecision, sizes: Deployment) -> None:
    ranking = decision.ranking
    require_ascending("ranking words", ranking)
    if not sizes.members <= len(ranking) <= sizes.trainers:
        bounds = f"{sizes.members} to {sizes.trainers}"
        raise EncodingError(f"a ranking of {len(ranking)} is not one of {bounds}")
    if ranking[-1] >> 32 >= INFINITY_BITS:
        raise EncodingError(f"ranking word {ranking[-1]} has a distance that is not finite")
    _require_clients("ranking", [word_client(word) for word in ranking], sizes)
    candidates = sets_of(sizes, ranking).candidates
    if (decision.next_seed is not None) is not (len(candidates) > sizes.members):
        needed = "must be null unless" if decision.next_seed else "must be given if"
        raise EncodingError(
            f"next_seed {needed} there are more than {sizes.members} candidates, and there "
            f"are {len(candidates)}"
        )
