"""`cmfl worker` on a served chain: from its options to its exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from clients.configuration.loading import load
from clients.datasets.own_samples import simulated_keys
from clients.registration import PASSWORD_FILE, write_test_keystores
from clients.runs.open_run import prepared
from clients.worker.process import WorkerTarget, find_deployed_run
from clients.worker.status import WorkerFolder
from ledger.chain.contract import abi
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import IncompleteLogsError, Log, LogQuery, NotServedError
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import Home
from ledger.protocol.encoding import checksum
from ledger.protocol.inputs import participants_of
from ledger.protocol.signing import KeySigner
from ledger.storage.blobs import FolderBlobs
from tests.api.store.conftest import served as store_served
from tests.cmfl.commands.conftest import Result, cmfl, refusal, succeeds
from tests.federation.worker_faults import FAULT_VARIABLE
from tests.processes import Forks

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = (
    "protocol.beacon=block",
    "protocol.rounds=2",
    "protocol.view_seconds=2",
    "protocol.commit_blocks=5000",
    "protocol.deadline_blocks=10000",
    "training.path=plain",
)


@dataclass(frozen=True)
class Served:
    """A deployed run behind a node, the keystores of its clients, and a run of known seeds."""

    home: Home
    options: list[object]
    keystores: list[Path]
    node: list[object]
    address: str
    predictable: str
    idle: int

    def worker(self, folder: Path, *clients: int) -> list[object]:
        keys = [part for client in clients for part in ("--keystore", self.keystores[client])]
        return ["worker", *self.options, *keys, "--folder", folder]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    home = Home(folder / "home")
    home.path.mkdir()
    configuration = load("smoke", settings=SETTINGS)
    keys = simulated_keys(configuration.seed, configuration.protocol.clients)
    keystores = write_test_keystores(folder / "keys", keys)
    known, blobs = (
        load("smoke", settings=(*SETTINGS, "protocol.beacon=none")),
        FolderBlobs(home.blobs),
    )
    with (
        EmbeddedChain.create(home.chain) as chain,
        prepared(home.path, "run", configuration, chain, blobs) as (_, _, manifest),
        prepared(home.path, "known", known, chain, blobs) as (_, _, other),
    ):
        ledger = CommitteeLedger(chain, manifest.address)
        opening = ledger.opening(1)
        assert opening is not None
        parameters = configuration.parameters(dimension=1)
        about = (1, opening.seed, opening.committee)
        active = participants_of(parameters, ledger.registry(), *about).active
        with RpcServer(chain, block_seconds=0.2) as server:
            with RpcChain(server.url, TEST_KEYS[0], chain_id=chain.chain_id) as bank:
                payer = checksum(KeySigner(keys[3]).address)
                bank.send(payer, b"", 30_000, value=10**18)
            node = ["--rpc-url", server.url, "--chain-id", chain.chain_id]
            yield Served(
                home=home,
                options=[
                    *node,
                    *("--contract", manifest.address, "--blobs", home.blobs),
                    *("--mailbox", folder / "mail", "--poll", 0.05),
                    *("--password-file", folder / "keys" / PASSWORD_FILE),
                ],
                keystores=keystores,
                node=node,
                address=manifest.address,
                predictable=other.address,
                idle=min(set(range(12)) - set(active)),
            )


@contextmanager
def stopped_once_it_runs(folder: Path) -> Iterator[None]:
    """Ask a worker of this process to end, as soon as it has said that it runs."""
    has_ended = threading.Event()

    def tell() -> None:
        while not (folder / "status.json").exists():
            if has_ended.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        has_ended.set()
        teller.join()


def test_refuses_what_it_cannot_take_part_with(served: Served, tmp_path: Path) -> None:
    assert "--rpc-url is required" in refusal("worker", "--folder", tmp_path)
    assert "--blobs is required" in refusal("worker", *served.options[:6], "--folder", tmp_path)
    wrong_chain = [7 if option == served.node[3] else option for option in served.options]
    key = ("--keystore", served.keystores[0], "--folder", tmp_path)
    assert "expected 7" in cmfl("worker", *wrong_chain, *key).err
    nobody = checksum(bytes(20))
    elsewhere = [*served.options, "--contract", nobody, *key]
    found = cmfl("worker", *elsewhere)
    assert found.code == 2
    assert f"there is no contract at {nobody}" in found.err


def test_predictable_seeds_are_refused_unless_requested(served: Served, tmp_path: Path) -> None:
    worker = [*served.worker(tmp_path, served.idle), "--contract", served.predictable]
    with stopped_once_it_runs(tmp_path):
        refused = cmfl(*worker)
    assert (refused.code, refused.out) == (2, "")
    assert 'protocol.beacon = "none"' in refused.err
    assert not WorkerFolder(tmp_path).journal.exists()
    with stopped_once_it_runs(tmp_path):
        assert cmfl(*worker, "--allow-predictable-seeds").code == 0


def test_a_worker_whose_account_has_code_does_not_start(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, true = bytes.fromhex("ef0100" + "11" * 20), EmbeddedReader.code
    keys = simulated_keys(load("smoke", settings=SETTINGS).seed, 12)
    sender = checksum(KeySigner(keys[served.idle]).address)

    def delegated(chain: EmbeddedReader, address: str, block_number: int | None = None) -> bytes:
        return code if address == sender else true(chain, address, block_number)

    monkeypatch.setattr(EmbeddedReader, "code", delegated)
    other = 0 if served.idle else 1
    for clients in ((served.idle,), (other, served.idle)):
        refused = cmfl(*served.worker(tmp_path, *clients))
        assert (refused.code, refused.out) == (2, "")
        assert f"account {sender} delegates to the code at 0x{'11' * 20} (EIP-7702)" in refused.err
    assert not WorkerFolder(tmp_path).journal.exists()


class Late(RpcChain):
    """A node that calls nothing final but the block that all begins with."""

    def finalized(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("confirmations", "says"),
    [
        (None, r"with block \d+ at its head; .* or never, give --confirmations N"),
        (1000, "1000 conf"),
    ],
)
def test_an_unconfirmed_contract_is_awaited_with_a_hint(
    served: Served, confirmations: int | None, says: str
) -> None:
    url, chain_id = str(served.node[1]), int(str(served.node[3]))
    own = (url, chain_id, served.address, str(served.home.blobs), "no-mail")
    places = WorkerTarget(*own, confirmations=confirmations)
    with (
        Late(url, TEST_KEYS[0], chain_id=chain_id) as node,
        pytest.raises(NotServedError, match=f"not opened by block 0, the newest final.*{says}"),
    ):
        find_deployed_run(node, places)


class Forgetful(RpcChain):
    def logs(self, query: LogQuery) -> list[Log]:
        lost = abi.topic("LedgerOpened")
        return [log for log in super().logs(query) if log.topics[0] != lost]


def test_a_node_that_omits_the_opening_is_named_and_awaited(served: Served) -> None:
    """The contract itself says that its first round has opened."""
    url, chain_id = str(served.node[1]), int(str(served.node[3]))
    places = WorkerTarget(url, chain_id, served.address, str(served.home.blobs), "no-mail")
    with (
        Forgetful(url, TEST_KEYS[0], chain_id=chain_id) as node,
        pytest.raises(IncompleteLogsError) as refused,
    ):
        find_deployed_run(node, places)
    assert refused.value.node == url


def test_one_folder_is_for_one_worker(served: Served, tmp_path: Path) -> None:
    with WorkerFolder(tmp_path).held():
        sentence = refusal(*served.worker(tmp_path, 0))
    assert ") runs a worker on this folder" in sentence


def test_ends_at_once_when_it_is_told_to(served: Served, tmp_path: Path) -> None:
    with stopped_once_it_runs(tmp_path):
        result = cmfl(*served.worker(tmp_path, 0), "--metrics-port", 0, "--log-format", "json")
    assert result.code == 0
    events = [json.loads(line)["event"] for line in result.err.splitlines()]
    assert "stops on request" in events
    assert any(event.startswith("serves Prometheus metrics on ") for event in events), "which one"
    found = json.loads((tmp_path / "status.json").read_text())
    assert found["stand"] == "ended"


@pytest.fixture
def store(served: Served) -> Iterator[str]:
    """The URL under which the clients of the contract put blobs and mail."""
    with (
        EmbeddedReader.open(served.home.chain) as reader,
        store_served(served.home.blobs, CommitteeLedger(reader, served.address)) as url,
    ):
        yield url


def as_an_owners_process(folder: Path, *arguments: object, **variables: str) -> Result:
    """Return what a `cmfl` process does that begins as an owner's does, with these variables."""
    entry = "cmfl.commands.main:run"
    with Forks(folder / "forks", entry) as forks, forks.start(*arguments, **variables) as process:
        out, err = process.communicate()
        return Result(process.wait(), out, err)


