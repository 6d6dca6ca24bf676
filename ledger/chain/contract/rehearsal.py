"""Rounds with signed but made-up content on a chain: what the transactions of a round cost.

No model is trained. Keys are derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ledger.chain.contract.deploy import DEPLOYMENT_GAS, creation_data
from ledger.chain.contract.ledger import MAX_COMMITMENTS, LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Receipt
from ledger.protocol import encoding, ledger_state, rounds, types
from ledger.protocol.inputs import primary_seat, sample_trainers
from ledger.protocol.judgement import sets_of
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Phase, SignedCommitment

_Certificate = ledger_state.SubmittedCertificate
Decision = tuple[ledger_state.SubmittedDecision, tuple[_Certificate, _Certificate]]
"""A decision with both certificates, ready to send."""


class RecordedRounds:
    """One deployed contract and its state, moved on by the executable specification."""

    def __init__(self, chain: EmbeddedChain, fixed: ledger_state.Deployment) -> None:
        numbers = range(fixed.clients)
        keys = (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in numbers)
        self._keys = sorted(map(KeySigner, keys), key=attrgetter("address"))
        addresses = enumerate(key.address for key in self._keys)
        registry = [encoding.RegisteredClient(address, 10 + i) for i, address in addresses]
        words = [encoding.registry_word(client) for client in registry]
        first, batches = ledger_state.registry_batches(words)
        deployment = replace(fixed, registry=first)
        receipt = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        if receipt.contract_address is None:
            raise RuntimeError("the chain returned no address for the new contract")
        self.chain = chain
        self.ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        self.state = rounds.deployed(deployment, self.ledger.domain())
        self.registrations = [receipt]
        for batch, rest in batches:
            self.registrations.append(self._send("register_clients", batch, rest))

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        state, deployment = self.state, self.state.deployment
        return sample_trainers(state.seed, deployment.clients, state.committee, deployment.trainers)

    @property
    def active(self) -> tuple[ClientId, ...]:
        return tuple(sorted({*self.trainers, *self.state.committee}))

    def signed_commitments(self, clients: Iterable[ClientId]) -> list[SignedCommitment]:
        number, domain, signed = self.state.round, self.state.domain, []
        for client in clients:
            word = encoding.commitment_of(client, digest_of("payload", number))
            promised = types.Commitment(number, client, word)
            signed.append(SignedCommitment(promised, sign(self._keys[client], domain, promised)))
        return signed

    def certified(self, *, other_repliers: bool = False) -> Decision:
        """Return an honest decision; other repliers cost the contract the most look-ups."""
        state, number, size = self.state, self.state.round, len(self.state.committee)
        order = sorted(self.trainers, key=lambda client: digest_of("place", client))
        decision = ledger_state.SubmittedDecision(
            committee=state.committee,
            ranking=tuple(
                encoding.ranking_word(1.0 + place / 7, client) for place, client in enumerate(order)
            ),
            base=state.commitments,
            model=digest_of("model", number),
            updates_root=digest_of("updates", number),
            scores_root=digest_of("scores", number),
            reveal=digest_of("reveal", number),
            record=digest_of("record", number),
            incidents=NO_DIGEST,
        )
        first, second = (primary_seat(state.seed, phase, 0, size) for phase in Phase)
        common = [place for place in range(size) if place not in {first, second}]
        # In the smallest committees the primary of one phase has to reply in the other.
        again = [*(common[::-1] if other_repliers else common), first]
        certificates = (
            self._certificate(decision, Phase.AGGREGATION, first, [*common, second]),
            self._certificate(decision, Phase.ELECTION, second, again),
        )
        return decision, certificates

    def commit(self, signed: Sequence[SignedCommitment]) -> Receipt:
        return self._send("commit_updates", self.state.round, signed)

    def decide(self, made: Decision) -> Receipt:
        return self._send("decide", self.state.round, *made)

    def abandon(self) -> Receipt:
        deadline = self.state.opened_block + self.state.deployment.deadline_blocks
        self.chain.mine(max(0, deadline - self.chain.head().number - 1))
        return self._send("abandon_round", self.state.round)

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
        chosen = encoding.set_digest(sets_of(state.deployment, decision.ranking).voted_on(phase))
        result = encoding.aggregation_result(decision.opening())
        vote = types.Vote(
            types.VoteKind.REQUEST, state.round, phase, 0, decision.base, chosen, result
        )
        reply = replace(vote, kind=types.VoteKind.REPLY)
        keys = [self._keys[member] for member in state.committee]
        return ledger_state.SubmittedCertificate(
            view=0,
            set_digest=chosen,
            request=sign(keys[primary], state.domain, vote),
            signers=sum(1 << place for place in places),
            replies=tuple(sign(keys[place], state.domain, reply) for place in places),
        )

    def _send(self, call: str, *arguments: Any) -> Receipt:
        """Send a transaction, and move the state by the specification's function of its name."""
        head = self.chain.head()
        receipt: Receipt = getattr(self.ledger, call)(*arguments)
        block = ledger_state.BlockContext(head.number + 1, Digest(head.hash))
        self.state, _ = getattr(rounds, call)(self.state, *arguments, block)
        return receipt


def third_round(chain: EmbeddedChain, fixed: ledger_state.Deployment) -> list[Receipt]:
    """Play three rounds of a deployment with made-up clients; return the third's receipts."""
    # Earlier rounds pay for new storage. Windows do not change gas; here each call has a block.
    fixed = replace(fixed, rounds=4, commit_blocks=1_000, deadline_blocks=2_000)
    run = RecordedRounds(chain, fixed)
    receipts: list[Receipt] = []
    for _ in range(3):
        signed = run.signed_commitments(run.active)
        starts = range(0, len(signed), MAX_COMMITMENTS)
        receipts = [run.commit(signed[at : at + MAX_COMMITMENTS]) for at in starts]
        receipts.append(run.decide(run.certified()))
    return receipts


def digest_of(what: str, number: int) -> Digest:
    """Return the digest of a name and a number."""
    return encoding.sha256(f"{what} {number}".encode())
