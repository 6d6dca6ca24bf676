"""Verification of a proof by its recipient, step by step, from what the recipient trusts.

Nothing that the document says is believed: what follows from its parts is computed again, and the
parts are held against a head that was kept, or against a contract on the caller's own chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger.audit.proofs.proof import (
    ClientProof,
    ClientStatement,
    ClientVerdict,
    CommittedDecision,
    ProvenRole,
    RecordedCommitment,
    ScoresTaken,
    derive_statement,
    stated,
)
from ledger.audit.proofs.trust import (
    Caveat,
    StepName,
    Trusted,
    TrustedContract,
    TrustedHead,
    Value,
    VerificationStep,
    compare,
    compare_with_chain,
    final_trust,
    location_value,
    not_comparable,
    outcome_of,
    verify_basis,
)
from ledger.audit.report import AuditOutcome, shown
from ledger.protocol import encoding, merkle
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.errors import SignatureError
from ledger.protocol.fold import DecisionLink, EndLink, RoundStart
from ledger.protocol.inputs import MinedCommitment, round_closing, window_end
from ledger.protocol.judgement import score_leaves
from ledger.protocol.signing import recover, typed_digest
from ledger.protocol.types import NO_DIGEST, ClientId, Commitment, Digest, DropoutReason

_OUTCOMES: dict[AuditOutcome, str] = {
    AuditOutcome.PASSED: "PROVEN: {}",
    AuditOutcome.FAILED: "CONTRADICTED: the proof does not hold, which says: {}",
    AuditOutcome.INCOMPLETE: "NOT PROVEN: nothing contradicts, but not everything could be "
    "checked: {}",
}


@dataclass(frozen=True, slots=True)
class ProofVerification:
    """The result of checking a proof.

    Attributes:
        caveats: what is not proven, however they end.
    """

    round: int
    client: ClientId
    statement: ClientStatement
    steps: tuple[VerificationStep, ...]
    caveats: tuple[Caveat, ...]

    @property
    def outcome(self) -> AuditOutcome:
        """Passed if the statement is proven, failed if it is contradicted, else incomplete."""
        return outcome_of(self.steps)

    @property
    def sentence(self) -> str:
        return _OUTCOMES[self.outcome].format(stated(self.round, self.client, self.statement))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "round": self.round,
            "client": self.client,
            "outcome": str(self.outcome),
            "sentence": self.sentence,
            "statement": self.statement.as_dict(),
            "steps": shown(self.steps),
            "caveats": shown(self.caveats),
        }


def verify_proof(
    proof: ClientProof, round_number: int, client: ClientId, trusted: Trusted | None = None
) -> ProofVerification:
    """Return the result of checking a proof.

    Args:
        trusted: what the caller takes for true; None for nothing, which proves nothing.
    """
    question, given = (round_number, client), (proof.round, proof.client)
    statement, trusted = derive_statement(proof), final_trust(proof, trusted)
    steps = [compare(StepName.QUESTION, question, given), *verify_basis(proof, trusted)]
    steps += _of_round(proof, trusted)
    steps += _of_update(proof)
    if proof.decision is not None and proof.recorded is not None:
        steps += _of_record(proof, proof.decision, proof.recorded)
        if isinstance(trusted, TrustedContract) and trusted.opening is not None:
            steps.append(_of_closing(proof, proof.recorded, trusted, trusted.opening))
    claimed = proof.statement
    steps.append(
        VerificationStep(
            StepName.STATEMENT, str(claimed.verdict), str(statement.verdict), claimed == statement
        )
    )
    caveats = caveats_of(proof, statement, trusted)
    return ProofVerification(round_number, client, statement, tuple(steps), caveats)


def _of_round(proof: ClientProof, trusted: Trusted | None) -> Iterator[VerificationStep]:
    """Yield what was decided, who committed, and where the chain holds it."""
    link, decision, commitments = (
        proof.path.ended(proof.round),
        proof.decision,
        _taken(proof.commitments),
    )
    if link is not None:
        yield _of_decision(proof, link, decision)
    if isinstance(trusted, TrustedContract):
        yield compare_with_chain(
            StepName.COMMITMENTS, _taken(trusted.commitments), commitments, trusted
        )
        yield from _of_places(proof, trusted)
    elif link is not None:
        yield compare(StepName.COMMITMENTS, to_hex(link.commitments), commitments)
    else:
        yield not_comparable(StepName.COMMITMENTS, commitments)
    if decision is not None:
        ranked = {word_client(word) for word in decision.ranking}
        foreign = ranked.difference(proof.participants.trainers)
        yield compare(StepName.SAMPLING, (), tuple(sorted(foreign)))


def _of_places(proof: ClientProof, facts: TrustedContract) -> Iterator[VerificationStep]:
    """Yield whether the chain has the round's end and the commitment at the claimed locations."""
    if facts.ended_at is not None or proof.ended_at is not None:
        expected, claimed = location_value(facts.ended_at), location_value(proof.ended_at)
        yield compare_with_chain(StepName.OUTCOME_PLACE, expected, claimed, facts)
    if proof.commitment is not None:
        expected = location_value(facts.commitment_places.get(proof.client))
        yield compare_with_chain(
            StepName.COMMITMENT_PLACE, expected, location_value(proof.committed_at), facts
        )


