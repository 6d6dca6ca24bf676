"""The memory ledger by itself: its blocks, what it refuses, and what nobody can read of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.chain.addresses import contract_created_by, to_canonical
from ledger.chain.embedded.genesis import DEFAULT_CHAIN_ID, TEST_KEYS, address_of
from ledger.chain.memory import MemoryLedger, memory_ledger
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.errors import (
    ChainError,
    CommitmentNotSignedError,
    ConfigurationError,
    DeadlineNotReachedError,
    SignatureError,
)
from ledger.protocol.types import NO_DIGEST, Beacon, ClientId, SignedCommitment
from tests.actors.support import LAYOUT, PARAMETERS, registry_of, signers
from tests.support.rounds import OpenRound

DOCUMENT = RunDocument(PARAMETERS, registry_of(), sha256(b"first model"), LAYOUT, {})


def commitment(ledger: MemoryLedger, client: int, key: int | None = None) -> SignedCommitment:
    """Return a commitment with a signature, of its own client if no other key is named."""
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
    with pytest.raises(CommitmentNotSignedError):
        ledger.commit_updates(1, [commitment(ledger, 0, key=1)])
    with pytest.raises(DeadlineNotReachedError):
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
