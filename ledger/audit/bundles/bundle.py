"""One round as a bundle has it, and its `bundle.json`: refused unless it is of a possible round.

A bundle holds what the chain has of the round, and what the round's beginning follows from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, Never

from eth_utils.address import to_checksum_address
from pydantic import Field

from ledger.audit.bundles.container import MAX_MANIFEST_BYTES
from ledger.audit.proofs.proof import RoundBasis
from ledger.audit.proofs.proof_document import (
    U32,
    U53,
    BasisDocument,
    JsonContract,
    JsonDigest,
    JsonInput,
    JsonList,
    StrictDocument,
    basis_dict,
    parse_document,
    require_possible_basis,
    validate_document,
)
from ledger.chain.ports import (
    Block,
    ChainBase,
    Log,
    LogQuery,
    NotServedError,
    Receipt,
    Transaction,
)
from ledger.io.parsing import picked
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES, require_version
from ledger.protocol.encoding import ResultPreimage
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.fold import DecisionLink
from ledger.protocol.inputs import needs_displacement
from ledger.protocol.parameters import MAX_CLIENTS
from ledger.protocol.rules.direction import window_start
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class EarlierDecision:
    """The preimage of an earlier round's result, which names its model."""

    round: int
    opening: ResultPreimage


@dataclass(frozen=True, slots=True)
class RoundBundle:
    """A round that has ended, as a bundle describes it; its blobs are separate parts.

    Attributes:
        blocks: those that hold an event of the round, ascending; their times are not kept.
        transactions: those that made an event of it; their senders are not kept.
    """

    basis: RoundBasis
    opened_block: int
    earlier: tuple[EarlierDecision, ...]
    blocks: tuple[Block, ...]
    transactions: tuple[Transaction, ...]
    logs: tuple[Log, ...]

    def model_at(self, round_number: int) -> Digest:
        """Return the digest of the model that a round began with.

        Args:
            round_number: the bundle's own, or an earlier one.
        """
        link = self.decided_before(round_number)
        if link is None and not self.basis.is_whole:
            raise EncodingError(
                f"the path does not reach back to the model that round {round_number} began with"
            )
        if link is None:
            return self.basis.document.initial_model
        for earlier in self.earlier:
            if earlier.round == link.round:
                return earlier.opening.model
        raise EncodingError(f"what the result of round {link.round} binds is not in the bundle")

    def needed(self) -> tuple[DecisionLink, ...]:
        """Return the decisions whose models the round's rules need, newest first."""
        links = (self.decided_before(number) for number in rounds_of_models(self.basis))
        return tuple(dict.fromkeys(link for link in links if link is not None))

    def decided_before(self, round_number: int) -> DecisionLink | None:
        """Return the newest decision before a round; None if the path has none."""
        links = reversed(self.basis.path_to_end.links)
        decided = (link for link in links if isinstance(link, DecisionLink))
        return next((link for link in decided if link.round < round_number), None)


def rounds_of_models(basis: RoundBasis) -> tuple[int, ...]:
    """Return the rounds whose first models a round's rules need: its own, and the travel's."""
    parameters, number = basis.document.parameters, basis.round
    if not needs_displacement(parameters, number):
        return (number,)
    return (number, window_start(number))


class BundleChain(ChainBase):
    """The chain that a bundle tells of; what it does not hold is not served."""

    def __init__(self, bundle: RoundBundle) -> None:
        self._bundle = bundle
        self._blocks = {block.number: block for block in bundle.blocks}
        self._transactions = {transaction.hash: transaction for transaction in bundle.transactions}

    @property
    def chain_id(self) -> int:
        return self._bundle.basis.chain_id

    @property
    def genesis_hash(self) -> bytes:
        return self._bundle.basis.genesis_hash

    def head(self) -> Block:
        """Return the block that ended the round."""
        return self._bundle.blocks[-1]

    def block(self, number: int) -> Block:
        """Return one block of the round."""
        if number not in self._blocks:
            raise NotServedError(f"block {number} is not in the bundle")
        return self._blocks[number]

    def finalized(self) -> int:
        """Return the number of the block that ended the round."""
        return self.head().number

    def logs(self, query: LogQuery) -> list[Log]:
        """Return the logs that match, in the bundle's order."""
        return query.of(self._bundle.logs)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction of the round."""
        if transaction_hash not in self._transactions:
            raise NotServedError(f"transaction 0x{transaction_hash.hex()} is not in the bundle")
        return self._transactions[transaction_hash]

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Refuse: a bundle has no receipts."""
        _not_served(f"the receipt of 0x{transaction_hash.hex()}")

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:  # noqa: ARG002 - the port's
        """Refuse: a bundle has no state."""
        _not_served(f"a call of {to}")

    def code(self, address: str) -> bytes:
        """Refuse: a bundle has no state."""
        _not_served(f"the code at {address}")


def _not_served(what: str) -> Never:
    raise NotServedError(f"{what} is not in a bundle, which holds one round and no state")


FORMAT = "cmfl-round-bundle"
MAX_EVENTS = 4 * MAX_CLIENTS
"""Every client may commit and be banned in a transaction of its own."""

_EARLIER = "round model updates_root scores_root ranking_digest reveal record"
_LOG = "block_number block_hash transaction_hash log_index topics data"


