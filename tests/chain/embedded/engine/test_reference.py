"""Blocks made by the faster parts are executed again by py-evm's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from eth.vm import opcode_values as op

from benchmarks.recorded_rounds import RecordedRounds
from ledger.chain.embedded import evm
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.engine import code_blocks, opcode_loop, trie_nodes
from ledger.chain.ports import BlockDamagedError
from tests.chain.probe import deploy, words

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wrong_opcode_of_the_faster_loop_is_found_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        probe = deploy(chain)
        chain.send(probe, words(7, 1), 200_000)
        chain.verify(execute=True)
        monkeypatch.setitem(code_blocks._UNARY, op.ISZERO, lambda _: 0)
        code_blocks.decoded.cache_clear()
        chain.send(probe, words(0, 1), 200_000)  # the probe refuses a 0
        code_blocks.decoded.cache_clear()
        chain.verify()
        with pytest.raises(BlockDamagedError) as caught:
            chain.verify(execute=True)
        assert caught.value.block_number == 3


def test_rounds_of_the_contract_make_the_same_blocks(tmp_path: Path) -> None:
    made = []
    for is_reference in (False, True):
        path = tmp_path / f"{is_reference}.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL", clock=lambda: 1.7e9) as chain:
            if is_reference:
                machine = evm.chain_class(chain.chain_id, is_reference=True)
                chain._chain = machine(chain._database)
            run = RecordedRounds(chain, members=4, trainers=6, clients=20)
            for others in (False, True):
                run.commit(run.signed_commitments(run.active))
                run.decide(run.certified(other_repliers=others))
            run.commit(run.signed_commitments(run.active[::2]))
            run.abandon()
            made.append([chain.block(number) for number in range(chain.head().number + 1)])
    assert made[0] == made[1]


def test_the_reference_has_none_of_the_faster_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.send(deploy(chain), words(7, 1), 200_000)

        def refuse(*_: object) -> None:
            raise AssertionError("a faster part is in use")

        for part in (
            opcode_loop.FastComputation,
            opcode_loop.BlockStream,
            trie_nodes.FastAccountDB,
        ):
            monkeypatch.setattr(part, "__init__", refuse)
        chain.verify(execute=True)
        with pytest.raises(AssertionError, match="a faster part is in use"):
            chain.call(chain.sender, b"")
