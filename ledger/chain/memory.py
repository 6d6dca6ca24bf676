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

from ledger.chain.addresses import contract_created_by, to_canonical
from ledger.chain.contract.codec import RecordedEvent, compact
from ledger.chain.contract.deploy import deployment_for
from ledger.chain.contract.ledger import LedgerSnapshot
from ledger.chain.embedded.evm import DEFAULT_CHAIN_ID, TEST_KEYS, address_of
from ledger.chain.ports import Block
from ledger.protocol import encoding, rounds
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ChainError, ConfigurationError, ProtocolRefusal
from ledger.protocol.fold import LedgerState, RoundStart, mined_commitments
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Deployment,
    EquivocationReport,
    Event,
    LedgerDeployed,
    LedgerOpened,
    RoundAbandoned,
    RoundDecided,
    SubmittedCertificate,
    SubmittedDecision,
    UpdatesCommitted,
    domain_of,
)
from ledger.protocol.types import (
    NO_DIGEST,
    Address,
    Beacon,
    Digest,
    Domain,
    RegisteredClient,
    SignedCommitment,
)

DEPLOYMENT_BLOCK = 1
"""Number of the block that creates the contract on a fresh chain."""


class MemoryHistory:
    """The `RoundHistory` of a memory ledger.

    A block's hash follows from its number, so blocks cost nothing.

    Attributes:
        domain: the EIP-712 domain that its clients sign for.
    """

    is_recorded = False

    def __init__(self, state: LedgerState) -> None:
        """Start with the deploying block, given the state after the constructor."""
        self.domain: Domain = state.domain
        self.from_block = DEPLOYMENT_BLOCK
        self._deployment = state.deployment
        self._height = DEPLOYMENT_BLOCK
        self._changed_in = [DEPLOYMENT_BLOCK]
        self._snapshots = [LedgerSnapshot.of(state, state.registry_rest)]
        self._registered: tuple[RegisteredClient, ...] = ()
        self._openings: dict[int, RecordedEvent] = {}
        self._ends: list[RecordedEvent] = []
        self._bans: list[RecordedEvent] = []
        self._rounds: defaultdict[int, list[RecordedEvent]] = defaultdict(list)
        hash_ = self._hash(DEPLOYMENT_BLOCK)
        event = LedgerDeployed(state.domain.salt)
        self._recorded = [RecordedEvent(event, DEPLOYMENT_BLOCK, hash_, hash_, 0)]

    @property
    def node(self) -> str | None:
        """None: no node answers."""
        return None

    def newest_block(self) -> Block:
        return self.block(self._height)

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        """Return the number of the newest final block; blocks are never reverted here."""
        return max(0, newest.number - (confirmations or 0))

    def block(self, number: int) -> Block:
        """Return one block; its time is its number, in seconds."""
        if not 0 <= number <= self._height:
            raise ChainError(f"there is no block {number}: the newest is {self._height}")
        return Block(number, self._hash(number), self._hash(number - 1), number)

    def deployment(self) -> Deployment:
        return self._deployment

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        if block_number is None:
            return self._snapshots[-1]
        changes = bisect_right(self._changed_in, block_number)
        if not changes:
            raise ChainError(f"there is no committee ledger in block {block_number}")
        return self._snapshots[changes - 1]

    def registry(self) -> tuple[RegisteredClient, ...]:
        return self._registered

    def bans(self, to_block: int | None = None) -> tuple[ClientBanned, ...]:
        """Return every ban up to a block (None for the newest), oldest first."""
        events = [recorded.event for recorded in self._up_to(self._bans, to_block)]
        return tuple(event for event in events if isinstance(event, ClientBanned))

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return the start of a round as of a block (None: the newest); None if it is not open."""
        recorded = self._openings.get(round_number)
        if recorded is None or not self._up_to([recorded], to_block):
            return None
        return RoundStart.of(recorded.event, recorded.block_number)

    def commitments(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[MinedCommitment, ...]:
        """Return the commitments of a round up to a block (None for the newest), oldest first."""
        return tuple(
            mined
            for recorded in self.round_events(round_number, to_block)
            for mined in mined_commitments(recorded.event, recorded.block_number)
        )

    def round_events(self, round_number: int, to_block: int | None = None) -> list[RecordedEvent]:
        """Return every event of a round up to a block (None for the newest), oldest first."""
        return self._up_to(self._rounds.get(round_number, ()), to_block)

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        first, end = (
            bisect_left(self._recorded, number, key=attrgetter("block_number"))
            for number in (from_block, to_block + 1)
        )
        return self._recorded[first:end]

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return at most `limit` outcomes of rounds up to a block (None for the newest)."""
        ends = self._up_to(self._ends, to_block)
        return (ends[::-1] if descending else ends)[:limit]

    def _remember(self, state: LedgerState, events: Sequence[Event]) -> None:
        """Record the newest block's state and events."""
        self._changed_in.append(self._height)
        self._snapshots.append(LedgerSnapshot.of(state, state.registry_rest))
        hash_ = self._hash(self._height)
        for index, event in enumerate(events):
            # There is no transaction: the block's hash stands in for its hash.
            recorded = RecordedEvent(event, self._height, hash_, hash_, index)
            self._recorded.append(recorded)
            self._file(recorded)
        if state.round == 0 or any(isinstance(event, LedgerOpened) for event in events):
            self._registered = state.registry

    def _file(self, recorded: RecordedEvent) -> None:
        event = recorded.event
        match event:
            case LedgerDeployed() | ClientsRegistered():
                return
            case LedgerOpened():
                self._openings[1] = recorded
                return
            case RoundDecided() | RoundAbandoned():
                self._ends.append(recorded)
                self._openings[event.round + 1] = recorded
            case ClientBanned():
                self._bans.append(recorded)
            case UpdatesCommitted():
                pass
        self._rounds[event.round].append(recorded)

    def _up_to(self, events: Sequence[RecordedEvent], to_block: int | None) -> list[RecordedEvent]:
        last = self._height if to_block is None else to_block
        return [recorded for recorded in events if recorded.block_number <= last]

    def _hash(self, number: int) -> Digest:
        """Return a block's hash; zeros for the parent of block 0."""
        if number < 0:
            return NO_DIGEST
        prefix = self.domain.chain_id.to_bytes(32) + self.domain.contract
        return encoding.keccak256(prefix + encoding.u64(number))


