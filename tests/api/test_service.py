"""It starts before the chain, survives what is damaged, and serves only what agrees with it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx
import pytest
from fastapi.routing import APIRoute

from api.app import create_app, serve
from api.histories import HistoryService, PinnedChain
from api.http.server import listening_socket
from api.settings import Settings
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import read_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.history.round import read_run
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.types import PROTOCOL_VERSION
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import (
    CLIENTS,
    MEMBERS,
    ROUNDS,
    TRAINERS,
    deployments,
    make_run,
    read,
    refused,
    root_of,
    serving,
)
from tests.chain.embedded.test_read_only import obedient
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

    from tests.processes import Forks

SHORT = ("protocol.rounds=1",)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("service") / "home"
    make_run(home, "first", SHORT)
    return home


@pytest.fixture
def copy(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "copy"))


def manifest_path(home: Path, run: str = "first") -> Path:
    return home / "runs" / run / "deployment.json"


def change_manifest(home: Path, **fields: Any) -> None:
    path = manifest_path(home)
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def reasons(client: httpx.Client) -> dict[str, str]:
    told = read(client, "/v1/status")["refused"]
    return {entry["manifest"]: entry["reason"] for entry in told}


def test_it_is_up_and_ready(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert answer.json() == {"status": "up"}
    assert answer.headers["cache-control"] == "no-store"
    told = read(client, "/ready")
    assert told["status"] == "ready"
    assert client.get("/ready").headers["cache-control"] == "no-store"


def test_status_tells_chain_and_versions(client: httpx.Client, address: str, home: Path) -> None:
    told = read(client, "/v1/status")
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        assert told["chain"]["chain_id"] == str(chain.chain_id)
        assert told["chain"]["genesis"] == f"0x{chain.genesis_hash.hex()}"
        assert told["chain"]["number"] == told["as_of"]["number"] == chain.head().number
        assert told["chain"]["time"] == chain.head().timestamp
    (one,) = told["deployments"]
    assert one.pop("links")["self"] == root_of(client, address)
    assert one == {"address": address, "run": "first", "stage": "finished", "round": 9, "rounds": 9}
    assert told["refused"] == []
    assert told["versions"]["compiler"].startswith("vyper 0.4.3")


NO_CHAIN = "/v1/chains/1-00000000/deployments"


def test_it_is_not_ready_until_there_is_a_chain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with serving(Settings(home=home)) as client:
        assert client.get("/health").status_code == 200
        for path in ("/ready", "/v1/status", "/v1/chains", NO_CHAIN, f"{NO_CHAIN}/0x{'1' * 40}"):
            told = refused(client.get(path), 503, "chain-unreachable")
            assert "chain.sqlite" in told["detail"]
            assert str(tmp_path) not in told["detail"]
        assert client.get("/ready").headers["retry-after"] == "1"
        make_run(home, "first", SHORT)
        assert client.get("/ready").status_code == 200
        assert len(deployments(client)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database, but longer than a header" * 100),
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, 8_192),
    ],
)
def test_damaged_chain_is_a_503_and_not_the_end(copy: Path, damage: Callable[[Path], None]) -> None:
    for extra in ("chain.sqlite-wal", "chain.sqlite-shm"):
        (copy / extra).unlink(missing_ok=True)
    damage(copy / "chain.sqlite")
    with serving(Settings(home=copy)) as client:
        for path in ("/ready", "/v1/status", "/v1/chains", NO_CHAIN):
            answer = client.get(path)
            assert answer.status_code == 503
            assert answer.json()["type"].startswith("urn:cmfl:problem:chain-")
            assert str(copy) not in answer.text
        assert client.get("/health").status_code == 200


def test_a_home_made_anew_is_noticed(copy: Path, tmp_path: Path) -> None:
    with serving(Settings(home=copy)) as client:
        genesis = read(client, "/v1/status")["chain"]["genesis"]
        shutil.rmtree(copy)
        refused(client.get("/ready"), 503, "chain-unreachable")
        make_run(copy, "again", SHORT)
        told = read(client, "/v1/status")
        assert [entry["run"] for entry in told["deployments"]] == ["again"]
        assert told["chain"]["genesis"] != genesis or told["chain"]["number"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"chain_id": 5}, "the manifest is for chain 5"),
        ({"genesis_hash": "0x" + "00" * 32}, "the manifest is for the chain with genesis"),
        ({"address": "0x" + "11" * 20}, "there is no contract at"),
        ({"config": "0x" + "00" * 32}, "the contract has run document"),
        ({"block": 7}, "created the contract, not 7"),
        ({"transaction": "0x" + "00" * 32}, "no mined transaction 0x0000"),
        ({"transaction": "zz"}, "is not a hash"),
        ({"version": 9}, f"protocol version 9; this program needs version {PROTOCOL_VERSION}"),
        ({"block": "1"}, "block is not of type int"),
        ({"more": 1}, "does not have the fields"),
        ({"run": "other"}, "is the manifest of run 'other', not of 'first'"),
        ({"configuration": "0x" + "00" * 32}, "config.toml has another configuration"),
    ],
)
def test_false_manifest_is_refused(copy: Path, fields: dict[str, Any], reason: str) -> None:
    change_manifest(copy, **fields)
    with serving(Settings(home=copy)) as client:
        assert deployments(client) == []
        told = reasons(client)["first/deployment.json"]
        assert reason in told
        assert str(copy) not in told


def test_what_is_no_manifest_disturbs_no_other(copy: Path) -> None:
    for run, data in {"broken": b"{", "empty": b"", "large": b"[" * 200_000}.items():
        manifest_path(copy, run).parent.mkdir()
        manifest_path(copy, run).write_bytes(data)
    strange = Path(os.fsdecode(os.fsencode(copy / "runs") + b"/\xff"))
    strange.mkdir()
    (strange / "deployment.json").write_bytes(b"{}")
    (copy / "runs" / "pipe").mkdir()
    os.mkfifo(manifest_path(copy, "pipe"))
    (copy / "runs" / "folder" / "deployment.json").mkdir(parents=True)
    (copy / "runs" / "unfinished").mkdir()
    (copy / "runs" / "file").write_bytes(b"")
    with serving(Settings(home=copy)) as client:
        told = read(client, "/v1/status")
        assert [entry["run"] for entry in told["deployments"]] == ["first"]
        assert set(reasons(client)) == {
            "broken/deployment.json",
            "empty/deployment.json",
            "large/deployment.json",
            "\\udcff/deployment.json",
        }


def test_a_deployment_is_served_once(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy / "runs" / "first", tmp_path / "second")
    further = (tmp_path / "second" / "deployment.json",)
    with serving(Settings(home=copy, manifests=further)) as client:
        assert [d["run"] for d in deployments(client)] == ["first"]
        assert reasons(client) == {"second/deployment.json": "the contract belongs to run 'first'"}


def test_a_manifest_that_goes_or_changes_is_noticed(copy: Path) -> None:
    with serving(Settings(home=copy)) as client:
        path = deployments(client)[0]["links"]["self"]
        read(client, path)
        text = manifest_path(copy).read_text()
        manifest_path(copy).unlink()
        refused(client.get(path), 404, "deployment-not-found")
        manifest_path(copy).write_text(text)
        read(client, path)
        change_manifest(copy, chain_id=5)
        refused(client.get(path), 404, "deployment-not-found")


def test_a_node_can_stand_for_the_file(template: Path, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    home.mkdir()
    with (
        EmbeddedReader.open(template / "chain.sqlite") as chain,
        RpcServer(chain) as node,
        serving(Settings(home=template)) as file_client,
        serving(
            Settings(
                home=home,
                rpc_url=node.url,
                chain_id=chain.chain_id,
                manifests=(manifest_path(template),),
                blobs=template / "blobs",
            )
        ) as client,
    ):
        root = deployments(client)[0]["links"]["self"]
        for path in ("/v1/status", root, f"{root}/rounds", f"{root}/clients"):
            assert client.get(path).content == file_client.get(path).content
        for part in ("", "/updates", "/scores", "/votes", "/committee", "/aggregation"):
            path = f"{root}/rounds/1{part}"
            assert client.get(path).content == file_client.get(path).content


def test_an_unreachable_node_is_a_503_without_its_address(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as closed:
        port = closed.getsockname()[1]
    settings = Settings(home=tmp_path, rpc_url=f"http://127.0.0.1:{port}", chain_id=1)
    with serving(settings) as client:
        answer = client.get("/v1/status")
        refused(answer, 503, "chain-unreachable")
        assert str(port) not in answer.text


def test_refuses_to_start_without_home_or_on_a_used_port(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no home at"):
        serve(Settings(home=tmp_path / "none"), "127.0.0.1", 0)
    with (
        listening_socket("127.0.0.1", 0) as taken,
        pytest.raises(ConfigurationError, match="cannot listen on"),
    ):
        serve(Settings(home=tmp_path), "127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        serve(Settings(home=tmp_path), "no such host.invalid", 0)
    for port in (-1, 65_536, 70_000):
        with pytest.raises(ConfigurationError, match=f"port {port} is not in"):
            serve(Settings(home=tmp_path), "127.0.0.1", port)


def test_it_tells_its_url_and_ends_in_order_when_interrupted(copy: Path, forks: Forks) -> None:
    with forks.start("serve", "--home", copy, "--port", 0) as server:
        url = next(word for word in server.first_line().split() if word.startswith("http"))
        # Connections wait in the listening socket until the server takes them.
        assert (
            httpx.get(f"{url}ready", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
        )
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_SECONDS) == 0


def test_a_home_that_nobody_may_write_to_is_served(copy: Path) -> None:
    paths = [copy, *copy.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with obedient(), serving(Settings(home=copy)) as client:
            root = deployments(client)[0]["links"]["self"]
            assert read(client, f"{root}/rounds/1")["record"]["available"]
        assert sorted(paths) == sorted([copy, *copy.rglob("*")])
    finally:
        for path in paths:
            path.chmod(0o755)


# What a deployment has fixed is told as contract and run document have it.


@pytest.fixture(scope="module")
def fixed(home: Path) -> Iterator[Deployment]:
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        manifest = read_manifest(home / "runs" / "first" / "deployment.json")
        yield connect(chain, manifest).deployment()


def test_contracts_own_facts_are_told(client: httpx.Client, root: str, fixed: Deployment) -> None:
    told = read(client, root)
    assert told["sizes"]["clients"] == CLIENTS
    assert (told["sizes"]["trainers"], told["sizes"]["members"]) == (TRAINERS, MEMBERS)
    contract = told["contract"]
    assert contract == {
        "aggregation_ppm": fixed.aggregation_ppm,
        "form": {"code": int(fixed.form), "name": "below_two"},
        "rounds": ROUNDS,
        "commit_blocks": 1,
        "deadline_blocks": 3,
        "replies": fixed.replies,
        "beacon": "none",
        "registry": f"0x{fixed.registry.hex()}",
        "initial_model": f"0x{fixed.model.hex()}",
    }
    assert told["sizes"]["replies"] == fixed.replies == 3


def test_rules_have_their_names(
    home: Path, client: httpx.Client, root: str, fixed: Deployment
) -> None:
    document = read_run(FolderBlobs(home / "blobs"), fixed.config)
    assert document is not None
    p, told = document.parameters, read(client, root)["parameters"]
    assert told == {
        "active_ppm": p.active_ppm,
        "committee_ppm": p.committee_ppm,
        "aggregation_ppm": p.aggregation_ppm,
        "dimension": p.dimension,
        "strategy": {"number": 3, "name": "III"},
        "distance": "direction",
        "quorum": "paper",
        "server_rate": 1.0,
        "view_seconds": 10,
    }


def test_without_the_configurations_blob_the_contracts_facts_remain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    address = make_run(home, "first", ("protocol.rounds=1",))
    with serving(Settings(home=home)) as client:
        root = root_of(client, address)
        before = read(client, root)
        assert before["parameters"]["strategy"] == {"number": 1, "name": "I"}
        digest = before["config"][2:]
        (home / "blobs" / digest[:2] / digest).unlink()
        after = read(client, root)
    assert after == before | {"parameters": None}


# A request takes one thread, its endpoint's: what an endpoint depends on waits for nothing.


def depended_on(dependant: Dependant) -> Iterator[Dependant]:
    for inner in dependant.dependencies:
        yield inner
        yield from depended_on(inner)


def test_no_dependency_takes_a_thread_of_its_own(tmp_path: Path) -> None:
    routes = [
        one for one in create_app(Settings(home=tmp_path)).routes if isinstance(one, APIRoute)
    ]
    reading = [one for one in routes if one.methods == {"GET"}]
    found = [inner.call for route in reading for inner in depended_on(route.dependant)]
    assert found
    assert [call for call in found if not inspect.iscoroutinefunction(call)] == []


THREADS = 2


class SlowHistories(HistoryService):
    """A chain that answers nobody before it is released."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.released = threading.Event()
        self.waiting: list[int] = []

    def now(self) -> PinnedChain:
        self.waiting.append(threading.get_ident())
        self.released.wait(PATIENCE_SECONDS)
        raise ChainError("released")


def test_health_needs_no_thread(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    histories = SlowHistories(settings)
    app = create_app(settings)
    app.state.histories = histories

    async def asked() -> tuple[int, list[int]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            waiting = [asyncio.create_task(client.get("/ready")) for _ in range(THREADS + 1)]
            try:
                while len(histories.waiting) < THREADS:
                    await asyncio.sleep(0.01)
                quick = await asyncio.wait_for(client.get("/health"), PATIENCE_SECONDS)
                assert not any(task.done() for task in waiting)
            finally:
                histories.released.set()
            slow = await asyncio.gather(*waiting)
        return quick.status_code, [one.status_code for one in slow]

    assert asyncio.run(asked()) == (200, [503] * (THREADS + 1))
