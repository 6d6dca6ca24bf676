"""Verification of a proof by its recipient, step by step, from what the recipient trusts.

No claim of the document is believed: the verification computes again what follows from its parts,
and compares the parts with a head that was kept, or with a contract on the caller's own chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self, TypeAlias

from ledger.audit.proofs.documents import STATEMENT
from ledger.audit.proofs.proof import (
    ClientProof,
    ClientStatement,
    ClientVerdict,
    CommittedDecision,
    EventLocation,
    ProvenRole,
    RecordedBan,
    RecordedCommitment,
    RoundBasis,
    ScoresTaken,
    derive_statement,
    stated,
)
from ledger.audit.proofs.recorded import TrustedContract
from ledger.audit.report import AuditOutcome, StepOutcome, outcome_of, shown, text_of
from ledger.chain.ports import Log
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol import encoding
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.errors import SignatureError
from ledger.protocol.inputs import drawn_committee, round_closing, window_end
from ledger.protocol.judgement import score_leaves
from ledger.protocol.ledger_state import DecisionLink, Deployment, EndLink, MinedCommitment
from ledger.protocol.signing import recover, typed_digest
from ledger.protocol.types import NO_DIGEST, ClientId, Commitment, Digest, DropoutReason


class _CodeWithSentence(StrEnum):
    sentence: str

    def __new__(cls, code: str, sentence: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member


class StepName(_CodeWithSentence):
    """A comparison that a verification makes, with its sentence."""

    QUESTION = ("question", "the proof is about the requested round and client")
    CONTRACT = ("contract", "the proof is about the trusted contract and chain")
    DEPLOYMENT = ("deployment", "the contract was deployed with this configuration")
    CODE = ("code", "the contract has the ledger's code")
    CONFIGURATION = ("configuration", "the configuration belongs to the run")
    HEAD = ("head", "the trusted head commits to the round")
    DECISION = ("decision", "the head commits to this decision")
    SEED = ("seed", "the seed belongs to the round")
    COMMITTEE = ("committee", "this committee was elected or drawn")
    BANS = ("bans", "exactly these clients were banned before the round")
    SAMPLING = ("sampling", "the seed samples every ranked client")
    COMMITMENTS = ("commitments", "the contract accepted these commitments")
    COMMITMENT = ("commitment", "the client committed to this update")
    AUTHOR = ("author", "the client signed the commitment, for this contract and chain")
    RECORD = ("record", "the committee voted for this record")
    BASE = ("base", "the record belongs to this round, and to commitments on the chain")
    CLOSING = ("closing", "the record covers the commitments up to the closing block")
    DROPOUT = ("dropout", "the reason for the dropout fits the commitments")
    REVEAL = ("reveal", "the record's updates were ranked")
    UPDATES_ROOT = (
        "updates root",
        "the updates root covers client, update, rank, distance and acceptance",
    )
    SCORES_ROOT = ("scores root", "the scores root covers the counted score vectors")
    OUTCOME_PLACE = ("outcome place", "the chain holds the end of the round at this place")
    COMMITMENT_PLACE = ("commitment place", "the chain holds the commitment at this place")
    STATEMENT = ("statement", "the proof's content leads to its claim")
    EARLIER_RESULT = ("earlier result", "the committee voted for the previous model")
    OPENED_BLOCK = ("opened block", "the round opened in this block")
    EVENT_PLACES = ("event places", "the chain holds exactly these events, at these places")
    REPLAYED_HEAD = ("replayed head", "the round's transactions lead to the path's head")
    PARTS = ("parts", "the bundle contains no needless part")


class Caveat(_CodeWithSentence):
    """Something that is not proven, however well the comparisons end, with its sentence."""

    def as_dict(self) -> dict[str, str]:
        return {"caveat": str(self), "sentence": self.sentence}

    NOTHING_TRUSTED = (
        "nothing trusted",
        "no head and no contract is trusted, so nothing is proven",
    )
    CONTRACT_UNPROVEN = (
        "contract unproven",
        "a head alone does not prove its contract and chain",
    )
    PLACES_UNPROVEN = (
        "places unproven",
        "a head alone does not prove its blocks and transactions",
    )
    CLOSING_CERTIFIED = (
        "closing certified",
        "a head alone does not prove the blocks of commitments; the committee certified that "
        "those up to the closing block count",
    )
    NOT_FINAL = ("not final", "the chain may still revert the blocks that this depends on")
    DISTANCES_CERTIFIED = (
        "distances certified",
        "the committee certified the distance; only an audit or a round bundle can verify it",
    )
    MODEL_CERTIFIED = (
        "model certified",
        "the committee certified the model; only an audit or a round bundle can verify that it "
        "contains the update with this weight",
    )
    ABSENCE_CERTIFIED = (
        "absence certified",
        "the committee certified that the payload was missing; this cannot be proven",
    )
    MALFORMED_CERTIFIED = (
        "malformed certified",
        "the committee certified that the payload is not an update; only the payload proves it",
    )
    SILENCE_UNPROVEN = (
        "silence unproven",
        "the record has no scores of this member; that it sent none cannot be proven",
    )
    RECORD_LACKING = (
        "record lacking",
        "the proof lacks the round's record, so facts that only the record holds are unknown",
    )
    AUTHOR_LACKING = (
        "author lacking",
        "the proof lacks the client's signature of its commitment",
    )


Value: TypeAlias = "str | int | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """One comparison; `is_ok` is None where the expected value is unknown."""

    name: StepName
    expected: Value
    computed: Value
    is_ok: bool | None

    @property
    def outcome(self) -> StepOutcome:
        if self.is_ok is None:
            return StepOutcome.NOT_CHECKABLE
        return StepOutcome.PASSED if self.is_ok else StepOutcome.FAILED

    def lines(self) -> list[str]:
        values = f"    expected {_text(self.expected)}", f"    computed {_text(self.computed)}"
        return [f"{_MARKS[self.outcome]}  {self.name}: {self.name.sentence}", *values]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": str(self.name),
            "expected": self.expected,
            "computed": self.computed,
            "ok": self.is_ok,
            "sentence": self.name.sentence,
        }


_MARKS = {StepOutcome.PASSED: "ok", StepOutcome.FAILED: "NO", StepOutcome.NOT_CHECKABLE: "? "}


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value)) or "(none)"
    return "(not known here)" if value is None else str(value) or "(nothing)"


def compare(
    name: StepName, expected: Value, computed: Value, *, is_final: bool = True
) -> VerificationStep:
    """Return a comparison; a value that the chain may still revert contradicts nothing."""
    is_different = False if is_final else None
    return VerificationStep(name, expected, computed, expected == computed or is_different)


def not_comparable(name: StepName, computed: Value = None) -> VerificationStep:
    """Return a comparison whose expected value is unknown."""
    return VerificationStep(name, None, computed, None)


def location_value(place: EventLocation | RecordedEvent | Log | None) -> Value:
    """Return a place on a chain as a step shows it."""
    if place is None:
        return None
    hashes = to_hex(place.block_hash), to_hex(place.transaction_hash)
    return (place.block_number, *hashes, place.log_index)


@dataclass(frozen=True, slots=True)
class TrustedHead:
    """A head of the run that was kept, of the round that is asked for or a later one."""

    head: Digest


Trusted: TypeAlias = TrustedHead | TrustedContract


def final_trust(basis: RoundBasis, trusted: Trusted | None) -> Trusted | None:
    """Return what is trusted, as far as it can contradict: not a chain that lags behind."""
    if not isinstance(trusted, TrustedContract) or trusted.round.end is not None:
        return trusted
    has_ended = basis.path.ended(basis.round) is not None
    return replace(trusted, is_final=trusted.is_final and not has_ended)


def verify_basis(basis: RoundBasis, trusted: Trusted | None) -> Iterator[VerificationStep]:
    """Yield whether the recipient trusts run, heads, seed, committee and bans of the basis."""
    if isinstance(trusted, TrustedContract):
        return _by_contract(basis, trusted)
    return _by_path(basis, None if trusted is None else trusted.head)


def _by_contract(basis: RoundBasis, facts: TrustedContract) -> Iterator[VerificationStep]:
    here, there, is_final = basis.domain, facts.domain, facts.is_final
    yield compare(
        StepName.CONTRACT,
        (there.chain_id, to_hex(facts.genesis_hash), to_hex(there.contract), to_hex(there.salt)),
        (here.chain_id, to_hex(basis.genesis_hash), to_hex(here.contract), to_hex(here.salt)),
    )
    code = compare(StepName.CODE, "", facts.code_doubt)
    yield not_comparable(StepName.CODE, facts.code_unchecked) if facts.code_unchecked else code
    recorded, demanded = facts.deployment, basis.deployment
    yield compare(StepName.CONFIGURATION, to_hex(recorded.config), to_hex(basis.config))
    names = [field.name for field in fields(Deployment)]
    odd = (name for name in names if getattr(recorded, name) != getattr(demanded, name))
    name = next(odd, names[0])
    pair = ((name, text_of(getattr(sizes, name))) for sizes in (recorded, demanded))
    yield compare(StepName.DEPLOYMENT, *pair)
    place, end = basis.path.end_of(basis.round), facts.round.head
    reached = None if place is None else to_hex(basis.path.heads[place + 1])
    yield compare(StepName.HEAD, None if end is None else to_hex(end), reached, is_final=is_final)
    opening = facts.round.opening
    seed = None if opening is None else to_hex(opening.seed)
    yield compare(StepName.SEED, seed, to_hex(basis.seed), is_final=is_final)
    elected = None if opening is None else to_hex(encoding.set_digest(opening.committee))
    committee = to_hex(encoding.set_digest(basis.committee))
    yield compare(StepName.COMMITTEE, elected, committee, is_final=is_final)
    yield compare(StepName.BANS, facts.bans, basis.bans, is_final=is_final)


def _by_path(basis: RoundBasis, head: Digest | None) -> Iterator[VerificationStep]:
    """Yield whether a head that was kept commits to the basis; None for no such head."""
    path, config = basis.path, to_hex(basis.config)
    if head is None:
        yield not_comparable(StepName.HEAD)
        yield not_comparable(StepName.CONFIGURATION, config)
    else:
        # A head from before the round commits to nothing in it. One that is not on the path may be
        # of a later round than the path reaches, or of another run: that cannot be decided here.
        place = path.end_of(basis.round)
        later = path.heads[place + 1 :] if place is not None else path.heads[-1:]
        computed, is_ok = (head, True) if head in later else (path.heads[-1], None)
        yield VerificationStep(StepName.HEAD, to_hex(head), to_hex(computed), is_ok)
        # A path from the middle of a run does not contain where the run began.
        whole = compare(StepName.CONFIGURATION, to_hex(path.start), config)
        yield whole if basis.is_whole else not_comparable(StepName.CONFIGURATION, config)
    link, seed = path.ended(basis.round), to_hex(basis.seed)
    # No head commits to the seed of an open round yet.
    if link is None:
        yield not_comparable(StepName.SEED, seed)
    else:
        yield compare(StepName.SEED, to_hex(link.seed), seed)
    yield _committee_on_path(basis)
    bans = basis.path_to_end.bans()
    linked = tuple(RecordedBan(ban.round, ban.client) for ban in bans if ban.round < basis.round)
    if basis.is_whole or not set(linked) <= set(basis.bans):
        yield compare(StepName.BANS, linked, basis.bans)
    else:
        yield not_comparable(StepName.BANS, basis.bans)


def _committee_on_path(basis: RoundBasis) -> VerificationStep:
    """Return whether the committee is the one that the round before elected, or that was drawn."""
    computed, sizes = to_hex(encoding.set_digest(basis.committee)), basis.deployment
    before = basis.path_to_end.ended(basis.round - 1)
    if before is not None:
        return compare(StepName.COMMITTEE, to_hex(before.committee), computed)
    if basis.round > 1:
        return not_comparable(StepName.COMMITTEE, computed)
    drawn = drawn_committee(basis.seed, sizes.clients, sizes.members, ())
    return compare(StepName.COMMITTEE, to_hex(encoding.set_digest(drawn)), computed)


_SENTENCES: dict[AuditOutcome, str] = {
    AuditOutcome.PASSED: "PROVEN: {}",
    AuditOutcome.FAILED: "CONTRADICTED: the proof's claim does not hold: {}",
    AuditOutcome.INCOMPLETE: "NOT PROVEN: no contradiction was found, but not everything could "
    "be checked: {}",
}


@dataclass(frozen=True, slots=True)
class ProofVerification:
    """The result of checking a proof; the caveats are not proven, whatever the steps show."""

    round: int
    client: ClientId
    statement: ClientStatement
    steps: tuple[VerificationStep, ...]
    caveats: tuple[Caveat, ...]

    @property
    def outcome(self) -> AuditOutcome:
        return outcome_of(self.steps)

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.outcome].format(stated(self.round, self.client, self.statement))

    def as_dict(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "client": self.client,
            "outcome": str(self.outcome),
            "sentence": self.sentence,
            "statement": STATEMENT.write(self.statement),
            "steps": shown(self.steps),
            "caveats": shown(self.caveats),
        }


def verify_proof(
    proof: ClientProof, round_number: int, client: ClientId, trusted: Trusted | None = None
) -> ProofVerification:
    """Return the result of checking a proof; without anything trusted nothing is proven."""
    question, given = (round_number, client), (proof.round, proof.client)
    statement, trusted = derive_statement(proof), final_trust(proof, trusted)
    steps = [compare(StepName.QUESTION, question, given), *verify_basis(proof, trusted)]
    steps += _of_round(proof, trusted)
    steps += _of_update(proof)
    if proof.decision is not None and proof.recorded is not None:
        steps += _of_record(proof, proof.decision, proof.recorded, trusted)
    claimed = proof.statement
    verdicts = str(claimed.verdict), str(statement.verdict)
    steps.append(VerificationStep(StepName.STATEMENT, *verdicts, claimed == statement))
    caveats = tuple(_caveats(proof, statement, trusted))
    return ProofVerification(round_number, client, statement, tuple(steps), caveats)


def _of_round(proof: ClientProof, trusted: Trusted | None) -> Iterator[VerificationStep]:
    """Yield what was decided, the commitments, and where the chain holds them."""
    link, decision = proof.path.ended(proof.round), proof.decision
    commitments = _taken(proof.commitments)
    if link is not None:
        yield _of_decision(proof, link)
    if isinstance(trusted, TrustedContract):
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
    round_, is_final = facts.round, facts.is_final
    taken = _taken(round_.commitments)
    yield compare(StepName.COMMITMENTS, taken, _taken(proof.commitments), is_final=is_final)
    if round_.end is not None or proof.ended_at is not None:
        expected, claimed = location_value(round_.end), location_value(proof.ended_at)
        yield compare(StepName.OUTCOME_PLACE, expected, claimed, is_final=is_final)
    if proof.commitment is not None:
        places = {made.client: place for made, place in round_.committed}
        expected = location_value(places.get(proof.client))
        claimed = location_value(proof.committed_at)
        yield compare(StepName.COMMITMENT_PLACE, expected, claimed, is_final=is_final)


def _of_decision(proof: ClientProof, link: EndLink) -> VerificationStep:
    """Return whether sets, result and votes fit the link; an abandonment has none."""
    computed: tuple[Value, ...] = ()
    expected: tuple[Value, ...] = ()
    decision = proof.decision
    if isinstance(link, DecisionLink):
        expected = tuple(map(to_hex, (link.accepted, link.committee, link.result, link.votes)))
    if decision is not None:
        sets = map(encoding.set_digest, proof.sets)
        votes = encoding.votes_digest(decision.views, decision.signers, decision.incidents)
        computed = tuple(map(to_hex, (*sets, decision.result(), votes)))
    return compare(StepName.DECISION, expected, computed)


def _of_update(proof: ClientProof) -> Iterator[VerificationStep]:
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
            root = encoding.root_from_proof(encoding.UPDATE_LEAF, leaf, proof.siblings)
            yield compare(StepName.UPDATES_ROOT, to_hex(proof.decision.updates_root), to_hex(root))


def _of_record(
    proof: ClientProof, decision: CommittedDecision, record: RoundRecord, trusted: Trusted | None
) -> Iterator[VerificationStep]:
    """Yield whether the record is the one that was voted for, and fits the chain."""
    data = proof.record or b""
    yield compare(StepName.RECORD, to_hex(decision.record), to_hex(encoding.sha256(data)))
    counted, recorded = _counted(proof, record.base), to_hex(record.base)
    base = None if counted is None else recorded
    yield compare(StepName.BASE, (record.round, recorded), (proof.round, base))
    payloads = record.payloads()
    ranked = [word_client(word) for word in decision.ranking]
    is_whole = payloads.keys() >= set(ranked)
    reveal = to_hex(encoding.reveal_of(payloads, ranked)) if is_whole else None
    yield compare(StepName.REVEAL, to_hex(decision.reveal), reveal)
    root = encoding.merkle_root(encoding.SCORES_LEAF, score_leaves(record))
    yield compare(StepName.SCORES_ROOT, to_hex(decision.scores_root), to_hex(root))
    dropouts = {dropout.client: dropout.reason for dropout in record.dropouts}
    if counted is not None and proof.client in dropouts:
        has_committed = dropouts[proof.client] is not DropoutReason.NO_COMMITMENT
        yield compare(StepName.DROPOUT, int(proof.client in counted), int(has_committed))
    if isinstance(trusted, TrustedContract) and trusted.round.opening is not None:
        # The chain's blocks determine which commitments count.
        mined = [MinedCommitment(at.block_number, *made) for made, at in trusted.round.committed]
        end = window_end(proof.deployment, trusted.round.opening.opened_block)
        closing = round_closing(end, proof.participants.expected, end, mined)
        true = None if closing is None else to_hex(closing.base)
        yield compare(StepName.CLOSING, true, recorded, is_final=trusted.is_final)


def _counted(proof: ClientProof, base: Digest) -> frozenset[ClientId] | None:
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
    pairs = ((entry.client, entry.commitment) for entry in promises)
    return to_hex(encoding.commitments_chain(pairs))


def caveats_of_trust(trusted: Trusted | None, *of_head: Caveat) -> tuple[Caveat, ...]:
    """Return what the kind of trust leaves unproven; `of_head` is what a head alone does."""
    match trusted:
        case None:
            return (Caveat.NOTHING_TRUSTED,)
        case TrustedContract(is_final=is_final):
            return () if is_final else (Caveat.NOT_FINAL,)
        case TrustedHead():
            return of_head


def _caveats(
    proof: ClientProof, statement: ClientStatement, trusted: Trusted | None
) -> Iterator[Caveat]:
    of_head = {
        Caveat.CONTRACT_UNPROVEN: proof.signature is None,
        Caveat.PLACES_UNPROVEN: proof.committed_at is not None or proof.ended_at is not None,
        Caveat.CLOSING_CERTIFIED: proof.record is not None,
    }
    yield from caveats_of_trust(trusted, *(caveat for caveat, holds in of_head.items() if holds))
    is_active = statement.role in {ProvenRole.TRAINER, ProvenRole.MEMBER}
    lacks_record = proof.record is None and proof.siblings is None
    of_statement = {
        Caveat.AUTHOR_LACKING: proof.commitment is not None and proof.signature is None,
        Caveat.DISTANCES_CERTIFIED: statement.rank is not None,
        Caveat.MODEL_CERTIFIED: statement.verdict is ClientVerdict.USED,
        Caveat.ABSENCE_CERTIFIED: statement.dropout is DropoutReason.PAYLOAD_MISSING,
        Caveat.MALFORMED_CERTIFIED: statement.dropout is DropoutReason.PAYLOAD_MALFORMED,
        Caveat.SILENCE_UNPROVEN: statement.scores is ScoresTaken.NONE and not statement.dropout,
        Caveat.RECORD_LACKING: is_active and proof.decision is not None and lacks_record,
    }
    yield from (caveat for caveat, holds in of_statement.items() if holds)