def test_one_process_plays_a_run_that_a_stranger_audits(
    served: Served, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Play a run through a store over HTTP, on a GPU if there is one; torch audits nothing.

    The variable of faulty workers is set, and the worker, which an owner starts, stays honest.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = ["--device", device, "--log-format", "json", "--json"]
    places = ["--blobs", store, "--mailbox", store]
    worker = [*served.worker(tmp_path, *range(12)), *places, *options]
    result = as_an_owners_process(tmp_path, *worker, **{FAULT_VARIABLE: "not-finite,false-scores"})
    assert result.code == 0, result
    for line in result.err.splitlines():
        assert {"time", "level", "event"} <= set(json.loads(line))
    told = json.loads(result.out)
    assert told["is_finished"]
    assert told["troubles"] == {}
    assert told["counts"]["commitments"] == 20
    assert told["counts"]["votes"] > 0
    written = result.err + result.out + (tmp_path / "status.json").read_text()
    for key in simulated_keys(0, 12):
        assert key.hex() not in written.lower()
    shown = succeeds("worker", "--status", "--folder", tmp_path, "--json").json
    assert not shown["is_running"]
    assert shown["head"] == told["head"]
    assert "not running, ended" in succeeds("worker", "--status", "--folder", tmp_path).out
    # Nothing of any home: the node, the store, and what is installed without the extra `clients`.
    where = (*served.node, "--address", served.address, "--blobs", store)
    monkeypatch.setitem(sys.modules, "torch", None)
    report = succeeds("audit", *where, "--json").json
    assert (report["outcome"], report["rounds"]) == ("passed", 2)
    accused = [finding for finding in report["findings"] if finding["proven"]]
    assert accused == [], "a slow machine may miss a view, and nobody has lied"


def test_a_status_that_nobody_wrote_is_refused(tmp_path: Path) -> None:
    assert "no worker has run" in refusal("worker", "--status", "--folder", tmp_path)
    view = (
        '{"format": 1, "stand": "x", "roles": {}, "round": null, "view": {"phase": 9, "view": 1}}'
    )
    for text, rule in (("[1]", "is not a status"), ("[NaN]", "not a number"), (view, "a field")):
        (tmp_path / "status.json").write_text(text)
        assert rule in refusal("worker", "--status", "--folder", tmp_path)


def test_a_worker_waiting_for_its_node_says_so(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    said = {"format": 1, "pid": 1, "stand": "ended", "round": 6, "block": 9, "is_finished": True}
    said |= {"roles": {}, "view": None, "troubles": {}}
    with folder.held():
        show = ("worker", "--status", "--folder", tmp_path)
        begins = f"running as process {os.getpid()}, starting; no round is known yet\n"
        assert succeeds(*show).out == begins, "nothing was ever said in this folder"
        folder.status.write_text(json.dumps(said))
        assert succeeds(*show).out == begins, "what was said was another process's"
        shown = succeeds(*show, "--json").json
        assert (shown["is_running"], shown["pid"], shown["round"]) == (True, os.getpid(), None)
        assert not shown["was_killed"]
        assert "the worker stops after its round" in cmfl("leave", "--no-wait", *show[2:]).err
    assert "not running, ended; round 6, block 9, the run is finished" in succeeds(*show).out
    said |= {"stand": "running", "is_finished": False, "view": {"phase": 2, "view": 0}}
    folder.status.write_text(json.dumps(said))
    killed = cmfl(*show)
    assert (killed.code, killed.err) == (1, "")
    assert killed.out == "not running, killed while running; round 6, block 9\n  election, view 1\n"
    killed = cmfl(*show, "--json")
    assert (killed.code, killed.json["is_running"], killed.json["was_killed"]) == (1, False, True)
