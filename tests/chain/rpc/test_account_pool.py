"""Several accounts of one owner: who can pay does, and nobody who cannot is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import TEST_KEYS, address_of
from ledger.chain.ports import TransactionRefusedError, WrongChainIdError
from ledger.chain.rpc.account_pool import AccountPoolChain
from ledger.chain.rpc.rpc_reader import GWEI, RpcSettings
from ledger.chain.rpc.server.http_server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOMEBODY = "0x" + "11" * 20
KEYS = [bytes(31) + bytes([number]) for number in (1, 2, 3)]
"""PUBLIC TEST KEYS of one owner."""
GAS = 21_000
MOST = GAS * 2 * GWEI
"""What an account has to own for a transfer at first: twice the base fee of a gwei, and no tip."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RpcServer]:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        for key, wei in zip(KEYS, (0, MOST, MOST * 9 // 10), strict=True):
            if wei:
                chain.send(address_of(key), b"", 30_000, value=wei)
        with RpcServer(chain) as server:
            yield server


def purse(server: RpcServer, keys: list[bytes]) -> AccountPoolChain:
    settings = RpcSettings(poll_seconds=0.02)
    return AccountPoolChain(server.url, keys, chain_id=1_129_137_740, settings=settings)


def test_the_richest_account_pays_until_another_is_richer(server: RpcServer) -> None:
    with purse(server, KEYS) as mine:
        senders = [mine.sender]
        for _ in range(2):
            mine.send(SOMEBODY, b"", GAS)
            senders.append(mine.sender)
    first, second = address_of(KEYS[1]), address_of(KEYS[2])
    # A transfer costs half of what its account has to own for it.
    assert senders == [first, first, second]


def test_an_account_that_can_pay_continues_though_another_is_richer(server: RpcServer) -> None:
    with purse(server, [TEST_KEYS[3], TEST_KEYS[4]]) as mine:
        sender = mine.sender
        for _ in range(2):
            mine.send(SOMEBODY, b"", GAS)
            assert mine.sender == sender


def test_where_nobody_can_pay_the_refusal_says_what_is_owned(server: RpcServer) -> None:
    with (
        purse(server, KEYS[:1]) as poor,
        pytest.raises(TransactionRefusedError, match="it owns 0 wei: send it funds"),
    ):
        poor.send(SOMEBODY, b"", GAS)
    with (
        purse(server, KEYS[:2]) as mine,
        pytest.raises(TransactionRefusedError, match="send it funds"),
    ):
        mine.send(SOMEBODY, b"", GAS, value=10**18)


def test_another_chain_is_refused_as_for_one_account(server: RpcServer) -> None:
    with pytest.raises(WrongChainIdError):
        AccountPoolChain(server.url, KEYS, chain_id=7)
