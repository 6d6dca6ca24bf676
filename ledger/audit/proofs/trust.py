"""The trust of a verifier in a head or a contract, and comparisons of a proof with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self, TypeAlias

from ledger.audit.proofs.proof import EventLocation, RecordedBan, RecordedCommitment, RoundBasis
from ledger.audit.report import AuditOutcome
from ledger.chain.contract.deploy import code_violation
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Log, UncheckableCreationError
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol import encoding
from ledger.protocol.encoding import to_hex
from ledger.protocol.fold import RoundStart
from ledger.protocol.inputs import drawn_committee
from ledger.protocol.ledger_state import Deployment, RoundAbandoned, RoundDecided, UpdatesCommitted
from ledger.protocol.types import ClientId, Digest, Domain


class _CodeWithSentence(StrEnum):
    """Codes that carry their sentence."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Self:
        """Take the code for the value."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member


class StepName(_CodeWithSentence):
    """A comparison that a verification makes, with its sentence."""

    QUESTION = ("question", "the proof is of the round and the client that were asked for")
    CONTRACT = ("contract", "it is of the contract and the chain that are trusted")
    DEPLOYMENT = ("deployment", "the contract was deployed as the configuration demands")
    CODE = ("code", "the contract has the ledger's code")
    CONFIGURATION = ("configuration", "the configuration is the run's")
    HEAD = ("head", "the head that is trusted commits to the round")
    DECISION = ("decision", "what was decided is what the head commits to")
    SEED = ("seed", "the seed is the round's")
    COMMITTEE = ("committee", "the committee is the one that was elected or drawn")
    BANS = ("bans", "the bans from before the round are these, and no others")
    SAMPLING = ("sampling", "nobody is ranked whom the seed does not sample")
    COMMITMENTS = ("commitments", "the commitments are those that the contract took")
    COMMITMENT = ("commitment", "the update is the one that the client committed to")
    AUTHOR = ("author", "the commitment is signed by the client, for this contract and chain")
    RECORD = ("record", "the record is the one that was voted for")
    BASE = ("base", "the record is of this round, and of commitments that the contract took")
    CLOSING = ("closing", "the record is of the commitments up to the closing block")
    DROPOUT = ("dropout", "the reason for the drop-out fits the commitments")
    REVEAL = ("reveal", "the record's updates are those that were ranked")
    UPDATES_ROOT = (
        "updates root",
        "client, update, rank, distance and acceptance are in the updates root",
    )
    SCORES_ROOT = ("scores root", "the counted score vectors are those of the scores root")
    OUTCOME_PLACE = ("outcome place", "the chain holds the end of the round where the proof says")
    COMMITMENT_PLACE = ("commitment place", "the chain holds the commitment where the proof says")
    STATEMENT = ("statement", "what the proof claims is what follows from it")
    EARLIER_RESULT = ("earlier result", "the model that came before is the one that was voted for")
    OPENED_BLOCK = ("opened block", "the round opened in the block that the bundle says")
    EVENT_PLACES = (
        "event places",
        "the chain holds every event where the bundle says, and no others",
    )
    REPLAYED_HEAD = ("replayed head", "the round's transactions lead to the head that the path has")
    PARTS = ("parts", "nothing is in the bundle that nobody asked for")


class Caveat(_CodeWithSentence):
    """Something that is not proven, however well the comparisons end, with its sentence."""

    def as_dict(self) -> dict[str, str]:
        """Return it as plain data for JSON."""
        return {"caveat": str(self), "sentence": self.sentence}

    NOTHING_TRUSTED = (
        "nothing trusted",
        "neither a head nor a contract is trusted, so that nothing is proven",
    )
    CONTRACT_UNPROVEN = (
        "contract unproven",
        "a head alone does not say of which contract and chain it is",
    )
    PLACES_UNPROVEN = (
        "places unproven",
        "a head alone does not say in which blocks and transactions it was",
    )
    CLOSING_CERTIFIED = (
        "closing certified",
        "a head alone does not say in which blocks commitments were taken; that those up to "
        "the closing block count is what the committee certified",
    )
    NOT_FINAL = ("not final", "the chain may still take back what this rests on")
    DISTANCES_CERTIFIED = (
        "distances certified",
        "the committee certified the distance; whether it is the true one is for an audit or "
        "a round bundle",
    )
    MODEL_CERTIFIED = (
        "model certified",
        "the committee certified the model; whether it holds the update with this weight is "
        "for an audit or a round bundle",
    )
    ABSENCE_CERTIFIED = (
        "absence certified",
        "that the payload was missing is what the committee certified; nobody can prove it",
    )
    MALFORMED_CERTIFIED = (
        "malformed certified",
        "that the payload is no update is what the committee certified; the payload itself "
        "would prove it",
    )
    SILENCE_UNPROVEN = (
        "silence unproven",
        "the record has no scores of this member; that it sent none nobody can prove",
    )
    RECORD_LACKING = (
        "record lacking",
        "the round's record is not in the proof, so that what only it says is not known",
    )
    AUTHOR_LACKING = (
        "author lacking",
        "the client's signature of its commitment is not in the proof",
    )


Value: TypeAlias = "str | int | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """One comparison.

    Attributes:
        expected: the value that it must have.
        is_ok: whether they agree; None where that is unknown.
    """

    name: StepName
    expected: Value
    computed: Value
    is_ok: bool | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "name": str(self.name),
            "expected": self.expected,
            "computed": self.computed,
            "ok": self.is_ok,
            "sentence": self.name.sentence,
        }


def outcome_of(steps: Iterable[VerificationStep]) -> AuditOutcome:
    """Return the outcome of steps: passed, failed, or incomplete where one could not be taken."""
    results = {step.is_ok for step in steps}
    if False in results:
        return AuditOutcome.FAILED
    return AuditOutcome.INCOMPLETE if None in results else AuditOutcome.PASSED


def compare(name: StepName, expected: Value, computed: Value) -> VerificationStep:
    """Return a comparison that can be made."""
    return VerificationStep(name, expected, computed, expected == computed)


def not_comparable(name: StepName, computed: Value = None) -> VerificationStep:
    """Return a comparison for which nothing is here that could be expected."""
    return VerificationStep(name, None, computed, None)


def location_value(place: EventLocation | None) -> Value:
    """Return a place on a chain as a step shows it."""
    if place is None:
        return None
    hashes = to_hex(place.block_hash), to_hex(place.transaction_hash)
    return (place.block_number, *hashes, place.log_index)


@dataclass(frozen=True, slots=True)
class TrustedHead:
    """A head of the run that was kept, of the round that is asked for or a later one."""

    head: Digest


@dataclass(frozen=True, slots=True)
class TrustedContract:
    """A round as a contract on a trusted chain reports it.

    Attributes:
        code_doubt: why code or creation there are not the ledger's; empty if they are.
        code_unchecked: why the creation is not checkable; empty if it is.
        opening: how the round began; None if it has not.
        bans: those recorded before it opened, in the chain's order.
        commitments: those taken in it, in the chain's order.
        places: where the chain holds each event of the round up to its end, in the chain's order.
        ended: head after decision or abandonment; None while the round is open.
        ended_at: where the chain holds it; None while the round is open.
        is_final: whether nothing of all this can be taken back.
    """

    domain: Domain
    genesis_hash: bytes
    deployment: Deployment
    code_doubt: str
    code_unchecked: str
    opening: RoundStart | None
    bans: tuple[RecordedBan, ...]
    commitments: tuple[RecordedCommitment, ...]
    commitment_places: dict[ClientId, EventLocation]
    places: tuple[EventLocation, ...]
    ended: Digest | None
    ended_at: EventLocation | None
    is_final: bool


Trusted: TypeAlias = TrustedHead | TrustedContract


def read_trusted_contract(ledger: CommitteeLedger, round_number: int) -> TrustedContract:
    """Return what a contract says of a round."""
    chain = ledger.chain
    domain = ledger.domain()
    deployment, final = ledger.deployment(), chain.finalized()
    recorded = ledger.round_events(round_number)
    ended = end_of(recorded)
    opening = ledger.opening(round_number)
    newest = chain.head().number if ended is None else ended.block_number
    commitments, places = commitments_of(recorded)
    doubt, unchecked = "", ""
    try:
        doubt = code_violation(ledger, deployment, domain) or ""
    except UncheckableCreationError as error:
        unchecked = str(error)
    return TrustedContract(
        domain=domain,
        genesis_hash=chain.genesis_hash,
        deployment=deployment,
        code_doubt=doubt,
        code_unchecked=unchecked,
        opening=opening,
        bans=bans_before(ledger, round_number),
        commitments=commitments,
        commitment_places=places,
        places=tuple(map(location_of, until_end(recorded))),
        ended=None if ended is None else _head_of(ended),
        ended_at=None if ended is None else location_of(ended),
        is_final=newest <= final,
    )


def bans_before(ledger: CommitteeLedger, round_number: int) -> tuple[RecordedBan, ...]:
    """Return the bans that were recorded before a round opened, in the chain's order."""
    bans = (RecordedBan(event.round, event.client) for event in ledger.bans())
    return tuple(ban for ban in bans if ban.round < round_number)


