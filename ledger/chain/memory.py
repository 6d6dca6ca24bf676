"""The executable specification as a ledger, for runs that need no audit.

`protocol/rounds.py` decides as the contract does. A run therefore has the same blocks, seeds,
decisions and heads as on a fresh embedded chain with the same id, at a tenth of an EVM's cost.
Nothing is written to disk; the ledger ends with its process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from ledger.chain import round_ledger
from ledger.chain.contract.codec import compact
from ledger.chain.contract.deploy import deployment_for
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.ports import Block
from ledger.chain.round_ledger import EventKind, EventQuery, LedgerSnapshot, RecordedEvent
from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import contract_created_by, to_canonical
from ledger.protocol.errors import ChainError, ConfigurationError, ProtocolRefusal
from ledger.protocol.ledger_state import BlockContext, Event
from ledger.protocol.types import NO_DIGEST, Address, Beacon, Digest, Domain, SignedCommitment


class MemoryLedger(round_ledger.RoundLedger):
    """A deployed ledger whose transactions return their events.

    A signature without compact form could not be sent to a contract. It raises a SignatureError,
    without a block. A block's hash follows from its number, so blocks cost nothing.
    """

    node: str | None = None

    def __init__(self, deployment: ledger_state.Deployment, domain: Domain) -> None:
        """Deploy a ledger whose clients, signing for this domain, are not registered yet."""
        if deployment.beacon is Beacon.BLOCK:
            raise ConfigurationError(
                'beacon = "block": the memory ledger has no unpredictable block hashes; use '
                'beacon = "none", or the chain'
            )
        # Block 1 creates the contract on a fresh chain.
        self.is_recorded, self.from_block = False, 1
        self._state = rounds.deployed(deployment, domain)
        self.domain: Domain = self._state.domain
        self._height = self.from_block
        self._changed_in: list[int] = []
        self._snapshots: list[LedgerSnapshot] = []
        self._recorded: list[RecordedEvent] = []
        # By kind and round, and by kind alone.
        self._filed = defaultdict[tuple[EventKind, int | None], list[RecordedEvent]](list)
        self._remember([ledger_state.LedgerDeployed(self._state.domain.salt)])

    def newest_block(self) -> Block:
        return self.block(self._height)

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        return max(0, newest.number - (confirmations or 0))

    def block(self, number: int) -> Block:
        """Return one block; its time is its number, in seconds."""
        if not 0 <= number <= self._height:
            raise ChainError(f"there is no block {number}: the newest is {self._height}")
        return Block(number, self._hash(number), self._hash(number - 1), number)

    def deployment(self) -> ledger_state.Deployment:
        return self._state.deployment

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        if block_number is None:
            return self._snapshots[-1]
        changes = bisect_right(self._changed_in, block_number)
        if not changes:
            raise ChainError(f"there is no committee ledger in block {block_number}")
        return self._snapshots[changes - 1]

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        first = bisect_left(self._recorded, from_block, key=attrgetter("block_number"))
        end = bisect_right(self._recorded, to_block, key=attrgetter("block_number"))
        return self._recorded[first:end]

    def recorded(self, query: EventQuery) -> list[RecordedEvent]:
        last = self._height if query.to_block is None else query.to_block
        events = [
            recorded
            for kind in query.kinds
            for recorded in self._filed.get((kind, query.round), ())
            if recorded.block_number <= last
        ]
        events.sort(key=attrgetter("block_number", "log_index"), reverse=query.descending)
        return events[: query.limit]

    def mine(self, blocks: int) -> None:
        self._height += blocks

    def register_clients(self, words: Sequence[int], rest: Digest) -> tuple[Event, ...]:
        return self._take(lambda block: rounds.register_clients(self._state, words, rest, block))

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        _require_sendable(entry.signature for entry in signed)
        try:
            rounds.commit_updates(self._state, round_number, signed, self._context())
        except ProtocolRefusal:
            return False
        return True

    def commit_updates(
        self, round_number: int, signed: Sequence[SignedCommitment]
    ) -> tuple[Event, ...]:
        _require_sendable(entry.signature for entry in signed)
        return self._take(
            lambda block: rounds.commit_updates(self._state, round_number, signed, block)
        )

    def decide(
        self,
        round_number: int,
        decision: ledger_state.SubmittedDecision,
        certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate],
    ) -> tuple[Event, ...]:
        for certificate in certificates:
            _require_sendable((certificate.request, *certificate.replies))
        return self._take(
            lambda block: rounds.decide(self._state, round_number, decision, certificates, block)
        )

    def abandon_round(self, round_number: int) -> tuple[Event, ...]:
        return self._take(lambda block: rounds.abandon_round(self._state, round_number, block))

    def report_equivocation(self, report: ledger_state.EquivocationReport) -> tuple[Event, ...]:
        _require_sendable((report.first.signature, report.second.signature))
        return self._take(lambda block: rounds.report_equivocation(self._state, report, block))

    def _take(self, transition: Callable[[BlockContext], rounds.Step]) -> tuple[Event, ...]:
        self._height += 1
        self._state, events = transition(self._context())
        self._remember(events)
        return events

    def _remember(self, events: Sequence[Event]) -> None:
        self._changed_in.append(self._height)
        self._snapshots.append(LedgerSnapshot.of(self._state, self._state.registry_rest))
        hash_ = self._hash(self._height)
        for index, event in enumerate(events):
            # There is no transaction: the block's hash stands in for its hash.
            recorded = RecordedEvent(event, self._height, hash_, hash_, index)
            self._recorded.append(recorded)
            for number in {None, getattr(event, "round", None)}:
                self._filed[type(event), number].append(recorded)

    def _context(self) -> BlockContext:
        return BlockContext(self._height, self._hash(self._height - 1))

    def _hash(self, number: int) -> Digest:
        if number < 0:
            return NO_DIGEST
        prefix = self.domain.chain_id.to_bytes(32) + self.domain.contract
        return encoding.keccak256(prefix + encoding.u64(number))


def memory_ledger(document: RunDocument, *, chain_id: int = DEFAULT_CHAIN_ID) -> MemoryLedger:
    """Return a ledger whose round 1 is open, at the first contract's address on this chain id."""
    deployment, batches = deployment_for(document)
    contract = Address(contract_created_by(to_canonical(address_of(TEST_KEYS[0])), nonce=0))
    domain = ledger_state.domain_of(deployment, chain_id, contract, NO_DIGEST)
    ledger = MemoryLedger(deployment, domain)
    for batch in batches:
        ledger.register_clients(batch.words, batch.rest)
    return ledger


def _require_sendable(signatures: Iterable[bytes]) -> None:
    for signature in signatures:
        compact(signature)
