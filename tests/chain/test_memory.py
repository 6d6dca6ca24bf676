"""The memory ledger, alone and beside the embedded chain: all that can be read is equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clients.adversaries.faults import MemberFault
from ledger.actors.journal import FileJournal
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.memory import MemoryLedger, memory_ledger
from ledger.chain.round_ledger import RecordedEvent, RoundLedger
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import (
    commitment_of,
    contract_created_by,
    sha256,
    to_canonical,
)
from ledger.protocol.errors import (
    ChainError,
    ConfigurationError,
    ProtocolRefusal,
    RefusalCode,
    SignatureError,
)
from ledger.protocol.ledger_state import LedgerStage, RoundAbandoned, RoundDecided
from ledger.protocol.types import NO_DIGEST, Beacon, ClientId, SignedCommitment
from tests.actors.deployed import Deployed, deployed_on, in_memory
from tests.actors.support import LAYOUT, PARAMETERS, registry_of, signers
from tests.support.refusals import refused
from tests.support.rounds import OpenRound

DOCUMENT = RunDocument(PARAMETERS, registry_of(), sha256(b"first model"), LAYOUT, {})


def commitment(ledger: MemoryLedger, client: int, key: int | None = None) -> SignedCommitment:
    word = commitment_of(ClientId(client), sha256(b"an update"))
    return OpenRound(ledger.domain, signers()).commitment(client, word, key=key)


def test_clients_sign_for_the_first_contract_of_a_fresh_chain() -> None:
    # The sender's first transaction has nonce 0.
    first = contract_created_by(to_canonical(address_of(TEST_KEYS[0])), 0)
    domain = memory_ledger(DOCUMENT).domain
    assert (domain.chain_id, domain.contract) == (DEFAULT_CHAIN_ID, first)
    assert memory_ledger(DOCUMENT, chain_id=7).domain.chain_id == 7


def test_blocks_are_linked_and_reproducible() -> None:
    ledger, again = memory_ledger(DOCUMENT), memory_ledger(DOCUMENT)
    ledger.mine(3)
    blocks = [ledger.block(number) for number in range(6)]
    assert [block.number for block in blocks] == [block.timestamp for block in blocks]
    assert [block.parent_hash for block in blocks[1:]] == [block.hash for block in blocks[:-1]]
    assert blocks[0].parent_hash == NO_DIGEST
    assert len({block.hash for block in blocks}) == 6
    assert blocks[2] == again.newest_block()
    assert blocks[2] != memory_ledger(DOCUMENT, chain_id=7).newest_block()


@pytest.mark.parametrize("number", [-1, 3])
def test_a_block_that_there_is_not_is_refused(number: int) -> None:
    with pytest.raises(ChainError, match=f"there is no block {number}: the newest is 2"):
        memory_ledger(DOCUMENT).block(number)


def test_a_refused_transaction_takes_a_block_and_changes_nothing() -> None:
    ledger = memory_ledger(DOCUMENT)
    before = ledger.state()
    with refused(RefusalCode.COMMITMENT_NOT_SIGNED):
        ledger.commit_updates(1, [commitment(ledger, 0, key=1)])
    with refused(RefusalCode.DEADLINE_NOT_REACHED):
        ledger.abandon_round(1)
    assert ledger.newest_block().number == 4
    assert ledger.state() == before
    assert ledger.round_events(1) == []
    ledger.commit_updates(1, [commitment(ledger, 0)])
    assert [mined.block for mined in ledger.commitments(1)] == [5]


def test_a_signature_that_cannot_be_sent_takes_no_block() -> None:
    ledger = memory_ledger(DOCUMENT)
    cut = replace(commitment(ledger, 0), signature=bytes(64))
    with pytest.raises(SignatureError):
        ledger.commit_updates(1, [cut])
    with pytest.raises(SignatureError):
        ledger.would_accept(1, [cut])
    assert ledger.newest_block().number == 2


def test_asking_what_would_be_accepted_costs_no_block_or_commitment() -> None:
    ledger = memory_ledger(DOCUMENT)
    assert ledger.would_accept(1, [commitment(ledger, 0), commitment(ledger, 1)])
    assert not ledger.would_accept(1, [commitment(ledger, 0), commitment(ledger, 1, key=2)])
    assert not ledger.would_accept(2, [commitment(ledger, 0)])
    assert ledger.newest_block().number == 2
    assert ledger.commitments(1) == ()


def test_seeds_from_block_hashes_are_refused() -> None:
    parameters = replace(PARAMETERS, beacon=Beacon.BLOCK)
    with pytest.raises(ConfigurationError, match='beacon = "block": the memory ledger has no'):
        memory_ledger(replace(DOCUMENT, parameters=parameters))


SHORT = replace(PARAMETERS, deadline_blocks=8, rounds=6)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployed, Deployed]]:
    """Return one run on a chain and the same in memory, both played to the end with faults."""
    folder: Path = tmp_path_factory.mktemp("pair")
    with EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        both = deployed_on(chain, folder, SHORT), in_memory(SHORT)
        for one in both:
            play_with_faults(one)
        yield both
        assert isinstance(both[0].context.journal, FileJournal)
        both[0].context.journal.close()


def play_with_faults(run: Deployed) -> None:
    """Play a round of each kind: honest, late, banned, refused, abandoned, and the last."""
    assert run.play() is not None
    run.play(absent=run.chain_view().participants().trainers[:1])
    run.play({0: MemberFault.EQUIVOCATING, 1: MemberFault.SILENT})
    refusals = [refusal_of(run.context.ledger, act) for act in refused_acts(run)]
    assert refusals == [
        RefusalCode.WRONG_ROUND,
        RefusalCode.DEADLINE_NOT_REACHED,
        RefusalCode.COMMITMENT_NOT_SIGNED,
        RefusalCode.COMMITMENTS_CLOSED,
    ]
    run.driver.abandon(run.chain_view())
    run.play({2: MemberFault.FALSE_SCORES})
    assert run.play({0: MemberFault.WRONG_PROPOSAL}) is not None
    run.ban(run.context.ledger.outcomes(1)[0].event.next_committee[0])  # type: ignore[union-attr]


def refused_acts(run: Deployed) -> list[Callable[[RoundLedger], object]]:
    """Return what the open round refuses, in this order; the last after its window."""
    number = run.context.ledger.state().round
    signed = [action.signed for action in run.commitments(*run.chain_view().participants().active)]  # type: ignore[union-attr]
    swapped = [replace(signed[0], signature=signed[1].signature), *signed[1:]]

    def too_late(ledger: RoundLedger) -> object:
        ledger.mine(SHORT.commit_blocks)
        return ledger.commit_updates(number, signed)

    return [
        lambda ledger: ledger.commit_updates(number + 1, signed),
        lambda ledger: ledger.abandon_round(number),
        lambda ledger: ledger.commit_updates(number, swapped),
        too_late,
    ]


def refusal_of(ledger: RoundLedger, act: Callable[[RoundLedger], object]) -> RefusalCode:
    with pytest.raises(ProtocolRefusal) as caught:
        act(ledger)
    return caught.value.code


def told(found: list[RecordedEvent]) -> list[tuple[object, int, int]]:
    """Return events and where they stand; hashes are the chain's own."""
    return [(recorded.event, recorded.block_number, recorded.log_index) for recorded in found]


