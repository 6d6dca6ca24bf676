"""A deployment that was killed before its manifest is found again, and no other is taken for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.chain.contract.deploy import connect, creation_data, deploy, deployment_for
from ledger.chain.contract.ledger import Manifest, read_run_manifest
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.ports import ChainWriter, TransactionTimeoutError
from ledger.chain.rpc.node import RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import Disk, Home, RunPaths
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage
from tests.chain.contract.test_deployment import SMALL
from tests.chain.rpc.forking_node import ForkingNode
from tests.chain.rpc.pool_node import PoolNode

OTHER = replace(SMALL, layout=(("weight", (6,)),))
GAS = 6_500_000


class KilledError(BaseException):
    """What ends a process between the contract's creation and its manifest."""


class LastDisk(Disk):
    """The disk of a process that is killed where it would write the manifest."""

    def write_whole(self, path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
        if path.name == "deployment.json":
            raise KilledError
        super().write_whole(path, data, durable=durable)


class UnsentDisk(Disk):
    """The disk of a process that is killed once it has said what it is about to send."""

    def write_whole(self, path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
        super().write_whole(path, data, durable=durable)
        raise KilledError


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        yield chain


@pytest.fixture(params=["embedded", "rpc"])
def chain(request: pytest.FixtureRequest, embedded: EmbeddedChain) -> Iterator[ChainWriter]:
    if request.param == "embedded":
        yield embedded
        return
    with (
        RpcServer(embedded) as server,
        RpcChain(server.url, TEST_KEYS[0], chain_id=DEFAULT_CHAIN_ID) as node,
    ):
        yield node


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    found = Home(tmp_path).run("run")
    found.path.mkdir(parents=True)
    found.configuration.write_text("seed = 1\n")
    return found


def killed(chain: ChainWriter, paths: RunPaths, kind: type[Disk] = LastDisk) -> None:
    with pytest.raises(KilledError):
        deploy(chain, SMALL, paths, kind())
    assert paths.intent.exists()
    assert not paths.manifest.exists()


def creations(chain: ChainWriter) -> list[str | None]:
    digest = sha256(creation_data(deployment_for(SMALL)[0]))
    sent = [chain.receipt_of(chain.sender, nonce) for nonce in range(chain.next_nonce())]
    return [
        one.contract_address
        for one in sent
        if one is not None and sha256(chain.transaction(one.transaction_hash).input) == digest
    ]


def require_whole(chain: ChainWriter, paths: RunPaths, manifest: Manifest) -> None:
    assert read_run_manifest(paths) == manifest
    assert connect(chain, manifest).state().stage is LedgerStage.OPEN
    assert not paths.intent.exists()


def test_a_contract_without_manifest_is_found_again(chain: ChainWriter, paths: RunPaths) -> None:
    killed(chain, paths)
    [address] = creations(chain)
    # The deployer has other things to do meanwhile.
    chain.send(chain.sender, b"", 30_000)
    chain.send(None, creation_data(deployment_for(OTHER)[0]), GAS)
    chain.mine(2)
    manifest = deploy(chain, SMALL, paths)
    assert manifest.address == address
    assert creations(chain) == [address]
    require_whole(chain, paths, manifest)


def test_a_deployment_that_was_not_sent_is_sent_once(chain: ChainWriter, paths: RunPaths) -> None:
    killed(chain, paths, UnsentDisk)
    manifest = deploy(chain, SMALL, paths)
    assert creations(chain) == [manifest.address]
    require_whole(chain, paths, manifest)


def test_an_equal_contract_of_another_run_is_left_alone(
    chain: ChainWriter, paths: RunPaths, tmp_path: Path
) -> None:
    killed(chain, paths, UnsentDisk)
    other = Home(tmp_path).run("other")
    other.path.mkdir()
    taken = deploy(chain, SMALL, other)
    manifest = deploy(chain, SMALL, paths)
    assert manifest.address != taken.address
    assert creations(chain) == [taken.address, manifest.address]


def test_another_configuration_does_not_replace_a_contract_that_was_created(
    chain: ChainWriter, paths: RunPaths
) -> None:
    killed(chain, paths)
    [address] = creations(chain)
    with pytest.raises(ChainError, match=f"another configuration, as contract {address}"):
        deploy(chain, OTHER, paths)
    assert deploy(chain, SMALL, paths).address == address


def test_a_deployment_is_not_begun_again_on_another_chain(
    embedded: EmbeddedChain, paths: RunPaths, tmp_path: Path
) -> None:
    killed(embedded, paths)
    with EmbeddedChain.create(tmp_path / "other.sqlite", chain_id=7) as other:
        with pytest.raises(ChainError, match=f"was being deployed on chain {DEFAULT_CHAIN_ID}"):
            deploy(other, SMALL, paths)
        assert other.head().number == 0


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (b"{}", "does not have the fields"),
        (b"{", "is not JSON"),
        (b'{"format": 9}', "format 9 is not 2"),
    ],
)
def test_a_damaged_intent_is_refused(
    embedded: EmbeddedChain, paths: RunPaths, damage: bytes, fact: str
) -> None:
    paths.intent.write_bytes(damage)
    with pytest.raises(ChainError, match=f"deployment intent .*{fact}"):
        deploy(embedded, SMALL, paths)
    assert embedded.head().number == 0


def test_an_intent_with_an_impossible_nonce_is_refused(
    embedded: EmbeddedChain, paths: RunPaths
) -> None:
    killed(embedded, paths, UnsentDisk)
    intent = paths.intent.read_text()
    paths.intent.write_text(intent.replace('"nonce": 0', '"nonce": -1'))
    with pytest.raises(ChainError, match="nonce -1 is below 0"):
        deploy(embedded, SMALL, paths)
    paths.intent.write_text(intent.replace('"nonce": 0', '"nonce": 7'))
    with pytest.raises(ChainError, match=r"by transaction 7 of .*, whose next is 0"):
        deploy(embedded, SMALL, paths)
    assert embedded.head().number == 0


