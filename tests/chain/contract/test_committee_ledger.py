"""What one reads of a deployed contract: openings, commitments, bans, calls."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from ledger.chain.contract import abi, calls
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol import ledger_state
from ledger.protocol.consensus import QuorumCertificate
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import submitted_certificate
from ledger.protocol.types import Phase, SignedVote, VoteKind
from tests.contracts import faults, support
from tests.contracts.twins import Shape, Twins

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    call = calls.DecideCall(1, found.decision, found.certificates)
    assert twins.ledger.call_of(deciding) == call
    assert isinstance(twins.ledger.call_of(committing), calls.CommitCall)


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
    answered = [entry["name"] for entry in abi.output_fields("deployment")]
    assert answered == [entry["name"] for entry in struct["components"]]
