"""A small run whose keys are all known, so that any committee can be made to collude.

Fourteen clients, five members, seven trainers, eight parameters; nothing is trained, every update
is drawn by its round and client. What an honest committee does is computed by what members call;
a `Deviation` says where a round departs from it, and everybody signs whatever comes of that. Keys
are derived: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, Contradiction
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import deploy
from ledger.chain.contract.ledger import LedgerWriter, Manifest
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import RunPaths
from ledger.protocol.documents.record import (
    Incident,
    Incidents,
    RoundRecord,
    ScoreVector,
    decode_vector,
    encode_incidents,
    encode_record,
    encode_vector,
)
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import (
    RegisteredClient,
    commitment_of,
    set_digest,
    sha256,
    vector_bytes,
)
from ledger.protocol.inputs import (
    Evidence,
    Inputs,
    Participants,
    participants_of,
    round_closing,
    window_end,
)
from ledger.protocol.judgement import (
    Judgement,
    compose_record,
    counted_vectors,
    next_model,
    rank_trainers,
    result_preimage,
    usable_clients,
)
from ledger.protocol.ledger_state import (
    QuorumCertificate,
    RoundDecided,
    StatementKind,
    SubmittedDecision,
    registry_with_bans,
    submitted_certificate,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.direction import window_start
from ledger.protocol.types import (
    NO_DIGEST,
    Beacon,
    ClientId,
    Digest,
    Phase,
    SignedCommitment,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.storage.blobs import BlobReader, MemoryBlobs
from tests.audit.revm_history import RevmHistory
from tests.support.keys import key_signers, registered
from tests.support.rounds import OpenRound, scores_by

T = TypeVar("T")
Payloads = dict[ClientId, bytes]
Vectors = dict[ClientId, "ScoreVector"]
DIMENSION = 8
CLIENTS = 14
PARAMETERS = Parameters(
    clients=CLIENTS,
    active_ppm=857_143,
    committee_ppm=400_000,
    aggregation_ppm=400_000,
    rounds=5,
    dimension=DIMENSION,
    commit_blocks=3,
    deadline_blocks=7,
)
LAYOUT = (("weight", (2, 3)), ("bias", (2,)))
SIGNERS = key_signers(CLIENTS, "player")
INITIAL = np.linspace(-1, 1, DIMENSION, dtype=np.float32)


def _clock() -> float:
    return 1_700_000_000.0


def same(value: T, _run: Run) -> T:
    return value


@dataclass
class Deviation:
    """Where a round departs from the protocol; by default nowhere.

    Attributes:
        payloads: what each active client has made; who is missing commits nothing.
        record_blob: the bytes of the record that is bound and published.
        views: in which views it is decided; None for the first whose primary's seat is not empty.
        incidents_blob: the bytes of that document.
    """

    participants: Callable[[Participants, Run], Participants] = same
    payloads: Callable[[Payloads, Run], Payloads] = same
    words: Callable[[dict[ClientId, Digest], Run], dict[ClientId, Digest]] = same
    withheld: Callable[[Run], tuple[ClientId, ...]] = lambda _run: ()
    strays: tuple[ClientId, ...] = ()
    vectors: Callable[[Vectors, Run], Vectors] = same
    claims: Callable[[list[SignedScores], Run], list[SignedScores]] = same
    record: Callable[[RoundRecord, Run], RoundRecord] = same
    record_blob: Callable[[bytes, Run], bytes] = same
    judgement: Callable[[Judgement, Run], Judgement] = same
    base: Callable[[Digest, Run], Digest] = same
    views: tuple[int, int] | None = None
    incidents: Callable[[Judgement, Run], tuple[Incident, ...]] = lambda _judgement, _run: ()
    incidents_blob: Callable[[bytes, Run], bytes] = same


HONEST = Deviation()


@dataclass
class OpenRun:
    """A run, what its open round has come to so far, and what its clients sign."""

    chain: EmbeddedChain
    blobs: MemoryBlobs
    document: RunDocument
    manifest: Manifest
    ledger: LedgerWriter
    model: NDArray[np.float32]
    round: int = 0
    seed: Digest = NO_DIGEST
    participants: Participants = field(default=Participants((), (), frozenset()))
    inputs: Inputs = field(init=False)
    evidence: Evidence = field(init=False)
    judged: Judgement = field(init=False)
    began: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    @classmethod
    def opened(
        cls,
        folder: Path,
        parameters: Parameters = PARAMETERS,
        initial: bytes = vector_bytes(INITIAL),
        chain: EmbeddedChain | None = None,
    ) -> Self:
        """Deploy a run on an embedded chain in the folder, or on another one."""
        if chain is None:
            path = folder / "chain.sqlite"
            chain = EmbeddedChain.create(path, synchronous="NORMAL", clock=_clock)
        blobs = MemoryBlobs()
        document = document_of(parameters, blobs.put(initial))
        blobs.put(encode_run(document))
        manifest = deploy(chain, document, RunPaths(folder))
        ledger = LedgerWriter(chain, manifest.address, manifest.block)
        run = cls(chain, blobs, document, manifest, ledger, INITIAL)
        run.take_up()
        return run

    @classmethod
    def on_revm(
        cls,
        folder: Path,
        parameters: Parameters = PARAMETERS,
        initial: bytes = vector_bytes(INITIAL),
    ) -> Self:
        """Deploy a run where a block costs a tenth, for an audit that has no file to check."""
        chain = RevmHistory(is_beacon=parameters.beacon is Beacon.BLOCK)
        return cls.opened(folder, parameters, initial, cast("EmbeddedChain", chain))

    def branched(self) -> Self:
        """Return this run, which is on revm, as it goes on by itself."""
        chain, blobs = cast("RevmHistory", self.chain).copied(), MemoryBlobs()
        for digest in self.blobs.digests():
            blobs.put(self.blobs.get(digest))
        ledger = LedgerWriter(chain, self.manifest.address, self.manifest.block)
        return replace(
            self,
            chain=cast("EmbeddedChain", chain),
            blobs=blobs,
            ledger=ledger,
            began=dict(self.began),
        )

    @property
    def parameters(self) -> Parameters:
        return self.document.parameters

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        return self.participants.trainers

    @property
    def committee(self) -> tuple[ClientId, ...]:
        return self.participants.committee

    @property
    def registry(self) -> tuple[RegisteredClient, ...]:
        return registry_with_bans(self.document.registry, self.ledger.bans())

    @property
    def bystanders(self) -> tuple[ClientId, ...]:
        """Clients that have no part in the round."""
        everybody = set(map(ClientId, range(CLIENTS)))
        return tuple(sorted(everybody.difference(self.participants.active)))

    def take_up(self) -> None:
        self.round = self.ledger.state().round
        self.began[self.round] = self.model
        opening = self.ledger.opening(self.round)
        if opening is not None:
            self.seed = opening.seed
            self.participants = participants_of(
                self.parameters, self.registry, self.round, opening.seed, opening.committee
            )

    def travel(self) -> NDArray[np.float32] | None:
        """Return the way of the model to the open round, None where the rules have none."""
        if not self.parameters.compares_directions:
            return None
        return self.began[window_start(self.round)] - self.model

    def update(self, client: ClientId) -> NDArray[np.float32]:
        rng = np.random.default_rng([self.round, client])
        return (rng.normal(size=DIMENSION) + 1).astype(np.float32)

    def payload(self, client: ClientId) -> bytes:
        return vector_bytes(self.update(client))

    @property
    def open_round(self) -> OpenRound:
        return OpenRound(
            domain=self.manifest.domain(),
            keys=SIGNERS,
            round=self.round,
            seed=self.seed,
            committee=self.committee,
            replies=self.parameters.replies,
            banned=self.participants.banned,
        )

    def vote(
        self, kind: VoteKind, phase: Phase, view: int, member: ClientId, what: tuple[Digest, ...]
    ) -> SignedVote:
        return self.open_round.vote(Vote(kind, self.round, phase, view, *what), member)

    def primary(self, phase: Phase, view: int) -> ClientId:
        return self.open_round.primary(phase, view)

    def commitment(self, client: ClientId, word: Digest) -> SignedCommitment:
        return self.open_round.commitment(client, word)

    def commit(self, words: dict[ClientId, Digest]) -> None:
        signed = [self.commitment(client, word) for client, word in words.items()]
        self.ledger.commit_updates(self.round, signed)

    def word(self, client: ClientId) -> Digest:
        return commitment_of(client, sha256(self.payload(client)))

    def claim(self, vector: ScoreVector | bytes, member: ClientId) -> SignedScores:
        """Return a member's claim of a vector for the usable updates of the record to be."""
        data = vector if isinstance(vector, bytes) else encode_vector(vector)
        clients = set_digest(usable_clients(self.inputs, self.evidence))
        base = self.inputs.closing.base
        return self.open_round.scores(member, base, clients, self.blobs.put(data))

    def scored(self, signed: SignedScores) -> ScoreVector:
        return decode_vector(self.blobs.get(signed.scores.digest))

    def outcome(self, round_number: int = 1) -> RoundDecided:
        """Return the decision of a round."""
        for recorded in self.ledger.round_events(round_number):
            if isinstance(recorded.event, RoundDecided):
                return recorded.event
        raise AssertionError(round_number)

    def published(self, record: RoundRecord) -> Digest:
        return self.blobs.put(encode_record(record))

    def incidents_of(self, base: Digest) -> bytes:
        return encode_incidents(Incidents(self.round, base, ()))

    def ban(self, client: ClientId, phase: int = 2) -> None:
        """Let a client sign two votes, or two score vectors (phase 0), and report it."""
        if phase:
            report = self.open_round.equivocation(client, phase=phase)
        else:
            report = self.open_round.equivocation(client, StatementKind.SCORES)
        self.ledger.report_equivocation(report)


