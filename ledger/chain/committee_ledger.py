"""One deployed contract: what it says, what it has recorded, and its five transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.chain import abi
from ledger.chain.events import Recorded, decode_log
from ledger.chain.ports import TransactionRevertedError
from ledger.chain.reverts import refusal
from ledger.protocol import encoding, ledger_state
from ledger.protocol.errors import ChainError, SignatureError
from ledger.protocol.types import (
    Beacon,
    ClientId,
    Digest,
    RegisteredClient,
    Strategy,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.ports import ChainReader, ChainWriter, Receipt
    from ledger.protocol.consensus import Certificate

ROUND_EVENTS = ("UpdatesCommitted", "RoundDecided", "RoundAbandoned", "ClientBanned")
MAX_COMMITMENTS = 256
"""Commitments that one transaction can carry."""
ABANDON_GAS = 11_500_000
"""Enough for `MAX_DRAWS` draws of as many clients; EIP-7825 allows a transaction 2^24."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contract's storage at one block; `committee` is only its digest."""

    stage: ledger_state.Stage
    round: int
    opened_block: int
    seed: Digest
    committee: Digest
    model: Digest
    head: Digest
    registered: int
    registry_rest: Digest
    commitments: Digest


@dataclass(frozen=True, slots=True)
class DecideCall:
    """The call data of a `decide` transaction."""

    round: int
    decision: ledger_state.SubmittedDecision
    certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]


