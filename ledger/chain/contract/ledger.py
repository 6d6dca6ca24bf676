"""A deployed contract: its storage, its recorded events, and its five transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from ledger.chain.addresses import eip55, to_canonical
from ledger.chain.contract import abi, codec
from ledger.chain.contract.codec import RecordedEvent, decode_log, require_possible_event
from ledger.chain.finality import final_number
from ledger.chain.ports import (
    Block,
    ChainReader,
    ChainWriter,
    IncompleteLogsError,
    Log,
    NotServedError,
    Receipt,
    Transaction,
    TransactionRevertedError,
)
from ledger.protocol import encoding, ledger_state
from ledger.protocol.errors import ChainError
from ledger.protocol.fold import LedgerView, RoundStart, mined_commitments
from ledger.protocol.inputs import MinedCommitment
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Digest,
    Domain,
    RegisteredClient,
    SignedCommitment,
)

ROUND_EVENTS = ("UpdatesCommitted", "RoundDecided", "RoundAbandoned", "ClientBanned")
MAX_COMMITMENTS = 256
"""Most commitments in one transaction."""
DRAW_GAS = 11_500_000
"""Gas for `MAX_DRAWS` draws; EIP-7825 allows a transaction 2^24."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The contract's storage after one block; `committee` is a digest."""

    stage: ledger_state.LedgerStage
    round: int
    opened_block: int
    seed: Digest
    committee: Digest
    model: Digest
    head: Digest
    registered: int
    registry_rest: Digest
    commitments: Digest

    @staticmethod
    def of(state: LedgerView, registry_rest: Digest) -> LedgerSnapshot:
        """Return the state that transactions or events lead to, as the contract shows it.

        Args:
            registry_rest: digest that the next batch of clients must match; no event gives it.
        """
        registering = state.stage is ledger_state.LedgerStage.REGISTERING
        return LedgerSnapshot(
            stage=state.stage,
            round=state.round,
            opened_block=state.opened_block,
            seed=state.seed,
            committee=NO_DIGEST if registering else encoding.set_digest(state.committee),
            model=state.model,
            head=state.head,
            registered=len(state.registry),
            registry_rest=registry_rest,
            commitments=state.commitments,
        )


class LedgerStorage:
    """Storage of a deployed contract.

    Attributes:
        address: EIP-55.
    """

    def __init__(self, chain: ChainReader, address: str) -> None:
        self.chain = chain
        self.address = eip55(address)

    def deployment(self) -> ledger_state.Deployment:
        (values,) = self._call("deployment")
        names = (field.name for field in dataclasses.fields(ledger_state.Deployment))
        fields = dict(zip(names, values, strict=True))
        if fields["form"] not in set(AcceptanceForm):
            raise NotServedError(
                f"deployment() returned strategy {fields['form']}, which does not exist"
            )
        fields["form"] = AcceptanceForm(fields["form"])
        fields["beacon"] = Beacon.BLOCK if fields["beacon"] else Beacon.NONE
        return ledger_state.Deployment(**fields)

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return the contract's storage after a block, None for the head."""
        (values,) = self._call("state", block_number=block_number)
        stage, number, opened, *rest = values
        if stage not in set(ledger_state.LedgerStage):
            raise NotServedError(f"state() returned stage {stage}, which does not exist")
        seed, committee, model, head, registered, registry_rest, commitments = rest
        return LedgerSnapshot(
            stage=ledger_state.LedgerStage(stage),
            round=number,
            opened_block=opened,
            seed=Digest(seed),
            committee=Digest(committee),
            model=Digest(model),
            head=Digest(head),
            registered=registered,
            registry_rest=Digest(registry_rest),
            commitments=Digest(commitments),
        )

    def client(self, client: ClientId) -> RegisteredClient:
        """Return a registered client with the round of its ban; refused for others."""
        return encoding.registered_client(self._call("client", client)[0])

    def has_committed(self, client: ClientId) -> bool:
        """Return whether a registered client has committed in the open round."""
        return bool(self._call("has_committed", client)[0])

    def _call(
        self, function: str, *arguments: object, block_number: int | None = None
    ) -> tuple[Any, ...]:
        try:
            data = self.chain.call(self.address, abi.call_data(function, *arguments), block_number)
        except TransactionRevertedError as error:
            raise abi.refusal(error) from error
        if not data:
            raise ChainError(f"there is no committee ledger at {self.address}")
        return abi.result_of(function, data)


