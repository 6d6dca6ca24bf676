"""Chains of real transactions that fork, embedded and on anvil: the index goes with them."""

from __future__ import annotations

import copy
import random
import shutil
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks.recorded_rounds import RecordedRounds
from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.history.chain_history import ChainHistory
from ledger.index.index import Index
from tests.audit.unreliable_node import UnreliableNode
from tests.chain.test_port_contract import anvil
from tests.chain.web3_provider import transport_to
from tests.index.conftest import NOBODYS_BLOBS, indexed

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.history.round import HistoryRound
    from ledger.index.database import Database


def played(rounds: RecordedRounds) -> None:
    rounds.commit(rounds.signed_commitments(rounds.active))
    rounds.decide(rounds.certified())


def require_equal(database: Database, ledger: CommitteeLedger) -> list[HistoryRound]:
    """Index the chain as it is now, and compare all rounds; return them."""
    indexed(database, ledger)
    true = ChainHistory.of(ledger, NOBODYS_BLOBS)
    assert database.path is not None
    index = Index(database.path)
    with index.reading() as reading:
        own = reading.history(ledger.chain.genesis_hash, ledger.address, NOBODYS_BLOBS)
        found = [own.round(number) for number in range(1, own.newest() + 1)]
        assert found == [true.round(number) for number in range(1, true.newest() + 1)]
        assert own.tally() == true.tally()
    index.close()
    return [one for one in found if one is not None]


def test_an_embedded_chain_that_forks(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        before = RecordedRounds(chain, 3, 4, 12)
        played(before)
    address = before.ledger.address
    shutil.copy(path, tmp_path / "other.sqlite")
    with (
        EmbeddedChain.open(path, synchronous="NORMAL") as one,
        EmbeddedChain.open(tmp_path / "other.sqlite", synchronous="NORMAL") as other,
    ):
        shared = one.head().number
        branches = []
        for chain in (one, other):
            branch = copy.copy(before)
            branch.chain = chain
            branch.ledger = LedgerWriter(chain, address, before.ledger.from_block)
            branches.append(branch)
        branches[0].commit(branches[0].signed_commitments(branches[0].active))
        other.mine(1)
        branches[1].abandon()
        played(branches[1])
        node = UnreliableNode([one, other], shared, random.Random(0))
        ledger = CommitteeLedger(node, address, before.ledger.from_block)
        first = require_equal(database, ledger)
        node.branch = 1
        second = require_equal(database, ledger)
        assert second[0] == first[0], "what is final has not changed"
        assert (first[1].ended, len(second)) == (None, 4)
        assert second[1].abandoned is not None


@pytest.mark.network
def test_anvil_when_it_reorganises(tmp_path: Path, database: Database) -> None:
    for chain in anvil(tmp_path):
        assert isinstance(chain, RpcChain)
        # All that is used of it, every writer has.
        rounds = RecordedRounds(cast("EmbeddedChain", chain), 3, 4, 12)
        played(rounds)
        first = require_equal(database, rounds.ledger)
        rounds.commit(rounds.signed_commitments(rounds.active))
        assert require_equal(database, rounds.ledger)[1].commitments
        transport_to(chain).ask("anvil_reorg", 1, [])
        second = require_equal(database, rounds.ledger)
        assert second[0] == first[0]
        assert not second[1].commitments, "the block with the commitments was taken back"