class Run(OpenRun):
    """A run that is played, round by round."""

    def play(self, deviation: Deviation = HONEST) -> Self:
        self.conclude(self.prepare(deviation), deviation)
        return self

    def audited(self, blobs: BlobReader | None = None) -> AuditReport:
        return audit(self.ledger, blobs or self.blobs)

    def passed(self) -> AuditReport:
        """Return the report of an audit that must pass."""
        report = self.audited()
        assert report.outcome is AuditOutcome.PASSED, readable(report)
        return report

    def prepare(self, deviation: Deviation = HONEST) -> RoundRecord:
        """Play the open round up to its record."""
        self.participants = deviation.participants(self.participants, self)
        expected = sorted(self.participants.expected)
        payloads = deviation.payloads({c: self.payload(c) for c in expected}, self)
        words = {c: commitment_of(c, sha256(data)) for c, data in payloads.items()}
        strays = {client: self.word(client) for client in deviation.strays}
        self.commit(deviation.words(words, self) | strays)
        held = {c: p for c, p in payloads.items() if c not in deviation.withheld(self)}
        for payload in held.values():
            self.blobs.put(payload)
        self.inputs = self.closed()
        published = {client: Payload.of(data) for client, data in held.items()}
        self.evidence = Evidence(self.model, published, {}, displacement=self.travel())
        clients = usable_clients(self.inputs, self.evidence)
        found = {
            member: scores_by(self.inputs, self.evidence, clients, member)
            for member in sorted(self.participants.members)
        }
        vectors = deviation.vectors({m: v for m, v in found.items() if v is not None}, self)
        claims = deviation.claims([self.claim(v, m) for m, v in vectors.items()], self)
        known = {s.scores.digest: self.blobs.get(s.scores.digest) for s in claims}
        self.evidence = self.evidence.with_vectors(known)
        record = compose_record(self.inputs, self.evidence, claims)
        return deviation.record(record, self)

    def closed(self) -> Inputs:
        """Let blocks pass until the round's inputs are closed."""
        state = self.ledger.state()
        end = window_end(self.parameters, state.opened_block)
        where = (end, self.participants.expected)
        mined = self.ledger.commitments(self.round)
        if round_closing(*where, self.chain.head().number, mined) is None:
            self.chain.mine(max(0, end - self.chain.head().number))
        closing = round_closing(*where, self.chain.head().number, mined)
        assert closing is not None
        return Inputs(
            self.parameters,
            self.manifest.domain(),
            self.registry,
            self.round,
            self.seed,
            self.participants,
            closing,
        )

    def conclude(self, record: RoundRecord, deviation: Deviation = HONEST) -> None:
        """Decide the open round as its record says, whatever anybody may object to that."""
        data = deviation.record_blob(encode_record(record), self)
        judged = deviation.judgement(self.judge(record), self)
        judged = replace(judged, opening=replace(judged.opening, record=self.blobs.put(data)))
        self.judged = judged
        self.blobs.put(vector_bytes(judged.model))
        base = deviation.base(self.inputs.closing.base, self)
        incidents = self._incidents(base, judged, deviation)
        if len(judged.ranking.words) < self.parameters.trainers:
            self._wait_for_the_window()
        views = deviation.views or (self.first_view(1), self.first_view(2))
        self.decide(judged, base, views, incidents)
        self.model = judged.model
        self.take_up()

    def judge(self, record: RoundRecord) -> Judgement:
        """Return what follows from a record, without asking whether it is true."""
        ranking = rank_trainers(self.parameters, counted_vectors(record, self.evidence))
        updates = {c: u for c, u in self.evidence.updates.items() if u is not None}
        model = next_model(self.inputs, self.model, ranking.accepted, updates)
        opening = result_preimage(record, ranking, sha256(vector_bytes(model)))
        return Judgement(record, ranking, model, opening)

    def first_view(self, phase: int) -> int:
        """Return the first view whose primary's seat is not empty."""
        return self.open_round.first_view(Phase(phase))

    def decide(
        self,
        judged: Judgement,
        base: Digest,
        views: tuple[int, int] = (0, 0),
        incidents: Digest = NO_DIGEST,
        record: Digest | None = None,
    ) -> None:
        """Send a decision; a record put in the place of the certified one is the sender's."""
        opening = judged.opening
        if record is not None:
            opening = replace(opening, record=record)
        decision = SubmittedDecision.of(
            opening, self.committee, judged.ranking.words, base, incidents
        )
        first, second = (
            submitted_certificate(self.certificate(judged, base, phase, view), self.committee)
            for phase, view in zip(Phase, views, strict=True)
        )
        self.ledger.decide(self.round, decision, (first, second))

    def certificate(
        self, judged: Judgement, base: Digest, phase: Phase, view: int
    ) -> QuorumCertificate:
        request = self.open_round.request(
            phase, view, base, judged.set_digest(phase), judged.result
        )
        return self.open_round.certificate(request)

    def abandon(self) -> None:
        opened = self.ledger.state().opened_block
        waited = self.chain.head().number - opened
        self.chain.mine(max(0, self.parameters.deadline_blocks - waited - 1))
        self.ledger.abandon_round(self.round)
        self.take_up()

    def _wait_for_the_window(self) -> None:
        last = self.ledger.state().opened_block + self.parameters.commit_blocks
        self.chain.mine(max(0, last - self.chain.head().number))

    def _incidents(self, base: Digest, judged: Judgement, deviation: Deviation) -> Digest:
        incidents = deviation.incidents(judged, self)
        if not incidents and deviation.incidents_blob is same:
            return NO_DIGEST
        document = Incidents(self.round, base, tuple(sorted(incidents, key=lambda i: i.key)))
        return self.blobs.put(deviation.incidents_blob(encode_incidents(document), self))


def contradiction_in(report: AuditReport, step: AuditStep) -> Contradiction:
    """Return what contradicts in a step, which must have failed."""
    found = report.step(step).contradiction
    assert found is not None, readable(report)
    return found


def document_of(parameters: Parameters, initial: Digest) -> RunDocument:
    registry = registered(SIGNERS)
    return RunDocument(parameters, registry, initial, LAYOUT, {"about": "a run of these tests"})
