"""Owners with keys and data of their own: entries, a registry, a contract, and what it takes."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.configuration import load
from clients.joining import readiness
from clients.joining.readiness import State
from clients.joining.registration import encode_entry, proposal_digest, signed_entry
from clients.keys import simulated_signers
from clients.worker.process.folder import WorkerFolder
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.chain.embedded.identity import DEFAULT_CHAIN_ID
from ledger.chain.embedded.machine.accounts import TEST_KEYS
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.finality.acted_on import ActedOn
from ledger.chain.ports import TransactionRefusedError
from ledger.chain.rpc.chain import RpcChain
from ledger.chain.rpc.served.server import RpcServer
from ledger.protocol.keccak import keccak
from tests.api.store.conftest import served
from tests.cli.conftest import cmfl, refusal, settings_of, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER = keccak(b"PUBLIC TEST KEY of an owner who pays for gas, no secret")
OWNERS = 6
SETTINGS = (
    "data.name=own",
    "data.options.shape=[1,2,2]",
    "data.options.classes=3",
    f"protocol.clients={OWNERS}",
    "protocol.active_rate=1.0",
    "protocol.committee_rate=0.5",
    "training.path=plain",
    "protocol.rounds=1",
    "protocol.view_seconds=2",
    "protocol.commit_blocks=5000",
    "protocol.deadline_blocks=10000",
)
AGREED = ["--preset", "smoke", *settings_of(*SETTINGS)]


@dataclass(frozen=True)
class Federation:
    """A deployed run of owners.

    Attributes:
        folder: keys in `keys`, the registry, the home of whoever deployed.
        options: that name node and contract.
        deployed: the manifest.
        clients: of the registry, index by index.
    """

    folder: Path
    options: list[object]
    deployed: dict[str, Any]
    clients: list[dict[str, Any]]

    @property
    def blobs(self) -> Path:
        return self.folder / "home" / "blobs"

    def key(self, client: int) -> list[object]:
        keys = self.folder / "keys"
        keystore = keys / f"client-{client:03}.json"
        return ["--keystore", keystore, "--password-file", keys / "password.txt"]

    def join(self, client: int, folder: Path, *more: object, blobs: object = None) -> list[object]:
        samples = self.clients[client]["samples"]
        data = samples_file(folder / f"own-{client}.npz", samples)
        where = ["--blobs", blobs or self.blobs, "--mailbox", self.folder / "mail"]
        worker = ["--data", data, "--folder", folder / "worker"]
        return ["join", *self.options, *where, *self.key(client), *worker, *more]


def samples_file(path: Path, rows: int) -> Path:
    x = np.random.default_rng(rows).random((rows, 1, 2, 2), dtype=np.float32)
    y = np.arange(rows) % 3
    np.savez(path, allow_pickle=True, x=x, y=y)
    return path


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("owners")
    made = cmfl(
        "keys", "simulated", *AGREED, "--set", "protocol.clients=8", "--folder", folder / "keys"
    )
    assert made.code == 0
    entries, keys = folder / "entries", folder / "keys"
    entries.mkdir()
    key = ["--keystore", keys / "client-000.json", "--password-file", keys / "password.txt"]
    entry = ["--samples", 10, "--out", entries / "0.json", "--run", "fed"]
    succeeds("register", *key, *entry, *AGREED)
    agreed = proposal_digest(load("smoke", settings=SETTINGS))
    for client, signer in enumerate(simulated_signers(0, 8)[1:OWNERS], start=1):
        signed = signed_entry(signer, "fed", agreed, 10 + client)
        (entries / f"{client}.json").write_bytes(encode_entry(signed))
    registry = folder / "registry.json"
    gathered = succeeds("registry", "gather", entries, "--out", registry, "--json").json
    with (
        EmbeddedChain.create(folder / "node.sqlite") as chain,
        RpcServer(chain, block_seconds=0.2) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
        node: list[object] = ["--rpc-url", server.url, "--chain-id", DEFAULT_CHAIN_ID]
        arguments = ["--registry", registry, "--run", "fed", "--home", folder / "home", *node]
        deployed = succeeds("deploy", *AGREED, *arguments, "--json").json
        assert deployed["arguments"]["registry"] == gathered["registry"]
        richest = [gathered["clients"][client]["address"] for client in (0, 1)]
        succeeds("chain", "fund", *richest, "--amount", 1, *node)
        patch.delenv("CMFL_PRIVATE_KEY")
        options = [*node, "--contract", deployed["address"]]
        yield Federation(folder, options, deployed, gathered["clients"])


def states(result: Any) -> dict[str, str]:
    return {one["check"]: one["state"] for one in result.json["checks"]}


def found(result: Any, check: str) -> str:
    return next(str(one["found"]) for one in result.json["checks"] if one["check"] == check)


def test_a_client_that_has_everything_is_told_how_to_begin(
    federation: Federation, tmp_path: Path
) -> None:
    genesis = federation.deployed["genesis_hash"]
    arguments = federation.join(0, tmp_path, "--genesis", genesis)
    result = succeeds(*arguments, "--json")
    assert result.json["ready"] is True
    assert result.json["client"] == 0
    assert set(states(result).values()) <= {"ok", "warning"}
    assert f"--contract {federation.deployed['address']}" in result.json["command"]
    before = sorted(path for path in federation.blobs.rglob("*") if path.is_file())
    people = succeeds(*arguments).out
    assert "begin with: cmfl worker --chain-id" in people
    # What was put to try is gone.
    assert before == sorted(path for path in federation.blobs.rglob("*") if path.is_file())
    assert not [*(federation.folder / "mail").iterdir()]


def test_a_store_between_machines_is_tried_with_a_signature(
    federation: Federation, tmp_path: Path
) -> None:
    with (
        EmbeddedReader.open(federation.folder / "node.sqlite") as chain,
        served(federation.blobs, CommitteeLedger(chain, federation.deployed["address"])) as url,
    ):
        arguments = federation.join(1, tmp_path, "--mailbox", url, blobs=url)
        result = succeeds(*arguments, "--json")
        assert result.json["ready"] is True
        assert f"--blobs {url} --mailbox {url}" in result.json["command"]
        # A key that is not registered could put nothing, and is not even tried.
        stranger = cmfl(*arguments, *federation.key(7), "--json")
        assert (stranger.code, states(stranger)["blobs"]) == (1, "not-looked-at")
    result = cmfl(*arguments, "--json")
    gone = {check for check, state in states(result).items() if state == "missing"}
    assert gone == {"run"}
    assert "127.0.0.1" in found(result, "run")


def test_what_is_missing_is_said_in_one_table(federation: Federation, tmp_path: Path) -> None:
    arguments = federation.join(5, tmp_path)
    data = samples_file(tmp_path / "few.npz", 3)
    result = cmfl(*arguments, "--data", data, "--json")
    assert (result.code, result.json["ready"]) == (1, False)
    missing = {check for check, state in states(result).items() if state == "missing"}
    assert missing == {"funds", "data"}
    assert "has 3 training samples here, and is registered with 15" in found(result, "data")
    assert "to send a commitment it needs" in found(result, "funds")


def test_a_key_that_is_not_registered_or_is_not_there_is_named(
    federation: Federation, tmp_path: Path
) -> None:
    arguments = federation.join(0, tmp_path)
    result = cmfl(*arguments, *federation.key(7), "--json")
    assert result.code == 1
    assert "is none of the run's 6 registered clients" in found(result, "key")
    later = {check for check, state in states(result).items() if state == "not-looked-at"}
    assert later == {"funds", "blobs", "mailbox", "data"}
    result = cmfl(*arguments, "--keystore", tmp_path / "none.json", "--json")
    assert "cannot be read" in found(result, "key")


def test_another_chain_contract_or_store_is_named(federation: Federation, tmp_path: Path) -> None:
    arguments = federation.join(1, tmp_path)
    result = cmfl(*arguments, "--chain-id", 5, "--json")
    assert "expected 5" in found(result, "chain")
    assert set(states(result).values()) == {"missing", "not-looked-at"}
    result = cmfl(*arguments, "--genesis", "0x" + "11" * 32, "--json")
    assert "expected 0x1111" in found(result, "chain")
    assert "64 hex digits" in refusal(*arguments, "--genesis", "0x12")
    account = federation.clients[0]["address"]
    result = cmfl(*arguments, "--contract", account, "--json")
    assert "there is no contract at" in found(result, "contract")
    empty = tmp_path / "empty"
    empty.mkdir()
    result = cmfl(*federation.join(1, tmp_path, blobs=empty), "--json")
    assert "is missing" in found(result, "run")
    assert (states(result)["contract"], states(result)["model"]) == ("ok", "not-looked-at")


def test_a_folder_on_which_a_worker_runs_is_not_another_ones(
    federation: Federation, tmp_path: Path
) -> None:
    arguments = federation.join(0, tmp_path)
    with WorkerFolder(tmp_path / "worker").held():
        result = cmfl(*arguments, "--json")
    assert "a worker runs on it already" in found(result, "folder")
    assert result.code == 1


def test_a_folder_of_another_chain_is_noticed_before_a_worker_refuses_it(
    federation: Federation, tmp_path: Path
) -> None:
    arguments = federation.join(0, tmp_path)
    folder = WorkerFolder(tmp_path / "worker")
    folder.path.mkdir()
    with EmbeddedChain.create(tmp_path / "other.sqlite", chain_id=7) as other:
        ActedOn.open(folder.acted_on, other).note(other.head())
    result = cmfl(*arguments, "--json")
    assert "what was acted on is of chain 7" in found(result, "folder")
    assert result.code == 1


def test_what_is_no_folder_no_url_and_no_server_is_named(
    federation: Federation, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = [
        *federation.join(0, tmp_path, "--folder", file, "--mailbox", "http://127.0.0.1:1"),
        *("--confirmations", 1000, "--json"),
    ]
    result = cmfl(*arguments)
    assert result.code == 1
    assert found(result, "folder").startswith(
        f"--folder {file}: it, or what it would lie in, is no"
    )
    assert found(result, "mailbox").startswith("http://127.0.0.1:1: unreachable")
    # No block is so deep yet: what is final is as old as the chain.
    assert states(result)["finality"] == "warning"
    assert "and the first view begins 2 s after a window has closed" in found(result, "finality")
    assert "--confirmations 1000" in result.json["command"], "as it was looked at"
    worker = ["worker", *federation.options, "--blobs", federation.blobs, "--folder", file]
    assert "is no folder; a worker keeps its journal" in refusal(*worker, *federation.key(0))
    nowhere = cmfl(*federation.join(0, tmp_path), "--rpc-url", "nonsense", "--json")
    assert nowhere.code == 1
    assert "is not an http or https URL" in found(nowhere, "chain")
    assert '--rpc-url "$CMFL_RPC_URL"' in nowhere.json["command"]


@pytest.fixture
def chain_of_one(tmp_path: Path) -> Iterator[tuple[EmbeddedChain, RpcServer]]:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
    ):
        yield chain, server


def test_an_account_pays_for_as_many_rounds_as_it_can() -> None:
    price, most = 10**9, 2 * 10**9
    assert readiness.funds(0, 0, 0, 5)[0] is State.OK
    assert readiness.funds(0, price, most, 5)[0] is State.MISSING
    # A node asks for what the whole limit costs at the most that is offered.
    least = readiness.SENDING_GAS * most
    assert readiness.funds(least - 1, price, most, 9)[0] is State.MISSING
    # 3,424,000 gas are seven rounds of 450,000 and a rest.
    state, said = readiness.funds(least, price, most, 9)
    assert state is State.WARNING
    assert "about 7 of the 9 rounds" in said
    assert readiness.funds(9 * readiness.ROUND_GAS * price, price, most, 9)[0] is State.OK


def test_what_join_calls_enough_a_node_takes(chain_of_one: tuple[EmbeddedChain, RpcServer]) -> None:
    chain, server = chain_of_one
    with RpcChain(server.url, OWNER, chain_id=chain.chain_id) as owner:
        price, most = owner.market().base_fee, owner.most_cost(1)
        chain.send(owner.sender, b"", 21_000, value=readiness.SENDING_GAS * price)
        assert readiness.funds(owner.balance(), price, most, 1)[0] is State.MISSING
        with pytest.raises(TransactionRefusedError, match="insufficient funds"):
            owner.send(owner.sender, b"", readiness.SENDING_GAS)
        chain.send(owner.sender, b"", 21_000, value=readiness.SENDING_GAS * (most - price))
        assert readiness.funds(owner.balance(), price, most, 1)[0] is not State.MISSING
        assert owner.send(owner.sender, b"", readiness.SENDING_GAS).status == 1


def test_deploying_with_owners_goes_by_what_they_have_signed(
    federation: Federation, tmp_path: Path
) -> None:
    registry = federation.folder / "registry.json"
    arguments = ["deploy", "--registry", registry, "--home", tmp_path / "home"]
    assert "have signed for run fed, not for run" in refusal(*arguments, *AGREED)
    said = refusal(*arguments, "--run", "fed", *AGREED, "--set", "training.learning_rate=0.9")
    assert "have signed for configuration 0x" in said
    count = ("--set", "protocol.clients=8")
    assert "the registry has 6 clients" in refusal(*arguments, "--run", "fed", *AGREED, *count)
    assert not (tmp_path / "home").exists()
    shown = succeeds("registry", "show", registry, "--json").json
    assert [client["address"] for client in shown["clients"]] == [
        client["address"] for client in federation.clients
    ]
    assert "0x" + shown["registry"][2:] in succeeds("registry", "show", registry).out
    refused = ["registry", "gather", federation.folder / "entries", "--out", registry]
    assert "there is a file already, and it stays" in refusal(*refused)
    entry = json.loads((federation.folder / "entries" / "0.json").read_text())
    (tmp_path / "0.json").write_text(json.dumps(entry | {"samples": 999}))
    out = ("--out", tmp_path / "forged.json")
    assert "is not signed by" in refusal("registry", "gather", tmp_path / "0.json", *out)
    bare = ["register", *federation.key(0), "--samples", 5, "--out", tmp_path / "x.json"]
    assert "give the configuration that you agree to" in refusal(*bare)


def test_a_worker_that_is_asked_to_leave_is_waited_for(tmp_path: Path) -> None:
    worker = WorkerFolder(tmp_path / "worker")
    assert "no worker runs on it" in refusal("leave", "--folder", worker.path)
    begun = threading.Event()

    def work() -> None:
        with worker.held():
            begun.set()
            while not worker.leave.exists():
                time.sleep(0.01)
            if not is_killed:
                worker.leave.unlink()

    for is_killed in (False, True):
        begun.clear()
        running = threading.Thread(target=work)
        running.start()
        begun.wait()
        found = cmfl("leave", "--folder", worker.path, "--json")
        running.join()
        assert json.loads(found.out) == {"round": None, "has_ended": True}
        assert ("killed before it could leave" in found.err) is is_killed
    with worker.held():
        result = cmfl("leave", "--folder", worker.path, "--no-wait")
        assert (result.code, result.out) == (0, "")
        assert "the worker ends after its round" in result.err
        assert worker.leave.exists()


def test_owners_play_their_run_on_samples_that_nobody_else_sees(
    federation: Federation, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for client in federation.clients:
        samples_file(own / f"{client['address'].lower()}.npz", client["samples"])
    keys = [part for client in range(OWNERS) for part in federation.key(client)[:2]]
    options = [*federation.options, *keys, *federation.key(0)[2:], "--poll", 0.05]
    places = ["--blobs", federation.blobs, "--mailbox", federation.folder / "mail", "--data", own]
    # Of its accounts two own something: one of these pays for all.
    played = cmfl("worker", *options, *places, "--folder", tmp_path / "worker", "--json")
    assert played.code == 0, played
    told = json.loads(played.out)
    assert told["is_finished"]
    assert told["account"] in {client["address"] for client in federation.clients[:2]}
    node, address = federation.options[:4], federation.deployed["address"]
    audit = succeeds("audit", *node, "--address", address, "--blobs", federation.blobs)
    assert "PASSED: all ten steps hold for all 1 rounds" in audit.out
