"""A proof as one JSON document, and back: refused unless it is one, and of a possible round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Never

from eth_utils.address import to_checksum_address

from ledger.audit.proofs import fields
from ledger.audit.proofs.codes import ClientVerdict, ProvenRole, ScoresTaken
from ledger.audit.proofs.fields import hexed
from ledger.audit.proofs.paths import path_dict, path_of
from ledger.audit.proofs.possible import require_possible
from ledger.audit.proofs.proof import (
    MAX_PROOF_BYTES,
    ClientProof,
    CommittedDecision,
    EventLocation,
    RecordedBan,
    RecordedCommitment,
)
from ledger.audit.proofs.statement import ClientStatement, CutOff, Rank, Weight
from ledger.io.json import parse_json
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.fields import unsigned
from ledger.protocol.encoding import INFINITY_BITS
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS
from ledger.protocol.types import AcceptanceForm, Address, DropoutReason, RefusalReason

if TYPE_CHECKING:
    from ledger.protocol.types import Digest

FORMAT = "cmfl-client-proof"
VERSION = 2
_MOST_SIBLINGS = 16

_PROOF: dict[str, type] = {
    "format": str,
    "version": int,
    "chain_id": int,
    "genesis_hash": str,
    "address": str,
    "deployed_after": str,
    "round": int,
    "client": int,
    "configuration": str,
    "path": dict,
    "seed": str,
    "committee": list,
    "bans": list,
    "commitments": list,
    "decision": object,
    "record": object,
    "payload": object,
    "siblings": object,
    "signature": object,
    "committed_at": object,
    "ended_at": object,
    "statement": dict,
}
_DECISION: dict[str, type] = {
    "ranking": list,
    "model": str,
    "updates_root": str,
    "scores_root": str,
    "threshold_bits": str,
    "reveal": str,
    "record": str,
    "views": list,
    "signers": list,
    "incidents": str,
}
_STATEMENT: dict[str, type] = {
    "verdict": str,
    "role": str,
    "has_committed": bool,
    "rank": object,
    "cut_off": object,
    "weight": object,
    "dropout": object,
    "scores": object,
    "refusal": object,
}
_PLACE: dict[str, type] = {
    "block_number": int,
    "block_hash": str,
    "transaction_hash": str,
    "log_index": int,
}


def as_dict(proof: ClientProof) -> dict[str, Any]:
    """Return a proof as plain data: 0x-hex, decimal strings and numbers below 2^53.

    Args:
        proof: what is shown.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "chain_id": proof.chain_id,
        "genesis_hash": hexed(proof.genesis_hash),
        "address": to_checksum_address(proof.contract),
        "deployed_after": hexed(proof.deployment_parent_hash),
        "round": proof.round,
        "client": proof.client,
        "statement": proof.statement.as_dict(),
        "seed": hexed(proof.seed),
        "committee": list(proof.committee),
        "bans": [[ban.round, ban.client] for ban in proof.bans],
        "commitments": [[one.client, hexed(one.commitment)] for one in proof.commitments],
        "committed_at": _place(proof.committed_at),
        "signature": _maybe(proof.signature),
        "payload": _maybe(proof.payload),
        "siblings": None if proof.siblings is None else list(map(hexed, proof.siblings)),
        "decision": None if proof.decision is None else _decision(proof.decision),
        "ended_at": _place(proof.ended_at),
        "path": path_dict(proof.path),
        "record": _maybe(proof.record),
        "configuration": hexed(proof.configuration),
    }


def proof_bytes(proof: ClientProof) -> bytes:
    """Return a proof as a file has it.

    Args:
        proof: what is written.
    """
    return json.dumps(as_dict(proof), indent=1, allow_nan=False).encode() + b"\n"


def read_proof(data: bytes) -> ClientProof:
    """Return the proof that a file holds.

    Args:
        data: of the file.

    Raises:
        EncodingError: it is none, too large, or of no possible round.
    """
    return proof_of(parse_document(data, MAX_PROOF_BYTES))


def parse_document(data: bytes, most: int) -> object:
    """Return what a JSON document says that anybody may have written.

    Args:
        data: the document.
        most: how many bytes it may have.

    Raises:
        EncodingError: it is larger, no JSON, too deep, or says one thing twice.
    """
    if len(data) > most:
        raise EncodingError(f"the document has {len(data)} bytes, and at most {most}")
    try:
        found: object = parse_json(data, _refuse_constant, unique_keys=True)
    except ValueError as error:
        raise EncodingError(f"no JSON document: {error!s:.200}") from error
    return found


