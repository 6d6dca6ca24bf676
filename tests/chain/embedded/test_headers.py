"""Anybody can recompute a block's hash from the fields of its header, without this program."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import rlp  # type: ignore[import-untyped]
from eth.constants import BLANK_ROOT_HASH
from eth_hash.auto import keccak

from ledger.chain.embedded import evm
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.chain.probe import deploy, words

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from eth.abc import BlockHeaderAPI

EMPTY_TRIE = keccak(rlp.encode(b""))
NO_UNCLES = keccak(rlp.encode([]))


def hash_of(header: BlockHeaderAPI) -> bytes:
    """Return the hash of a Prague header as EIP-7685 leaves it: 21 fields, in this order."""
    fields = [
        header.parent_hash,
        NO_UNCLES,
        header.coinbase,
        header.state_root,
        header.transaction_root,
        header.receipt_root,
        header.bloom.to_bytes(256, "big"),
        0,  # difficulty
        header.block_number,
        header.gas_limit,
        header.gas_used,
        header.timestamp,
        header.extra_data,
        header.mix_hash,
        bytes(8),  # nonce
        header.base_fee_per_gas,
        EMPTY_TRIE,  # withdrawals
        0,  # blob gas used
        0,  # excess blob gas
        bytes(32),  # parent beacon block root
        hashlib.sha256(b"").digest(),  # requests
    ]
    return keccak(rlp.encode(fields))


def test_each_blocks_hash_follows_from_its_fields(tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
        chain.send(deploy(chain), words(1, 2), 200_000)
        chain.mine(1)
        for number in range(4):
            header = chain.header(number)
            assert hash_of(header) == header.hash == chain.block(number).hash
        chain.verify(execute=True)


def test_a_chain_from_before_this_rule_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(evm, "BEACON_ROOT", BLANK_ROOT_HASH)
        with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
            probe = deploy(chain)
    with EmbeddedChain.open(tmp_path / "chain.sqlite") as chain:
        assert chain.header(1).parent_beacon_block_root == BLANK_ROOT_HASH
        chain.send(probe, words(1, 2), 200_000)
        assert hash_of(chain.header()) == chain.head().hash
        chain.verify(execute=True)
