"""Rounds of a deployed contract without clients: keys sign random digests.

What a transaction costs depends on sizes and signatures only, so no model is trained here. Keys
are derived from a sentence: PUBLIC TEST KEYS, worth nothing. Equal calls make equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledger.chain.contract.committee_ledger import LedgerWriter
from ledger.chain.contract.deployment import DEPLOYMENT_GAS, creation_data
from ledger.chain.ports import Receipt
from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.consensus import majority, primary_seat
from ledger.protocol.judgement import sets_of
from ledger.protocol.ranking import rank
from ledger.protocol.sampling import sample_trainers
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Beacon,
    ClientId,
    Commitment,
    Digest,
    Phase,
    RegisteredClient,
    SignedCommitment,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain

Votes = tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision with both certificates, ready to send."""

    decision: ledger_state.SubmittedDecision
    certificates: Votes


class RecordedRounds:
    """One deployed contract and its state, moved on by the executable specification."""

    def __init__(self, chain: EmbeddedChain, members: int, trainers: int, clients: int) -> None:
        keys = (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in range(clients))
        self._keys = sorted(map(KeySigner, keys), key=lambda signer: signer.address)
        registry = [RegisteredClient(key.address, 10 + i) for i, key in enumerate(self._keys)]
        words = [encoding.registry_word(client) for client in registry]
        _, batches = ledger_state.registry_batches(words)
        deployment = deployment_of(
            words, members, trainers, config=digest_of("configuration", 0), deadline_blocks=4
        )
        receipt = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        if receipt.contract_address is None:
            raise RuntimeError("the chain gave no address for the new contract")
        self.chain = chain
        self.ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        self.state = rounds.deployed(deployment, self.ledger.domain())
        self.registrations = [receipt]
        for batch, rest in batches:
            receipt = self._sent(
                lambda block, w=batch, r=rest: rounds.register_clients(self.state, w, r, block),  # type: ignore[misc]
                lambda w=batch, r=rest: self.ledger.register_clients(w, r),  # type: ignore[misc]
            )
            self.registrations.append(receipt)

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        """S_b of the open round, ascending."""
        state, deployment = self.state, self.state.deployment
        return sample_trainers(state.seed, deployment.clients, state.committee, deployment.trainers)

    @property
    def active(self) -> tuple[ClientId, ...]:
        """Trainers and members of the open round, ascending."""
        return tuple(sorted({*self.trainers, *self.state.committee}))

    def signed_commitments(self, clients: Iterable[ClientId]) -> list[SignedCommitment]:
        """Return a commitment of each client for the open round."""
        number, domain, signed = self.state.round, self.state.domain, []
        for client in clients:
            word = encoding.commitment_of(client, digest_of("payload", number))
            promised = Commitment(number, client, word)
            signed.append(SignedCommitment(promised, sign(self._keys[client], domain, promised)))
        return signed

    def certified(self, *, other_repliers: bool = False) -> Decision:
        """Return an honest decision on all trainers.

        Args:
            other_repliers: the last places reply in the election, and not those that replied in
                the aggregation, of whom the contract has looked up each.
        """
        state, decision = self.state, self._decision()
        size = len(state.committee)
        first, second = (primary_seat(state.seed, phase, 0, size) for phase in Phase)
        common = [place for place in range(size) if place not in {first, second}]
        # In the smallest committees the primary of one phase has to reply in the other.
        again = [*(common[::-1] if other_repliers else common), first]
        certificates = (
            self._certificate(decision, Phase.AGGREGATION, first, [*common, second]),
            self._certificate(decision, Phase.ELECTION, second, again),
        )
        return Decision(decision, certificates)

    def commit(self, signed: Sequence[SignedCommitment]) -> Receipt:
        """Send commitments; return the receipt."""
        return self._sent(
            lambda block: rounds.commit_updates(self.state, self.state.round, signed, block),
            lambda: self.ledger.commit_updates(self.state.round, signed),
        )

    def decide(self, made: Decision) -> Receipt:
        """Send a decision; return the receipt."""
        arguments = (self.state.round, made.decision, made.certificates)
        return self._sent(
            lambda block: rounds.decide(self.state, *arguments, block),
            lambda: self.ledger.decide(*arguments),
        )

    def abandon(self) -> Receipt:
        """Let the deadline pass and end the round; return the receipt."""
        deadline = self.state.opened_block + self.state.deployment.deadline_blocks
        self.chain.mine(max(0, deadline - self.chain.head().number - 1))
        return self._sent(
            lambda block: rounds.abandon_round(self.state, self.state.round, block),
            lambda: self.ledger.abandon_round(self.state.round),
        )

    def _decision(self) -> ledger_state.SubmittedDecision:
        number = self.state.round
        order = sorted(self.trainers, key=lambda client: digest_of("place", client))
        return ledger_state.SubmittedDecision(
            committee=self.state.committee,
            ranking=rank((client, 1.0 + place / 7) for place, client in enumerate(order)),
            base=self.state.commitments,
            model=digest_of("model", number),
            updates_root=digest_of("updates", number),
            scores_root=digest_of("scores", number),
            reveal=digest_of("reveal", number),
            record=digest_of("record", number),
            incidents=NO_DIGEST,
        )

    def _certificate(
        self,
        decision: ledger_state.SubmittedDecision,
        phase: Phase,
        primary: int,
        candidates: Sequence[int],
    ) -> ledger_state.SubmittedCertificate:
        state = self.state
        able = [place for place in candidates if place != primary]
        places = sorted(able[: state.deployment.replies])
        sets = sets_of(state.deployment, decision.ranking)
        chosen = encoding.set_digest(sets[phase - 1])
        result = encoding.aggregation_result(decision.opening())
        vote = Vote(VoteKind.REQUEST, state.round, phase, 0, decision.base, chosen, result)
        reply = replace(vote, kind=VoteKind.REPLY)
        keys = [self._keys[member] for member in state.committee]
        return ledger_state.SubmittedCertificate(
            view=0,
            set_digest=chosen,
            request=sign(keys[primary], state.domain, vote),
            signers=sum(1 << place for place in places),
            replies=tuple(sign(keys[place], state.domain, reply) for place in places),
        )

    def _sent(
        self,
        specified: Callable[[ledger_state.BlockContext], ledger_state.Step],
        send: Callable[[], Receipt],
    ) -> Receipt:
        head = self.chain.head()
        receipt = send()
        block = ledger_state.BlockContext(head.number + 1, Digest(head.hash))
        self.state, _ = specified(block)
        return receipt


def digest_of(what: str, number: int) -> Digest:
    """Return the digest of a name and a number."""
    return encoding.sha256(f"{what} {number}".encode())


def deployment_of(
    words: Sequence[int], members: int, trainers: int, **other: Any
) -> ledger_state.Deployment:
    """Return a deployment of registered clients that accepts the first two fifths of a ranking."""
    values: dict[str, Any] = {
        "registry": ledger_state.registry_batches(words)[0],
        "clients": len(words),
        "trainers": trainers,
        "members": members,
        "aggregation_ppm": 400_000,
        "form": AcceptanceForm.FIRST,
        "rounds": 2**32 - 1,
        "commit_blocks": 2,
        "replies": majority(members),
        "beacon": Beacon.NONE,
        "model": digest_of("model", 0),
    }
    return ledger_state.Deployment(**values | other)
