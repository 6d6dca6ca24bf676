"""A memory ledger whose chain takes blocks back, and a node that does not tell everything."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Self

from ledger.chain.contract.deploy import deployment_for
from ledger.chain.memory import MemoryLedger
from ledger.chain.ports import Block
from ledger.chain.round_ledger import LedgerSnapshot, RecordedEvent
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import commitment_of, keccak256, sha256, u64
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.types import ClientId, Digest
from tests.actors.support import LAYOUT, PARAMETERS, registry_of, signers
from tests.support.keys import DOMAIN
from tests.support.rounds import OpenRound

SHORT = replace(PARAMETERS, deadline_blocks=8, rounds=40)


class BranchingLedger(MemoryLedger):
    """A memory ledger that can be copied, and whose copy goes on with blocks of its own."""

    branches: tuple[tuple[int, int], ...] = ()
    _numbers = count()

    @classmethod
    def begin(cls) -> Self:
        return cls.of(RunDocument(SHORT, registry_of(SHORT), sha256(b"model"), LAYOUT, {}))

    @classmethod
    def of(cls, document: RunDocument) -> Self:
        """Return one that a run is deployed on, its first round open."""
        deployment, batches = deployment_for(document)
        ledger = cls(deployment, DOMAIN)
        for batch in batches:
            ledger.register_clients(batch.words, batch.rest)
        return ledger

    def branch(self) -> Self:
        """Return a copy; its next block is another than this one's."""
        other = self.kept()
        other.branches = (*self.branches, (self._height + 1, next(self._numbers)))
        return other

    def become(self, other: Self) -> None:
        vars(self).clear()
        vars(self).update(vars(other))

    def kept(self) -> Self:
        """Return a copy, with the same blocks also from here on."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(other, name, copy(value))
        filed = {key: [*events] for key, events in self._filed.items()}
        other._filed = defaultdict(list, filed)
        return other

    def commit(self, client: int, salt: int) -> None:
        number = self.state().round
        word = commitment_of(ClientId(client), sha256(u64(salt)))
        signed = OpenRound(self.domain, signers(), number).commitment(client, word)
        self.commit_updates(number, [signed])

    def ban(self, client: int) -> None:
        """Bring two votes of a client's own."""
        number = self.state().round
        report = OpenRound(self.domain, signers(), number).equivocation(client)
        self.report_equivocation(report)

    def end_round(self) -> None:
        """Let the deadline pass, and the round end undecided."""
        state = self.state()
        self.mine(max(0, state.opened_block + SHORT.deadline_blocks - 1 - self._height))
        self.abandon_round(state.round)

    def _hash(self, number: int) -> Digest:
        salts = [u64(branch) for first, branch in self.branches if first <= number]
        return keccak256(b"".join([super()._hash(number), *salts]))


class Node:
    """A ledger as a node tells it: it counts what it is asked, and may lack logs.

    Attributes:
        last_log: the block after which it has no logs; None for none.
        hidden: the block whose logs it leaves out; None for none.
    """

    def __init__(self, ledger: BranchingLedger) -> None:
        self.ledger = ledger
        self.last_log: int | None = None
        self.hidden: int | None = None
        self.asked: list[str] = []
        self.node = "http://node"

    @property
    def from_block(self) -> int:
        return self.ledger.from_block

    def newest_block(self) -> Block:
        return self.ledger.newest_block()

    def block(self, number: int) -> Block:
        self.asked.append("block")
        return self.ledger.block(number)

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        self.asked.append("state")
        return self.ledger.state(block_number)

    def deployment(self) -> Deployment:
        self.asked.append("deployment")
        return self.ledger.deployment()

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        self.asked.append("recorded_in")
        found = self.ledger.recorded_in(from_block, self._logged(to_block))
        return [recorded for recorded in found if recorded.block_number != self.hidden]

    def _logged(self, to_block: int) -> int:
        return to_block if self.last_log is None else min(to_block, self.last_log)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for by whoever follows")
