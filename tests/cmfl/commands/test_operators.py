"""Who operates a run knows which chain is meant, what to do next, and what a refusal means."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from eth_account import Account

from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.ledger_state import LedgerStage
from tests.chain.rpc.faulty_proxy import FaultyProxy, Trouble
from tests.chain.rpc.scripted_node import Fault, ScriptedNode
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, settings_of, succeeds
from tests.patience import wait_until

pytestmark = SHARED

VARIABLES = ("CMFL_RPC_URL", "CMFL_CHAIN_ID", "CMFL_KEYSTORE", "CMFL_PRIVATE_KEY")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("node") / "node.sqlite"
    with EmbeddedChain.create(path) as chain, RpcServer(chain) as server:
        yield server.url


def keystore_in(folder: Path, key: bytes, password: str = "swordfish") -> list[object]:
    """Return the options of a keystore and its password, with blanks in their names."""
    keystore, passwords = folder / "my key.json", folder / "my password"
    content = Account.encrypt(key, password, kdf="pbkdf2", iterations=2)
    keystore.write_text(json.dumps(content))
    passwords.write_text("swordfish\n")
    return ["--keystore", keystore, "--password-file", passwords]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--keystore", "key.json"), ("--password-file", "secret"), ("--confirmations", "0")],
)
def test_node_options_are_refused_without_a_node(tmp_path: Path, option: str, value: str) -> None:
    home = tmp_path / "home"
    for command in ("run", "deploy"):
        said = refusal(command, "--preset", "smoke", "--home", home, option, value)
        assert said == (
            f"{option} has no effect without --rpc-url or CMFL_RPC_URL, because the home's "
            "own chain does not need it"
        )
    assert not home.exists()


def test_global_variables_do_not_affect_the_homes_own_chain(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_RPC_URL", "")
    monkeypatch.setenv("CMFL_CHAIN_ID", "1")
    monkeypatch.setenv("CMFL_KEYSTORE", str(tmp_path / "none.json"))
    succeeds("rounds", "list", "--home", home)
    succeeds("deploy", "--preset", "smoke", "--home", tmp_path / "own")
    # What is typed counts: the home's own chain has another id.
    assert "has chain id" in refusal("rounds", "list", "--home", home, "--chain-id", 1)
    assert "has chain id" in refusal("serve", "--home", home, "--chain-id", 1)


def test_a_service_over_a_node_needs_its_whole_name(home: Path) -> None:
    serve = ["serve", "--home", home, "--rpc-url"]
    assert "--rpc-url needs --chain-id" in refusal(*serve, "http://127.0.0.1:1")
    said = refusal(*serve, "http://" + "x" * 3_000, "--chain-id", 1)
    assert said == "--rpc-url: String should have at most 2000 characters"


def test_variables_name_the_node_and_the_key(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, keystore, *password = keystore_in(tmp_path, TEST_KEYS[1])
    monkeypatch.setenv("CMFL_RPC_URL", url)
    monkeypatch.setenv("CMFL_CHAIN_ID", str(DEFAULT_CHAIN_ID))
    monkeypatch.setenv("CMFL_KEYSTORE", str(keystore))
    home = tmp_path / "home"
    manifest = succeeds("deploy", "--preset", "smoke", "--home", home, *password, "--json").json
    assert (manifest["chain_id"], manifest["deployer"]) == (
        DEFAULT_CHAIN_ID,
        address_of(TEST_KEYS[1]),
    )
    assert not (home / "chain.sqlite").exists()
    (one,) = succeeds("rounds", "list", "--home", home, "--json").json["rounds"]
    assert (one["round"], one["status"]) == (1, "open")


def test_deploy_prints_a_command_that_continues(url: str, tmp_path: Path) -> None:
    home = tmp_path / "a home"
    node = ["--rpc-url", url, "--chain-id", DEFAULT_CHAIN_ID, "--confirmations", 0]
    options = [*node, *keystore_in(tmp_path, TEST_KEYS[2])]
    rounds = ("--set", "protocol.rounds=1")
    people = succeeds("deploy", "--preset", "smoke", *rounds, "--home", home, *options).out
    (line,) = (line for line in people.splitlines() if line.startswith("continue with: "))
    _, *words = shlex.split(line.removeprefix("continue with: "))
    assert succeeds(*words, "--json").json["round"] == 1
    assert not (home / "chain.sqlite").exists()


def test_a_round_opens_on_timed_blocks_once_the_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    blocks = ("protocol.commit_blocks=5000", "protocol.deadline_blocks=10000")
    settings = settings_of("protocol.rounds=1", *blocks)
    with (
        EmbeddedChain.create(tmp_path / "node.sqlite") as chain,
        RpcServer(chain, block_seconds=0.1) as server,
    ):
        node = ["--home", tmp_path, "--rpc-url", server.url, "--chain-id", chain.chain_id]
        deployed = succeeds("deploy", "--preset", "smoke", *settings, *node, "--json").json
        ledger, newest = CommitteeLedger(chain, deployed["address"]), chain.head().number
        assert ledger.state().stage is LedgerStage.REGISTERING
        assert succeeds("audit", *node, "--json").json["rounds"] == 0
        wait_until(lambda: chain.head().number > newest)
        succeeds("run", "--resume", *node)
        opening = ledger.opening(1)
        assert opening is not None
        assert opening.opened_block > newest


def test_a_window_that_was_over_is_reported(tmp_path: Path) -> None:
    settings = settings_of("protocol.rounds=2", "protocol.commit_blocks=4")
    succeeds("deploy", "--preset", "smoke", *settings, "--home", tmp_path)
    with EmbeddedChain.open(tmp_path / "chain.sqlite") as chain:
        chain.mine(4)
    played = cmfl("run", "--home", tmp_path, "--resume", "--json")
    assert played.code == 0
    assert played.err.splitlines()[0] == (
        "cmfl: round 1 took commitments in blocks 2 to 6, and 6 is newest"
    )
    assert played.err.count("took commitments") == 1
    rounds = succeeds("rounds", "list", "--home", tmp_path, "--json").json["rounds"]
    assert [each["status"] for each in rounds] == ["decided", "abandoned"]


@dataclass
class _Leaving:
    """Makes a node go away after so many transactions, before the next one is sent.

    One that is on its way then would be waited for.
    """

    after: int
    is_away: bool = False

    def trouble(self, method: str) -> Trouble:
        if method == "eth_maxPriorityFeePerGas":  # asked before each transaction
            self.is_away |= self.after == 0
            self.after -= 1
        return Trouble.LOST if self.is_away else Trouble.NONE


# Two transactions deploy the contract, and each round has two.
@pytest.mark.usefixtures("brief_pauses")
@pytest.mark.parametrize(("after", "rounds"), [(0, 1), (4, 2)])
def test_a_run_that_loses_its_node_prints_a_continuing_command(
    url: str, tmp_path: Path, after: int, rounds: int
) -> None:
    leaving = _Leaving(after)
    with FaultyProxy(url, leaving.trouble) as proxy:
        node = ["--rpc-url", proxy.url, "--chain-id", DEFAULT_CHAIN_ID]
        options = [*node, *keystore_in(tmp_path, TEST_KEYS[2]), "--home", tmp_path / "a home"]
        message = refusal("run", "--preset", "smoke", "--rounds", rounds, *options)
        assert message.startswith(f"{proxy.url}: unreachable")
        _, _, command = message.partition("; continue with: ")
        leaving.is_away = False
        _, *words = shlex.split(command)
        assert succeeds(*words, "--json").json["round"] == rounds


@pytest.mark.parametrize("secret", ["user:pa55@", "?key=pa55"])
def test_a_url_that_may_hold_a_key_is_never_printed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    with_key = url.replace("://", f"://{secret}") if "@" in secret else url + secret
    options = ["--chain-id", DEFAULT_CHAIN_ID, *keystore_in(tmp_path, TEST_KEYS[3])]
    deploy = ["deploy", "--preset", "smoke", "--home", tmp_path / "home", *options]
    people = succeeds(*deploy, "--rpc-url", with_key).out
    assert "pa55" not in people
    assert ' --rpc-url "$CMFL_RPC_URL"\n' in people
    assert "once CMFL_RPC_URL holds the node's URL" in people
    monkeypatch.setenv("CMFL_RPC_URL", with_key)
    assert "once CMFL_RPC_URL" not in (again := succeeds(*deploy).out)
    assert ' --rpc-url "$CMFL_RPC_URL"\n' in again


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        ("insufficient funds for gas * price + value", "it owns 1500000000000000000 wei: send it"),
        ("replacement transaction underpriced", "another program may be sending"),
        ("[/red] \x1b[2J gas limit reached", r"[/red] \x1b[2J gas limit reached"),
    ],
)
def test_a_refused_transaction_names_its_account_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, explained: str
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    with ScriptedNode(
        eth_getTransactionCount="0x0",
        eth_maxPriorityFeePerGas="0x1",
        eth_getBalance=hex(15 * 10**17),
        eth_sendRawTransaction=Fault(-32000, words),
        eth_getTransactionByHash=None,
    ) as node:
        options = ["--home", tmp_path / "home", "--rpc-url", node.url, "--chain-id", 7]
        said = refusal("deploy", "--preset", "smoke", *options)
    assert explained in said
    assert address_of(TEST_KEYS[0]) in said
    assert said.endswith("(the account is that of the variable CMFL_PRIVATE_KEY)")
    assert TEST_KEYS[0].hex() not in said


def test_a_start_that_fails_leaves_no_home_behind(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    home = tmp_path / "runs of mine" / "home"
    begin = ["run", "--preset", "smoke", "--home", home]
    refusal(*begin, "--set", "protocol.clients=1439", "--set", "protocol.active_rate=0.01")
    refusal(*begin, "--set", "data.name=digits-by-writer")
    refusal(*begin, "--rpc-url", url, "--chain-id", 1)
    refusal("chain", "serve", "--home", home, "--port", url.rpartition(":")[2])
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_never_makes_a_chain(copy: Path) -> None:
    for path in copy.glob("chain.sqlite*"):
        path.unlink()
    said = refusal("run", "--home", copy, "--resume")
    assert said.startswith(f"there is no chain at {copy}/chain.sqlite; check that the disk")
    assert not (copy / "chain.sqlite").exists()


def test_a_roll_back_is_accepted_by_name_only(copy: Path) -> None:
    assert refusal("run", "--home", copy, "--accept-rollback") == (
        "--accept-rollback needs --resume"
    )
    succeeds("run", "--home", copy, "--resume", "--accept-rollback")


def test_a_rollback_before_the_contract_is_refused_first(copy: Path) -> None:
    with EmbeddedReader.open(copy / "chain.sqlite") as chain:
        genesis = chain.genesis_hash
    with closing(sqlite3.connect(copy / "chain.sqlite")) as database, database:
        head = b"v1:canonical_head_hash"
        done = database.execute("UPDATE kv SET value = ? WHERE key = ?", (genesis, head))
        assert done.rowcount == 1
    note = (copy / "chain.sqlite.head").read_bytes()
    said = refusal("run", "--home", copy, "--resume", "--accept-rollback")
    assert "ends with block 0, but the contract of run 'run' is in block 1" in said
    assert "Restore a newer copy" in said
    assert (copy / "chain.sqlite.head").read_bytes() == note


def test_a_head_of_another_form_is_a_wrong_option(home: Path) -> None:
    said = refusal("audit", "--home", home, "--head", "0x12")
    assert "'--head': must be a head, 0x and 64 hex digits" in said


def test_doctor_looks_at_the_node_its_contract_and_the_account(url: str, tmp_path: Path) -> None:
    node = ["--rpc-url", url, "--chain-id", DEFAULT_CHAIN_ID]
    keystore = keystore_in(tmp_path, TEST_KEYS[4])
    home = tmp_path / "home"
    manifest = succeeds(
        "deploy", "--preset", "smoke", "--home", home, *node, *keystore, "--json"
    ).json
    found = succeeds("doctor", "--home", home, *node, *keystore[:2], "--json").json
    rows = {row["check"]: row["found"] for row in found}
    assert rows["node"].startswith(f"chain {DEFAULT_CHAIN_ID}, block ")
    assert rows["account"].startswith(f"{address_of(TEST_KEYS[4])} from ")
    assert rows["account"].endswith(" ETH")
    assert rows["run run"] == f"contract {manifest['address']}, in round 1 of 5"
    # The same run where its contract is not.
    alone = {row["check"]: row for row in succeeds("doctor", "--home", home, "--json").json}
    assert alone["run run"]["found"] == (
        f"is on chain {DEFAULT_CHAIN_ID}; to check it, give --rpc-url"
    )
    other = tmp_path / "other.sqlite"
    with EmbeddedChain.create(other, clock=lambda: 1.0) as chain, RpcServer(chain) as server:
        result = cmfl("doctor", "--home", home, "--rpc-url", server.url, *node[2:])
    assert result.code == 1
    assert "FAIL run run            the manifest is for the chain with genesis" in result.out


def test_doctor_names_poor_accounts_and_a_missing_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = ["doctor", "--home", tmp_path, "--rpc-url", url, "--chain-id", DEFAULT_CHAIN_ID]
    assert "none; to send transactions, give --keystore or set CMFL" in succeeds(*doctor).out
    keystore = keystore_in(tmp_path, bytes([9] * 32))
    poor = f"has 0 ETH on chain {DEFAULT_CHAIN_ID}; send some"
    result = cmfl(*doctor, *keystore[:2])
    assert (result.code, poor in result.out) == (1, True)
    monkeypatch.setenv("CMFL_PRIVATE_KEY", "09" * 32)
    again = cmfl(*doctor)
    assert (again.code, poor in again.out, "09" * 32 in again.out) == (1, True, False)
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    assert f"{address_of(TEST_KEYS[0])} from the variable CMFL_" in succeeds(*doctor).out


def test_the_option_to_keep_detects_other_runs(home: Path) -> None:
    people = succeeds("audit", "--home", home).out
    (kept,) = (line for line in people.splitlines() if "--head" in line)
    _, _, option = kept.partition("audit: ")
    assert "PASSED" in succeeds("audit", "--home", home, *shlex.split(option)).out
    first = succeeds("rounds", "show", 1, "--home", home, "--json").json["head"]
    succeeds("audit", "--home", home, "--head", first, "--strict")
    assert cmfl("audit", "--home", home, "--head", "0x" + "12" * 32).code == 1