def location_of(recorded: RecordedEvent) -> EventLocation:
    """Return where a chain holds an event."""
    where = recorded.block_number, recorded.block_hash, recorded.transaction_hash
    return EventLocation(*where, recorded.log_index)


def log_location(log: Log) -> EventLocation:
    """Return where a chain holds a log."""
    return EventLocation(log.block_number, log.block_hash, log.transaction_hash, log.log_index)


def end_of(recorded: Iterable[RecordedEvent]) -> RecordedEvent | None:
    """Return the event that ends a round, None while it is open."""
    ends = (entry for entry in recorded if isinstance(entry.event, RoundDecided | RoundAbandoned))
    return next(ends, None)


def until_end(recorded: list[RecordedEvent]) -> list[RecordedEvent]:
    """Return a round's events up to decision or abandonment, all while it is open."""
    ended = end_of(recorded)
    return recorded if ended is None else recorded[: recorded.index(ended) + 1]


def _head_of(recorded: RecordedEvent) -> Digest | None:
    event = recorded.event
    return event.head if isinstance(event, RoundDecided | RoundAbandoned) else None


def commitments_of(
    recorded: Iterable[RecordedEvent],
) -> tuple[tuple[RecordedCommitment, ...], dict[ClientId, EventLocation]]:
    """Return a round's commitments, and where the chain holds them."""
    commitments: list[RecordedCommitment] = []
    places: dict[ClientId, EventLocation] = {}
    for entry in recorded:
        if isinstance(entry.event, UpdatesCommitted):
            pairs = zip(entry.event.clients, entry.event.commitments, strict=True)
            commitments += [RecordedCommitment(*pair) for pair in pairs]
            places |= dict.fromkeys(entry.event.clients, location_of(entry))
    return tuple(commitments), places