def proof_of(value: object) -> ClientProof:
    """Return the proof behind plain data.

    Args:
        value: as `as_dict` gives it.

    Raises:
        EncodingError: it is none, or of no possible round; names the field and the rule.
    """
    found = fields.fields_of("proof", value, _PROOF)
    require_format(found, FORMAT, VERSION)
    proof = ClientProof(
        chain_id=unsigned("chain_id", found["chain_id"], 64),
        contract=contract_of(found["address"]),
        deployment_parent_hash=fields.digest("deployed_after", found["deployed_after"]),
        genesis_hash=fields.digest("genesis_hash", found["genesis_hash"]),
        round=unsigned("round", found["round"], 32),
        client=fields.client("client", found["client"]),
        configuration=fields.octets("configuration", found["configuration"], MAX_DOCUMENT_BYTES),
        path=path_of(found["path"]),
        seed=fields.digest("seed", found["seed"]),
        committee=fields.listed("committee", found["committee"], fields.client, MAX_MEMBERS),
        bans=fields.listed("bans", found["bans"], ban_of, MAX_CLIENTS),
        commitments=fields.listed("commitments", found["commitments"], _promise_of, MAX_CLIENTS),
        decision=fields.maybe("decision", found["decision"], _decision_of),
        record=fields.maybe("record", found["record"], _record_of),
        payload=fields.maybe("payload", found["payload"], fields.digest),
        siblings=fields.maybe("siblings", found["siblings"], _siblings_of),
        signature=fields.maybe("signature", found["signature"], _signature_of),
        committed_at=fields.maybe("committed_at", found["committed_at"], _place_of),
        ended_at=fields.maybe("ended_at", found["ended_at"], _place_of),
        statement=_statement_of(found["statement"]),
    )
    require_possible(proof)
    return proof


def require_format(found: dict[str, Any], name: str, version: int) -> None:
    """Refuse a document of another format or version.

    Args:
        found: its fields.
        name: of the format.
        version: the only one that is read.

    Raises:
        EncodingError: it is another.
    """
    if (found["format"], found["version"]) != (name, version):
        odd = f"{found['format']!r:.80} version {found['version']}"
        raise EncodingError(f"{odd} is not {name} version {version}")


def contract_of(address: object) -> Address:
    """Return the contract that a document names.

    Args:
        address: EIP-55.

    Raises:
        EncodingError: the address or its checksum is wrong.
    """
    if type(address) is not str or len(address) != 42:
        raise EncodingError(f"address {address!r:.80} is not 0x and 40 hex digits")
    contract = Address(fields.exactly("address", address.lower(), 20))
    if to_checksum_address(contract) != address:
        raise EncodingError(f"address {address} has another EIP-55 checksum")
    return contract


def _decision(decision: CommittedDecision) -> dict[str, Any]:
    return {
        "ranking": [str(word) for word in decision.ranking],
        "model": hexed(decision.model),
        "updates_root": hexed(decision.updates_root),
        "scores_root": hexed(decision.scores_root),
        "threshold_bits": str(decision.threshold_bits),
        "reveal": hexed(decision.reveal),
        "record": hexed(decision.record),
        "views": [str(view) for view in decision.views],
        "signers": [str(signers) for signers in decision.signers],
        "incidents": hexed(decision.incidents),
    }


def _decision_of(name: str, value: object) -> CommittedDecision:
    found = fields.fields_of(name, value, _DECISION)
    roots = ("model", "updates_root", "scores_root", "reveal", "record", "incidents")
    return CommittedDecision(
        ranking=fields.listed(
            "ranking", found["ranking"], lambda at, one: fields.decimal(at, one, 96), MAX_TRAINERS
        ),
        threshold_bits=fields.decimal("threshold_bits", found["threshold_bits"], 64),
        views=fields.pair("views", found["views"], 32),
        signers=fields.pair("signers", found["signers"], 256),
        **{one: fields.digest(one, found[one]) for one in roots},
    )


def _place(place: EventLocation | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "block_number": place.block_number,
        "block_hash": hexed(place.block_hash),
        "transaction_hash": hexed(place.transaction_hash),
        "log_index": place.log_index,
    }


