"""Owners with keys and data of their own: entries, a registry, a contract, and what it takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import shared_configuration
from clients.datasets.own_samples import simulated_keys, simulated_signers
from clients.registration import encode_entry, proposal_digest, signed_entry, write_test_keystores
from clients.worker import checks
from clients.worker.checks import CheckState
from clients.worker.status import WorkerFolder
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import TransactionRefusedError
from ledger.chain.rpc.node import RpcReader
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.encoding import keccak
from tests.api.store.conftest import served
from tests.cmfl.commands.conftest import cmfl, refusal, settings_of, succeeds
from tests.support.creations import created_by_factory

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
    """A deployed run of owners, each step by the command that the one before has printed."""

    folder: Path
    node: list[object]
    deployed: dict[str, Any]
    clients: list[dict[str, Any]]
    printed: tuple[str, ...]

    @property
    def options(self) -> list[object]:
        return [*self.node, "--contract", self.deployed["address"]]

    @property
    def blobs(self) -> Path:
        return self.folder / "cmfl-home" / "blobs"

    def key(self, *clients: int) -> list[object]:
        keys = self.folder / "keys"
        stores = (("--keystore", keys / f"client-{client:03}.json") for client in clients)
        return [*(part for store in stores for part in store), *self.password]

    @property
    def password(self) -> list[object]:
        return ["--password-file", self.folder / "keys" / "password.txt"]

    def join(
        self,
        client: int,
        folder: Path,
        *more: object,
        blobs: object = None,
        key: list[object] | None = None,
    ) -> list[object]:
        samples = self.clients[client]["samples"]
        data = samples_file(folder / f"own-{client}.npz", samples)
        where = ["--blobs", blobs or self.blobs, "--mailbox", self.folder / "mail"]
        worker = ["--data", data, "--folder", folder / "worker"]
        return ["join", *self.options, *where, *(key or self.key(client)), *worker, *more]


def samples_file(path: Path, rows: int, seed: int | None = None) -> Path:
    rng = np.random.default_rng(rows if seed is None else seed)
    x = rng.random((rows, 1, 2, 2), dtype=np.float32)
    y = np.arange(rows) % 3
    np.savez(path, allow_pickle=True, x=x, y=y)
    return path


def next_command(out: str, introduction: str) -> list[str]:
    """Return the words of a command that was printed, as a shell would run it."""
    start = f"{introduction}: "
    (line,) = (line for line in out.splitlines() if line.startswith(start))
    _, *words = shlex.split(os.path.expandvars(line.removeprefix(start)))
    return words


def write_entries(folder: Path, *settings: str, run: str, skip: int = 0) -> None:
    """Write the entries of the owners that do not come by a command."""
    configuration = shared_configuration(
        "smoke", settings=(*SETTINGS, *settings), allow_predictable=True
    )
    agreed = proposal_digest(configuration)
    for client, signer in enumerate(simulated_signers(0, 8)[skip:OWNERS], start=skip):
        signed = signed_entry(signer, run, agreed, 10 + client)
        (folder / f"{client}.json").write_bytes(encode_entry(signed))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("owners")
    write_test_keystores(folder / "keys", simulated_keys(0, 8))
    entries, keys = folder / "entries", folder / "keys"
    entries.mkdir()
    key = ["--keystore", keys / "client-000.json", "--password-file", keys / "password.txt"]
    # The first owner discloses the digest of its samples, and the others only their number.
    data = samples_file(folder / "registered.npz", 10)
    entry = ["--data", data, "--out", entries / "0.json", "--run", "fed"]
    registered = succeeds("register", *key, *entry, *AGREED).out
    write_entries(entries, run="fed", skip=1)
    with (
        EmbeddedChain.create(folder / "node.sqlite") as chain,
        RpcServer(chain, block_seconds=0.2) as server,
    ):
        node: list[object] = ["--rpc-url", server.url, "--chain-id", DEFAULT_CHAIN_ID]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
            patch.setenv("CMFL_RPC_URL", server.url)
            patch.setenv("CMFL_CHAIN_ID", str(DEFAULT_CHAIN_ID))
            gather = next_command(registered, "the deployer continues with")
            gathered = succeeds(*gather).out
            deployed = succeeds(*next_command(gathered, "continue with")).out
            clients = succeeds("registry", "show", "registry.json", "--json").json["clients"]
            richest = [clients[client]["address"] for client in (0, 1)]
            succeeds("chain", "fund", *richest, "--amount", 1, *node)
        manifest = json.loads((folder / "cmfl-home/runs/fed/deployment.json").read_text())
        yield Federation(folder, node, manifest, clients, (registered, gathered, deployed))


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
    assert "start with: cmfl worker --chain-id" in people
    # What was put to try is gone.
    assert before == sorted(path for path in federation.blobs.rglob("*") if path.is_file())
    assert not [*(federation.folder / "mail").iterdir()]


@pytest.mark.usefixtures("brief_pauses")
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
        stranger = cmfl(
            *federation.join(
                1, tmp_path, "--mailbox", url, "--json", blobs=url, key=federation.key(7)
            )
        )
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
    assert "has 3 training samples, and is registered with 15" in found(result, "data")
    assert "to send a commitment it needs" in found(result, "funds")


def test_other_samples_than_the_registered_ones_are_refused(
    federation: Federation, tmp_path: Path
) -> None:
    other = ["--data", samples_file(tmp_path / "other.npz", 10, seed=5)]
    result = cmfl(*federation.join(0, tmp_path), *other, "--json")
    assert (result.code, result.json["ready"]) == (1, False)
    assert {check for check, state in states(result).items() if state == "missing"} == {"data"}
    refused = "the training samples differ from the registered ones; expected digest 0x"
    assert refused in found(result, "data")
    worker = ["worker", *federation.options, "--blobs", federation.blobs]
    folders = ["--mailbox", federation.folder / "mail", "--folder", tmp_path / "w"]
    assert refused in refusal(*worker, *folders, *federation.key(0), *other)
    undisclosed = cmfl(
        *federation.join(1, tmp_path),
        "--data",
        samples_file(tmp_path / "undisclosed.npz", 11, seed=5),
        "--json",
    )
    assert states(undisclosed)["data"] == "ok"


def test_an_unregistered_or_absent_key_is_named(federation: Federation, tmp_path: Path) -> None:
    result = cmfl(*federation.join(0, tmp_path, "--json", key=federation.key(7)))
    assert result.code == 1
    assert "is not one of the run's 6 registered clients" in found(result, "key")
    later = {check for check, state in states(result).items() if state == "not-looked-at"}
    assert later == {"funds", "blobs", "mailbox", "data"}
    nowhere = ["--keystore", tmp_path / "none.json"]
    result = cmfl(*federation.join(0, tmp_path, "--json", key=nowhere))
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


def test_a_contract_of_a_factory_is_joined_only_by_an_option(
    federation: Federation, tmp_path: Path
) -> None:
    url = str(federation.node[1])
    with RpcChain(url, TEST_KEYS[0], chain_id=DEFAULT_CHAIN_ID) as node:
        deployment = CommitteeLedger(node, federation.deployed["address"]).deployment()
        address = created_by_factory(node, deployment).address
    arguments = federation.join(0, tmp_path, "--contract", address, "--json")
    result = cmfl(*arguments)
    assert states(result)["run"] == "missing"
    assert "--allow-unknown-creation accepts it" in found(result, "run")
    result = cmfl(*arguments, "--allow-unknown-creation")
    assert states(result)["run"] == "ok"
    assert "--allow-unknown-creation" in result.json["command"]


def test_an_account_with_code_is_named_before_it_joins(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, true = federation.clients[0]["address"], EmbeddedReader.code

    def delegated(chain: EmbeddedReader, address: str, number: int | None = None) -> bytes:
        is_sender = address == sender
        return bytes.fromhex("ef0100" + "11" * 20) if is_sender else true(chain, address, number)

    monkeypatch.setattr(EmbeddedReader, "code", delegated)
    result = cmfl(*federation.join(0, tmp_path, "--json"))
    assert (result.code, states(result)["key"]) == (1, "missing")
    assert f"account {sender} delegates to the code at" in found(result, "key")


@pytest.mark.usefixtures("brief_pauses")
def test_invalid_folders_urls_and_servers_are_named(federation: Federation, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = [
        *federation.join(0, tmp_path, "--folder", file, "--mailbox", "http://127.0.0.1:1"),
        *("--confirmations", 1000, "--json"),
    ]
    result = cmfl(*arguments)
    assert result.code == 1
    assert found(result, "folder").startswith(f"--folder {file}: the path or one of its")
    assert found(result, "mailbox").startswith("http://127.0.0.1:1: unreachable")
    # No block is so deep yet: what is final is as old as the chain.
    assert states(result)["finality"] == "warning"
    assert "and the first view begins 2 s after a window has closed" in found(result, "finality")
    assert "--confirmations 1000" in result.json["command"], "as it was looked at"
    worker = ["worker", *federation.options, "--blobs", federation.blobs, "--folder", file]
    assert "is not a folder; name a separate folder" in refusal(*worker, *federation.key(0))
    nowhere = cmfl(*federation.join(0, tmp_path), "--rpc-url", "nonsense", "--json")
    assert nowhere.code == 1
    assert "must be an http or https URL" in found(nowhere, "chain")
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
    assert checks.funds(0, 0, 0, 5)[0] is CheckState.OK
    assert checks.funds(0, price, most, 5)[0] is CheckState.MISSING
    # A node asks for what the whole limit costs at the most that is offered.
    least = checks.SENDING_GAS * most
    assert checks.funds(least - 1, price, most, 9)[0] is CheckState.MISSING
    # 3,424,000 gas are seven rounds of 450,000 and a rest.
    state, said = checks.funds(least, price, most, 9)
    assert state is CheckState.WARNING
    assert "about 7 of the 9 remaining rounds" in said
    assert checks.funds(9 * checks.ROUND_GAS * price, price, most, 9)[0] is CheckState.OK


def test_what_join_calls_enough_a_node_takes(chain_of_one: tuple[EmbeddedChain, RpcServer]) -> None:
    chain, server = chain_of_one
    with RpcChain(server.url, OWNER, chain_id=chain.chain_id) as owner:
        price, most = owner.market().base_fee, owner.max_cost(1)
        chain.send(owner.sender, b"", 21_000, value=checks.SENDING_GAS * price)
        balance = owner.balance_of(owner.sender)
        assert checks.funds(balance, price, most, 1)[0] is CheckState.MISSING
        with pytest.raises(TransactionRefusedError, match="insufficient funds"):
            owner.send(owner.sender, b"", checks.SENDING_GAS)
        chain.send(owner.sender, b"", 21_000, value=checks.SENDING_GAS * (most - price))
        balance = owner.balance_of(owner.sender)
        assert checks.funds(balance, price, most, 1)[0] is not CheckState.MISSING
        assert owner.send(owner.sender, b"", checks.SENDING_GAS).status == 1


def test_deploying_with_owners_goes_by_what_they_have_signed(
    federation: Federation, tmp_path: Path
) -> None:
    registry = federation.folder / "registry.json"
    arguments = ["deploy", "--registry", registry, "--home", tmp_path / "home"]
    assert "signed for run fed, not for run" in refusal(*arguments, *AGREED)
    said = refusal(*arguments, "--run", "fed", *AGREED, "--set", "training.learning_rate=0.9")
    assert "signed for settings 0x" in said
    count = ("--set", "protocol.clients=8")
    assert "the registry has 6 clients" in refusal(*arguments, "--run", "fed", *AGREED, *count)
    assert not (tmp_path / "home").exists()
    shown = succeeds("registry", "show", registry, "--json").json
    assert [client["address"] for client in shown["clients"]] == [
        client["address"] for client in federation.clients
    ]
    assert "0x" + shown["registry"][2:] in succeeds("registry", "show", registry).out
    refused = ["registry", "gather", federation.folder / "entries", "--out", registry]
    assert "exists, and is not overwritten" in refusal(*refused)
    entry = json.loads((federation.folder / "entries" / "0.json").read_text())
    (tmp_path / "0.json").write_text(json.dumps(entry | {"samples": 999}))
    out = ("--out", tmp_path / "forged.json")
    assert "is not signed by" in refusal("registry", "gather", tmp_path / "0.json", *out)
    bare = ["register", *federation.key(0), "--samples", 5, "--out", tmp_path / "x.json"]
    assert "give the settings that you agree to" in refusal(*bare)


def test_a_deployment_opens_round_1_in_the_agreed_block(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    home, registry = tmp_path / "home", federation.folder / "registry.json"
    own = ["deploy", *AGREED, "--run", "fed", "--home", home, "--registry", registry]
    monkeypatch.delenv("CMFL_RPC_URL", raising=False)
    assert "--first-block" in refusal(*own, "--first-block", 9)
    deploy = [*own, *federation.node, "--first-block"]
    with RpcReader(str(federation.node[1]), chain_id=DEFAULT_CHAIN_ID) as chain:
        for block in (1, chain.head().number + 200_000):
            said = refusal(*deploy, block)
            assert re.match(rf"--first-block {block}: must be (\d+) to 10\d+, after", said), said
        assert not (home / "runs").exists()
        far = chain.head().number + 90_000
        with monkeypatch.context() as patched:
            patched.setattr("cmfl.commands.deploy.time.sleep", _interrupt)
            cut = cmfl(*deploy, far)
        assert (cut.code, f"waiting to open round 1 in block {far}" in cut.err) == (130, True)
        manifest = json.loads((home / "runs/fed/deployment.json").read_text())
        ledger = CommitteeLedger(chain, manifest["address"], manifest["block"])
        assert ledger.opening(1) is None
        near, deployed = 0, cut
        for blocks in (10, 100, 1_000):  # on a slow machine the block may be there already
            if deployed.code != 0:
                near = chain.head().number + blocks
                deployed = cmfl(*deploy, near)
        opening = ledger.opening(1)
        assert opening is not None
        assert opening.opened_block >= near
    assert f"round 1 opened in block {opening.opened_block}" in deployed.err
    # Any account can open the round earlier: who deploys it is told so, at once.
    late = cmfl(*deploy, far)
    assert late.code != 0
    assert f"round 1 was opened in block {opening.opened_block}, before block {far}" in late.err


def _interrupt(_: float) -> None:
    raise KeyboardInterrupt


def test_a_worker_that_is_asked_to_leave_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmfl.commands.worker.LOOK_SECONDS", 0.01)
    worker = WorkerFolder(tmp_path / "worker")
    assert "no worker is running" in refusal("leave", "--folder", worker.path)
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
        assert "the worker stops after its round" in result.err
        assert worker.leave.exists()


def test_a_run_with_predictable_seeds_needs_an_explicit_option(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beacon, allowed = ["--set", "protocol.beacon=none"], "--allow-predictable-seeds"
    entry = tmp_path / "entry.json"
    owner = ["--samples", 10, "--out", entry, "--run", "known", *AGREED]
    register = ["register", *federation.key(0), *owner]
    assert 'protocol.beacon = "none"' in refusal(*register, *beacon)
    assert not entry.exists()
    succeeds(*register, *beacon, allowed)
    assert entry.exists()
    # Whoever deploys meets what the owners have signed; whoever joins, what was deployed.
    entries, registry = tmp_path / "entries", tmp_path / "registry.json"
    entries.mkdir()
    short = ("protocol.commit_blocks=1", "protocol.beacon=none")
    write_entries(entries, *short, run="known")
    gather = ["registry", "gather", entries, "--out", registry, *AGREED, *settings_of(*short)]
    assert 'protocol.beacon = "none"' in refusal(*gather)
    assert not registry.exists()
    deploy = next_command(succeeds(*gather, allowed).out, "continue with")
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    monkeypatch.chdir(tmp_path)
    deploy += map(str, federation.node)
    assert 'protocol.beacon = "none"' in refusal(*(word for word in deploy if word != allowed))
    assert not (tmp_path / "cmfl-home").exists()
    data = samples_file(tmp_path / "own.npz", 10)
    monkeypatch.setenv("CMFL_DATA", str(data))
    join = next_command(succeeds(*deploy).out, "each owner continues with")
    # A block more than the window has.
    account = federation.clients[0]["address"]
    succeeds("chain", "fund", account, "--amount", 1, *federation.node)
    monkeypatch.delenv("CMFL_PRIVATE_KEY")
    join += map(str, [*federation.key(0), "--folder", tmp_path / "worker", "--json"])
    refused = cmfl(*(word for word in join if word != allowed))
    assert (refused.code, states(refused)["run"]) == (1, "missing")
    assert 'protocol.beacon = "none"' in found(refused, "run")
    assert states(taken := cmfl(*join))["run"] == "ok"
    assert allowed in taken.json["command"]
    assert states(taken)["contract"] == "warning"
    assert "round 1 has accepted no commitments since block" in found(taken, "contract")


def test_too_few_owners_are_told_the_least_federation(
    federation: Federation, tmp_path: Path
) -> None:
    entry, out = federation.folder / "entries" / "0.json", tmp_path / "registry.json"
    gather = ["registry", "gather", entry, "--out", out]
    least = "the least federation has 6 active clients, 3 members and 3 trainers"
    assert least in refusal(*gather, *AGREED)
    assert not out.exists()
    assert f"too few for a run yet: {least}" in succeeds(*gather).out


def test_each_key_of_a_worker_is_looked_at(federation: Federation, tmp_path: Path) -> None:
    own = own_samples(federation, tmp_path)
    key = federation.key(1, 5)
    both = succeeds(*federation.join(1, tmp_path, "--data", own, "--json", key=key)).json
    assert (both["ready"], both["clients"], both["client"]) == (True, [1, 5], 1)
    assert both["command"].count("--keystore") == 2
    stranger = federation.key(1, 7)
    result = cmfl(*federation.join(1, tmp_path, "--data", own, "--json", key=stranger))
    assert (result.code, states(result)["key"]) == (1, "missing")
    twice = cmfl(*federation.join(1, tmp_path, "--data", own, "--json", key=federation.key(1, 1)))
    assert "the key of client 1 is given twice" in found(twice, "key")


def own_samples(federation: Federation, folder: Path) -> Path:
    own = folder / "own"
    own.mkdir()
    for client in federation.clients:
        samples_file(own / f"{client['address'].lower()}.npz", client["samples"])
    return own


def test_owners_play_their_run_by_the_commands_that_are_printed(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMFL_DATA", str(own_samples(federation, tmp_path)))
    join = next_command(federation.printed[-1], "each owner continues with")
    joined = succeeds(*join, *federation.key(*range(OWNERS))).out
    # Of its accounts two own something: one of these pays for all.
    played = cmfl(*next_command(joined, "start with"), "--poll", 0.05, "--json")
    assert played.code == 0, played
    told = json.loads(played.out)
    assert told["is_finished"]
    assert told["account"] in {client["address"] for client in federation.clients[:2]}
    address = federation.deployed["address"]
    audit = succeeds("audit", *federation.node, "--address", address, "--blobs", federation.blobs)
    assert "PASSED: all ten steps hold for all 1 rounds" in audit.out
