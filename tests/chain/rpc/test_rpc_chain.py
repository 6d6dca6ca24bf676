"""Nodes that are away, wrong, slow, limited or malicious: each a chain error, none a traceback."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.ports import (
    ChainUnreachableError,
    LogQuery,
    NotServedError,
    TransactionRefusedError,
    TransactionRevertedError,
    TransactionTimeoutError,
    WrongChainError,
)
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.chain.rpc.wire import AnswerTooLargeError, MalformedAnswerError, place
from ledger.protocol.errors import ChainError
from tests.chain.rpc.scripted_node import BLOCK, Fault, Raw, ScriptedNode
from tests.patience import PATIENCE_SECONDS

SOMEBODY = "0x" + "11" * 20
SHORT: dict[str, Any] = {
    "request_timeout_seconds": PATIENCE_SECONDS,
    "retries": 0,
    "receipt_timeout_seconds": 0.2,
    "poll_seconds": 0.02,
}
QUICK = RpcSettings(**SHORT)
HASTY = RpcSettings(request_timeout_seconds=0.2, retries=0)
"""For nodes that never answer as a whole; an answer may take long where cores are busy."""


def reader(node: ScriptedNode, **changes: Any) -> RpcReader:
    return RpcReader(node.url, chain_id=7, settings=RpcSettings(**{**SHORT, **changes}))


def test_another_chain_id_or_genesis_is_refused(chain: EmbeddedChain) -> None:
    with RpcServer(chain) as server:
        RpcReader(server.url, chain_id=chain.chain_id, genesis_hash=chain.genesis_hash).close()
        with pytest.raises(WrongChainError, match=r"expected 1$"):
            RpcReader(server.url, chain_id=1)
        with pytest.raises(WrongChainError):
            RpcReader(server.url, chain_id=chain.chain_id, genesis_hash=b"\x01" * 32)


class TestUnreachableNodes:
    def test_a_closed_port_is_named_without_credentials(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        url = f"http://user:secret@127.0.0.1:{port}/v3/apikey?token=abc"
        with pytest.raises(ChainUnreachableError) as caught:
            RpcReader(url, chain_id=1, settings=QUICK)
        assert str(caught.value).startswith(f"http://127.0.0.1:{port}: unreachable")
        for secret in ("user", "secret", "apikey", "abc"):
            assert secret not in str(caught.value)
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize(
        "url", ["", "ftp://h", "http://", "localhost:8545", "http://[::1", "http://h:99999"]
    )
    def test_what_is_no_address_is_refused(self, url: str) -> None:
        with pytest.raises(ChainError, match="the address "):
            RpcReader(url, chain_id=1)

    def test_a_dribbling_node_is_given_up(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            stop = threading.Event()
            thread = threading.Thread(target=dribble, args=(server, stop))
            thread.start()
            try:
                with pytest.raises(ChainUnreachableError, match=r"no whole answer in 0\.2 s"):
                    RpcReader(
                        f"http://127.0.0.1:{server.getsockname()[1]}", chain_id=1, settings=HASTY
                    )
            finally:
                stop.set()
                thread.join()

    @pytest.mark.parametrize("status", [301, 404, 429, 500])
    def test_an_http_failure_is_named_and_no_redirect_followed(self, status: int) -> None:
        with (
            ScriptedNode(eth_chainId=Raw(b"<html>", status)) as node,
            pytest.raises(ChainUnreachableError, match=f"HTTP status {status}"),
        ):
            reader(node)

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (
                b'{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"slow down"}}',
                "slow down",
            ),
            (b' {"error":"slow down"}', "slow down"),
            (b'{"jsonrpc":"2.0","id":1,"result":"0x1"}', ""),
        ],
    )
    def test_json_of_a_server_in_trouble_is_no_answer(
        self, status: int, body: bytes, said: str
    ) -> None:
        answers = [Raw(body, status), Raw(body, status), "0x5"]
        patient = {
            "retries": 2,
            "retry_pause_seconds": 0.01,
            "request_timeout_seconds": PATIENCE_SECONDS,
        }
        with (
            ScriptedNode(eth_getBalance=lambda *_: answers.pop(0)) as node,
            reader(node, **patient) as chain,
        ):
            assert chain.balance_of(SOMEBODY) == 5
            answers += [Raw(body, status)] * 3
            with pytest.raises(ChainUnreachableError, match=f"HTTP status {status}.*{said}$"):
                chain.balance_of(SOMEBODY)
            assert answers == []

    def test_a_json_error_with_status_4xx_is_an_answer(self) -> None:
        body = b'{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"execution reverted"}}'
        with (
            ScriptedNode(eth_call=Raw(body, 400)) as node,
            reader(node) as chain,
            pytest.raises(TransactionRevertedError),
        ):
            chain.call(SOMEBODY, b"")

    @pytest.mark.parametrize(
        ("asked_for", "waited"),
        [("2", [2.0, 2.0]), ("0", [0.1, 0.3]), ("soon", [0.1, 0.3]), ("119", [119.0]), ("121", [])],
    )
    def test_a_node_is_left_alone_as_long_as_it_asks(
        self, asked_for: str, waited: list[float]
    ) -> None:
        waits: list[float] = []
        settings = RpcSettings(retries=2, request_timeout_seconds=PATIENCE_SECONDS)
        with ScriptedNode(eth_getBalance=Raw(b"{}", 429)) as node:
            node.headers["Retry-After"] = asked_for
            url, sleep = node.url, waits.append
            with (
                RpcReader(
                    url, chain_id=7, settings=settings, sleep=sleep, clock=lambda: sum(waits)
                ) as chain,
                pytest.raises(ChainUnreachableError, match="HTTP status 429"),
            ):
                chain.balance_of(SOMEBODY)
        assert waits == pytest.approx(waited)


@contextmanager
def at_100(
    finalized: Callable[[], object], difficulty: str = "0x1", **changes: Any
) -> Iterator[RpcReader]:
    head = {**BLOCK, "number": "0x64", "difficulty": difficulty}

    def block(tag: str, _: bool) -> object:
        return finalized() if tag == "finalized" else head if tag == "latest" else BLOCK

    with ScriptedNode(eth_getBlockByNumber=block) as node, reader(node, **changes) as chain:
        yield chain


def dribble(server: socket.socket, stop: threading.Event) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not stop.wait(0.05):
            try:
                connection.sendall(b"1\r\n \r\n")
            except OSError:
                return


class TestMalformedAnswers:
    @pytest.mark.parametrize(
        "answer",
        [
            Raw(b""),
            Raw(b"no JSON"),
            Raw(b"[]"),
            Raw(b"{}"),
            Raw(b'{"error": null}'),
            Raw(b"[" * 100_000),
            None,
            7,
            "7",
            "0x",
            "0x" + "1" * 65,
            ["0x7"],
        ],
    )
    def test_a_malformed_chain_id_is_refused(self, answer: object) -> None:
        with ScriptedNode(eth_chainId=answer) as node, pytest.raises(MalformedAnswerError):
            reader(node)

    @pytest.mark.parametrize(
        "changes",
        [
            {"number": None},
            {"number": "0x5"},
            {"hash": "0x12"},
            {"parentHash": 3},
            {"timestamp": "yesterday"},
        ],
    )
    def test_a_malformed_block_is_refused(self, changes: dict[str, object]) -> None:
        with (
            ScriptedNode(eth_getBlockByNumber={**BLOCK, **changes}) as node,
            pytest.raises(MalformedAnswerError),
        ):
            reader(node)

    def test_a_place_that_sqlite_cannot_hold_is_refused(self) -> None:
        with pytest.raises(MalformedAnswerError):
            place(hex(2**63))

    @pytest.mark.parametrize("found", [{}, [], "x", {"blockNumber": "0x1"}, {"blockNumber": {}}])
    def test_a_malformed_receipt_or_transaction_is_refused(self, found: object) -> None:
        with (
            ScriptedNode(eth_getTransactionReceipt=found, eth_getTransactionByHash=found) as node,
            reader(node) as chain,
        ):
            if found != {}:
                with pytest.raises(MalformedAnswerError):
                    chain.receipt(b"\x01" * 32)
            with pytest.raises(ChainError):
                chain.transaction(b"\x01" * 32)

    def test_another_transaction_than_the_asked_one_is_refused(self, chain: EmbeddedChain) -> None:
        receipt = chain.send(None, b"", 100_000)
        with RpcServer(chain) as server:
            url, size = server.url, chain.chain_id
            with RpcReader(url, chain_id=size) as honest:
                known = honest._node.ask(
                    "eth_getTransactionReceipt", "0x" + receipt.transaction_hash.hex()
                )
        with (
            ScriptedNode(eth_getTransactionReceipt=known) as node,
            reader(node) as liar,
            pytest.raises(MalformedAnswerError, match="was asked for"),
        ):
            liar.receipt(b"\x01" * 32)

    def test_a_transaction_is_asked_for_again_while_it_is_called_pending(
        self, chain: EmbeddedChain
    ) -> None:
        sent = chain.send(None, b"", 100_000).transaction_hash
        with RpcServer(chain) as server, RpcReader(server.url, chain_id=chain.chain_id) as honest:
            known = honest._node.ask("eth_getTransactionByHash", f"0x{sent.hex()}")
        pending = {**known, "blockNumber": None, "blockHash": None, "transactionIndex": None}
        retrying = {"retries": 2, "retry_pause_seconds": 0.01}
        for times, is_found in ((2, True), (3, False)):
            answers = [*[pending] * times, known]
            with (
                ScriptedNode(eth_getTransactionByHash=lambda _, to=answers: to.pop(0)) as node,
                reader(node, **retrying) as patient,
            ):
                if is_found:
                    assert patient.transaction(sent) == chain.transaction(sent)
                else:
                    with pytest.raises(NotServedError, match="has no mined transaction"):
                        patient.transaction(sent)
                assert node.asked.count(("eth_getTransactionByHash", [f"0x{sent.hex()}"])) == 3

    @pytest.mark.parametrize("logs", [None, {}, [1], [{}], [{"topics": "0x"}]])
    def test_malformed_logs_are_refused(self, logs: object) -> None:
        with (
            ScriptedNode(eth_getLogs=logs) as node,
            reader(node) as chain,
            pytest.raises(MalformedAnswerError),
        ):
            chain.logs(LogQuery(None, [], 0, 5))

    @pytest.mark.parametrize("code", [None, 3, "0x1", "0xgg", "12"])
    def test_malformed_bytes_are_refused(self, code: object) -> None:
        with ScriptedNode(eth_getCode=code, eth_call=code) as node, reader(node) as chain:
            with pytest.raises(MalformedAnswerError, match=f"{node.url}: eth_getCode failed .not "):
                chain.code(SOMEBODY)
            with pytest.raises(MalformedAnswerError, match=f"{node.url}: eth_call failed .not "):
                chain.call(SOMEBODY, b"")

    @pytest.mark.parametrize("error", ["just text", 5, {"code": "x"}, {"message": None}, []])
    def test_a_malformed_error_is_still_an_error(self, error: object) -> None:
        fault = Fault(0, "")
        fault.error = error  # type: ignore[assignment]
        with ScriptedNode(eth_chainId=fault) as node, pytest.raises(ChainError):
            reader(node)

    def test_an_endless_answer_is_cut_off(self) -> None:
        with (
            ScriptedNode(eth_getCode="0x" + "00" * 5000) as node,
            reader(node, max_answer_bytes=4000) as chain,
            pytest.raises(AnswerTooLargeError, match="over 4000 bytes"),
        ):
            chain.code(SOMEBODY)


class TestWhatANodeDoesNotServe:
    """A node's failure says nothing of the chain: no other error than this one comes of it."""

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            "0x",
            {},
            Fault(-32000, "transaction indexing is in progress"),
            Raw(b"<html>", 502),
            Raw(b'{"jsonrpc":"2.0","id":1}'),
        ],
    )
    def test_every_reading_method_says_not_served(self, answer: object) -> None:
        asked: list[Callable[[RpcReader], object]] = [
            lambda chain: chain.block(5),
            lambda chain: chain.transaction(b"\x01" * 32),
            lambda chain: chain.receipt(b"\x01" * 32) or chain.transaction(b"\x01" * 32),
            lambda chain: chain.logs(LogQuery(None, [], 0, 5)),
            lambda chain: chain.call(SOMEBODY, b"") or chain.block(5),
            lambda chain: chain.head(),
        ]
        names = ["TransactionByHash", "TransactionReceipt", "Logs"]
        answers: dict[str, object] = {f"eth_get{name}": answer for name in names}
        with (
            ScriptedNode(
                eth_call=answer,
                eth_getBlockByNumber=lambda tag, _: BLOCK if tag == "0x0" else answer,
                **answers,
            ) as node,
            reader(node) as chain,
        ):
            for ask in asked:
                with pytest.raises(NotServedError):
                    ask(chain)


