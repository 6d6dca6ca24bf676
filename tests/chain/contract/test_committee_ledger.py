"""A contract as its readers find it: its code, its creation, and what the chain keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import pytest

from ledger.chain.contract import abi, codec
from ledger.chain.contract.deploy import creation_block, deploy, runtime_violation
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainReader, ChainUnreachableError, NotServedError
from ledger.io.home import RunPaths
from ledger.protocol import ledger_state
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import Deployment, QuorumCertificate, submitted_certificate
from ledger.protocol.types import (
    AcceptanceForm,
    Address,
    Beacon,
    Digest,
    Phase,
    SignedVote,
    VoteKind,
)
from tests.audit.runs import Run
from tests.chain.contract.test_deployment import SMALL
from tests.contracts import faults, support
from tests.contracts.twins import Shape, Twins

SHAPE = Shape(commit_blocks=12, deadline_blocks=40)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedChain]:
    path = tmp_path_factory.mktemp("ledger") / "chain.sqlite"
    with EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL") as chain:
        yield chain


def test_a_decision_can_be_read_back_from_its_transaction(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, SHAPE)
    support.commit_all(twins, support.active_of(twins.state))
    committing = twins.last_receipt.transaction_hash
    found = faults.honest(twins)
    twins.decide(found)
    deciding = twins.last_receipt.transaction_hash
    call = codec.DecideCall(1, found.decision, found.certificates)
    assert twins.ledger.call_of(deciding) == call
    assert isinstance(twins.ledger.call_of(committing), codec.CommitCall)


def test_a_transaction_to_another_address_is_no_call(chain: EmbeddedChain) -> None:
    one, other = Twins.opened(chain, SHAPE), Twins.opened(chain, replace(SHAPE, rounds=2))
    foreign = one.last_receipt.transaction_hash
    assert other.ledger.call_of(foreign) is None
    assert other.ledger.call_of(other.deployment_receipt.transaction_hash) is None


def test_a_certificate_is_submitted_by_ascending_place(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, SHAPE)
    committee = twins.state.committee
    decision = support.decision_of(twins, support.ranking_of(support.trainers_of(twins.state)))
    vote = support.request(twins, decision, Phase.ELECTION, 4)
    reply = replace(vote, kind=VoteKind.REPLY)
    replies = tuple(SignedVote(committee[place], reply, bytes([place]) * 65) for place in (3, 0, 2))
    certificate = QuorumCertificate(SignedVote(committee[1], vote, b"\7" * 65), replies)
    found = submitted_certificate(certificate, committee)
    assert (found.view, found.set_digest, found.request) == (4, vote.set_digest, b"\7" * 65)
    assert found.signers == 0b1101
    assert found.replies == tuple(bytes([place]) * 65 for place in (0, 2, 3))


def test_an_address_without_a_contract_is_no_ledger(chain: EmbeddedChain) -> None:
    nowhere = CommitteeLedger(chain, chain.sender)
    with pytest.raises(ChainError, match="there is no committee ledger"):
        nowhere.state()


def test_the_constructors_struct_has_the_fields_of_a_deployment() -> None:
    (struct,) = abi.artifact().abi["constructor"]["inputs"]
    renamed = {"strategy": "form", "block_beacon": "beacon"}
    named = [renamed.get(entry["name"], entry["name"]) for entry in struct["components"]]
    assert named == [field.name for field in fields(ledger_state.Deployment)]
    answered = [
        entry["name"] for entry in abi.artifact().abi["deployment"]["outputs"][0]["components"]
    ]
    assert answered == [entry["name"] for entry in struct["components"]]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedChain, str]]:
    """A contract that block 6 has created."""
    folder = tmp_path_factory.mktemp("creation")
    with EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(5)
        address = deploy(chain, SMALL, RunPaths(folder)).address
        chain.mine(5)
        yield chain, address


@dataclass
class Forgetful:
    """A chain as a node serves it that has dropped the state before a block."""

    chain: EmbeddedChain
    kept_from: int
    fault: NotServedError | None = None
    asked: int = 0

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        self.asked += 1
        if block_number is None or block_number >= self.kept_from:
            return self.chain.call(to, data, block_number)
        if self.fault is None:
            return b""
        raise self.fault


def test_the_block_is_found_wherever_the_chain_ends(deployed: tuple[EmbeddedChain, str]) -> None:
    chain, address = deployed
    head = chain.head().number
    assert [creation_block(chain, address, newest) for newest in range(5, head + 1)] == [
        None,
        *[6] * (head - 5),
    ]
    assert creation_block(chain, "0x" + "11" * 20, head) is None


def test_few_blocks_are_looked_at(deployed: tuple[EmbeddedChain, str]) -> None:
    chain, address = deployed
    node = Forgetful(chain, 0)
    assert creation_block(cast("ChainReader", node), address, chain.head().number) == 6
    # 12 blocks or so: the newest, and one for each doubling.
    assert node.asked <= 5


def test_pruned_node_says_nothing_and_an_offline_one_is_none(
    deployed: tuple[EmbeddedChain, str],
) -> None:
    chain, address = deployed
    head = chain.head().number
    pruned = Forgetful(chain, head, NotServedError("missing trie node"))
    assert creation_block(cast("ChainReader", pruned), address, head) is None
    away = Forgetful(chain, head, ChainUnreachableError("nobody answers"))
    with pytest.raises(ChainUnreachableError):
        creation_block(cast("ChainReader", away), address, head)


OTHERS: dict[str, Any] = {
    "config": Digest(b"\x01" * 32),
    "registry": Digest(b"\x01" * 32),
    "form": AcceptanceForm.LAST,
    "beacon": Beacon.BLOCK,
    "model": Digest(b"\x01" * 32),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run.on_revm(tmp_path_factory.mktemp("code"))
    with run.chain:
        yield run


def test_the_code_of_a_deployed_contract_raises_no_doubt(run: Run) -> None:
    code = run.chain.code(run.ledger.address)
    assert runtime_violation(code, run.ledger.deployment(), run.manifest.domain()) is None


@pytest.mark.parametrize("name", [field.name for field in fields(Deployment)])
def test_code_with_another_value_is_another_deployment_s(run: Run, name: str) -> None:
    code, true = run.chain.code(run.ledger.address), run.ledger.deployment()
    other = replace(true, **{name: OTHERS.get(name, 77)})
    doubt = runtime_violation(code, other, run.manifest.domain())
    assert doubt == "its immutables differ from this deployment's"


def test_code_of_another_address_or_chain_is_another_deployment_s(run: Run) -> None:
    code, true, domain = (
        run.chain.code(run.ledger.address),
        run.ledger.deployment(),
        run.manifest.domain(),
    )
    for other in (replace(domain, chain_id=1), replace(domain, contract=Address(bytes(20)))):
        assert runtime_violation(code, true, other) is not None


def test_other_code_and_no_code_are_told_apart(run: Run) -> None:
    code, true, domain = (
        run.chain.code(run.ledger.address),
        run.ledger.deployment(),
        run.manifest.domain(),
    )
    assert runtime_violation(b"", true, domain) == "there is no code"
    assert runtime_violation(b"\0" + code[1:], true, domain) == "it is not the artefact's"
    assert runtime_violation(code + b"\0", true, domain) is not None
