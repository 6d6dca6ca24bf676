"""Paying accounts for their gas, and what a deployment would cost: over a node and at home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cmfl.commands.deploy import ENVELOPE_BYTES, data_fee_of
from cmfl.where import Target
from ledger.chain.contract.deploy import DEPLOYMENT_GAS
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.rpc.sender import SendingAccount, UnsignedTransaction
from ledger.chain.rpc.server import RpcServer
from ledger.chain.rpc.wire import Fees
from ledger.io.home import Home
from tests.chain.rpc.pool_node import PoolNode
from tests.chain.rpc.scripted_node import Fault
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

ONE = "0x" + "11" * 20
OTHER = "0x" + "22" * 20
THIRD = "0x" + "33" * 20
FOURTH = "0x" + "44" * 20
# The path is given: whether a model may be trained in lockstep is nothing that a deployment shows.
SMOKE = ["deploy", "--preset", "smoke", "--set", "training.path=plain"]
POOR = bytes(31) + b"\x07"  # a key for tests that owns nothing


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(tmp_path / "node.sqlite", synchronous="NORMAL") as chain:
        yield chain


@pytest.fixture
def node(chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    with RpcServer(chain) as server:
        yield ["--rpc-url", server.url, "--chain-id", DEFAULT_CHAIN_ID]


@pytest.fixture
def pool(
    chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[PoolNode, list[object]]]:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    with PoolNode(chain) as node:
        yield node, ["--rpc-url", node.url, "--chain-id", DEFAULT_CHAIN_ID]


def test_accounts_are_funded_over_a_node_without_a_home(
    chain: EmbeddedChain, node: list[object], tmp_path: Path
) -> None:
    home = ["--home", tmp_path / "home"]
    found = succeeds("chain", "fund", ONE, OTHER, "--amount", "0.5", *home, *node, "--json")
    assert found.json["sender"] == address_of(TEST_KEYS[0])
    assert [paid["balance_wei"] for paid in found.json["paid"]] == [5 * 10**17] * 2
    assert [paid["block"] for paid in found.json["paid"]] == [1, 2]
    assert chain.account(ONE)[1] == chain.account(OTHER)[1] == 5 * 10**17
    assert not (tmp_path / "home").exists()
    out = succeeds("chain", "fund", ONE, "--amount", "1", *node).out
    assert "received 1 ETH in block 3, and owns 1.5 ETH" in out


def test_a_sender_with_code_pays_nobody(
    chain: EmbeddedChain, node: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL").close()
    code = bytes.fromhex("ef0100" + "11" * 20)
    monkeypatch.setattr(EmbeddedChain, "code", lambda *_: code)
    for where in (node, ["--home", tmp_path]):
        said = refusal("chain", "fund", ONE, "--amount", "1", *where)
        assert "(EIP-7702), and the ledger refuses transactions of accounts with code" in said
    deployed = refusal(*SMOKE, "--dry-run", "--home", tmp_path / "new", *node)
    assert "(EIP-7702)" in deployed
    assert chain.head().number == 0


def test_the_homes_own_chain_pays_its_test_money(tmp_path: Path) -> None:
    EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL").close()
    found = succeeds("chain", "fund", ONE, "--amount", "2", "--home", tmp_path, "--json").json
    assert found["paid"][0]["balance_wei"] == 2 * 10**18
    assert "there is no chain at" in refusal(
        "chain", "fund", ONE, "--amount", "2", "--home", tmp_path / "none"
    )
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "1e90", "much", "", "9" * 99])
def test_what_is_no_amount_is_refused(amount: str, tmp_path: Path) -> None:
    said = refusal("chain", "fund", ONE, f"--amount={amount}", "--home", tmp_path)
    assert "must be a number above 0" in said


@pytest.mark.parametrize(
    ("addresses", "fact"),
    [
        (["0x12"], "is not an address"),
        ([ONE, ONE], "is given twice"),
        (["0x" + "00" * 20], "zero address, and payments to it are lost"),
        ([address_of(TEST_KEYS[0]).swapcase().replace("X", "x")], "its checksum is wrong"),
        ([address_of(TEST_KEYS[0])], "is the sender's own account"),
    ],
)
def test_invalid_accounts_are_refused_and_nothing_is_sent(
    addresses: list[str], fact: str, node: list[object], chain: EmbeddedChain
) -> None:
    assert fact in refusal("chain", "fund", OTHER, *addresses, "--amount", "1", *node)
    assert chain.head().number == 0


def test_who_cannot_pay_all_pays_nobody(
    node: list[object], chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", POOR.hex())
    said = refusal("chain", "fund", ONE, "--amount", "1", *node)
    assert "has 0 ETH, and needs 1 ETH plus gas; nothing was sent" in said
    assert chain.head().number == 0


def test_the_gas_of_all_payments_is_counted_before_the_first(
    node: list[object], chain: EmbeddedChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.send(address_of(POOR), b"", 21_000, value=2 * 10**18)
    monkeypatch.setenv("CMFL_PRIVATE_KEY", POOR.hex())
    said = refusal("chain", "fund", ONE, OTHER, "--amount", "1", *node)
    assert "plus gas; nothing was sent" in said
    assert chain.account(address_of(POOR)) == (0, 2 * 10**18)


def test_who_was_paid_before_the_node_refused_is_named(
    pool: tuple[PoolNode, list[object]], chain: EmbeddedChain
) -> None:
    node, options = pool

    def take_two(raw: str) -> object:
        if chain.head().number == 2:
            return Fault(-32000, "txpool is full")
        taken = node.take(raw)
        node.mine()
        return taken

    node.answers["eth_sendRawTransaction"] = take_two
    said = refusal("chain", "fund", ONE, OTHER, THIRD, FOURTH, "--amount", "1", *options)
    assert f"txpool is full; paid: {ONE}, {OTHER}; not paid: {THIRD}, {FOURTH}" in said
    assert [chain.account(one)[1] for one in (ONE, OTHER, THIRD)] == [10**18, 10**18, 0]


def test_who_may_still_be_paid_is_named_after_ctrl_c(
    pool: tuple[PoolNode, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, options = pool

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    # In this module alone: servers of other threads sleep, too.
    monkeypatch.setattr("cmfl.commands.chain.time", SimpleNamespace(sleep=interrupt))
    result = cmfl("chain", "fund", ONE, OTHER, "--amount", "1", *options)
    assert result.code == 130
    assert f"sent, and may still come into a block: {ONE}, {OTHER}" in result.err
    assert len(node.waiting) == 2


def test_a_first_payment_that_is_refused_leaves_nobody_paid(
    pool: tuple[PoolNode, list[object]],
) -> None:
    node, options = pool
    node.answers["eth_sendRawTransaction"] = Fault(-32000, "txpool is full")
    said = refusal("chain", "fund", ONE, OTHER, "--amount", "1", *options)
    assert "txpool is full" in said
    assert ONE not in said


def test_says_what_deploying_sends_and_writes_nothing(
    chain: EmbeddedChain, node: list[object], tmp_path: Path
) -> None:
    command = [*SMOKE, "--home", tmp_path / "home", *node]
    found = succeeds(*command, "--dry-run", "--json").json
    assert chain.head().number == 0
    assert not (tmp_path / "home").exists()
    creation, registration = found["steps"]
    assert (creation["kind"], creation["counted"]) == ("creation", "node")
    assert (registration["clients"], registration["counted"]) == (12, "rehearsal")
    price = found["price"]
    assert price["cost"] == found["gas"] * (price["base_fee"] + price["tip"])
    assert found["hints"] == ["commit-window"]
    succeeds(*command)
    used = [chain.receipts(chain.header(number))[0].gas_used for number in (1, 2)]
    # The node's estimate may be above; the committee's draw differs with the contract.
    assert used[0] <= creation["gas"] <= used[0] * 1.05
    assert used[1] == pytest.approx(registration["gas"], rel=0.1)
    again = succeeds(*command, "--dry-run", "--json").json
    assert (again["steps"], again["gas"]) == ([], 0)
    assert again["contract"] is not None


def test_a_sender_who_owns_too_little_is_told(
    node: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", POOR.hex())
    command = [*SMOKE, "--home", tmp_path / "home", *node, "--dry-run"]
    result = cmfl(*command)
    assert result.code == 2
    assert "not enough" in result.out
    assert "12 clients" in result.out
    assert "this chain puts each transaction into its own block" in result.out


def test_the_homes_own_chain_costs_nothing(tmp_path: Path) -> None:
    command = [*SMOKE, "--home", tmp_path / "home", "--dry-run"]
    assert "costs nothing" in succeeds(*command).out
    assert not (tmp_path / "home").exists()


def test_given_prices_charge_a_deployment_and_a_round(tmp_path: Path) -> None:
    """What a round would send is compared with what rounds send."""
    home = tmp_path / "home"
    prices = ["--dry-run", "--price", "0.02gwei,3000,5"]
    found = succeeds(*SMOKE, "--home", home, *prices, "--json").json
    charge, steps = found["charges"]["deployment"], found["steps"]
    assert charge["gas_fee"] == 20_000_000 * found["gas"]
    data = [data_fee_of(step["data_bytes"], 5 * 10**9) for step in steps]
    assert charge["data_fee"] == sum(data)
    ether = (charge["gas_fee"] + charge["data_fee"]) / 10**18
    assert charge["money"] == pytest.approx(3000 * ether)
    out = succeeds(*SMOKE, "--home", home, "--dry-run", "--price", "1,2").out
    assert "costs nothing" not in out
    assert "for data" not in out
    succeeds("run", *SMOKE[1:], "--home", home, "--rounds", 3)
    with Target(home).reader() as chain:
        ledger = CommitteeLedger(chain, read_run_manifest(Home(home).run("run")).address)
        sent = {event.transaction_hash for event in ledger.round_events(3)}
        receipts = [chain.receipt(hash_) for hash_ in sent]
        data = [len(chain.transaction(hash_).input) for hash_ in sent]
    planned = found["charges"]["round"]
    assert (planned["gas_fee"], planned["data_bytes"]) == (20_000_000 * planned["gas"], sum(data))
    assert planned["data_fee"] == sum(data_fee_of(size, 5 * 10**9) for size in data)
    used = sum(receipt.gas_used for receipt in receipts if receipt is not None)
    assert planned["gas"] == pytest.approx(used, rel=0.05)


def test_a_round_of_the_paper_has_its_measured_size(tmp_path: Path) -> None:
    """21 members and 65 trainers; the gas is near that of `contracts/gas_snapshot.json`."""
    rates = {"clients": 100, "active_rate": 0.86, "committee_rate": 0.2442}
    sizes = [word for key, value in rates.items() for word in ("--set", f"protocol.{key}={value}")]
    command = [*SMOKE, *sizes, "--home", tmp_path, "--dry-run", "--price", "1,1", "--json"]
    planned = succeeds(*command).json["charges"]["round"]
    assert planned["data_bytes"] == 11_172 + 4_996
    assert planned["gas"] == pytest.approx(813_737 + 327_220, rel=0.05)


def test_the_data_fee_is_that_of_the_op_stack() -> None:
    # 11,172 + 128 bytes may be 11,360 after FastLZ: 9,460.0544 estimated bytes.
    assert data_fee_of(11_172, 10**6) == 9_460_054_400
    assert data_fee_of(0, 10**6) == 100 * 10**6, "the least that is charged"
    unsigned = UnsignedTransaction(2**32, ONE, bytes(11_172), DEPLOYMENT_GAS)
    raw = SendingAccount(TEST_KEYS[0]).sign(unsigned.fields(2**53, Fees(10**12, 10**12))).raw
    assert len(raw) <= 11_172 + ENVELOPE_BYTES


@pytest.mark.parametrize(
    ("price", "refused"),
    [
        *(("5", "5: give GAS,TOKEN"), ("1,2,3,4", "1,2,3,4: give GAS,TOKEN"), ("", ": give GAS")),
        *(("cheap,3000", "cheap: must be a number above 0"), ("1,0", "0: must be")),
        *(("1,2,nan", "nan: must be"), ("1wei,2", "1wei: must be")),
    ],
)
def test_what_is_no_price_is_refused(price: str, refused: str, tmp_path: Path) -> None:
    said = refusal(*SMOKE, "--home", tmp_path / "home", "--dry-run", f"--price={price}")
    assert f"--price {refused}" in said


def test_a_price_is_for_a_dry_run_only(tmp_path: Path) -> None:
    said = refusal(*SMOKE, "--home", tmp_path / "home", "--price", "1,2")
    assert "--price has no effect without --dry-run" in said
    assert not (tmp_path / "home").exists()


def test_gas_over_the_cap_sends_nothing(
    node: list[object], chain: EmbeddedChain, tmp_path: Path
) -> None:
    for dry in ([], ["--dry-run"]):
        said = refusal(*(*SMOKE, "--home", tmp_path, *node, *dry), *("--max-fee", "0.5"))
        assert "the cap of 500000000" in said
    assert chain.head().number == 0


def test_without_a_node_they_have_no_effect_and_are_refused(tmp_path: Path) -> None:
    said = refusal("deploy", "--preset", "smoke", "--home", tmp_path, "--max-fee", "3")
    assert "--max-fee has no effect without --rpc-url" in said
