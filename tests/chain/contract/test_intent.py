"""A deployment that was killed before its manifest is found again, and no other is taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.chain.contract.deployment import connect, creation_data, deploy, deployment_for
from ledger.chain.contract.manifest import read_run_manifest
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.chain.embedded.identity import DEFAULT_CHAIN_ID
from ledger.chain.embedded.machine.accounts import TEST_KEYS
from ledger.chain.ports import TransactionTimeoutError
from ledger.chain.rpc.chain import RpcChain
from ledger.chain.rpc.reader import RpcSettings
from ledger.chain.rpc.served.methods import RpcMethods
from ledger.chain.rpc.served.server import RpcServer
from ledger.home import Disk, Home
from ledger.protocol.encoding import keccak256, sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import Stage
from tests.chain.contract.test_deployment import SMALL
from tests.chain.rpc.scripted_node import ScriptedNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.ports import ChainWriter
    from ledger.home import RunPaths

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
    return [found.contract_address for found in chain.creations(chain.sender, digest, 0)]


def require_whole(chain: ChainWriter, paths: RunPaths, manifest: Manifest) -> None:
    assert read_run_manifest(paths) == manifest
    assert connect(chain, manifest).state().stage is Stage.OPEN
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


def test_a_deployment_is_finished_with_another_key_too(
    embedded: EmbeddedChain, paths: RunPaths
) -> None:
    killed(embedded, paths)
    first = embedded.sender
    with (
        RpcServer(embedded) as server,
        RpcChain(server.url, TEST_KEYS[1], chain_id=DEFAULT_CHAIN_ID) as node,
    ):
        manifest = deploy(node, SMALL, paths)
        assert manifest.deployer == first != node.sender
        require_whole(node, paths, manifest)


def test_the_contract_of_another_run_with_equal_arguments_is_left_alone(
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


def test_another_configuration_replaces_one_that_was_never_sent(
    chain: ChainWriter, paths: RunPaths
) -> None:
    killed(chain, paths, UnsentDisk)
    manifest = deploy(chain, OTHER, paths)
    assert connect(chain, manifest).deployment() == deployment_for(OTHER)[0]


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
        (b'{"format": 9}', "format 9 is not 1"),
    ],
)
def test_a_damaged_intent_is_refused(
    embedded: EmbeddedChain, paths: RunPaths, damage: bytes, fact: str
) -> None:
    paths.intent.write_bytes(damage)
    with pytest.raises(ChainError, match=f"deployment intent .*{fact}"):
        deploy(embedded, SMALL, paths)
    assert embedded.head().number == 0


def test_an_intent_whose_digest_is_none_is_refused(
    embedded: EmbeddedChain, paths: RunPaths
) -> None:
    killed(embedded, paths, UnsentDisk)
    digest = sha256(creation_data(deployment_for(SMALL)[0])).hex()
    paths.intent.write_text(paths.intent.read_text().replace(digest, "zz" * 32))
    with pytest.raises(ChainError, match="creation_sha256 is no digest"):
        deploy(embedded, SMALL, paths)


class SlowNode(ScriptedNode):
    """A node that keeps a transaction waiting until it was asked often enough how many wait."""

    def __init__(self, chain: EmbeddedChain, *, patience: int) -> None:
        self.methods = RpcMethods(chain)
        self.waiting: list[str] = []
        self.patience = patience
        super().__init__(
            **{
                name: lambda *parameters, name=name: self.served(name, parameters)
                for name in (
                    *("eth_chainId", "eth_getBlockByNumber", "eth_getCode", "eth_call"),
                    *("eth_getTransactionByHash", "eth_getTransactionReceipt", "eth_getLogs"),
                    *("eth_blockNumber", "eth_maxPriorityFeePerGas"),
                )
            },
            eth_sendRawTransaction=self.keep,
            eth_getTransactionCount=self.count,
        )

    def served(self, method: str, parameters: Sequence[object]) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}
        answer = self.methods.answer(request)
        assert answer is not None
        return answer["result"]

    def keep(self, raw: str) -> str:
        self.waiting.append(raw)
        if self.patience < 0:
            self.mine()
        return f"0x{keccak256(bytes.fromhex(raw[2:])).hex()}"

    def count(self, account: str, tag: str) -> str:
        if tag == "pending":
            self.patience -= 1
            if self.patience < 0:
                self.mine()
        mined = int(self.served("eth_getTransactionCount", (account, "latest")), 16)
        return hex(mined + (len(self.waiting) if tag == "pending" else 0))

    def mine(self) -> None:
        for raw in self.waiting:
            self.served("eth_sendRawTransaction", (raw,))
        self.waiting.clear()


def test_a_creation_that_still_waits_for_its_block_is_waited_for(
    embedded: EmbeddedChain, paths: RunPaths
) -> None:
    with SlowNode(embedded, patience=3) as server:
        hasty = RpcSettings(receipt_timeout_seconds=0.05, poll_seconds=0.01)
        with RpcChain(server.url, TEST_KEYS[0], chain_id=DEFAULT_CHAIN_ID, settings=hasty) as node:
            with pytest.raises(TransactionTimeoutError):
                deploy(node, SMALL, paths)
            assert (len(server.waiting), embedded.head().number) == (1, 0)
        with RpcChain(server.url, TEST_KEYS[0], chain_id=DEFAULT_CHAIN_ID) as node:
            manifest = deploy(node, SMALL, paths)
    assert creations(embedded) == [manifest.address]
    require_whole(embedded, paths, manifest)