def _of_decision(
    proof: ClientProof, link: EndLink, decision: CommittedDecision | None
) -> VerificationStep:
    """Return whether sets, result and votes are those of the link; none, where it has none."""
    computed: tuple[Value, ...] = ()
    expected: tuple[Value, ...] = ()
    if isinstance(link, DecisionLink):
        digests = link.accepted, link.committee, link.result, link.votes
        expected = tuple(map(to_hex, digests))
    if decision is not None:
        accepted, elected = map(encoding.set_digest, proof.sets)
        votes = encoding.votes_digest(decision.views, decision.signers, decision.incidents)
        computed = tuple(map(to_hex, (accepted, elected, decision.result(), votes)))
    return compare(StepName.DECISION, expected, computed)


def _of_update(proof: ClientProof) -> Iterator[VerificationStep]:
    """Yield whether the client's update is the one that it committed to, and signed for."""
    commitment, payload = proof.commitment, proof.payload
    if commitment is not None and payload is not None:
        opened = encoding.commitment_of(proof.client, payload)
        yield compare(StepName.COMMITMENT, to_hex(commitment), to_hex(opened))
    if commitment is not None and proof.signature is not None:
        promised = Commitment(proof.round, proof.client, commitment)
        try:
            signer = to_hex(recover(typed_digest(proof.domain, promised), proof.signature))
        except SignatureError:
            signer = ""
        yield compare(StepName.AUTHOR, to_hex(proof.registry[proof.client].address), signer)
    if proof.decision is None or proof.siblings is None or payload is None:
        return
    chosen = proof.client in proof.sets[0]
    for place, word in enumerate(proof.decision.ranking):
        if word_client(word) == proof.client:
            leaf = (proof.client, payload, place, word >> 32, chosen)
            root = merkle.root_from_proof(merkle.UPDATE_LEAF, leaf, proof.siblings)
            yield compare(StepName.UPDATES_ROOT, to_hex(proof.decision.updates_root), to_hex(root))