class TestLogRanges:
    def log(self, number: int) -> dict[str, object]:
        return {
            "address": SOMEBODY,
            "topics": [],
            "data": "0x",
            "blockNumber": hex(number),
            "blockHash": "0x" + "0a" * 32,
            "transactionHash": "0x" + "0b" * 32,
            "logIndex": "0x0",
        }

    def limited(self, request: dict[str, str]) -> object:
        first, last = int(request["fromBlock"], 16), int(request["toBlock"], 16)
        if last - first >= 10:
            return Fault(-32600, "block range is too wide")
        return [self.log(number) for number in range(first, last + 1)]

    def test_a_refused_range_is_asked_for_in_parts(self) -> None:
        head = {**BLOCK, "number": hex(99)}
        with (
            ScriptedNode(
                eth_getLogs=self.limited,
                eth_getBlockByNumber=lambda tag, _: head if tag == "latest" else BLOCK,
            ) as node,
            reader(node) as chain,
        ):
            found = chain.logs(LogQuery(None, [], 0, 10**9))
            assert [log.block_number for log in found] == list(range(100))
            newest = chain.logs(LogQuery(None, [], 50, 90, 7, descending=True))
            assert [log.block_number for log in newest] == list(range(90, 83, -1))

    def test_a_refusal_that_does_not_go_away_is_told(self) -> None:
        head = {**BLOCK, "number": hex(1000)}
        with (
            ScriptedNode(
                eth_getLogs=Fault(-32000, "database is being rebuilt"),
                eth_getBlockByNumber=lambda tag, _: head if tag == "latest" else BLOCK,
            ) as node,
            reader(node) as chain,
        ):
            with pytest.raises(ChainError, match="database is being rebuilt"):
                chain.logs(LogQuery(None, [], 0, 1000))
            assert len([method for method, _ in node.asked if method == "eth_getLogs"]) <= 11

    def test_logs_that_were_not_asked_for_are_refused(self) -> None:
        with ScriptedNode(eth_getLogs=[self.log(0)]) as node, reader(node) as chain:
            assert len(chain.logs(LogQuery(SOMEBODY.upper().replace("X", "x"), [None], 0, 0))) == 1
            for address, topics in ((f"0x{'22' * 20}", []), (None, [None, b"\x01" * 32])):
                with pytest.raises(MalformedAnswerError, match="the filter does not match"):
                    chain.logs(LogQuery(address, topics, 0, 0))

    def test_logs_that_cannot_be_true_are_refused(self) -> None:
        one = self.log(0)
        for logs, fact in (
            ([one, one], "two logs at one place"),
            ([{**one, "removed": True}], "reverted"),
            ([self.log(5)], "outside 0 to 0"),
        ):
            with (
                ScriptedNode(eth_getLogs=logs) as node,
                reader(node) as chain,
                pytest.raises(MalformedAnswerError, match=fact),
            ):
                chain.logs(LogQuery(None, [], 0, 0))


