"""A client's proof as one JSON document, and back: refused unless it is of a possible round."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from ledger.audit.proofs.json_documents import (
    U32,
    U53,
    BasisDocument,
    Decimal32,
    Decimal96,
    Decimal256,
    FiniteBits,
    JsonBlob,
    JsonClient,
    JsonDigest,
    JsonList,
    JsonSignature,
    StrictDocument,
    basis_dict,
    parse_document,
    require_clients,
    require_possible_basis,
    validate_document,
)
from ledger.audit.proofs.proof import (
    MAX_PROOF_BYTES,
    ClientProof,
    CommittedDecision,
    EventLocation,
    RecordedCommitment,
)
from ledger.audit.proofs.statement import (
    ClientStatement,
    ClientVerdict,
    CutOff,
    ProvenRole,
    Rank,
    ScoresTaken,
    UpdateWeight,
)
from ledger.io.json import picked
from ledger.protocol.canonical import require_ascending, require_version
from ledger.protocol.encoding import INFINITY_BITS, to_hex, word_client
from ledger.protocol.errors import EncodingError
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import MAX_CLIENTS, MAX_TRAINERS
from ledger.protocol.types import (  # pydantic reads annotations
    AcceptanceForm,
    DropoutReason,
    RefusalReason,
)

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
