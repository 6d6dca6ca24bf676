"""A chain made of the executable specification: blocks of states, finality, reorganisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.actors.steps import SendCommitment, SendDecision, SendReport
from ledger.actors.view import ChainView
from ledger.protocol import rounds
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ProtocolRefusal
from ledger.protocol.ledger_state import (
    BlockContext,
    Event,
    LedgerStage,
    LedgerState,
    MinedCommitment,
    RoundDecided,
    UpdatesCommitted,
    deployment_of,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.rounds import Step
from ledger.protocol.types import NO_DIGEST, Digest, Domain


@dataclass(frozen=True, slots=True)
class SendAbandonment:
    """Ask the contract to end a round at its deadline."""

    round: int


Transaction = SendCommitment | SendReport | SendDecision | SendAbandonment


@dataclass(frozen=True, slots=True)
class SpecificationBlock:
    """A block: the state after it, what happened in it, and what it refused."""

    number: int
    timestamp: float
    state: LedgerState
    events: tuple[Event, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    refused: tuple[tuple[Transaction, ProtocolRefusal], ...] = ()


class SpecificationChain:
    """Blocks on which `rounds.py` decides; the newest `depth` of them are not final."""

    def __init__(
        self,
        parameters: Parameters,
        domain: Domain,
        registry: Sequence[RegisteredClient],
        model: Digest,
        *,
        depth: int = 0,
    ) -> None:
        self.parameters = parameters
        self.domain = domain
        self.depth = depth
        self.pool: list[Transaction] = []
        deployment, batches = deployment_of(parameters, NO_DIGEST, registry, model)
        state = rounds.deployed(deployment, domain)
        for words, rest in batches:
            state, _ = rounds.register_clients(state, words, rest, BlockContext(1, NO_DIGEST))
        opened = SpecificationBlock(1, 0.0, state)
        empty = [SpecificationBlock(2 + i, 0.0, state) for i in range(depth)]
        self.blocks = [opened, *empty]

    @property
    def head(self) -> SpecificationBlock:
        return self.blocks[-1]

    @property
    def state(self) -> LedgerState:
        return self.head.state

    @property
    def is_open(self) -> bool:
        return self.state.stage is LedgerStage.OPEN

    @property
    def events(self) -> list[Event]:
        return [event for block in self.blocks for event in block.events]

    def decided(self, round_number: int) -> RoundDecided | None:
        found = [e for e in self.events if isinstance(e, RoundDecided) and e.round == round_number]
        return found[0] if found else None

    def send(self, transaction: Transaction) -> None:
        if transaction not in self.pool:
            self.pool.append(transaction)

    def mine(self, now: float, chosen: Sequence[Transaction] | None = None) -> SpecificationBlock:
        """Make a block of these transactions, or of all that wait; a refused one is gone."""
        taken = tuple(self.pool if chosen is None else chosen)
        context = BlockContext(self.head.number + 1, NO_DIGEST)
        state, events = self.state, list[Event]()
        refused = []
        for transaction in taken:
            try:
                state, came = _applied(state, transaction, context)
            except ProtocolRefusal as refusal:
                refused.append((transaction, refusal))
            else:
                events += came
        self.pool = [waiting for waiting in self.pool if waiting not in taken]
        timestamp = max(now, self.head.timestamp)
        block = SpecificationBlock(
            context.number, timestamp, state, tuple(events), taken, tuple(refused)
        )
        self.blocks.append(block)
        return block

    def mine_to(self, number: int, now: float) -> None:
        """Make empty blocks up to this one."""
        while self.head.number < number:
            self.mine(now, ())

    def reorganise(self, blocks: int) -> None:
        """Take back the newest blocks; their transactions wait again."""
        for _ in range(min(blocks, len(self.blocks) - 1)):
            for transaction in self.blocks.pop().transactions:
                self.send(transaction)

    def timestamp(self, number: int) -> float:
        return self.blocks[number - 1].timestamp

    @property
    def final(self) -> SpecificationBlock:
        return self.blocks[max(0, len(self.blocks) - 1 - self.depth)]

    def view(self) -> ChainView | None:
        """Return the open round as the final blocks have it, None after the last."""
        state, final_block = self.final.state, self.final.number
        if state.stage is not LedgerStage.OPEN:
            return None
        commitments = tuple(
            MinedCommitment(block.number, client, commitment)
            for block in self.blocks[:final_block]
            for event in block.events
            if isinstance(event, UpdatesCommitted) and event.round == state.round
            for client, commitment in zip(event.clients, event.commitments, strict=True)
        )
        return ChainView(
            parameters=self.parameters,
            domain=self.domain,
            registry=state.registry,
            round=state.round,
            seed=state.seed,
            committee=state.committee,
            opened_block=state.opened_block,
            final_block=final_block,
            commitments=commitments,
        )


def _applied(state: LedgerState, transaction: Transaction, block: BlockContext) -> Step:
    match transaction:
        case SendCommitment(signed):
            return rounds.commit_updates(state, signed.commitment.round, [signed], block)
        case SendReport(report):
            return rounds.report_equivocation(state, report, block)
        case SendDecision(number, decision, certificates):
            return rounds.decide(state, number, decision, certificates, block)
        case SendAbandonment(number):
            return rounds.abandon_round(state, number, block)