def compare_with_chain(
    name: StepName, expected: Value, computed: Value, facts: TrustedContract
) -> VerificationStep:
    """Return a comparison with a chain: what may be taken back contradicts nothing yet."""
    is_ok = True if expected == computed else (False if facts.is_final else None)
    return VerificationStep(name, expected, computed, is_ok)


def final_trust(basis: RoundBasis, trusted: Trusted | None) -> Trusted | None:
    """Return what is trusted, as far as it can contradict: not a chain that lags behind."""
    if not isinstance(trusted, TrustedContract) or trusted.ended is not None:
        return trusted
    has_ended = basis.path.ended(basis.round) is not None
    return replace(trusted, is_final=trusted.is_final and not has_ended)


def verify_basis(basis: RoundBasis, trusted: Trusted | None) -> Iterator[VerificationStep]:
    """Yield whether run, heads, seed, committee and bans are those that one trusts.

    Args:
        trusted: what the caller takes for true; None for nothing.
    """
    match trusted:
        case TrustedContract():
            yield from _of_contract(basis, trusted)
            yield _of_end(basis, trusted)
            seed = None if trusted.opening is None else to_hex(trusted.opening.seed)
            yield compare_with_chain(StepName.SEED, seed, to_hex(basis.seed), trusted)
        case TrustedHead(head):
            yield from _of_head(basis, head)
            yield _of_seed(basis)
        case None:
            yield not_comparable(StepName.HEAD)
            yield not_comparable(StepName.CONFIGURATION, to_hex(basis.config))
            yield _of_seed(basis)
    yield _of_committee(basis, trusted)
    yield _of_bans(basis, trusted)


