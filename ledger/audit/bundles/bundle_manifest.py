"""A bundle's `bundle.json`, and back: refused unless it is one, and of a possible round."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eth_utils.address import to_checksum_address

from ledger.audit.bundles.bundle import EarlierDecision, RoundBundle
from ledger.audit.bundles.container import MAX_MANIFEST_BYTES
from ledger.audit.proofs import fields
from ledger.audit.proofs.fields import hexed
from ledger.audit.proofs.paths import path_dict, path_of
from ledger.audit.proofs.possible import require_possible_ground
from ledger.audit.proofs.proof import RoundBasis
from ledger.audit.proofs.proof_document import (
    ban_of,
    contract_of,
    parse_document,
    require_format,
)
from ledger.chain.ports import Block, Log, Transaction
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.fields import unsigned
from ledger.protocol.encoding import ResultPreimage
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.types import Address
    from ledger.storage.blobs import BlobReader

FORMAT = "cmfl-round-bundle"
VERSION = 2
MAX_EVENTS = 4 * MAX_CLIENTS
"""Every client may commit and be banned in a transaction of its own."""
_MAX_INPUT_BYTES = 4 << 20
_MOST_TOPICS = 4

_BUNDLE: dict[str, type] = {
    "format": str,
    "version": int,
    "chain_id": int,
    "genesis_hash": str,
    "address": str,
    "deployed_after": str,
    "round": int,
    "configuration": str,
    "path": dict,
    "seed": str,
    "committee": list,
    "bans": list,
    "opened_block": int,
    "earlier": list,
    "blocks": list,
    "transactions": list,
    "logs": list,
}
_DIGESTS = ("model", "updates_root", "scores_root", "ranking_digest", "reveal", "record")
_EARLIER: dict[str, type] = {"round": int, "threshold_bits": str} | dict.fromkeys(_DIGESTS, str)
_BLOCK: dict[str, type] = {"number": int, "hash": str, "parent_hash": str}
_TRANSACTION: dict[str, type] = {"hash": str, "to": object, "input": str, "block_number": int}
_LOG: dict[str, type] = {
    "block_number": int,
    "block_hash": str,
    "transaction_hash": str,
    "log_index": int,
    "topics": list,
    "data": str,
}


def manifest_bytes(bundle: RoundBundle) -> bytes:
    """Return a bundle's `bundle.json`.

    Args:
        bundle: what it says.
    """
    return json.dumps(as_dict(bundle), indent=1, allow_nan=False).encode() + b"\n"


def as_dict(bundle: RoundBundle) -> dict[str, Any]:
    """Return a bundle as plain data; the configuration stands beside it as a blob.

    Args:
        bundle: what is shown.
    """
    ground = bundle.ground
    return {
        "format": FORMAT,
        "version": VERSION,
        "chain_id": ground.chain_id,
        "genesis_hash": hexed(ground.genesis_hash),
        "address": to_checksum_address(ground.contract),
        "deployed_after": hexed(ground.deployment_parent_hash),
        "round": ground.round,
        "configuration": hexed(ground.config),
        "path": path_dict(ground.path),
        "seed": hexed(ground.seed),
        "committee": list(ground.committee),
        "bans": [[ban.round, ban.client] for ban in ground.bans],
        "opened_block": bundle.opened_block,
        "earlier": [
            {"round": one.round, "threshold_bits": str(one.opening.threshold_bits)}
            | {name: hexed(getattr(one.opening, name)) for name in _DIGESTS}
            for one in bundle.earlier
        ],
        "blocks": [
            {
                "number": block.number,
                "hash": hexed(block.hash),
                "parent_hash": hexed(block.parent_hash),
            }
            for block in bundle.blocks
        ],
        "transactions": [
            {
                "hash": hexed(one.hash),
                "to": one.to,
                "input": hexed(one.input),
                "block_number": one.block_number,
            }
            for one in bundle.transactions
        ],
        "logs": [
            {
                "block_number": log.block_number,
                "block_hash": hexed(log.block_hash),
                "transaction_hash": hexed(log.transaction_hash),
                "log_index": log.log_index,
                "topics": list(map(hexed, log.topics)),
                "data": hexed(log.data),
            }
            for log in bundle.logs
        ],
    }


def read_manifest(data: bytes, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind a `bundle.json`.

    Args:
        data: its bytes.
        blobs: where the configuration is.

    Raises:
        EncodingError: it is none, or of no possible round.
    """
    return bundle_of(parse_document(data, MAX_MANIFEST_BYTES), blobs)