class CommitteeLedger(LedgerStorage):
    """Read access to a deployed contract: its storage and its recorded events.

    Attributes:
        from_block: number of the block that created it; no event is older.
    """

    is_recorded = True

    def __init__(
        self,
        chain: ChainReader,
        address: str,
        from_block: int = 0,
        fixed: ledger_state.Deployment | None = None,
    ) -> None:
        """Store the arguments; nothing is requested yet.

        Args:
            from_block: number of the block that created it.
            fixed: its deployment values where they are known already; None to read them.
        """
        super().__init__(chain, address)
        self.from_block = from_block
        self._deployment = fixed

    @property
    def node(self) -> str | None:
        return self.chain.node

    def deployment(self) -> ledger_state.Deployment:
        """Return the values fixed at deployment; see `LedgerStorage.deployment`."""
        return super().deployment() if self._deployment is None else self._deployment

    def domain(self) -> Domain:
        """Return the EIP-712 domain; its salt is computed here, not read from the contract."""
        contract = Address(to_canonical(self.address))
        return ledger_state.domain_of(
            self._fixed, self.chain.chain_id, contract, self.deployment_parent_hash()
        )

    def deployment_parent_hash(self) -> Digest:
        """Return the parent hash of the deploying block; zeros with `beacon = none`.

        The deploying block is the one with LedgerDeployed, which only a constructor logs.
        """
        if self._fixed.beacon is Beacon.NONE:
            return NO_DIGEST
        log = self._deployment_log()
        block = self.chain.block(log.block_number)
        if block.hash != log.block_hash:
            raise NotServedError(
                f"block {block.number} is not the one that deployed {self.address}"
            )
        return Digest(block.parent_hash)

    def creation(self) -> Transaction:
        return self.chain.transaction(self._deployment_log().transaction_hash)

    def _deployment_log(self) -> Log:
        named = [[abi.topic("LedgerDeployed")]]
        logs = self.chain.logs(self.address, named, self.from_block, self._last(None), 1)
        if not logs:
            raise NotServedError(f"the logs do not hold the deployment of {self.address}")
        return logs[0]

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, without bans, from the events."""
        words: list[int] = []
        for recorded in self._logs(["ClientsRegistered"]):
            if isinstance(recorded.event, ledger_state.ClientsRegistered):
                if recorded.event.first != len(words):
                    raise IncompleteLogsError(
                        self.chain.node,
                        f"after client {len(words) - 1} the logs continue with client "
                        f"{recorded.event.first}",
                    )
                words += recorded.event.words
        return tuple(encoding.registered_client(word) for word in words)

    def bans(self, to_block: int | None = None) -> tuple[ledger_state.ClientBanned, ...]:
        """Return every ban up to a block (None for the head), in chain order."""
        events = [recorded.event for recorded in self._logs(["ClientBanned"], to_block=to_block)]
        return tuple(event for event in events if isinstance(event, ledger_state.ClientBanned))

    def opening(self, round_number: int, to_block: int | None = None) -> RoundStart | None:
        """Return the start of a round as of a block (None for the head); None if it is not open."""
        if round_number == 1:
            recorded = self._logs(["LedgerOpened"], to_block=to_block)
        else:
            ended = ["RoundDecided", "RoundAbandoned"]
            recorded = self._logs(ended, round_number - 1, to_block)
        if not recorded:
            return None
        return RoundStart.of(recorded[0].event, recorded[0].block_number)

    def commitments(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[MinedCommitment, ...]:
        """Return the commitments of a round up to a block (None for the head), in chain order."""
        return tuple(
            mined
            for recorded in self._logs(["UpdatesCommitted"], round_number, to_block)
            for mined in mined_commitments(recorded.event, recorded.block_number)
        )

    def events(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return every event in a range of blocks, both ends included, in chain order."""
        logs = self.chain.logs(self.address, [], from_block, to_block)
        return [decode_log(log) for log in logs]

    def recorded_in(self, from_block: int, to_block: int) -> list[RecordedEvent]:
        """Return every event in a range of blocks, both ends included; see `possible`."""
        return self.possible(self.chain.logs(self.address, [], from_block, to_block))

    def round_events(self, round_number: int, to_block: int | None = None) -> list[RecordedEvent]:
        """Return every event of a round up to a block (None for the head), in chain order."""
        return self._logs(ROUND_EVENTS, round_number, to_block)

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[RecordedEvent]:
        """Return decisions and abandonments, at most `limit`, up to a block (None for the head)."""
        names = [[abi.topic("RoundDecided"), abi.topic("RoundAbandoned")]]
        last = self._last(to_block)
        logs = self.chain.logs(
            self.address, names, self.from_block, last, limit, descending=descending
        )
        return self.possible(logs)

    def call_of(self, transaction_hash: bytes) -> codec.Call | None:
        """Return the call in a transaction's data; None if it was not sent to the contract.

        The contract takes transactions from accounts without code only, so the data of each are
        its own call's; a node can name another transaction.
        """
        transaction = self.chain.transaction(transaction_hash)
        return codec.decode_call(transaction.input) if transaction.to == self.address else None

    def _logs(
        self, names: Sequence[str], round_number: int | None = None, to_block: int | None = None
    ) -> list[RecordedEvent]:
        topics: list[list[bytes] | bytes] = [[abi.topic(name) for name in names]]
        if round_number is not None:
            topics.append(round_number.to_bytes(32))
        last = self._last(to_block)
        logs = self.chain.logs(self.address, topics, self.from_block, last)
        return self.possible(logs)

    def possible(self, logs: Iterable[Log]) -> list[RecordedEvent]:
        """Return the events in logs of the contract; raise NotServedError for an impossible one."""
        events = [decode_log(log) for log in logs]
        for recorded in events:
            require_possible_event(recorded, self._fixed)
        return events

    @cached_property
    def _fixed(self) -> ledger_state.Deployment:
        return self.deployment()

    def _last(self, to_block: int | None) -> int:
        return self.chain.head().number if to_block is None else to_block


