"""The executable specification as a ledger, for runs that need no audit.

`protocol/rounds.py` decides as the contract does. A run therefore has the same blocks, seeds,
decisions and heads as on a fresh embedded chain with the same id, at a tenth of an EVM's cost.
Nothing is written to disk; the ledger ends with its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.addresses import contract_created_by, to_canonical
from ledger.chain.contract.calls import compact
from ledger.chain.contract.deployment import deployment_for
from ledger.chain.embedded.identity import DEFAULT_CHAIN_ID
from ledger.chain.embedded.machine.accounts import TEST_KEYS, address_of
from ledger.chain.memory.memory_history import MemoryHistory
from ledger.protocol import rounds
from ledger.protocol.errors import ConfigurationError, Refusal
from ledger.protocol.ledger_state import BlockContext, domain_of
from ledger.protocol.types import NO_DIGEST, Address, Beacon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.ledger_state import (
        Deployment,
        EquivocationReport,
        Event,
        Step,
        SubmittedCertificate,
        SubmittedDecision,
    )
    from ledger.protocol.types import Digest, Domain, SignedCommitment


class MemoryLedger(MemoryHistory):
    """A deployed ledger that accepts transactions.

    Every transaction returns its events and takes a block of its own, also if it is refused. It
    raises the contract's Refusal, or a SignatureError, without a block, for a signature without
    compact form, which could not be sent to a contract.
    """

    def __init__(self, deployment: Deployment, domain: Domain) -> None:
        """Deploy a ledger whose clients are not registered yet.

        Args:
            deployment: the values fixed at deployment.
            domain: the EIP-712 domain that its clients sign for.

        Raises:
            ConfigurationError: its seeds would follow from a chain's block hashes.
        """
        if deployment.beacon is Beacon.BLOCK:
            raise ConfigurationError(
                'beacon = "block": the memory ledger has no chain whose block hashes nobody can '
                'choose; take beacon = "none", or the chain'
            )
        self._state = rounds.deployed(deployment, domain)
        super().__init__(self._state)

    def mine(self, blocks: int) -> None:
        """Let a number of empty blocks pass."""
        self._height += blocks

    def register_clients(self, words: Sequence[int], rest: Digest) -> tuple[Event, ...]:
        """Register a batch of clients; see `rounds.register_clients`."""
        return self._take(lambda block: rounds.register_clients(self._state, words, rest, block))

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether these commitments would be accepted as of the newest block."""
        _require_sendable(entry.signature for entry in signed)
        try:
            rounds.commit_updates(self._state, round_number, signed, self._context())
        except Refusal:
            return False
        return True

    def commit_updates(
        self, round_number: int, signed: Sequence[SignedCommitment]
    ) -> tuple[Event, ...]:
        """Submit signed commitments; see `rounds.commit_updates`."""
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
        """Record a round; see `rounds.decide`."""
        for certificate in certificates:
            _require_sendable((certificate.request, *certificate.replies))
        return self._take(
            lambda block: rounds.decide(self._state, round_number, decision, certificates, block)
        )

    def abandon_round(self, round_number: int) -> tuple[Event, ...]:
        """End a round after its deadline; see `rounds.abandon_round`."""
        return self._take(lambda block: rounds.abandon_round(self._state, round_number, block))

    def report_equivocation(self, report: EquivocationReport) -> tuple[Event, ...]:
        """Ban a client that signed two conflicting statements; see `rounds.report_equivocation`."""
        _require_sendable((report.first.signature, report.second.signature))
        return self._take(lambda block: rounds.report_equivocation(self._state, report, block))

    def _take(self, transition: Callable[[BlockContext], Step]) -> tuple[Event, ...]:
        self._height += 1
        self._state, events = transition(self._context())
        self._remember(self._state, events)
        return events

    def _context(self) -> BlockContext:
        return BlockContext(self._height, self._hash(self._height - 1))


def memory_ledger(document: RunDocument, *, chain_id: int = DEFAULT_CHAIN_ID) -> MemoryLedger:
    """Return a ledger with a run's clients registered: round 1 is open.

    Args:
        document: the run's configuration.
        chain_id: of the embedded chain that it stands for; the contract has the address of the
            first one there.

    Raises:
        ConfigurationError: its seeds would follow from a chain's block hashes.
        Refusal: the contract would not register the document's clients.
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