class EarlierDecisionDocument(StrictDocument):
    """The preimage of an earlier round's result."""

    round: U32
    model: JsonDigest
    updates_root: JsonDigest
    scores_root: JsonDigest
    ranking_digest: JsonDigest
    reveal: JsonDigest
    record: JsonDigest

    def decision(self) -> EarlierDecision:
        """Return the decision."""
        values = dict(self)
        return EarlierDecision(values.pop("round"), ResultPreimage(**values))


class BlockDocument(StrictDocument):
    """A block that holds an event of the round."""

    number: U53
    hash: JsonDigest
    parent_hash: JsonDigest

    def block(self) -> Block:
        """Return the block, whose time is not kept."""
        return Block(**dict(self), timestamp=0)


class TransactionDocument(StrictDocument):
    """A transaction that made an event of the round."""

    hash: JsonDigest
    to: JsonContract | None
    input: JsonInput
    block_number: U53

    def transaction(self) -> Transaction:
        """Return the transaction, whose sender and nonce are not kept."""
        to = None if self.to is None else to_checksum_address(self.to)
        return Transaction(
            hash=self.hash,
            sender="",
            to=to,
            input=self.input,
            block_number=self.block_number,
            nonce=0,
        )


class LogDocument(StrictDocument):
    """An event of the round."""

    block_number: U53
    block_hash: JsonDigest
    transaction_hash: JsonDigest
    log_index: U32
    topics: Annotated[JsonList[JsonDigest], Field(max_length=4)]
    data: JsonInput


class BundleDocument(BasisDocument):
    """A bundle; the configuration is one of its blobs."""

    format: Literal["cmfl-round-bundle"]
    version: Literal[3]
    configuration: JsonDigest
    opened_block: U53
    earlier: Annotated[JsonList[EarlierDecisionDocument], Field(max_length=2)]
    blocks: Annotated[JsonList[BlockDocument], Field(max_length=MAX_EVENTS)]
    transactions: Annotated[JsonList[TransactionDocument], Field(max_length=MAX_EVENTS)]
    logs: Annotated[JsonList[LogDocument], Field(max_length=MAX_EVENTS)]


def manifest_bytes(bundle: RoundBundle) -> bytes:
    """Return a bundle's `bundle.json`."""
    return json.dumps(as_dict(bundle), indent=1, allow_nan=False).encode() + b"\n"


def as_dict(bundle: RoundBundle) -> dict[str, Any]:
    """Return a bundle as plain data; the configuration is one of its blobs."""
    return {
        **basis_dict(bundle.basis, FORMAT),
        "opened_block": bundle.opened_block,
        "earlier": [picked(_EARLIER, one.opening, round=one.round) for one in bundle.earlier],
        "blocks": [picked("number hash parent_hash", block) for block in bundle.blocks],
        "transactions": [picked("hash to input block_number", t) for t in bundle.transactions],
        "logs": [picked(_LOG, log) for log in bundle.logs],
    }


def read_manifest(data: bytes, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind a `bundle.json`."""
    return bundle_of(parse_document(data, MAX_MANIFEST_BYTES), blobs)


def bundle_of(value: object, blobs: BlobReader) -> RoundBundle:
    """Return the bundle behind plain data, as `as_dict` gives it."""
    require_version("bundle", value)
    document = validate_document(BundleDocument, value)
    try:
        configuration = blobs.get(document.configuration, MAX_DOCUMENT_BYTES)
    except BlobError as error:
        raise EncodingError(f"configuration: {error}") from error
    basis = RoundBasis(**document.basis_fields(configuration))
    require_possible_basis(basis)
    address = to_checksum_address(document.address)
    bundle = RoundBundle(
        basis=basis,
        opened_block=document.opened_block,
        earlier=tuple(earlier.decision() for earlier in document.earlier),
        blocks=tuple(block.block() for block in document.blocks),
        transactions=tuple(transaction.transaction() for transaction in document.transactions),
        logs=tuple(Log(address=address, **dict(log)) for log in document.logs),
    )
    _require_linked(bundle)
    return bundle


def _require_linked(bundle: RoundBundle) -> None:
    """Refuse blocks and transactions without an event, and events without theirs."""
    basis = bundle.basis
    if basis.path.ended(basis.round) is None or not bundle.logs:
        raise EncodingError(f"round {basis.round} does not end in the bundle")
    places = [(log.block_number, log.log_index) for log in bundle.logs]
    if any(earlier >= other for earlier, other in pairwise(places)):
        raise EncodingError("logs are not in the order of blocks and log indices")
    if bundle.opened_block > places[0][0]:
        raise EncodingError(f"a log of block {places[0][0]} is before block {bundle.opened_block}")
    named: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        (
            "blocks",
            [block.number for block in bundle.blocks],
            [log.block_number for log in bundle.logs],
        ),
        (
            "transactions",
            [transaction.hash for transaction in bundle.transactions],
            [log.transaction_hash for log in bundle.logs],
        ),
        ("earlier", [one.round for one in bundle.earlier], [one.round for one in bundle.needed()]),
    )
    for name, listed, due in named:
        if list(listed) != list(dict.fromkeys(due)):
            raise EncodingError(f"{name} are not exactly those that the round's events need")
