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
from ledger.protocol.fold import RoundStart
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.ledger_state import submitted_certificate
from ledger.protocol.types import ClientId, Phase, SignedVote, VoteKind
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


def test_a_round_opens_where_the_one_before_ended(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, SHAPE)
    support.commit_all(twins, support.active_of(twins.state))
    first = twins.ledger.opening(1)
    twins.decide(faults.honest(twins))
    decided = chain.head().number
    twins.wait()
    twins.abandon(2)
    assert first is not None
    assert first.opened_block < decided
    state = twins.ledger.state(decided)
    second = twins.ledger.opening(2)
    assert second is not None
    assert (second.seed, second.opened_block) == (state.seed, decided)
    third = RoundStart(3, twins.state.committee, twins.state.seed, chain.head().number)
    assert twins.ledger.opening(3) == third
    assert twins.ledger.opening(3, decided) is None
    assert twins.ledger.opening(4) is None


def test_commitments_are_listed_in_chain_order_with_their_blocks(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, SHAPE)
    first, second, third = support.trainers_of(twins.state)[:3]
    expected: list[MinedCommitment] = []
    for batch in ([third], [first, third, second]):
        support.commit_all(twins, batch)
        for client in batch:
            word = support.commitment(twins, client).commitment.commitment
            if client not in {mined.client for mined in expected}:
                expected.append(MinedCommitment(chain.head().number, client, word))
    assert twins.ledger.commitments(1) == tuple(expected)
    assert twins.ledger.commitments(1, chain.head().number - 1) == tuple(expected[:1])
    assert twins.ledger.commitments(2) == ()


def test_bans_are_listed_in_the_order_of_the_chain(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, SHAPE)
    assert twins.ledger.bans() == ()
    found: list[ledger_state.Event] = []
    for client in map(ClientId, (7, 2)):
        outcome = twins.report(support.equivocation(twins, client))
        assert isinstance(outcome, tuple)
        found += outcome
    assert twins.ledger.bans() == tuple(found)
    assert twins.ledger.bans(chain.head().number - 1) == tuple(found[:1])
    assert twins.ledger.client(ClientId(7)).banned_in == 1
    assert all(client.banned_in == 0 for client in twins.ledger.registry())


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