class CommitteeLedger:
    """A deployed contract to read from.

    Attributes:
        chain: where it lives.
        address: EIP-55.
        from_block: the block that created it; no event is older.
    """

    def __init__(self, chain: ChainReader, address: str, from_block: int = 0) -> None:
        self.chain = chain
        self.address = address
        self.from_block = from_block

    def deployment(self) -> ledger_state.Deployment:
        """Return what was fixed at deployment; the first committee is () until round 1 is open.

        Raises:
            ChainError: the address holds no such contract, or the chain is unreachable.
        """
        (values,) = self._call("deployment")
        names = [entry["name"] for entry in abi.output_fields("deployment")]
        found = dict(zip(names, values, strict=True))
        opening = self.opening(1)
        committee = opening[0] if opening else ()
        return ledger_state.Deployment(
            config=Digest(found["config"]),
            registry=Digest(found["registry"]),
            clients=found["clients"],
            trainers=found["trainers"],
            members=found["members"],
            aggregation_ppm=found["aggregation_ppm"],
            strategy=Strategy(found["strategy"]),
            rounds=found["rounds"],
            deadline_blocks=found["deadline_blocks"],
            beacon=Beacon.BLOCK if found["block_beacon"] else Beacon.NONE,
            committee=committee,
            model=Digest(found["model"]),
        )

    def state(self, block_number: int | None = None) -> Snapshot:
        """Return the contract's storage.

        Args:
            block_number: the block whose state it is; None for the head.

        Raises:
            ChainError: the address holds no such contract, or the chain is unreachable.
        """
        (values,) = self._call("state", block_number=block_number)
        stage, number, opened, *rest = values
        seed, committee, model, head, registered, registry_rest, commitments = rest
        return Snapshot(
            stage=ledger_state.Stage(stage),
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
        """Return a registered client as it is now.

        Args:
            client: its index.

        Raises:
            UnknownClientError: there is no such client.
            ChainError: the chain is unreachable.
        """
        return encoding.registered_client(self._call("client", client)[0])

    def has_committed(self, client: ClientId) -> bool:
        """Say whether a client has committed to an update in the open round.

        Args:
            client: its index.

        Raises:
            UnknownClientError: there is no such client.
            ChainError: the chain is unreachable.
        """
        return bool(self._call("has_committed", client)[0])

    def registry(self) -> tuple[RegisteredClient, ...]:
        """Return all clients as they were registered, from the events."""
        words: list[int] = []
        for recorded in self._logs(["ClientsRegistered"]):
            if isinstance(recorded.event, ledger_state.ClientsRegistered):
                words += recorded.event.words
        return tuple(encoding.registered_client(word) for word in words)

    def events(self, from_block: int, to_block: int) -> list[Recorded]:
        """Return every event of the contract in these blocks, in the chain's order.

        Args:
            from_block: first block, included.
            to_block: last block, included.
        """
        logs = self.chain.logs(self.address, [], from_block, to_block)
        return [decode_log(log) for log in logs]

    def round_events(self, round_number: int, to_block: int | None = None) -> list[Recorded]:
        """Return all that the chain holds of one round, in the chain's order.

        Args:
            round_number: t.
            to_block: last block, included; None for the head.
        """
        return self._logs(ROUND_EVENTS, round_number, to_block)

    def outcomes(
        self, limit: int, *, descending: bool = True, to_block: int | None = None
    ) -> list[Recorded]:
        """Return the last or the first ended rounds: decisions and abandonments.

        Args:
            limit: how many at most.
            descending: newest first.
            to_block: last block, included; None for the head.
        """
        names = [[abi.topic("RoundDecided"), abi.topic("RoundAbandoned")]]
        last = self._last(to_block)
        logs = self.chain.logs(
            self.address, names, self.from_block, last, limit, descending=descending
        )
        return [decode_log(log) for log in logs]

    def bans(self) -> list[Recorded]:
        """Return every ban."""
        return self._logs(["ClientBanned"])

    def opening(
        self, round_number: int, to_block: int | None = None
    ) -> tuple[tuple[ClientId, ...], Digest] | None:
        """Return committee and seed of a round, None if it has not opened.

        Args:
            round_number: t, from 1.
            to_block: last block, included; None for the head.
        """
        if round_number == 1:
            recorded = self._logs(["LedgerOpened"], to_block=to_block)
        else:
            ended = ["RoundDecided", "RoundAbandoned"]
            recorded = self._logs(ended, round_number - 1, to_block)
        if not recorded:
            return None
        match recorded[0].event:
            case ledger_state.LedgerOpened(_, seed, committee, _):
                return committee, seed
            case ledger_state.RoundDecided() | ledger_state.RoundAbandoned() as event:
                return event.next_committee, event.next_seed
            case _:
                return None

    def decide_call(self, transaction_hash: bytes) -> DecideCall:
        """Return the arguments of a `decide` transaction: the signatures are only there.

        Args:
            transaction_hash: of the transaction that holds the RoundDecided event.

        Raises:
            ChainError: it is no such transaction, or the chain does not have it.
        """
        transaction = self.chain.transaction(transaction_hash)
        if transaction.to != self.address:
            raise ChainError(f"transaction 0x{transaction_hash.hex()} is not to the contract")
        return decide_call_of(transaction.input)

    def _call(
        self, function: str, *arguments: object, block_number: int | None = None
    ) -> tuple[Any, ...]:
        try:
            data = self.chain.call(self.address, abi.call_data(function, *arguments), block_number)
        except TransactionRevertedError as error:
            raise refusal(error) from error
        if not data:
            raise ChainError(f"there is no committee ledger at {self.address}")
        return abi.result_of(function, data)

    def _logs(
        self, names: Sequence[str], round_number: int | None = None, to_block: int | None = None
    ) -> list[Recorded]:
        topics: list[list[bytes] | bytes] = [[abi.topic(name) for name in names]]
        if round_number is not None:
            topics.append(round_number.to_bytes(32))
        last = self._last(to_block)
        logs = self.chain.logs(self.address, topics, self.from_block, last)
        return [decode_log(log) for log in logs]

    def _last(self, to_block: int | None) -> int:
        return self.chain.head().number if to_block is None else to_block


class LedgerWriter(CommitteeLedger):
    """A deployed contract to send transactions to; a refusal is raised with its reason."""

    def __init__(self, chain: ChainWriter, address: str, from_block: int = 0) -> None:
        super().__init__(chain, address, from_block)
        self.writer = chain

    def register_clients(self, words: Sequence[int], rest: Digest) -> Receipt:
        """Register a batch of clients; see `rounds.register_clients`."""
        data = abi.call_data("register_clients", words, rest)
        return self._send(data, 600_000 + 30_000 * len(words))

    def commit_updates(
        self, round_number: int, signed: Sequence[tuple[ClientId, Digest, bytes]]
    ) -> Receipt:
        """Carry signed commitments; see `rounds.commit_updates`."""
        commitments = [(client, payload) for client, payload, _ in signed]
        signatures = [compact(signature) for _, _, signature in signed]
        data = abi.call_data("commit_updates", round_number, commitments, signatures)
        # In a deployment's first round every one of up to 55 words of flags is new storage.
        return self._send(data, 1_700_000 + 12_000 * len(signed))

    def decide(
        self,
        round_number: int,
        decision: ledger_state.SubmittedDecision,
        certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate],
    ) -> Receipt:
        """Record a round; see `rounds.decide`."""
        outcome = (decision.model, decision.updates_root, decision.scores_root)
        outcome_tail = (decision.threshold_bits, decision.record)
        votes = [part for certificate in certificates for part in _arguments(certificate)]
        data = abi.call_data(
            "decide",
            round_number,
            decision.committee,
            decision.ranking,
            (*outcome, *outcome_tail),
            *votes,
        )
        replies = sum(len(certificate.replies) for certificate in certificates)
        return self._send(data, 400_000 + 3_000 * len(decision.ranking) + 12_000 * replies)

    def abandon_round(self, round_number: int) -> Receipt:
        """End a round after its deadline; see `rounds.abandon_round`."""
        return self._send(abi.call_data("abandon_round", round_number), ABANDON_GAS)

    def report_equivocation(
        self, client: ClientId, first: tuple[Vote, bytes], second: tuple[Vote, bytes]
    ) -> Receipt:
        """Ban a client with two of its votes; see `rounds.report_equivocation`.

        Args:
            client: the accused.
            first: a vote and its signature.
            second: another of the same kind, round, phase and view, and its signature.

        Raises:
            Refusal: the contract's.
            ChainError: the chain is unreachable, or did not take the transaction.
        """
        vote = first[0]
        data = abi.call_data(
            "report_equivocation",
            client,
            vote.kind is VoteKind.REQUEST,
            vote.round,
            int(vote.phase),
            vote.view,
            _signed_vote(*first),
            _signed_vote(*second),
        )
        return self._send(data, 300_000)

    def _send(self, data: bytes, gas: int) -> Receipt:
        try:
            return self.writer.send(self.address, data, gas)
        except TransactionRevertedError as error:
            raise refusal(error) from error


