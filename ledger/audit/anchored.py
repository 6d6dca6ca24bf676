"""Heads anchored outside of their run: in a transaction of any chain, or in an RFC 3161 token.

The anchored data is a round's entry in the run's log (`HeadEntry`): chain, contract, round and
head. An anchor proves that its entry existed by a time, and not that the entry is true. Anyone can
anchor anything, so an auditor keeps the anchors of accounts and authorities that it trusts. Its
files:

    NAME.json            a transaction of an account to itself, whose data are the entry; its
                         block's header; and the proof that the block has it.
    NAME.head, NAME.tsr  an entry, and an authority's token of it: `openssl ts -verify` reads both
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import rlp  # type: ignore[import-untyped]
from trie.hexary import HexaryTrie

from ledger.audit.report import AnchoredHead, plain
from ledger.chain.embedded.reader import SignedTransaction
from ledger.chain.rpc import wire
from ledger.io.parsing import parse_json
from ledger.protocol.encoding import checksum, keccak256, to_hex
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.transparency.network import read_bounded
from ledger.transparency.tree import parse_entry

MAX_ANCHORS, MAX_BYTES, MAX_ROOT_BYTES = 1_000, 100_000, 1_000_000
ANCHOR_GAS = 100_000  # EIP-7623 takes 40 for each byte of an entry


def read_anchors(
    folder: Path, tsa_root: Path | None, chain_id: int, address: str
) -> tuple[AnchoredHead, ...]:
    """Return the anchors in a folder, all of one contract (EIP-55); other files are ignored."""
    found = (path for path in folder.glob("*.*") if path.suffix in {".json", ".tsr"})
    paths = sorted(islice(found, MAX_ANCHORS + 1))
    if not 1 <= len(paths) <= MAX_ANCHORS:
        rule = f"must be a folder with 1 to {MAX_ANCHORS} anchors, NAME.json or NAME.tsr"
        raise ConfigurationError(f"--anchors {folder}: has {len(paths)} of them, {rule}")
    anchors = []
    for path in paths:
        data, entry = read_bounded(path, MAX_BYTES), None
        if path.suffix == ".tsr":
            entry = read_bounded(path.with_suffix(".head"), MAX_BYTES)
        anchor = verified(path, data, entry, tsa_root)
        if (anchor.chain_id, anchor.address) != (chain_id, address):
            raise ConfigurationError(
                f"{path}: is for contract {anchor.address} on chain {anchor.chain_id}; must "
                f"be for {address} on chain {chain_id}"
            )
        anchors.append(anchor)
    return tuple(anchors)


def verified(path: Path, data: bytes, entry: bytes | None, tsa_root: Path | None) -> AnchoredHead:
    """Return what a token of an entry anchors, or without one a transaction, if it proves it."""
    if entry is not None and tsa_root is None:
        raise ConfigurationError(f"{path}: a token needs --tsa-root, the authority's certificate")
    roots = b"" if tsa_root is None else read_bounded(tsa_root, MAX_ROOT_BYTES)
    try:
        held, seconds, by = _in_block(data) if entry is None else _in_token(data, entry, roots)
        head, time = parse_entry(held), datetime.fromtimestamp(seconds, UTC).isoformat()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # of six packages, which parse what a stranger may have written
        reason = plain(str(error)) or type(error).__name__
        raise ConfigurationError(f"{path}: does not prove an anchored head ({reason})") from error
    run = head.domain.chain_id, checksum(head.domain.contract)
    return AnchoredHead(path.name, *run, head.round, to_hex(head.head), time, by)


def token_request(entry: bytes) -> bytes:
    """Return a request for a token of an entry."""
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder  # noqa: PLC0415 - an extra

    builder = TimestampRequestBuilder().data(entry).hash_algorithm(HashAlgorithm.SHA256)
    return builder.build().as_bytes()


def _in_token(data: bytes, entry: bytes, roots: bytes) -> tuple[bytes, int, str]:
    import rfc3161_client as stamps  # noqa: PLC0415
    from cryptography import x509  # noqa: PLC0415 - an extra

    with warnings.catch_warnings(action="error"):  # of certificates that break their standard
        answer = stamps.decode_timestamp_response(data)
        if answer.status != 0:
            raise ValueError(f"the authority returned no token: {' '.join(answer.status_string)}")
        verifier = stamps.VerifierBuilder(roots=x509.load_pem_x509_certificates(roots)).build()
        try:
            verifier.verify_message(answer, entry)
        except stamps.VerificationError:
            rule = "the token must be of this head, and of an authority that --tsa-root names"
            raise ValueError(rule) from None
        [signer] = answer.signed_data.signer_infos
        known = map(x509.load_der_x509_certificate, answer.signed_data.certificates)
        signed_by = signer.issuer, signer.serial_number
        # Of two with one name, the verifier may have looked at the purpose of the other.
        [authority] = [each for each in known if (each.issuer, each.serial_number) == signed_by]
    time = int(answer.tst_info.gen_time.timestamp())
    return entry, time, f"a token of {authority.subject.rfc4514_string()}"


def _in_block(data: bytes) -> tuple[bytes, int, str]:
    anchor = parse_json(data)
    block, encoded = anchor["block"], wire.data(anchor["transaction"])
    place = rlp.encode(wire.quantity(anchor["index"]))
    nodes = [rlp.decode(wire.data(node)) for node in anchor["proof"]]
    if HexaryTrie.get_from_proof(wire.data(block["transactionsRoot"]), place, nodes) != encoded:
        raise ValueError("the transaction is not in the block")
    sent = SignedTransaction.decode(encoded)
    if sent.to != sent.sender:
        raise ValueError("the transaction must go from an account to itself")
    where = f"block {wire.quantity(block['number'])} of chain {sent.chain_id}"
    by = f"{checksum(sent.sender)} in {where}, which must have the hash {_hash_of(block)}"
    return sent.data, wire.quantity(block["timestamp"]), f"a transaction of {by}"


def transaction_anchor(
    block: Mapping[str, Any], transactions: Sequence[bytes], transaction_hash: bytes
) -> bytes:
    """Return the anchor file of a transaction, given a node's JSON of its block, and all in it."""
    header = {name: block[name] for name in wire.HEADER if block.get(name) is not None}
    trie, places = HexaryTrie({}), dict[bytes, int]()
    for index, encoded in enumerate(transactions):
        trie[rlp.encode(index)] = encoded
        places[keccak256(encoded)] = index
    made = _hash_of(header), to_hex(trie.root_hash)
    if made != (block.get("hash"), block.get("transactionsRoot")) or transaction_hash not in places:
        raise ChainError(
            f"transaction {to_hex(transaction_hash)} has the head, but its block is not proven; "
            f"the node's block must have the hash {made[0]} and the transactions' root {made[1]}"
        )
    index = places[transaction_hash]
    proof = [to_hex(rlp.encode(node)) for node in trie.get_proof(rlp.encode(index))]
    sent = {"transaction": to_hex(transactions[index]), "index": hex(index), "proof": proof}
    return (json.dumps({"block": header, **sent}, indent=1) + "\n").encode()


_NUMBERS = "difficulty number gasLimit gasUsed timestamp baseFeePerGas blobGasUsed excessBlobGas"


def _hash_of(header: Mapping[str, Any]) -> str:
    """Return the hash of a block. Its fields are the first ones: no name stands for another."""
    named, read = wire.HEADER[: len(header)], dict.fromkeys(_NUMBERS.split(), wire.quantity)
    fields = [read.get(name, wire.data)(header[name]) for name in named]
    return to_hex(keccak256(rlp.encode(fields)))
