"""The contract and its executable specification as twins: every step is taken by both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from ledger.chain.contract.codec import encode_log
from ledger.chain.contract.deploy import creation_data
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter, Log, Receipt
from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.encoding import RegisteredClient, to_canonical
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.ledger_state import (
    Deployment,
    LedgerDeployed,
    LedgerView,
    domain_of,
    registry_batches,
)
from ledger.protocol.parameters import majority
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Digest,
    SignedCommitment,
)
from tests.contracts.relay import DelegatedLedger, RelayedLedger
from tests.support.keys import key_signers, registered
from tests.support.refusals import refused

Outcome = tuple[ledger_state.Event, ...] | RefusalCode
"""What a step came to: its events, or the refusal."""

DEPLOYMENT_GAS = 8_000_000
MOST_COMPARED = 500
"""Up to so many clients are compared after each step: a view takes 20 microseconds on revm."""


@cache
def signers(clients: int) -> tuple[KeySigner, ...]:
    """Return the clients' PUBLIC TEST KEYS, ascending by address as a registry must be."""
    return key_signers(clients)


def registry_of(clients: int) -> tuple[RegisteredClient, ...]:
    """Return the registry: client i claims 10 + i samples."""
    return registered(signers(clients))


def digest_of(*parts: object) -> Digest:
    return encoding.sha256(repr(parts).encode())


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and rules of a deployment under test; `replies` None is the paper's majority."""

    clients: int = 13
    trainers: int = 6
    members: int = 5
    aggregation_ppm: int = 500_000
    form: AcceptanceForm = AcceptanceForm.FIRST
    rounds: int = 5
    commit_blocks: int = 4
    deadline_blocks: int = 8
    replies: int | None = None
    beacon: Beacon = Beacon.NONE

    def deployment(self, registry: Digest) -> Deployment:
        return Deployment(
            config=digest_of("configuration", self),
            registry=registry,
            clients=self.clients,
            trainers=self.trainers,
            members=self.members,
            aggregation_ppm=self.aggregation_ppm,
            form=self.form,
            rounds=self.rounds,
            commit_blocks=self.commit_blocks,
            deadline_blocks=self.deadline_blocks,
            replies=majority(self.members) if self.replies is None else self.replies,
            beacon=self.beacon,
            model=digest_of("first model"),
        )


