"""Senders with code: the contract refuses them before anything is paid; and contract addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.chain.contract.deploy import deploy
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter, require_plain_sender
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.io.home import RunPaths
from ledger.protocol.errors import ChainError
from tests.chain.contract.test_deployment import SMALL
from tests.chain.test_port_contract import anvil, embedded, served
from tests.chain.web3_provider import transport_to
from tests.protocol.test_encoding import ADDRESS, SPELLINGS

DELEGATED = bytes.fromhex("ef0100" + "11" * 20)
NODES = pytest.mark.parametrize(
    "node",
    [embedded, served, pytest.param(anvil, marks=pytest.mark.network)],
    ids=["embedded", "rpc", "anvil"],
)


@NODES
def test_an_account_without_code_may_send(
    node: Callable[[Path], Iterator[ChainWriter]], tmp_path: Path
) -> None:
    for chain in node(tmp_path):
        require_plain_sender(chain, chain.sender)


@NODES
@pytest.mark.parametrize(
    ("code", "fact"),
    [
        (DELEGATED, f"delegates to the code at 0x{'11' * 20}"),
        (b"\x60\x00", "is a contract"),
        (b"\x60" * 23, "is a contract"),
    ],
    ids=["delegated", "contract", "same length"],
)
def test_an_account_with_code_is_refused(
    node: Callable[[Path], Iterator[ChainWriter]],
    code: bytes,
    fact: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for chain in node(tmp_path):
        if node is anvil:
            assert isinstance(chain, RpcChain)
            transport_to(chain).ask("anvil_setCode", chain.sender, f"0x{code.hex()}")
        else:
            monkeypatch.setattr(EmbeddedChain, "code", lambda *_: code)
        with pytest.raises(ChainError, match=fact) as refused:
            require_plain_sender(chain, chain.sender)
        assert chain.sender in str(refused.value)


def test_nothing_is_deployed_by_a_sender_with_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedChain, "code", lambda *_: DELEGATED)
    for chain in embedded(tmp_path):
        paths = RunPaths(tmp_path)
        with pytest.raises(ChainError, match="refuses transactions of accounts with code"):
            deploy(chain, SMALL, paths)
        assert chain.head().number == 0
        assert not paths.intent.exists()


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_contract_has_one_address_however_it_was_named(text: str, tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
        assert CommitteeLedger(chain, text).address == ADDRESS
