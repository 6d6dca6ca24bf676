"""The block of an account's transaction is found by its nonce, with what states a node keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import DEFAULT_CHAIN_ID
from ledger.chain.ports import NotServedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.sending_node import SendingNode, blocks_of
from ledger.chain.rpc.server.http_server import RpcServer

if TYPE_CHECKING:
    from pathlib import Path

SOMEBODY = "0x" + "11" * 20


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 600))
def test_one_block_suffices_with_an_archive_node(newest: int, depth: int, kept: int) -> None:
    holder, asked = max(1, newest - depth), []

    def count(number: int) -> int:
        asked.append(number)
        if number < newest - kept:
            raise wire.RpcFault(wire.SERVER_ERROR, "missing trie node")
        return 5 if number >= holder else 4

    if holder > newest:
        return
    found = blocks_of(4, newest, count)
    assert holder in found
    assert len(asked) <= 2 * (depth + 1).bit_length() + 1
    if kept >= newest:
        assert len(found) == 1


def test_each_transaction_of_an_account_is_found(tmp_path: Path) -> None:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
        SendingNode(server.url, chain_id=DEFAULT_CHAIN_ID) as node,
    ):
        chain.mine(2)
        sent = [chain.send(SOMEBODY, bytes([number]), 30_000) for number in range(3)]
        chain.mine(5)
        sent += [chain.send(SOMEBODY, b"", 30_000)]
        for reader in (chain, node):
            assert [reader.receipt_of(chain.sender, nonce) for nonce in range(4)] == sent
            assert reader.receipt_of(chain.sender, 4) is None
            assert reader.receipt_of(SOMEBODY, 0) is None


def test_a_node_missing_counted_blocks_does_not_deny_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
        SendingNode(server.url, chain_id=DEFAULT_CHAIN_ID) as node,
    ):
        chain.mine(1)
        monkeypatch.setattr(node, "nonce_at", lambda *_: 1)
        with pytest.raises(NotServedError, match="nonce 0, although it is mined"):
            node.receipt_of(chain.sender, 0)
