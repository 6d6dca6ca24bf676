"""What is given up stands in the way of all that its account sends later, so the next takes over.

The node keeps transactions waiting as a test says; the chain under it is the embedded one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import TransactionRefusedError, TransactionTimeoutError
from tests.chain.rpc.pool_node import PoolNode
from tests.chain.rpc.test_sending import GAS, SOMEBODY, received, sender
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.chain.rpc.in_flight import InFlightTransaction

OVER = PATIENCE_SECONDS + 1


@pytest.fixture
def node(chain: EmbeddedChain) -> Iterator[PoolNode]:
    with PoolNode(chain) as node:
        yield node


def given_up(pending: InFlightTransaction) -> None:
    with pytest.raises(TransactionTimeoutError):
        pending.poll()


def test_the_next_replaces_a_pending_nonce_and_offers_more(node: PoolNode) -> None:
    now = [0.0]
    with sender(node.url, clock=lambda: now[0]) as mine:
        first = mine.submit(SOMEBODY, b"\x01", GAS)
        before = node.only(mine.sender)
        now[0] += OVER
        given_up(first)
        second = mine.submit(SOMEBODY, b"\x02", GAS)
        assert second.nonce == first.nonce == 0, "behind it, the second would wait for the first"
        after = node.only(mine.sender)
        assert (bytes(after.hash), after.data) == (second.hash, b"\x02")
        assert 10 * after.max_fee_per_gas >= 11 * before.max_fee_per_gas
        node.mine()
        assert received(second).status == 1
        assert mine.submit(SOMEBODY, b"", GAS).nonce == 1


def test_retries_for_hours_leave_one_transaction_in_the_pool(node: PoolNode) -> None:
    now = [0.0]
    with sender(node.url, clock=lambda: now[0], max_tip_per_gas_wei=3) as mine:
        for _ in range(4):
            pending = mine.submit(SOMEBODY, b"", GAS)
            now[0] += OVER
            given_up(pending)
        last = node.only(mine.sender)
        assert last.max_priority_fee_per_gas == 3
        for _ in range(2):
            with pytest.raises(
                TransactionRefusedError, match="nonce 0 is still pending, and the caps"
            ):
                mine.submit(SOMEBODY, b"", GAS)
        assert node.only(mine.sender) == last


def test_the_gap_of_a_dropped_transaction_is_filled_first(node: PoolNode) -> None:
    now = [0.0]
    with sender(node.url, clock=lambda: now[0]) as mine:
        first = mine.submit(SOMEBODY, b"", GAS)
        now[0] += OVER / 2
        later = [mine.submit(SOMEBODY, b"", GAS) for _ in range(2)]
        now[0] += OVER / 2
        given_up(first)
        del node.waiting[mine.sender, 0]
        next_one = mine.submit(SOMEBODY, b"", GAS)
        assert next_one.nonce == 0, "the others wait for this nonce"
        assert mine.submit(SOMEBODY, b"", GAS).nonce == 3
        node.mine()
        assert [received(one).status for one in (next_one, *later)] == [1, 1, 1]


def test_a_transaction_mined_after_all_blocks_nothing(node: PoolNode) -> None:
    now = [0.0]
    with sender(node.url, clock=lambda: now[0]) as mine:
        first = mine.submit(SOMEBODY, b"", GAS)
        now[0] += OVER
        given_up(first)
        node.mine()
        # A node behind the same URL that lags says that it still waits.
        lagging = ["0x0", "0x1"]
        node.answers["eth_getTransactionCount"] = lambda *asked: (
            lagging.pop() if lagging else node.count(*asked)
        )
        assert mine.submit(SOMEBODY, b"", GAS).nonce == 1