def _of_head(basis: RoundBasis, head: Digest) -> Iterator[VerificationStep]:
    """Yield whether a head that was kept commits to the round, and to the configuration."""
    heads, place = basis.path.heads, basis.path.end_of(basis.round)
    # A head from before the round commits to nothing in it; one that is not on the way may be of
    # a later round than the path reaches, or of another run, and nobody can tell which.
    later = heads[place + 1 :] if place is not None else heads[-1:]
    computed, is_ok = (head, True) if head in later else (heads[-1], None)
    yield VerificationStep(StepName.HEAD, to_hex(head), to_hex(computed), is_ok)
    start, config = to_hex(basis.path.start), to_hex(basis.config)
    # A path from the middle of a run does not say where the run began.
    whole = compare(StepName.CONFIGURATION, start, config)
    yield whole if basis.is_whole else not_comparable(StepName.CONFIGURATION, config)


def _of_contract(basis: RoundBasis, facts: TrustedContract) -> Iterator[VerificationStep]:
    """Yield whether it is the contract that is trusted, deployed as the configuration demands."""
    here, there = basis.domain, facts.domain
    yield compare(
        StepName.CONTRACT,
        (there.chain_id, to_hex(facts.genesis_hash), to_hex(there.contract), to_hex(there.salt)),
        (here.chain_id, to_hex(basis.genesis_hash), to_hex(here.contract), to_hex(here.salt)),
    )
    code = compare(StepName.CODE, "", facts.code_doubt)
    yield not_comparable(StepName.CODE, facts.code_unchecked) if facts.code_unchecked else code
    recorded, demanded = facts.deployment, basis.deployment
    yield compare(StepName.CONFIGURATION, to_hex(recorded.config), to_hex(basis.config))
    pairs = [
        ((field.name, _field(recorded, field.name)), (field.name, _field(demanded, field.name)))
        for field in fields(Deployment)
    ]
    first = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    yield compare(StepName.DEPLOYMENT, *first)


def _of_end(basis: RoundBasis, facts: TrustedContract) -> VerificationStep:
    place = basis.path.end_of(basis.round)
    computed = None if place is None else to_hex(basis.path.heads[place + 1])
    expected = None if facts.ended is None else to_hex(facts.ended)
    return compare_with_chain(StepName.HEAD, expected, computed, facts)


def _of_seed(basis: RoundBasis) -> VerificationStep:
    """Return whether the seed is the link's; no head commits to that of an open round yet."""
    link = basis.path.ended(basis.round)
    if link is None:
        return not_comparable(StepName.SEED, to_hex(basis.seed))
    return compare(StepName.SEED, to_hex(link.seed), to_hex(basis.seed))


def _of_committee(basis: RoundBasis, trusted: Trusted | None) -> VerificationStep:
    """Return whether the committee is the one that the round before elected, or that was drawn."""
    computed = to_hex(encoding.set_digest(basis.committee))
    if isinstance(trusted, TrustedContract):
        opening = trusted.opening
        elected = None if opening is None else to_hex(encoding.set_digest(opening.committee))
        return compare_with_chain(StepName.COMMITTEE, elected, computed, trusted)
    before = basis.path_to_end.ended(basis.round - 1)
    if before is not None:
        return compare(StepName.COMMITTEE, to_hex(before.committee), computed)
    if basis.round > 1:
        return not_comparable(StepName.COMMITTEE, computed)
    sizes = basis.deployment
    drawn = drawn_committee(basis.seed, sizes.clients, sizes.members, ())
    return compare(StepName.COMMITTEE, to_hex(encoding.set_digest(drawn)), computed)


def _of_bans(basis: RoundBasis, trusted: Trusted | None) -> VerificationStep:
    """Return whether no ban was added, and none is hidden, from before the round opened."""
    computed = tuple((ban.round, ban.client) for ban in basis.bans)
    if isinstance(trusted, TrustedContract):
        recorded = tuple((ban.round, ban.client) for ban in trusted.bans)
        return compare_with_chain(StepName.BANS, recorded, computed, trusted)
    links = basis.path_to_end.bans()
    linked = tuple((link.round, link.client) for link in links if link.round < basis.round)
    if basis.is_whole or not set(linked) <= set(computed):
        return compare(StepName.BANS, linked, computed)
    return not_comparable(StepName.BANS, computed)


def _field(deployment: Deployment, name: str) -> Value:
    value = getattr(deployment, name)
    return to_hex(value) if isinstance(value, bytes) else str(value)
