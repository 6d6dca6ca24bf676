"""The loopback server answers what is on its list, in bounds, and to local programs only."""

from __future__ import annotations

import json
import select
import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.rpc.server.http_server import MOST_REQUEST_BYTES, RpcServer
from ledger.protocol.errors import ChainError
from tests.chain.probe import REVERT_DATA, RUNTIME_CODE, deploy, word, words
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
        ("eth_getBlockByNumber", ["soon"]),
        ("eth_getBlockByNumber", [{}, 1, 2]),
        ("eth_getBlockByHash", ["0x12"]),
        ("eth_getBalance", ["0x12"]),
        ("eth_getBalance", [None]),
        ("eth_getStorageAt", ["0x" + "11" * 20, "0x" + "1" * 70]),
        ("eth_getLogs", [[]]),
        ("eth_getLogs", [{"topics": "0x"}]),
        ("eth_getLogs", [{"topics": [["0x12"]]}]),
        ("eth_getLogs", [{"address": 5}]),
        ("eth_getLogs", [{"blockHash": "0x" + "11" * 32}]),
        ("eth_call", ["0x"]),
        ("eth_call", [{"to": "0x" + "11" * 20, "data": "0x1"}]),
        ("eth_call", [{"to": "0x" + "11" * 20, "value": "one"}]),
        ("eth_call", [{"to": "0x" + "11" * 20}, "0x99"]),
        ("eth_sendRawTransaction", ["0x02"]),
        ("eth_sendRawTransaction", ["zz"]),
        ("evm_mine", ["0xffff"]),
    ],
)
def test_wrong_parameters_are_an_error(
    server: RpcServer, method: str, parameters: list[object]
) -> None:
    assert ask(server, method, *parameters)["error"]["code"] in {-32602, -32000, -32005}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 50_000])
def test_what_is_not_json_is_refused(server: RpcServer, body: bytes) -> None:
    assert post(server, body).status_code == 400


@pytest.mark.parametrize("body", [1, "x", None, {}, {"method": 5}, [], [1] * 101])
def test_what_is_no_request_is_an_error(server: RpcServer, body: object) -> None:
    assert post(server, body).json()["error"]["code"] == -32600


def test_params_of_another_shape_are_an_error(server: RpcServer) -> None:
    answer = post(server, {"id": 1, "method": "eth_chainId", "params": {"a": 1}}).json()
    assert answer["error"]["code"] == -32602


def test_batch_requests_beyond_the_answer_size_are_not_executed(
    server: RpcServer, chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.chain.rpc.server.http_server.MOST_BATCH_BYTES", 1000)
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


def test_a_batch_is_answered_in_order(server: RpcServer) -> None:
    batch = [{"jsonrpc": "2.0", "id": number, "method": "eth_blockNumber"} for number in (5, 6)]
    answers = post(server, batch).json()
    assert [(answer["id"], answer["result"]) for answer in answers] == [(5, "0x0"), (6, "0x0")]


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


def test_many_may_come_at_once(server: RpcServer) -> None:
    place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(100)]
        for one in sockets:
            one.setblocking(False)
            one.connect_ex(place)
        for one in sockets:
            one.settimeout(PATIENCE_SECONDS)
            select.select([], [one], [], 10)
            one.sendall(b"POST / HTTP/1.0\r\n\r\n")
            assert one.recv(9) == b"HTTP/1.1 "


def test_answers_are_those_of_the_chain(chain: EmbeddedChain, server: RpcServer) -> None:
    probe = deploy(chain)
    receipt = chain.send(probe, words(7, 9), 200_000)
    block_hash = "0x" + chain.block(2).hash.hex()
    cases: list[tuple[Any, object]] = [
        (ask(server, "eth_getCode", probe, "latest"), "0x" + RUNTIME_CODE.hex()),
        (ask(server, "eth_getCode", probe, "earliest"), "0x"),
        (ask(server, "eth_getStorageAt", probe, "0x0"), "0x" + word(7).hex()),
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


def test_reverts_carry_their_data(chain: EmbeddedChain, server: RpcServer) -> None:
    probe = deploy(chain)
    request = {"to": probe, "data": "0x" + words(0, 0).hex()}
    for method in ("eth_call", "eth_estimateGas"):
        error = ask(server, method, request)["error"]
        assert (error["code"], error["data"]) == (3, "0x" + REVERT_DATA.hex())
    failed = ask(server, "eth_call", {"to": probe, "gas": "0x1"})["error"]
    assert failed["code"] == -32000
    assert "OutOfGas" in failed["message"]


def test_an_estimate_suffices(chain: EmbeddedChain, server: RpcServer) -> None:
    probe = deploy(chain)
    data = words(7, 9)
    request = {"from": chain.sender, "to": probe, "data": "0x" + data.hex()}
    estimate = int(ask(server, "eth_estimateGas", request)["result"], 16)
    used = chain.send(probe, data, estimate).gas_used
    assert used <= estimate <= used * 2


def test_the_limit_of_logs_is_told_as_nodes_do(chain: EmbeddedChain) -> None:
    probe = deploy(chain)
    for value in (1, 2, 3):
        chain.send(probe, words(value, 0), 200_000)
    with RpcServer(chain, max_logs=2) as server:
        error = ask(server, "eth_getLogs", {"fromBlock": "earliest"})["error"]
        assert (error["code"], error["message"]) == (-32005, "query returned more than 2 results")