def _place_of(name: str, value: object) -> EventLocation:
    found = fields.fields_of(name, value, _PLACE)
    return EventLocation(
        block_number=unsigned("block_number", found["block_number"], 53),
        block_hash=fields.digest("block_hash", found["block_hash"]),
        transaction_hash=fields.digest("transaction_hash", found["transaction_hash"]),
        log_index=unsigned("log_index", found["log_index"], 32),
    )


def _statement_of(value: dict[str, Any]) -> ClientStatement:
    """Return the claimed statement.

    Raises:
        EncodingError: it is none, or says something twice and differently.
    """
    found = fields.fields_of("statement", value, _STATEMENT)
    claimed = ClientStatement(
        verdict=fields.named("verdict", found["verdict"], ClientVerdict),
        role=fields.named("role", found["role"], ProvenRole),
        has_committed=found["has_committed"],
        rank=fields.maybe("rank", found["rank"], _rank_of),
        cut_off=fields.maybe("cut_off", found["cut_off"], _cut_off_of),
        weight=fields.maybe("weight", found["weight"], _weight_of),
        dropout=fields.maybe(
            "dropout", found["dropout"], lambda at, one: fields.named(at, one, DropoutReason)
        ),
        scores=fields.maybe(
            "scores", found["scores"], lambda at, one: fields.named(at, one, ScoresTaken)
        ),
        refusal=fields.maybe(
            "refusal", found["refusal"], lambda at, one: fields.named(at, one, RefusalReason)
        ),
    )
    # Numbers that come twice, once to be read and once to be compared, and True, which equals 1.
    if json.dumps(claimed.as_dict(), sort_keys=True) != json.dumps(value, sort_keys=True):
        raise EncodingError(f"statement {value!s:.200} contradicts itself")
    return claimed


def _rank_of(name: str, value: object) -> Rank:
    shape = {"place": int, "ranked": int, "distance": float, "distance_bits": str}
    found = fields.fields_of(name, value, shape | {"accepted": bool})
    return Rank(
        place=unsigned("place", found["place"], 32),
        ranked=unsigned("ranked", found["ranked"], 32),
        distance_bits=_finite_bits("distance_bits", found["distance_bits"]),
        accepted=found["accepted"],
    )


def _cut_off_of(name: str, value: object) -> CutOff:
    shape = {"form": int, "accepted": int, "edge": float, "edge_bits": str}
    found = fields.fields_of(name, value, shape | {"threshold": float, "threshold_bits": str})
    return CutOff(
        form=fields.named("form", found["form"], AcceptanceForm),
        accepted=unsigned("accepted", found["accepted"], 32),
        edge_bits=_finite_bits("edge_bits", found["edge_bits"]),
        threshold_bits=_finite_bits("threshold_bits", found["threshold_bits"]),
    )


def _weight_of(name: str, value: object) -> Weight:
    found = fields.fields_of(name, value, {"samples": int, "total": int, "share": float})
    samples = unsigned("samples", found["samples"], 53)
    total = unsigned("total", found["total"], 53)
    if not total:
        raise EncodingError("total 0 is not above 0")
    return Weight(samples, total)


def _finite_bits(name: str, value: object) -> int:
    found = fields.decimal(name, value, 64)
    if found >= INFINITY_BITS:
        raise EncodingError(f"{name} {found} is not the pattern of a finite number from 0 on")
    return found


def ban_of(name: str, value: object) -> RecordedBan:
    """Return a ban that a document lists as [round, client].

    Args:
        name: of the list.
        value: its entry.

    Raises:
        EncodingError: it is none.
    """
    number, client = _two(name, value)
    return RecordedBan(unsigned("round", number, 32), fields.client(name, client))


def _promise_of(name: str, value: object) -> RecordedCommitment:
    client, commitment = _two(name, value)
    return RecordedCommitment(fields.client(name, client), fields.digest(name, commitment))


def _two(name: str, value: object) -> tuple[object, object]:
    if type(value) is not list or len(value) != 2:
        raise EncodingError(f"{name} {value!r:.80} is not a list of 2")
    return value[0], value[1]


def _record_of(name: str, value: object) -> bytes:
    return fields.octets(name, value, MAX_DOCUMENT_BYTES)


def _signature_of(name: str, value: object) -> bytes:
    return fields.exactly(name, value, 65)


def _siblings_of(name: str, value: object) -> tuple[Digest, ...]:
    return fields.listed(name, value, fields.digest, _MOST_SIBLINGS)


def _maybe(data: bytes | None) -> str | None:
    return None if data is None else hexed(data)


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is no number")
