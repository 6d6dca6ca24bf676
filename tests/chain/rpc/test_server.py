"""The loopback server answers as a node does what is on its list, in bounds, to local programs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
import rlp  # type: ignore[import-untyped]
from eth_account import Account
from eth_hash.auto import keccak
from prometheus_client.parser import text_string_to_metric_families

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.methods import RpcMethods
from ledger.chain.rpc.server import MOST_REQUEST_BYTES, RpcServer
from ledger.protocol.errors import ChainError
from tests.chain.probe import RUNTIME_CODE, deploy, word, words
from tests.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture
def server(chain: EmbeddedChain) -> Iterator[RpcServer]:
    with RpcServer(chain) as server:
        yield server


def post(server: RpcServer, body: object, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    # No certificate is looked at: to read the trusted ones costs what ten answers do.
    with httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client:
        return client.post(server.url, content=content, headers=sent)


def ask(server: RpcServer, method: str, *parameters: object) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    return post(server, body).json()


def test_it_listens_on_loopback_only(server: RpcServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_a_taken_port_is_refused(chain: EmbeddedChain, server: RpcServer) -> None:
    with pytest.raises(ChainError, match="cannot listen here"):
        RpcServer(chain, port=int(server.url.rpartition(":")[2]))
    with pytest.raises(ChainError, match="cannot listen here"):
        RpcServer(chain, port=70_000)


@pytest.mark.parametrize(
    "method",
    ["eth_sendTransaction", "eth_sign", "personal_unlockAccount", "debug_setHead", "evm_revert"],
)
def test_methods_off_the_list_do_not_exist(server: RpcServer, method: str) -> None:
    assert ask(server, method)["error"]["code"] == -32601


def test_a_reader_is_served_without_the_methods_that_write(
    chain: EmbeddedChain, tmp_path: Path
) -> None:
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as reader, RpcServer(reader) as server:
        assert ask(server, "eth_blockNumber")["result"] == "0x0"
        for method in ("evm_mine", "eth_sendRawTransaction"):
            assert ask(server, method)["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("eth_chainId", [1]),
        ("eth_getBlockByNumber", []),
        ("eth_getBlockByNumber", [{}, 1, 2]),
        ("eth_getBlockByHash", ["0x12"]),
        ("eth_getBalance", ["0x12"]),
        ("eth_getBalance", ["0x" + "11" * 20, "0x" + "1" * 70]),
        ("eth_getLogs", [[]]),
        ("eth_getLogs", [{"topics": "0x"}]),
        ("eth_getLogs", [{"topics": [["0x12"]]}]),
        ("eth_getLogs", [{"blockHash": "0x" + "11" * 32}]),
        ("eth_call", [{"to": "0x" + "11" * 20, "data": "0x1"}]),
        ("eth_call", [{"to": "0x" + "11" * 20}, "0x99"]),
        ("eth_sendRawTransaction", ["0x02"]),
        ("evm_mine", ["0xffff"]),
        ("eth_accounts", [5]),
    ],
)
def test_wrong_parameters_are_an_error(
    server: RpcServer, method: str, parameters: list[object]
) -> None:
    assert ask(server, method, *parameters)["error"]["code"] in {-32602, -32000, -32005}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 50_000, b'{"id":NaN,"method":"eth_chainId"}']
)
def test_what_is_not_json_is_refused(server: RpcServer, body: bytes) -> None:
    assert post(server, body).status_code == 400


@pytest.mark.parametrize("body", [1, "x", None, {}, {"method": 5}, [], [1] * 101])
def test_what_is_no_request_is_an_error(server: RpcServer, body: object) -> None:
    assert post(server, body).json()["error"]["code"] == -32600


def test_batch_requests_beyond_the_answer_size_are_not_executed(
    server: RpcServer, chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.chain.rpc.server.MOST_BATCH_BYTES", 1000)
    block = {"jsonrpc": "2.0", "method": "eth_getBlockByNumber", "params": ["0x0", True]}
    mine = {"jsonrpc": "2.0", "method": "evm_mine"}
    answers = post(server, [{**block, "id": 5}, {**mine, "id": "x"}, mine, {**mine, "id": [1]}])
    whole, refused, nobody = answers.json()
    assert whole["result"]["number"] == "0x0"
    assert (refused["id"], refused["error"]["code"]) == ("x", -32005)
    assert refused["error"]["message"] == "the answers to this batch are over 1000 bytes"
    assert (nobody["id"], nobody["error"]["code"]) == (None, -32005)
    assert chain.head().number == 0
    assert len(post(server, [{**block, "id": 5}]).json()) == 1


def test_pages_for_monitoring_are_served_and_no_others(
    chain: EmbeddedChain, server: RpcServer
) -> None:
    chain.mine(3)
    with httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS, base_url=server.url) as client:
        told = client.get("/health")
        assert (told.status_code, told.text) == (200, "ok\n")
        assert told.headers["Content-Type"] == "text/plain; charset=utf-8"
        (block,) = text_string_to_metric_families(client.get("/metrics").text)
        assert (block.type, block.samples[0].value) == ("gauge", 3.0)
        assert client.get("/accounts").status_code == 404
        for headers in ({"Host": "evil.example"}, {"Origin": "http://localhost"}):
            assert client.get("/health", headers=headers).status_code == 403


def test_browsers_and_other_content_are_refused(server: RpcServer) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}
    assert post(server, request, Origin="https://example.org").status_code == 403
    assert post(server, request, Host="example.org").status_code == 403
    assert post(server, request, **{"Content-Type": "text/plain"}).status_code == 415
    assert post(server, request).status_code == 200


@pytest.mark.parametrize(
    ("length", "status"),
    [(None, 411), ("-5", 411), ("9" * 30, 413), (str(MOST_REQUEST_BYTES + 1), 413)],
)
def test_a_body_without_bounds_is_refused(
    server: RpcServer, length: str | None, status: int
) -> None:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.putrequest("POST", "/")
        connection.putheader("Content-Type", "application/json")
        if length is not None:
            connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == status


def test_answers_are_those_of_the_chain(chain: EmbeddedChain, server: RpcServer) -> None:
    probe = deploy(chain)
    receipt = chain.send(probe, words(7, 9), 200_000)
    block_hash = "0x" + chain.block(2).hash.hex()
    cases: list[tuple[Any, object]] = [
        (ask(server, "eth_getCode", probe, "latest"), "0x" + RUNTIME_CODE.hex()),
        (ask(server, "eth_getCode", probe, "earliest"), "0x"),
        (ask(server, "eth_getTransactionCount", chain.sender, "pending"), "0x2"),
        (ask(server, "eth_getTransactionCount", chain.sender, "0x1"), "0x1"),
        (ask(server, "eth_call", {"to": probe}, {"blockHash": block_hash}), "0x" + word(7).hex()),
        (ask(server, "eth_call", {"to": probe}, {"blockNumber": "0x1"}), "0x" + word(0).hex()),
        (ask(server, "eth_getBlockByNumber", "0x63", False), None),
        (ask(server, "eth_getBlockByHash", "0x" + "11" * 32, False), None),
        (ask(server, "eth_getTransactionByHash", "0x" + "11" * 32), None),
        (ask(server, "eth_accounts"), []),
        (ask(server, "net_version"), str(chain.chain_id)),
    ]
    for answer, expected in cases:
        assert answer["result"] == expected
    by_hash = ask(server, "eth_getBlockByHash", block_hash, False)["result"]
    assert by_hash["transactions"] == ["0x" + receipt.transaction_hash.hex()]
    [log] = ask(server, "eth_getLogs", {"blockHash": block_hash})["result"]
    assert log["transactionHash"] == by_hash["transactions"][0]
    [same] = ask(server, "eth_getLogs", {"fromBlock": "0x0", "address": [probe]})["result"]
    assert same == log


def test_an_estimate_suffices(chain: EmbeddedChain, server: RpcServer) -> None:
    probe = deploy(chain)
    data = words(7, 9)
    request = {"from": chain.sender, "to": probe, "data": "0x" + data.hex()}
    estimate = int(ask(server, "eth_estimateGas", request)["result"], 16)
    used = chain.send(probe, data, estimate).gas_used
    assert used <= estimate <= used * 2


SOMEBODY = "0x" + "11" * 20
HEADER_FIELDS = [
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot"),
    *("logsBloom", "difficulty", "number", "gasLimit", "gasUsed", "timestamp", "extraData"),
    *("mixHash", "nonce", "baseFeePerGas", "withdrawalsRoot", "blobGasUsed", "excessBlobGas"),
    *("parentBeaconBlockRoot", "requestsHash"),
]
NUMBERS = {
    *("difficulty", "number", "gasLimit", "gasUsed", "timestamp", "baseFeePerGas"),
    *("blobGasUsed", "excessBlobGas"),
}


@pytest.fixture
def methods(chain: EmbeddedChain) -> RpcMethods:
    return RpcMethods(chain)


def answer(methods: RpcMethods, method: str, *parameters: object) -> dict[str, Any]:
    told = methods.answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": [*parameters]})
    assert told is not None
    return told


def result(methods: RpcMethods, method: str, *parameters: object) -> Any:
    return answer(methods, method, *parameters)["result"]


def fault(methods: RpcMethods, method: str, *parameters: object) -> tuple[int, str]:
    error = answer(methods, method, *parameters)["error"]
    return error["code"], error["message"]


def signed(chain: EmbeddedChain, number: int = 3, **changes: Any) -> str:
    fields = {
        "type": 2,
        "chainId": chain.chain_id,
        "nonce": chain.account(address_of(TEST_KEYS[number]))[0],
        "maxFeePerGas": 10**10,
        "maxPriorityFeePerGas": 7,
        "gas": 50_000,
        "to": SOMEBODY,
        "value": 0,
        "data": b"",
        **changes,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    sent = Account.from_key(TEST_KEYS[number]).sign_transaction(fields)
    return "0x" + bytes(sent.raw_transaction).hex()


class TestBlocks:
    def test_anybody_can_compute_a_served_blocks_hash(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        chain.send(deploy(chain), words(7, 9), 200_000)
        chain.mine(1)
        for number in range(4):
            block = result(methods, "eth_getBlockByNumber", hex(number), True)
            fields = [field(block, name) for name in HEADER_FIELDS]
            assert "0x" + keccak(rlp.encode(fields)).hex() == block["hash"]
            assert block["withdrawals"] == block["uncles"] == []
            assert "totalDifficulty" not in block
            body = [transaction_bytes(one) for one in block["transactions"]]
            assert len(body) == (1 if number in {1, 2} else 0)
            assert int(block["size"], 16) == len(rlp.encode([fields, body, [], []]))

    def test_a_transaction_shows_all_that_its_hash_is_made_of(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        slots = [{"address": SOMEBODY, "storageKeys": ["0x" + "22" * 32]}]
        lists = {"type": 1, "maxFeePerGas": None, "maxPriorityFeePerGas": None, "gasPrice": 10**10}
        for changes in ({"accessList": slots}, {**lists, "accessList": slots}):
            sent = result(methods, "eth_sendRawTransaction", signed(chain, **changes))
            shown = result(methods, "eth_getTransactionByHash", sent)
            assert "0x" + keccak(transaction_bytes(shown)).hex() == sent == shown["hash"]
            assert shown["v"] == shown["yParity"]
            assert ("maxFeePerGas" in shown) == (shown["type"] == "0x2")
            receipt = result(methods, "eth_getTransactionReceipt", sent)
            assert receipt["effectiveGasPrice"] == shown["gasPrice"]
            assert receipt["type"] == shown["type"]
            assert receipt["cumulativeGasUsed"] == receipt["gasUsed"]

    def test_the_history_of_fees_is_the_newest_block(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        history = result(methods, "eth_feeHistory", "0xa", "latest", [20])
        chain.mine(1)
        fees = [chain.header(number).base_fee_per_gas for number in range(2)]
        assert [int(fee, 16) for fee in history["baseFeePerGas"]] == fees
        assert history["oldestBlock"] == "0x0"


def field(block: dict[str, Any], name: str) -> bytes | int:
    return int(block[name], 16) if name in NUMBERS else bytes.fromhex(block[name][2:])


def transaction_bytes(shown: dict[str, Any]) -> bytes:
    def data(name: str) -> bytes:
        return bytes.fromhex((shown[name] or "0x")[2:])

    def number(name: str) -> int:
        return int(shown[name], 16)

    kind = number("type")
    fees = ["maxPriorityFeePerGas", "maxFeePerGas"] if kind == 2 else ["gasPrice"]
    slots = [
        [bytes.fromhex(one["address"][2:]), [bytes.fromhex(s[2:]) for s in one["storageKeys"]]]
        for one in shown["accessList"]
    ]
    head = [number(name) for name in ("chainId", "nonce", *fees, "gas")]
    tail = [number(name) for name in ("yParity", "r", "s")]
    fields = [*head, data("to"), number("value"), data("input"), slots, *tail]
    return bytes([kind]) + bytes(rlp.encode(fields))


class TestLogs:
    def test_a_contract_that_is_named_often_is_looked_for_once(self, chain: EmbeddedChain) -> None:
        probe = deploy(chain)
        for value in (7, 8):
            chain.send(probe, words(value, 0), 200_000)
        asked = {"fromBlock": "0x0", "address": [probe, probe.lower(), SOMEBODY, probe] * 500}
        methods = RpcMethods(chain, max_logs=2)
        found = result(methods, "eth_getLogs", asked)
        assert [log["blockNumber"] for log in found] == ["0x2", "0x3"]
        chain.send(probe, words(9, 0), 200_000)
        assert fault(methods, "eth_getLogs", asked)[1] == "query returned more than 2 results"

    def test_a_query_names_a_block_or_bounds(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        chosen = {"blockHash": "0x" + chain.genesis_hash.hex()}
        assert result(methods, "eth_getLogs", chosen) == []
        code, text = fault(methods, "eth_getLogs", {**chosen, "fromBlock": "0x0"})
        assert (code, text) == (-32602, "cannot specify both blockHash and fromBlock/toBlock")

    @pytest.mark.parametrize("named", [{}, {"blockNumber": None}, {"blockHash": "0x" + "11" * 32}])
    def test_an_object_without_a_number_is_not_the_newest_block(
        self, methods: RpcMethods, named: object
    ) -> None:
        assert fault(methods, "eth_getBlockByNumber", named, False)[0] == -32602
        assert fault(methods, "eth_getLogs", {"fromBlock": named})[0] == -32602
        assert result(methods, "eth_getBlockByNumber", {"blockNumber": "0x0"}, False)


class TestSending:
    def test_funds_go_from_one_account_to_another(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        transfer = {"from": address_of(TEST_KEYS[3]), "to": SOMEBODY, "value": "0x5"}
        estimate = int(result(methods, "eth_estimateGas", transfer), 16)
        assert result(methods, "eth_call", transfer) == "0x"
        result(methods, "eth_sendRawTransaction", signed(chain, value=5, gas=estimate))
        assert chain.account(SOMEBODY) == (0, 5)
        poor = {**transfer, "from": "0x" + "44" * 20}
        code, text = fault(methods, "eth_estimateGas", poor)
        assert (code, text.partition(":")[0]) == (-32000, "insufficient funds for transfer")

    def test_an_unrecoverable_signature_is_answered_and_drops_no_connection(
        self, chain: EmbeddedChain
    ) -> None:
        fields = rlp.decode(bytes.fromhex(signed(chain)[4:]))
        fields[-2] = b"\xff" * 32
        broken = "0x02" + bytes(rlp.encode(fields)).hex()
        request = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction"}
        with RpcServer(chain) as server, httpx.Client(trust_env=False, verify=False) as session:
            for raw in (broken, "0x", "0x02", "0x02c0", "0xc0", "0x7f", "0x04c0"):
                sent = session.post(
                    server.url, json={**request, "params": [raw]}, timeout=PATIENCE_SECONDS
                )
                assert sent.json()["error"]["code"] == -32000
        assert chain.head().number == 0


class TestCalls:
    def test_repeated_calls_at_one_block_run_once(
        self, chain: EmbeddedChain, methods: RpcMethods, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        probe = deploy(chain)
        chain.send(probe, words(7, 9), 200_000)
        runs = []
        run = EmbeddedReader.execute

        def counted(self: EmbeddedReader, *given: Any, **named: Any) -> Any:
            runs.append(given)
            return run(self, *given, **named)

        monkeypatch.setattr(EmbeddedReader, "execute", counted)
        before = chain.head().number
        for _ in range(3):
            assert result(methods, "eth_call", {"to": probe}, hex(before)) == "0x" + word(7).hex()
            assert result(methods, "eth_call", {"to": probe}, "0x1") == "0x" + word(0).hex()
        assert len(runs) == 2
        chain.send(probe, words(8, 9), 200_000)
        newest = {"to": probe}, "latest"
        assert result(methods, "eth_call", *newest) == "0x" + word(8).hex()
        assert result(methods, "eth_call", {"to": probe}, hex(before)) == "0x" + word(7).hex()
        assert len(runs) == 3
        chain.send(probe, words(5, 9), 200_000)
        assert result(methods, "eth_call", *newest) == "0x" + word(5).hex(), "another newest"


class TestProtocol:
    def test_a_notification_is_done_and_not_answered(
        self, chain: EmbeddedChain, methods: RpcMethods
    ) -> None:
        assert methods.answer({"jsonrpc": "2.0", "method": "evm_mine"}) is None
        assert methods.answer({"jsonrpc": "2.0", "method": "no_such"}) is None
        assert chain.head().number == 1

    @pytest.mark.parametrize("identifier", [{}, [], True, [1], float("inf"), -float("inf")])
    def test_a_malformed_id_is_no_request(self, methods: RpcMethods, identifier: object) -> None:
        told = methods.answer({"jsonrpc": "2.0", "id": identifier, "method": "eth_chainId"})
        assert told is not None
        assert (told["id"], told["error"]["code"]) == (None, -32600)

    def test_a_fault_of_ours_is_an_internal_error(
        self, chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EmbeddedReader, "head", lambda _: 1 // 0)
        assert fault(RpcMethods(chain), "eth_blockNumber") == (-32603, "internal error")

    def test_a_browser_wallet_is_served_and_a_page_is_not(self, chain: EmbeddedChain) -> None:
        request = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}
        with RpcServer(chain) as server, httpx.Client(trust_env=False, verify=False) as session:
            for origin, status in (
                ("chrome-extension://abc", 200),
                ("moz-extension://abc", 200),
                ("http://localhost", 403),
                ("null", 403),
                ("http://[", 403),
            ):
                headers = {"Origin": origin}
                told = session.post(
                    server.url, json=request, headers=headers, timeout=PATIENCE_SECONDS
                )
                assert told.status_code == status
                # The body of a refused request is left unread, so that nothing can follow it.
                assert (told.headers.get("Connection") == "close") == (status == 403)


class TestBlocksOnAClock:
    def test_empty_blocks_come_when_no_others_do(self, chain: EmbeddedChain) -> None:
        before = set(threading.enumerate())
        with RpcServer(chain, block_seconds=0.02):
            wait_until(lambda: chain.head().number >= 3)
        assert set(threading.enumerate()) <= before, "a closed server makes no more"

    def test_blocks_come_while_a_call_does_not_end(self, chain: EmbeddedChain) -> None:
        # GAS and POP for ever: much time for little gas, as py-evm executes GAS itself.
        endless = {"data": "0x5b5a50600056", "gas": hex(4_000_000)}
        with RpcServer(chain, block_seconds=0.02) as server, ThreadPoolExecutor() as pool:
            body = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [endless]}
            called = pool.submit(
                httpx.post, server.url, json=body, timeout=PATIENCE_SECONDS, trust_env=False
            )
            while chain.head().number < 3:
                time.sleep(0.01)
            assert not called.done()
            assert "Out of gas" in called.result().json()["error"]["message"]

    def test_it_stops_with_message_if_no_block_can_be_made(self, chain: EmbeddedChain) -> None:
        server = RpcServer(chain, block_seconds=0.02)
        chain.close()
        with pytest.raises(ChainError):
            server.wait()
        server.close()

    def test_a_chain_opened_for_reading_gets_no_blocks(
        self, chain: EmbeddedChain, tmp_path: Path
    ) -> None:
        with (
            EmbeddedReader.open(tmp_path / "chain.sqlite") as reader,
            pytest.raises(TypeError, match="opened for reading"),
        ):
            RpcServer(reader, block_seconds=1)
        with pytest.raises(ValueError, match="cannot come every 0 s"):
            RpcServer(chain, block_seconds=0)