def _of_record(
    proof: ClientProof, decision: CommittedDecision, record: RoundRecord
) -> Iterator[VerificationStep]:
    """Yield whether the record is the one that was voted for, and fits the chain."""
    data = proof.record or b""
    yield compare(StepName.RECORD, to_hex(decision.record), to_hex(encoding.sha256(data)))
    counted = _counted(proof, record.base)
    yield compare(
        StepName.BASE,
        (record.round, to_hex(record.base)),
        (proof.round, None if counted is None else to_hex(record.base)),
    )
    payloads = record.payloads()
    ranked = [word_client(word) for word in decision.ranking]
    lacking = tuple(sorted(set(ranked).difference(payloads)))
    reveal = None if lacking else to_hex(encoding.reveal_of(payloads, ranked))
    yield compare(StepName.REVEAL, to_hex(decision.reveal), reveal)
    root = merkle.root(merkle.SCORES_LEAF, score_leaves(record))
    yield compare(StepName.SCORES_ROOT, to_hex(decision.scores_root), to_hex(root))
    dropouts = {dropout.client: dropout.reason for dropout in record.dropouts}
    if counted is not None and proof.client in dropouts:
        has_committed = dropouts[proof.client] is not DropoutReason.NO_COMMITMENT
        yield compare(StepName.DROPOUT, int(proof.client in counted), int(has_committed))


def _of_closing(
    proof: ClientProof, record: RoundRecord, facts: TrustedContract, opening: RoundStart
) -> VerificationStep:
    """Return whether the record is of the commitments that the chain's blocks make count."""
    places = facts.commitment_places
    mined = [
        MinedCommitment(places[entry.client].block_number, entry.client, entry.commitment)
        for entry in facts.commitments
    ]
    end = window_end(proof.deployment, opening.opened_block)
    closing = round_closing(end, proof.participants.expected, end, mined)
    base = None if closing is None else to_hex(closing.base)
    return compare_with_chain(StepName.CLOSING, base, to_hex(record.base), facts)


def _counted(proof: ClientProof, base: Digest) -> frozenset[ClientId] | None:
    """Return whose commitments count by a base; None if the chain never had it."""
    digest, clients = NO_DIGEST, set[ClientId]()
    if digest == base:
        return frozenset()
    for entry in proof.commitments:
        digest = encoding.commitments_digest(digest, entry.client, entry.commitment)
        clients.add(entry.client)
        if digest == base:
            return frozenset(clients)
    return None


def _taken(promises: tuple[RecordedCommitment, ...]) -> Value:
    return to_hex(
        encoding.commitments_chain((entry.client, entry.commitment) for entry in promises)
    )


_OF_DROPOUT = {
    DropoutReason.PAYLOAD_MISSING: Caveat.ABSENCE_CERTIFIED,
    DropoutReason.PAYLOAD_MALFORMED: Caveat.MALFORMED_CERTIFIED,
}


def caveats_of(
    proof: ClientProof, statement: ClientStatement, trusted: Trusted | None
) -> tuple[Caveat, ...]:
    """Return what is not proven of a statement."""
    return (*_of_trust(proof, trusted), *_of_statement(proof, statement))


def _of_trust(proof: ClientProof, trusted: Trusted | None) -> Iterator[Caveat]:
    match trusted:
        case None:
            yield Caveat.NOTHING_TRUSTED
        case TrustedContract():
            if not trusted.is_final:
                yield Caveat.NOT_FINAL
        case TrustedHead():
            if proof.signature is None:
                yield Caveat.CONTRACT_UNPROVEN
            if proof.committed_at is not None or proof.ended_at is not None:
                yield Caveat.PLACES_UNPROVEN
            if proof.record is not None:
                yield Caveat.CLOSING_CERTIFIED
    if proof.commitment is not None and proof.signature is None:
        yield Caveat.AUTHOR_LACKING


def _of_statement(proof: ClientProof, statement: ClientStatement) -> Iterator[Caveat]:
    if statement.rank is not None:
        yield Caveat.DISTANCES_CERTIFIED
    if statement.verdict is ClientVerdict.USED:
        yield Caveat.MODEL_CERTIFIED
    if statement.dropout in _OF_DROPOUT:
        yield _OF_DROPOUT[statement.dropout]
    if statement.scores is ScoresTaken.NONE and statement.dropout is None:
        yield Caveat.SILENCE_UNPROVEN
    is_active = (
        statement.role in {ProvenRole.TRAINER, ProvenRole.MEMBER} and proof.decision is not None
    )
    if is_active and proof.record is None and proof.siblings is None:
        yield Caveat.RECORD_LACKING