class FinalLedger(CommitteeLedger):
    """The contract at the newest final block wherever no block is named.

    A reorganisation may reopen a round that has ended at the head; payloads removed by then would
    be lost. Every method may also raise ChainError if the chain has final blocks and its node names
    none.
    """

    @classmethod
    def of(cls, ledger: CommitteeLedger) -> Self:
        """Return the final view of a contract."""
        return cls(ledger.chain, ledger.address, ledger.from_block)

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return the contract's storage after a block, None for the newest final one."""
        return super().state(self._last(block_number))

    def _last(self, to_block: int | None) -> int:
        return self.chain.finalized() if to_block is None else to_block


class LedgerWriter(CommitteeLedger):
    """Write access to a deployed contract.

    Every transaction returns its receipt. It raises the contract's ProtocolRefusal, a
    SignatureError for a signature without compact form, and a ChainError if the chain
    did not accept the transaction.
    """

    def __init__(self, chain: ChainWriter, address: str, from_block: int = 0) -> None:
        super().__init__(chain, address, from_block)
        self.writer = chain

    def newest_block(self) -> Block:
        return self.chain.head()

    def final_number(self, newest: Block, confirmations: int | None) -> int:
        return final_number(self.chain, newest, confirmations)

    def block(self, number: int) -> Block:
        return self.chain.block(number)

    def mine(self, blocks: int) -> None:
        self.writer.mine(blocks)

    def would_accept(self, round_number: int, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether the contract would accept these commitments, without sending them."""
        call = codec.CommitCall(round_number, tuple(signed))
        try:
            self.chain.call(self.address, codec.encode_call(call))
        except TransactionRevertedError:
            return False
        return True

    def register_clients(self, words: Sequence[int], rest: Digest) -> Receipt:
        """Register a batch of clients; see `rounds.register_clients`."""
        call = codec.RegisterCall(tuple(words), rest)
        # The last batch draws the first committee: up to 400 draws while no client is banned.
        return self._send(call, 2_000_000 + 30_000 * len(words))

    def commit_updates(self, round_number: int, signed: Sequence[SignedCommitment]) -> Receipt:
        call = codec.CommitCall(round_number, tuple(signed))
        # In the first round each of up to 55 flag words is new storage.
        return self._send(call, 1_700_000 + 12_000 * len(signed))

    def decide(
        self,
        round_number: int,
        decision: ledger_state.SubmittedDecision,
        certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate],
    ) -> Receipt:
        call = codec.DecideCall(round_number, decision, certificates)
        replies = sum(len(certificate.replies) for certificate in certificates)
        return self._send(call, 400_000 + 3_000 * len(decision.ranking) + 12_000 * replies)

    def abandon_round(self, round_number: int) -> Receipt:
        return self._send(codec.AbandonCall(round_number), DRAW_GAS)

    def report_equivocation(self, report: ledger_state.EquivocationReport) -> Receipt:
        return self._send(codec.ReportCall(report), 300_000)

    def _send(self, call: codec.Call, gas: int) -> Receipt:
        try:
            return self.writer.send(self.address, codec.encode_call(call), gas)
        except TransactionRevertedError as error:
            raise abi.refusal(error) from error