class Twins:
    """One deployed contract and the specification's state of it."""

    outcomes: ClassVar[Counter[str]] = Counter()

    def __init__(
        self,
        chain: ChainWriter,
        deployment: Deployment,
        keys: tuple[KeySigner, ...],
        most_compared: int = MOST_COMPARED,
        creation: bytes | None = None,
    ) -> None:
        data = creation_data(deployment) if creation is None else creation
        receipt = chain.send(None, data, DEPLOYMENT_GAS)
        assert receipt.contract_address is not None
        self.chain = chain
        self.keys = keys
        self.ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        self.sender = self.ledger
        self.deployment_receipt = receipt
        self.last_receipt = receipt
        contract = Address(to_canonical(receipt.contract_address))
        parent = Digest(chain.head().parent_hash)
        beacon = parent if deployment.beacon is Beacon.BLOCK else NO_DIGEST
        domain = domain_of(deployment, chain.chain_id, contract, beacon)
        self.most_compared = most_compared
        self.state = rounds.deployed(deployment, domain)
        self.view = LedgerView.at_deployment(deployment)
        assert self.ledger.deployment() == deployment
        self._compare_logs(receipt.logs, (LedgerDeployed(domain.salt),))
        self.compare()

    @classmethod
    def opened(
        cls,
        chain: ChainWriter,
        shape: Shape = Shape(),
        batch: int = 256,
        most_compared: int = MOST_COMPARED,
    ) -> Twins:
        """Return twins whose clients are registered, in round 1."""
        words = [encoding.registry_word(client) for client in registry_of(shape.clients)]
        registry, batches = registry_batches(words, batch)
        twins = cls(chain, shape.deployment(registry), signers(shape.clients), most_compared)
        for batch_words, rest in batches:
            assert isinstance(twins.register(batch_words, rest), tuple)
        return twins

    def register(self, words: Sequence[int], rest: Digest) -> Outcome:
        return self._step(
            lambda block: rounds.register_clients(self.state, words, rest, block),
            lambda: self.sender.register_clients(words, rest),
        )

    def commit(self, round_number: int, signed: Sequence[SignedCommitment]) -> Outcome:
        return self._step(
            lambda block: rounds.commit_updates(self.state, round_number, signed, block),
            lambda: self.sender.commit_updates(round_number, signed),
        )

    def decide(self, proposal: Proposal) -> Outcome:
        arguments = (proposal.round, proposal.decision, proposal.certificates)
        return self._step(
            lambda block: rounds.decide(self.state, *arguments, block),
            lambda: self.sender.decide(*arguments),
        )

    def abandon(self, round_number: int) -> Outcome:
        return self._step(
            lambda block: rounds.abandon_round(self.state, round_number, block),
            lambda: self.sender.abandon_round(round_number),
        )

    def report(self, report: ledger_state.EquivocationReport) -> Outcome:
        return self._step(
            lambda block: rounds.report_equivocation(self.state, report, block),
            lambda: self.sender.report_equivocation(report),
        )

    def relayed(self, act: Callable[[Twins], Outcome]) -> Outcome:
        return self._sent_by(RelayedLedger(self.chain, self.ledger), act)

    def delegated(self, act: Callable[[Twins], Outcome]) -> Outcome:
        """Do something from an account that delegates to a contract; on an embedded chain."""
        assert isinstance(self.chain, EmbeddedChain)
        return self._sent_by(DelegatedLedger(self.chain, self.ledger), act)

    def wait(self) -> None:
        """Let blocks pass, so that the next may abandon the open round."""
        self._mine_before(self.state.opened_block + self.state.deployment.deadline_blocks)

    def close_commitments(self) -> None:
        """Let blocks pass, so that the next is the first in which nothing is committed any more."""
        self._mine_before(self.state.opened_block + self.state.deployment.commit_blocks + 1)

    def compare(self) -> None:
        """Assert that the contract answers what the specification's state says."""
        state, found = self.state, self.ledger.state()
        registering = state.stage is ledger_state.LedgerStage.REGISTERING
        assert found.stage is state.stage
        assert found.round == state.round
        assert found.opened_block == state.opened_block
        assert found.seed == state.seed
        assert found.committee == (
            NO_DIGEST if registering else encoding.set_digest(state.committee)
        )
        assert found.model == state.model
        assert found.head == state.head
        assert found.registered == len(state.registry)
        assert found.registry_rest == state.registry_rest
        assert found.commitments == state.commitments
        if len(state.registry) <= self.most_compared:
            self.compare_clients()
        for view in (self.ledger.client, self.has_committed):
            with refused(RefusalCode.UNKNOWN_CLIENT):
                view(ClientId(state.deployment.clients))

    def has_committed(self, client: ClientId) -> bool:
        """Return whether the contract has a commitment of the client in the open round."""
        return bool(self.ledger._call("has_committed", client)[0])

    def compare_clients(self, clients: Iterable[int] | None = None) -> None:
        """Assert that the contract knows each of these clients as the specification does."""
        registered = range(len(self.state.registry))
        for client in map(ClientId, registered if clients is None else clients):
            assert self.ledger.client(client) == self.state.registry[client]
            assert self.has_committed(client) == (client in self.state.committed)

    def _sent_by(self, sender: LedgerWriter, act: Callable[[Twins], Outcome]) -> Outcome:
        self.sender = sender
        try:
            return act(self)
        finally:
            self.sender = self.ledger

    def _mine_before(self, block: int) -> None:
        self.chain.mine(max(0, block - self.chain.head().number - 1))

    def _step(
        self,
        specified: Callable[[ledger_state.BlockContext], rounds.Step],
        send: Callable[[], Receipt],
    ) -> Outcome:
        head = self.chain.head()
        block = ledger_state.BlockContext(
            head.number + 1,
            Digest(head.hash),
            sent_by_account=not isinstance(self.sender, RelayedLedger),
            is_delegated=isinstance(self.sender, DelegatedLedger),
        )
        refusal_code: RefusalCode | None = None
        events: tuple[ledger_state.Event, ...] = ()
        try:
            state, events = specified(block)
        except ProtocolRefusal as refusal:
            state, refusal_code = self.state, refusal.code
        found: RefusalCode | None = None
        logs: tuple[Log, ...] = ()
        try:
            self.last_receipt = send()
            logs = self.last_receipt.logs
        except ProtocolRefusal as refusal:
            found = refusal.code
        assert found is refusal_code, f"specification: {refusal_code}, contract: {found}"
        self._compare_logs(logs, events)
        self.state = state
        self._fold(events, block.number)
        self.compare()
        # A last batch opens the first round, too: one step, told by what comes of it.
        came = type(events[-1]).__name__ if refusal_code is None else refusal_code.name
        self.outcomes[came] += 1
        return events if refusal_code is None else refusal_code

    def _fold(self, events: Iterable[ledger_state.Event], block_number: int) -> None:
        for event in events:
            self.view = self.view.after(event, block_number)
        view, state = self.view, self.state
        for name in ("stage", "round", "opened_block", "seed", "committee", "model", "head"):
            assert getattr(view, name) == getattr(state, name), name
        assert (view.registry, view.commitments) == (state.registry, state.commitments)
        assert {mined.client for mined in view.mined} == state.committed

    def _compare_logs(self, logs: Sequence[Log], events: Sequence[ledger_state.Event]) -> None:
        # Byte for byte, so that no decoder passes over what it does not ask for.
        assert [(log.topics, log.data) for log in logs] == list(map(encode_log, events))
        assert {log.address for log in logs} <= {self.ledger.address}


@dataclass(frozen=True, slots=True)
class Proposal:
    """The arguments of one `decide` transaction."""

    round: int
    decision: ledger_state.SubmittedDecision
    certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]