def decide_call_of(data: bytes) -> DecideCall:
    """Return the arguments behind the call data of `decide`.

    Args:
        data: selector and encoded arguments.

    Returns:
        Round, decision and certificates.

    Raises:
        ChainError: it calls something else, or its arguments do not decode.
    """
    number, committee, ranking, outcome, *votes = abi.arguments_of("decide", data)
    model, updates_root, scores_root, threshold_bits, record = outcome
    decision = ledger_state.SubmittedDecision(
        committee=tuple(ClientId(member) for member in committee),
        ranking=ranking,
        model=Digest(model),
        updates_root=Digest(updates_root),
        scores_root=Digest(scores_root),
        threshold_bits=threshold_bits,
        record=Digest(record),
    )
    certificates = (_certificate(votes[0], votes[1]), _certificate(votes[2], votes[3]))
    return DecideCall(number, decision, certificates)


def submitted(
    certificate: Certificate, committee: Sequence[ClientId]
) -> ledger_state.SubmittedCertificate:
    """Return a certificate as a transaction carries it.

    Args:
        certificate: request and replies.
        committee: S_c, by places.
    """
    places = sorted(certificate.replies, key=lambda reply: committee.index(reply.member))
    vote = certificate.vote
    return ledger_state.SubmittedCertificate(
        view=vote.view,
        timestamp=vote.timestamp,
        set_digest=vote.set_digest,
        request=certificate.request.signature,
        signers=certificate.signers(committee),
        replies=tuple(reply.signature for reply in places),
    )


def compact(signature: bytes) -> tuple[bytes, bytes]:
    """Return r and vs (EIP-2098) of a signature.

    Args:
        signature: 65 bytes r ‖ s ‖ v.

    Raises:
        SignatureError: wrong length, or a v or s that the compact form cannot even express.
    """
    if len(signature) != 65 or signature[64] not in {27, 28} or signature[32] >> 7:
        raise SignatureError("the signature has no compact form: s is too large, or v not 27 or 28")
    vs = int.from_bytes(signature[32:64]) | (signature[64] - 27) << 255
    return signature[:32], vs.to_bytes(32)


def expanded(r: bytes, vs: bytes) -> bytes:
    """Return 65 bytes r ‖ s ‖ v of a compact signature."""
    word = int.from_bytes(vs)
    return r + (word & (1 << 255) - 1).to_bytes(32) + bytes([27 + (word >> 255)])


def _arguments(certificate: ledger_state.SubmittedCertificate) -> tuple[object, list[object]]:
    c = certificate
    head = (c.view, c.timestamp, c.set_digest, *compact(c.request), c.signers)
    return head, [compact(reply) for reply in c.replies]


def _certificate(
    values: tuple[Any, ...], replies: tuple[Any, ...]
) -> ledger_state.SubmittedCertificate:
    view, timestamp, set_digest, r, vs, signers = values
    return ledger_state.SubmittedCertificate(
        view=view,
        timestamp=timestamp,
        set_digest=Digest(set_digest),
        request=expanded(r, vs),
        signers=signers,
        replies=tuple(expanded(*reply) for reply in replies),
    )


def _signed_vote(vote: Vote, signature: bytes) -> tuple[object, ...]:
    return vote.timestamp, vote.set_digest, vote.result, *compact(signature)
