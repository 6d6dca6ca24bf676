"""Transactions over a line that fails: each intent is mined once, or its error says no."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.ports import (
    ChainUnreachableError,
    LogQuery,
    NotServedError,
    TransactionRefusedError,
    TransactionTimeoutError,
)
from ledger.chain.rpc.node import RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.sender import InFlightTransaction
from ledger.chain.rpc.server import RpcServer
from tests.chain.probe import deploy, words
from tests.chain.rpc.faulty_proxy import FaultyProxy, Trouble
from tests.chain.rpc.pool_node import PoolNode
from tests.chain.rpc.scripted_node import Fault
from tests.faults import times
from tests.patience import PATIENCE_SECONDS, wait_until

SOMEBODY = "0x" + "11" * 20
GAS = 50_000
SENDING = {"eth_sendRawTransaction"}


def sender(
    url: str, key: bytes = TEST_KEYS[2], clock: Callable[[], float] = time.monotonic, **changes: Any
) -> RpcChain:
    settings: dict[str, Any] = {
        "request_timeout_seconds": PATIENCE_SECONDS,
        "retry_pause_seconds": 0.01,
        "receipt_timeout_seconds": PATIENCE_SECONDS,
        "resend_seconds": 0.05,
        "replace_seconds": 0.1,
        "poll_seconds": 0.02,
    }
    found = RpcSettings(**{**settings, **changes})
    return RpcChain(url, key, chain_id=1_129_137_740, settings=found, clock=clock)


def in_turn(methods: set[str], *troubles: Trouble) -> Callable[[str], Trouble]:
    left = list(troubles)
    return lambda method: left.pop(0) if method in methods and left else Trouble.NONE


class TestALineThatFails:
    @pytest.mark.parametrize("trouble", [one for one in Trouble if one is not Trouble.NONE])
    def test_a_transaction_is_mined_once_whatever_becomes_of_its_request(
        self, chain: EmbeddedChain, trouble: Trouble
    ) -> None:
        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, in_turn(SENDING, trouble, trouble)) as proxy,
            sender(proxy.url) as mine,
        ):
            receipt = mine.send(SOMEBODY, b"", GAS)
        assert (receipt.status, receipt.block_number, chain.head().number) == (1, 1, 1)
        assert chain.account(mine.sender)[0] == 1

    def test_a_node_that_is_down_is_reported_once_and_its_return_too(
        self, chain: EmbeddedChain, caplog: pytest.LogCaptureFixture
    ) -> None:
        receipts = {"eth_getTransactionReceipt"}
        # Two polls fail, of two requests each.
        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, in_turn(receipts, *[Trouble.LOST] * 4)) as proxy,
            sender(proxy.url, retries=1) as mine,
        ):
            assert mine.send(SOMEBODY, b"", GAS).status == 1
            down, again = [record.getMessage() for record in caplog.records]
            assert down.startswith(f"{proxy.url}: ")
            assert "; retries for at most " in down
            assert again == f"{proxy.url}: the node answers again"

    @pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.BAD_GATEWAY, Trouble.DONE_AND_CUT])
    def test_what_is_only_read_is_asked_again(self, chain: EmbeddedChain, trouble: Trouble) -> None:
        # The first block that is asked for is genesis; then one try and three retries fail.
        script = in_turn({"eth_getBlockByNumber"}, Trouble.NONE, *[trouble] * 7)
        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, script) as proxy,
            sender(proxy.url, retries=3) as mine,
        ):
            with pytest.raises(ChainUnreachableError):
                mine.head()
            assert proxy.troubles[trouble] == 4
            assert mine.head().number == 0

    def test_lines_that_fail_at_random_lose_and_double_nothing(self, chain: EmbeddedChain) -> None:
        rng = random.Random(7)
        probe = deploy(chain)
        number = times(6, 300)

        def trouble(_: str) -> Trouble:
            return rng.choice(list(Trouble)) if rng.random() < 0.3 else Trouble.NONE

        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, in_turn(set())) as proxy,
            sender(proxy.url) as mine,
        ):
            proxy.trouble = trouble
            for value in range(1, number + 1):
                insist(mine, probe, words(value, 0))
        values = [int.from_bytes(log.data) for log in chain.logs(LogQuery(probe, [], 0, 10**9))]
        assert values == list(range(1, number + 1))
        assert sum(proxy.troubles.values()) > proxy.troubles[Trouble.NONE] > number

    def test_a_line_that_stays_cut_is_given_up_in_time(self, chain: EmbeddedChain) -> None:
        now = [0.0]
        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, in_turn(set())) as proxy,
            sender(proxy.url, clock=lambda: now[0], retries=1) as mine,
        ):
            pending = mine.submit(SOMEBODY, b"", GAS)
            proxy.trouble = lambda _: Trouble.LOST
            with pytest.raises(NotServedError):
                pending.poll()
            now[0] = PATIENCE_SECONDS + 1
            with pytest.raises(TransactionTimeoutError, match=r"the node reported: .*unreachable"):
                pending.poll()


def insist(mine: RpcChain, to: str, data: bytes) -> None:
    """Send once, however often the node has to be asked what a transaction costs."""
    while True:
        try:
            mine.send(to, data, 200_000)
        except ChainUnreachableError:  # before anything was sent
            continue
        return


class TestSeveralInFlight:
    def test_nonces_are_consecutive_and_a_lost_one_stops_nothing(
        self, chain: EmbeddedChain
    ) -> None:
        script = in_turn(SENDING, Trouble.NONE, Trouble.LOST)
        with (
            RpcServer(chain) as server,
            FaultyProxy(server.url, script) as proxy,
            sender(proxy.url) as mine,
        ):
            waiting = [mine.submit(SOMEBODY, b"", GAS) for _ in range(4)]
            assert [one.nonce for one in waiting] == [0, 1, 2, 3]
            assert chain.head().number == 1, "the second was lost, and the others wait for it"
            blocks = [found.block_number for found in map(received, waiting)]
        assert blocks == [1, 2, 3, 4]

    def test_twelve_senders_at_once_all_get_through_while_others_read(
        self, chain: EmbeddedChain
    ) -> None:
        probe, values = deploy(chain), range(times(1, 3))
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with sender(server.url, TEST_KEYS[number % len(TEST_KEYS)]) as mine:
                    for value in values:
                        mine.send(probe, words(1 + number, value), 200_000)
                        assert mine.call(probe, b"") != b""
            except BaseException as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        with RpcServer(chain) as server:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failures == []
        assert chain.head().number == 1 + 12 * len(values)
        assert chain.head().timestamp <= time.time() + 1, "many blocks a second date none ahead"
        found = sorted(
            (int.from_bytes(log.topics[1]), int.from_bytes(log.topics[2]))
            for log in chain.logs(LogQuery(probe, [], 0, 100))
        )
        assert found == [(1 + number, value) for number in range(12) for value in values]


def received(pending: Any) -> Any:
    return wait_until(pending.poll)


class TestANodeWithAPool:
    """A node that keeps transactions waiting, as all but the embedded chain do."""

    def test_a_skipped_transaction_is_replaced_by_one_that_pays_more(
        self, chain: EmbeddedChain
    ) -> None:
        with PoolNode(chain) as node, sender(node.url) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            first = node.only(mine.sender)
            waited(pending, lambda: chain.mine(1), lambda: node.only(mine.sender) != first)
            second = node.only(mine.sender)
            assert (second.nonce, second.to) == (first.nonce, first.to)
            assert 10 * second.max_fee_per_gas >= 11 * first.max_fee_per_gas
            assert second.max_priority_fee_per_gas > first.max_priority_fee_per_gas
            node.mine()
            receipt = received(pending)
            assert receipt.transaction_hash == bytes(second.hash) == pending.hash
        assert chain.account(mine.sender)[0] == 1

    def test_nothing_is_replaced_where_no_block_has_come(self, chain: EmbeddedChain) -> None:
        with PoolNode(chain) as node, sender(node.url, replace_seconds=0.0) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            first = node.only(mine.sender)
            for _ in range(5):
                assert pending.poll() is None
            assert node.only(mine.sender) == first

    def test_an_unaffordable_replacement_leaves_the_earlier_one(self, chain: EmbeddedChain) -> None:
        with PoolNode(chain) as node, sender(node.url, replace_seconds=0.0) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            first = node.only(mine.sender)
            dearer = []

            def poor(raw: str) -> object:
                if raw == "0x" + first.encode().hex():
                    return node.take(raw)
                dearer.append(raw)
                return Fault(-32000, "insufficient funds for gas")

            node.answers["eth_sendRawTransaction"] = poor
            waited(pending, lambda: chain.mine(1), lambda: len(dearer) > 0)
            node.drop(mine.sender)
            waited(pending, lambda: None, lambda: node.has(mine.sender))
            assert node.only(mine.sender) == first
            assert pending.hash == bytes(first.hash)

    def test_the_effect_of_a_replaced_transaction_counts_if_mined(
        self, chain: EmbeddedChain
    ) -> None:
        with PoolNode(chain) as node, sender(node.url, replace_seconds=0.0) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            first = node.only(mine.sender)
            waited(pending, lambda: chain.mine(1), lambda: node.only(mine.sender) != first)
            node.put(first)
            node.mine()
            assert received(pending).transaction_hash == bytes(first.hash) != pending.hash

    def test_a_dropped_transaction_is_sent_again(self, chain: EmbeddedChain) -> None:
        with PoolNode(chain) as node, sender(node.url) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            dropped = node.only(mine.sender)
            node.drop(mine.sender)
            waited(pending, lambda: None, lambda: node.has(mine.sender))
            assert node.only(mine.sender) == dropped
            node.mine()
            assert received(pending).transaction_hash == bytes(dropped.hash)

    def test_nonce_used_by_another_program_is_reported_and_not_repeated(
        self, chain: EmbeddedChain
    ) -> None:
        with PoolNode(chain) as node, sender(node.url) as mine:
            pending = mine.submit(SOMEBODY, b"", GAS)
            node.drop(mine.sender)
            chain.send(SOMEBODY, b"\x07", GAS, key=TEST_KEYS[2])
            with pytest.raises(TransactionRefusedError, match="another transaction has nonce 0"):
                received(pending)
            assert not node.has(mine.sender)
            after = mine.submit(SOMEBODY, b"", GAS)
            assert after.nonce == 1

    @pytest.mark.parametrize("can_be_asked", [True, False])
    def test_a_refusal_after_acceptance_leads_to_no_second_transaction(
        self, chain: EmbeddedChain, can_be_asked: bool
    ) -> None:
        def taken_and_refused(raw: str) -> object:
            node.take(raw)
            node.mine()
            return node.take(raw)

        with PoolNode(chain) as node, sender(node.url) as mine:
            node.answers["eth_sendRawTransaction"] = taken_and_refused
            if not can_be_asked:
                del node.answers["eth_getTransactionByHash"]
            assert mine.send(SOMEBODY, b"", GAS).status == 1
        assert chain.account(mine.sender)[0] == chain.head().number == 1


def waited(pending: Any, turn: Callable[[], object], is_there: Callable[[], bool]) -> None:
    """Look until something is there, a turn before each look."""

    def is_there_now() -> bool:
        if is_there():
            return True
        turn()
        assert pending.poll() is None
        return False

    wait_until(is_there_now)


OVER = PATIENCE_SECONDS + 1


@pytest.fixture(name="node")
def pool_node(chain: EmbeddedChain) -> Iterator[PoolNode]:
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