class MemoryLedger(MemoryHistory):
    """A deployed ledger that accepts transactions.

    Every transaction returns its events and takes a separate block, also if it is refused. It
    raises the contract's ProtocolRefusal, or a SignatureError, without a block, for a signature
    without compact form, which could not be sent to a contract.
    """

    def __init__(self, deployment: Deployment, domain: Domain) -> None:
        """Deploy a ledger whose clients are not registered yet.

        Args:
            domain: the EIP-712 domain that its clients sign for.
        """
        if deployment.beacon is Beacon.BLOCK:
            raise ConfigurationError(
                'beacon = "block": the memory ledger has no unpredictable block hashes; take '
                'beacon = "none", or the chain'
            )
        self._state = rounds.deployed(deployment, domain)
        super().__init__(self._state)

    def mine(self, blocks: int) -> None:
        self._height += blocks

    def register_clients(self, words: Sequence[int], rest: Digest) -> tuple[Event, ...]:
        """Register a batch of clients; see `rounds.register_clients`."""
        return self._take(lambda block: rounds.register_clients(self._state, words, rest, block))

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether these commitments would be accepted as of the newest block."""
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
        decision: SubmittedDecision,
        certificates: tuple[SubmittedCertificate, SubmittedCertificate],
    ) -> tuple[Event, ...]:
        for certificate in certificates:
            _require_sendable((certificate.request, *certificate.replies))
        return self._take(
            lambda block: rounds.decide(self._state, round_number, decision, certificates, block)
        )

    def abandon_round(self, round_number: int) -> tuple[Event, ...]:
        return self._take(lambda block: rounds.abandon_round(self._state, round_number, block))

    def report_equivocation(self, report: EquivocationReport) -> tuple[Event, ...]:
        _require_sendable((report.first.signature, report.second.signature))
        return self._take(lambda block: rounds.report_equivocation(self._state, report, block))

    def _take(self, transition: Callable[[BlockContext], rounds.Step]) -> tuple[Event, ...]:
        self._height += 1
        self._state, events = transition(self._context())
        self._remember(self._state, events)
        return events

    def _context(self) -> BlockContext:
        return BlockContext(self._height, self._hash(self._height - 1))


def memory_ledger(document: RunDocument, *, chain_id: int = DEFAULT_CHAIN_ID) -> MemoryLedger:
    """Return a ledger with a run's clients registered: round 1 is open.

    Args:
        chain_id: of the embedded chain that it replaces; the contract has the address of the
            first one there.
    """
    deployment, batches = deployment_for(document)
    sender = to_canonical(address_of(TEST_KEYS[0]))
    contract = Address(contract_created_by(sender, nonce=0))
    domain = domain_of(deployment, chain_id, contract, NO_DIGEST)
    ledger = MemoryLedger(deployment, domain)
    for batch in batches:
        ledger.register_clients(batch.words, batch.rest)
    return ledger


def _require_sendable(signatures: Iterable[bytes]) -> None:
    """Reject signatures that call data cannot carry; raise SignatureError."""
    for signature in signatures:
        compact(signature)