def test_the_run_had_a_round_of_each_kind(pair: tuple[Deployed, Deployed]) -> None:
    ledger = pair[1].context.ledger
    ends = [type(recorded.event) for recorded in ledger.outcomes(10, descending=False)]
    assert len(ends) == 6
    assert {*ends} == {RoundDecided, RoundAbandoned}
    assert len(ledger.bans()) >= 2
    assert ledger.state().stage is LedgerStage.FINISHED


def test_contract_and_deployment_are_the_same(pair: tuple[Deployed, Deployed]) -> None:
    chain, memory = (one.context for one in pair)
    assert chain.domain == memory.domain
    assert chain.ledger.deployment() == memory.ledger.deployment()
    assert chain.ledger.registry() == memory.ledger.registry()
    assert chain.ledger.from_block == memory.ledger.from_block
    assert chain.ledger.is_recorded
    assert not memory.ledger.is_recorded


def test_every_block_ends_with_the_same_head(pair: tuple[Deployed, Deployed]) -> None:
    chain, memory = (one.context.ledger for one in pair)
    newest = chain.newest_block().number
    assert memory.newest_block().number == newest
    for number in range(1, newest + 1):
        assert chain.state(number) == memory.state(number)
    assert chain.state() == memory.state()


def test_every_question_about_every_round_has_the_same_answer(
    pair: tuple[Deployed, Deployed],
) -> None:
    chain, memory = (one.context.ledger for one in pair)
    assert chain.bans() == memory.bans()
    for number in range(1, 9):
        assert chain.commitments(number) == memory.commitments(number)
        assert told(chain.round_events(number)) == told(memory.round_events(number))
    for last in (None, *range(2, chain.newest_block().number + 1, 3)):
        for number in range(1, 9):
            assert chain.opening(number, last) == memory.opening(number, last)
        for limit, descending in ((2, True), (2, False), (10, True)):
            ends = (
                told(one.outcomes(limit, descending=descending, to_block=last))
                for one in (chain, memory)
            )
            assert next(ends) == next(ends)