class WaitingNode(PoolNode):
    """A node with a pool, whose next block comes when it was asked often enough for a receipt."""

    def __init__(self, chain: EmbeddedChain) -> None:
        super().__init__(chain)
        self.looks: int | None = None
        for name in ("eth_getCode", "eth_getLogs", "eth_blockNumber"):
            self.answers[name] = lambda *given, name=name: self.served(name, list(given))
        self.answers["eth_getTransactionReceipt"] = self.receipt

    def receipt(self, transaction_hash: str) -> Any:
        if self.looks is not None:
            self.looks -= 1
            if self.looks < 0:
                self.mine()
        return self.served("eth_getTransactionReceipt", [transaction_hash])


@pytest.fixture
def pool(embedded: EmbeddedChain) -> Iterator[WaitingNode]:
    with WaitingNode(embedded) as node:
        yield node


@contextmanager
def client(url: str, **changes: Any) -> Iterator[RpcChain]:
    settings = RpcSettings(poll_seconds=0.01, resend_seconds=0.02, **changes)
    with RpcChain(url, TEST_KEYS[0], chain_id=DEFAULT_CHAIN_ID, settings=settings) as node:
        yield node


def left_waiting(pool: WaitingNode, paths: RunPaths) -> Any:
    """Begin a deployment that is given up while its creation waits, and return that."""
    with client(pool.url, receipt_timeout_seconds=0.02) as node:
        with pytest.raises(TransactionTimeoutError):
            deploy(node, SMALL, paths)
        return pool.only(node.sender)


def test_a_pending_creation_is_replaced_by_one_that_pays_more(
    embedded: EmbeddedChain, paths: RunPaths, pool: WaitingNode
) -> None:
    first = left_waiting(pool, paths)
    pool.looks = 2
    with client(pool.url) as node:
        manifest = deploy(node, SMALL, paths)
    assert creations(embedded) == [manifest.address]
    assert manifest.transaction != f"0x{bytes(first.hash).hex()}"
    require_whole(embedded, paths, manifest)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_forgotten_creation_is_sent_again_and_mined_once(
    embedded: EmbeddedChain, paths: RunPaths, pool: WaitingNode, comes_back: bool
) -> None:
    first = left_waiting(pool, paths)
    pool.drop(embedded.sender)
    take = pool.take

    def take_and_lose(raw: str) -> object:
        taken = take(raw)
        if embedded.head().number == 0:
            pool.put(first)  # another node has had it all the time, and makes the block
            pool.mine()
        return taken

    pool.looks = 0
    if comes_back:
        pool.answers["eth_sendRawTransaction"] = take_and_lose
    with client(pool.url) as node:
        manifest = deploy(node, SMALL, paths)
    assert creations(embedded) == [manifest.address]
    assert (manifest.transaction == f"0x{bytes(first.hash).hex()}") is comes_back
    require_whole(embedded, paths, manifest)


def test_a_lagging_node_is_not_believed_that_nothing_was_created(
    embedded: EmbeddedChain, paths: RunPaths, pool: WaitingNode
) -> None:
    pool.looks = 0
    with client(pool.url) as node:
        killed(node, paths)
    # The first answers come from a node that has not heard of the block yet.
    heads, counts = ["0x0"] * 2, ["0x0"] * 2
    pool.answers["eth_getBlockByNumber"] = lambda tag, whole: pool.served(
        "eth_getBlockByNumber", [heads.pop() if tag == "latest" and heads else tag, whole]
    )
    pool.answers["eth_getTransactionCount"] = lambda account, tag: (
        counts.pop() if counts else pool.count(account, tag)
    )
    with client(pool.url) as node:
        manifest = deploy(node, SMALL, paths)
    assert creations(embedded) == [manifest.address]
    require_whole(embedded, paths, manifest)


@pytest.fixture
def forking(embedded: EmbeddedChain, tmp_path: Path) -> Iterator[tuple[ForkingNode, EmbeddedChain]]:
    """A node that goes over to a shorter chain."""
    shutil.copy(tmp_path / "chain.sqlite", tmp_path / "fork.sqlite")
    embedded.mine(3)
    with (
        EmbeddedChain.open(tmp_path / "fork.sqlite", synchronous="NORMAL") as fork,
        ForkingNode(embedded, fork, 0) as node,
    ):
        yield node, fork


def test_a_creation_reorganised_into_a_lower_block_is_found(
    embedded: EmbeddedChain, paths: RunPaths, forking: tuple[ForkingNode, EmbeddedChain]
) -> None:
    served, fork = forking
    with client(served.url) as node:
        killed(node, paths)
        [signed] = embedded.transactions(embedded.header())
        fork.submit(signed.encoded)
        served.reorganise()
        manifest = deploy(node, SMALL, paths)
    assert (manifest.block, fork.account(manifest.deployer)[0]) == (1, 2)
    require_whole(fork, paths, manifest)


def test_a_manifest_follows_its_contract_into_another_block(
    embedded: EmbeddedChain, paths: RunPaths, forking: tuple[ForkingNode, EmbeddedChain]
) -> None:
    served, fork = forking
    with client(served.url) as node:
        before = deploy(node, SMALL, paths)
        [signed] = embedded.transactions(embedded.header(before.block))
        fork.submit(signed.encoded)
        served.reorganise()
        after = deploy(node, SMALL, paths)
    # Its parent is another, and with it the salt of what clients sign for.
    assert after.salt != before.salt
    assert (before.block, after) == (4, replace(before, block=1, salt=after.salt))
    require_whole(fork, paths, after)