class TestSending:
    def test_refuses_fees_over_the_cap_and_sends_nothing(self, chain: EmbeddedChain) -> None:
        with (
            RpcServer(chain) as server,
            client(server, max_fee_per_gas_wei=1000) as sender,
            pytest.raises(TransactionRefusedError, match="over the cap of 1000; nothing was sent"),
        ):
            sender.send(SOMEBODY, b"", 50_000)
        assert chain.head().number == 0

    @pytest.mark.parametrize(
        ("words_of_node", "help_"),
        [
            ("insufficient funds for gas * price + value", "it owns 17 wei: send it funds"),
            ("nonce too low", "another program may be sending with this"),
        ],
    )
    def test_a_refusal_names_the_account_and_keeps_the_nodes_words(
        self, words_of_node: str, help_: str
    ) -> None:
        with (
            ScriptedNode(
                eth_getTransactionCount="0x0",
                eth_getBalance="0x11",
                eth_getTransactionByHash=None,
                eth_sendRawTransaction=Fault(-32000, words_of_node),
            ) as node,
            RpcChain(node.url, TEST_KEYS[0], chain_id=7, settings=QUICK) as sender,
        ):
            assert sender.balance_of(sender.sender) == 17
            with pytest.raises(TransactionRefusedError) as caught:
                sender.send(SOMEBODY, b"", 50_000)
        assert str(caught.value).startswith(f"account {sender.sender}: ")
        assert words_of_node in str(caught.value)
        assert help_ in str(caught.value)

    @pytest.mark.parametrize(
        ("counts", "attempts", "most_seconds"), [(["0x0"], 9, 1.3), (map(hex, range(99)), 16, 9)]
    )
    def test_a_refused_nonce_is_abandoned_sooner_than_a_lost_race(
        self, counts: Iterable[str], attempts: int, most_seconds: float
    ) -> None:
        told = itertools.cycle(counts)
        waited: list[float] = []
        with (
            ScriptedNode(
                eth_getTransactionCount=lambda *_: next(told),
                eth_getTransactionByHash=None,
                eth_sendRawTransaction=Fault(-32000, "nonce too low"),
            ) as node,
            RpcChain(node.url, TEST_KEYS[0], chain_id=7, sleep=waited.append) as sender,
            pytest.raises(TransactionRefusedError, match="use one at a time"),
        ):
            sender.send(SOMEBODY, b"", 50_000)
        sent = [method for method, _ in node.asked if method == "eth_sendRawTransaction"]
        assert len(sent) == attempts
        assert sum(waited) < most_seconds

    def test_waits_for_confirmations(self, chain: EmbeddedChain) -> None:
        """One block comes in each pause between two looks."""
        settings = RpcSettings(confirmations=2, receipt_timeout_seconds=PATIENCE_SECONDS)
        with (
            RpcServer(chain) as server,
            RpcChain(
                server.url,
                TEST_KEYS[2],
                chain_id=1_129_137_740,
                settings=settings,
                sleep=lambda _: chain.mine(1),
            ) as sender,
        ):
            assert sender.send(SOMEBODY, b"", 50_000).block_number == 1
        assert chain.head().number == 3

    def test_gives_up_waiting_for_confirmations(self, chain: EmbeddedChain) -> None:
        with (
            RpcServer(chain) as server,
            client(server, confirmations=1, receipt_timeout_seconds=0.2) as sender,
            pytest.raises(TransactionTimeoutError, match=r"not confirmed within 0\.2 s"),
        ):
            sender.send(SOMEBODY, b"", 50_000)

    @pytest.mark.parametrize(
        "none", [Fault(-32000, "finalized block not found"), Fault(-39001, "Unknown block"), None]
    )
    def test_a_node_that_no_longer_names_final_blocks_is_refused(self, none: object) -> None:
        told: list[object] = [{**BLOCK, "number": "0x24"}]
        with at_100(lambda: told.pop() if told else none, confirmations=12) as chain:
            assert chain.finalized() == 36
            with pytest.raises(NotServedError, match="reports no final block, on a chain"):
                chain.finalized()

    @pytest.mark.parametrize(
        ("difficulty", "confirmations", "final"),
        [("0x0", 0, None), ("0x0", 12, 88), ("0x1", 0, 100), ("0x20000", 0, 100)],
    )
    def test_a_proof_of_stake_head_without_finality_is_not_final(
        self, difficulty: str, confirmations: int, final: int | None
    ) -> None:
        none = Fault(-32000, "finalized block not found")
        with at_100(lambda: none, difficulty, confirmations=confirmations) as chain:
            if final is not None:
                assert chain.finalized() == final
                return
            with pytest.raises(NotServedError, match="may be starting or lagging"):
                chain.finalized()

    def test_a_node_that_fails_does_not_make_its_head_final(self) -> None:
        with (
            at_100(lambda: Fault(-32005, "too many requests")) as chain,
            pytest.raises(NotServedError, match="too many requests"),
        ):
            chain.finalized()

    def test_a_node_falling_behind_itself_does_not_truncate_logs(self) -> None:
        heads = ["0x64", "0x64", "0x5f", "0x5f"]

        def block(tag: str, _: bool) -> object:
            return {**BLOCK, "number": heads.pop(0)} if tag == "latest" else BLOCK

        with (
            ScriptedNode(eth_getBlockByNumber=block, eth_getLogs=lambda _: []) as node,
            reader(node) as chain,
        ):
            assert chain.head().number == 100
            assert chain.logs(LogQuery(None, [], 0, 1_000)) == []
            with pytest.raises(NotServedError, match="had block 100, and now ends with 95"):
                chain.logs(LogQuery(None, [], 0, 100))
            assert chain.logs(LogQuery(None, [], 0, 95)) == []

    def test_a_node_returning_another_hash_may_have_the_transaction(self) -> None:
        with (
            ScriptedNode(
                eth_getTransactionCount="0x0",
                eth_maxPriorityFeePerGas="0x1",
                eth_sendRawTransaction="0x" + "01" * 32,
                eth_getTransactionReceipt=None,
            ) as node,
            RpcChain(node.url, TEST_KEYS[0], chain_id=7, settings=QUICK) as sender,
            pytest.raises(TransactionTimeoutError, match=r"0x0101.* where 0x.* was asked for"),
        ):
            sender.send(SOMEBODY, b"", 50_000)

    def test_waits_for_blocks_where_the_node_makes_none(self) -> None:
        with ScriptedNode() as node:
            sender = RpcChain(node.url, TEST_KEYS[0], chain_id=7, settings=QUICK)
            sender.mine(0)
            with pytest.raises(TransactionTimeoutError, match="block 1: not there"):
                sender.mine(1)
            sender.close()


def client(server: RpcServer, **changes: Any) -> RpcChain:
    settings = RpcSettings(**{**SHORT, "receipt_timeout_seconds": PATIENCE_SECONDS, **changes})
    return RpcChain(server.url, TEST_KEYS[2], chain_id=1_129_137_740, settings=settings)


@pytest.mark.parametrize(
    ("fault", "data"),
    [
        (Fault(3, "execution reverted", "0x1234"), b"\x12\x34"),
        (Fault(-32000, "execution reverted"), b""),
        (Fault(-32015, "VM execution error.", "Reverted 0x1234"), b"\x12\x34"),
        (Fault(-32000, "VM Exception", {"data": "0x1234"}), b"\x12\x34"),
    ],
)
def test_reverts_are_read_as_the_various_nodes_word_them(fault: Fault, data: bytes) -> None:
    with ScriptedNode(eth_call=fault) as node, reader(node) as chain:
        with pytest.raises(TransactionRevertedError) as caught:
            chain.call(SOMEBODY, b"")
        assert caught.value.data == data