def bundle_of(value: object, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind plain data.

    Args:
        value: as `as_dict` gives it.
        blobs: where the configuration is.

    Raises:
        EncodingError: it is none, or of no possible round; names the field and the rule.
    """
    found = fields.fields_of("bundle", value, _BUNDLE)
    require_format(found, FORMAT, VERSION)
    contract = contract_of(found["address"])
    config = fields.digest("configuration", found["configuration"])
    try:
        configuration = blobs.get(config, MAX_DOCUMENT_BYTES)
    except BlobError as error:
        raise EncodingError(f"configuration: {error}") from error
    ground = RoundBasis(
        chain_id=unsigned("chain_id", found["chain_id"], 64),
        contract=contract,
        deployment_parent_hash=fields.digest("deployed_after", found["deployed_after"]),
        genesis_hash=fields.digest("genesis_hash", found["genesis_hash"]),
        round=unsigned("round", found["round"], 32),
        configuration=configuration,
        path=path_of(found["path"]),
        seed=fields.digest("seed", found["seed"]),
        committee=fields.listed("committee", found["committee"], fields.client, MAX_MEMBERS),
        bans=fields.listed("bans", found["bans"], ban_of, MAX_CLIENTS),
    )
    require_possible_ground(ground)
    bundle = RoundBundle(
        ground=ground,
        opened_block=unsigned("opened_block", found["opened_block"], 53),
        earlier=fields.listed("earlier", found["earlier"], _earlier_of, 2),
        blocks=fields.listed("blocks", found["blocks"], _block_of, MAX_EVENTS),
        transactions=fields.listed(
            "transactions", found["transactions"], _transaction_of, MAX_EVENTS
        ),
        logs=_logs_of(found["logs"], contract),
    )
    _require_linked(bundle)
    return bundle


def _earlier_of(name: str, value: object) -> EarlierDecision:
    found = fields.fields_of(name, value, _EARLIER)
    digests = {one: fields.digest(one, found[one]) for one in _DIGESTS}
    bits = fields.decimal("threshold_bits", found["threshold_bits"], 64)
    return EarlierDecision(
        unsigned("round", found["round"], 32), ResultPreimage(threshold_bits=bits, **digests)
    )


def _block_of(name: str, value: object) -> Block:
    found = fields.fields_of(name, value, _BLOCK)
    return Block(
        number=unsigned("number", found["number"], 53),
        hash=fields.digest("hash", found["hash"]),
        parent_hash=fields.digest("parent_hash", found["parent_hash"]),
        timestamp=0,
    )


def _transaction_of(name: str, value: object) -> Transaction:
    found = fields.fields_of(name, value, _TRANSACTION)
    to = found["to"]
    if to is not None:
        to = to_checksum_address(contract_of(to))
    return Transaction(
        hash=fields.digest("hash", found["hash"]),
        sender="",
        to=to,
        input=fields.octets("input", found["input"], _MAX_INPUT_BYTES),
        block_number=unsigned("block_number", found["block_number"], 53),
    )


def _logs_of(value: object, contract: Address) -> tuple[Log, ...]:
    address = to_checksum_address(contract)

    def log_of(name: str, one: object) -> Log:
        found = fields.fields_of(name, one, _LOG)
        return Log(
            address=address,
            topics=fields.listed("topics", found["topics"], fields.digest, _MOST_TOPICS),
            data=fields.octets("data", found["data"], _MAX_INPUT_BYTES),
            block_number=unsigned("block_number", found["block_number"], 53),
            block_hash=fields.digest("block_hash", found["block_hash"]),
            transaction_hash=fields.digest("transaction_hash", found["transaction_hash"]),
            log_index=unsigned("log_index", found["log_index"], 32),
        )

    return fields.listed("logs", value, log_of, MAX_EVENTS)


def _require_linked(bundle: RoundBundle) -> None:
    """Refuse blocks and transactions without an event, and events without theirs.

    Raises:
        EncodingError: names what is there in vain, or missing.
    """
    ground = bundle.ground
    if ground.path.ended(ground.round) is None or not bundle.logs:
        raise EncodingError(f"round {ground.round} does not end in the bundle")
    places = [(log.block_number, log.log_index) for log in bundle.logs]
    if any(one >= other for one, other in pairwise(places)):
        raise EncodingError("logs are not in the order of blocks and log indices")
    if bundle.opened_block > places[0][0]:
        raise EncodingError(f"a log of block {places[0][0]} is before block {bundle.opened_block}")
    named: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        (
            "blocks",
            [one.number for one in bundle.blocks],
            [one.block_number for one in bundle.logs],
        ),
        (
            "transactions",
            [one.hash for one in bundle.transactions],
            [one.transaction_hash for one in bundle.logs],
        ),
        ("earlier", [one.round for one in bundle.earlier], [one.round for one in bundle.needed()]),
    )
    for name, given, due in named:
        if list(given) != list(dict.fromkeys(due)):
            raise EncodingError(f"{name} are not exactly those that the round's events need")
