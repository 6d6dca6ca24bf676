"""A small run played by hand: every key is known, so that any committee can be made to collude.

Fourteen clients, five members, seven trainers, eight parameters; nothing is trained, every update
is drawn by its round and client. A `Plot` says who departs from the protocol, and where; all of
them sign whatever the plot makes of the round. Keys are derived: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ledger.blobs.store import MemoryBlobs
from ledger.chain.committee_ledger import LedgerWriter, submitted
from ledger.chain.deployment import Manifest, deploy
from ledger.chain.embedded import EmbeddedChain
from ledger.protocol import ledger_state
from ledger.protocol.consensus import Certificate, primary_place
from ledger.protocol.counting import (
    CountedScores,
    Electorate,
    Updates,
    collect_updates,
    count_scores,
)
from ledger.protocol.decision import Decision, decide
from ledger.protocol.documents import (
    Incident,
    RoundRecord,
    RunDocument,
    ScoreVector,
    encode_record,
    encode_run,
    encode_score_vector,
)
from ledger.protocol.encoding import keccak256, set_digest, sha256, vector_bytes
from ledger.protocol.parameters import Parameters
from ledger.protocol.sampling import sample_trainers
from ledger.protocol.scoring import squared_distance
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.types import (
    ClientId,
    Commitment,
    Digest,
    Phase,
    RegisteredClient,
    Scores,
    SignedScores,
    SignedVote,
    Strategy,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

T = TypeVar("T")
DIMENSION = 8
CLIENTS = 14
PARAMETERS = Parameters(
    clients=CLIENTS,
    active_rate=0.857143,
    committee_rate=0.4,
    aggregation_rate=0.4,
    rounds=5,
    dimension=DIMENSION,
    deadline_blocks=2,
)
SIGNERS = tuple(
    sorted(
        (KeySigner(keccak256(b"PUBLIC TEST KEY of player %d" % i)) for i in range(CLIENTS)),
        key=lambda signer: signer.address,
    )
)
INITIAL = np.linspace(-1, 1, DIMENSION, dtype=np.float32)


def same(value: T, _game: Game) -> T:
    """Return it as it is: nobody departs from the protocol here."""
    return value


@dataclass
class Plot:
    """Where a round departs from the protocol; by default nowhere.

    Attributes:
        payloads: what each active client publishes; a missing one is neither committed nor there.
        trainers: who is taken for a trainer.
        vectors: what each member publishes.
        claims: the signed claims of the members.
        counted: the vectors that count.
        decides: how the decision is computed.
        decision: what is decided.
        record: what is recorded.
        record_blob: the bytes of the record.
        updates: which updates are taken as usable.
        failed: incidents of views that fail before the vote.
        strays: clients that commit though nobody asked them.
    """

    payloads: Callable[[dict[ClientId, bytes], Game], dict[ClientId, bytes]] = same
    trainers: Callable[[tuple[ClientId, ...], Game], tuple[ClientId, ...]] = same
    vectors: Callable[[dict[ClientId, ScoreVector], Game], dict[ClientId, ScoreVector]] = same
    claims: Callable[[list[SignedScores], Game], list[SignedScores]] = same
    counted: Callable[[dict[ClientId, CountedScores], Game], dict[ClientId, CountedScores]] = same
    updates: Callable[[Updates, Game], Updates] = same
    decides: Callable[..., Decision] = decide
    decision: Callable[[Decision, Game], Decision] = same
    record: Callable[[RoundRecord, Game], RoundRecord] = same
    record_blob: Callable[[bytes, Game], bytes] = same
    failed: Callable[[tuple[Incident, ...], Game], tuple[Incident, ...]] = same
    strays: tuple[int, ...] = ()


@dataclass
class Game:
    """A run in play, and what its open round has come to so far."""

    chain: EmbeddedChain
    blobs: MemoryBlobs
    document: RunDocument
    manifest: Manifest
    ledger: LedgerWriter
    registry: list[RegisteredClient]
    model: NDArray[np.float32]
    round: int = 1
    seed: Digest = field(default=Digest(bytes(32)))
    committee: tuple[ClientId, ...] = ()
    trainers: tuple[ClientId, ...] = ()
    published: dict[ClientId, CountedScores] = field(default_factory=dict)

    decided: Decision = field(init=False)

    @classmethod
    def opened(
        cls,
        folder: Path,
        parameters: Parameters = PARAMETERS,
        initial: bytes = vector_bytes(INITIAL),
    ) -> Game:
        chain = EmbeddedChain.create(
            folder / "chain.sqlite", synchronous="NORMAL", clock=lambda: 1_700_000_000
        )
        blobs = MemoryBlobs()
        document = document_of(parameters, blobs.put(initial))
        blobs.put(encode_run(document))
        manifest = deploy(chain, document, folder / "deployment.json")
        ledger = LedgerWriter(chain, manifest.address, manifest.block)
        game = cls(chain, blobs, document, manifest, ledger, list(document.registry), INITIAL)
        game.take_up()
        return game

    def take_up(self) -> None:
        state = self.ledger.state()
        self.round = state.round
        opening = self.ledger.opening(state.round)
        if opening is not None:
            self.committee, self.seed = opening
            self.trainers = sample_trainers(
                self.seed, CLIENTS, self.committee, self.document.parameters.trainers
            )

    def electorate(self) -> Electorate:
        domain = self.manifest.domain()
        return Electorate(domain, self.round, self.registry, self.trainers, self.committee)

    def vote(
        self, kind: VoteKind, phase: Phase, view: int, member: ClientId, what: tuple[Digest, Digest]
    ) -> SignedVote:
        vote = Vote(kind, self.round, phase, view, 1_700_000_000, *what)
        return SignedVote(member, vote, sign(SIGNERS[member], self.manifest.domain(), vote))

    def primary(self, phase: Phase, view: int) -> ClientId:
        return self.committee[primary_place(self.seed, phase, view, len(self.committee))]

    def commit(self, payloads: dict[ClientId, bytes]) -> None:
        signed = []
        for client, payload in payloads.items():
            commitment = Commitment(self.round, client, sha256(payload))
            signature = sign(SIGNERS[client], self.manifest.domain(), commitment)
            signed.append((client, commitment.payload, signature))
        self.ledger.commit_updates(self.round, signed)

    def play(self, plot: Plot | None = None) -> None:
        """Play one round to its decision."""
        plot = Plot() if plot is None else plot
        self.trainers = plot.trainers(self.trainers, self)
        active = sorted({*self.trainers, *self.committee})
        able = [client for client in active if not self.registry[client].banned]
        payloads = plot.payloads({c: vector_bytes(self.update(c)) for c in able}, self)
        strays = {ClientId(c): vector_bytes(self.update(ClientId(c))) for c in plot.strays}
        self.commit(payloads | strays)
        for payload in (payloads | strays).values():
            self.blobs.put(payload)
        digests = {client: sha256(payload) for client, payload in payloads.items()}
        found = collect_updates(active, digests, self.blobs.get, DIMENSION)
        updates = plot.updates(found, self)
        claims = plot.claims(self._claims(plot.vectors(self._vectors(updates), self)), self)
        counted, refused = count_scores(
            self.electorate(), updates, claims, self.blobs.get, _distance(updates)
        )
        counted = plot.counted(counted, self)
        parameters = self.document.parameters
        decision = plot.decides(parameters, self.registry, self.model, updates, counted)
        self.decided = decision = plot.decision(decision, self)
        incidents = plot.failed((), self)
        scores = tuple(
            sorted(
                (s for s in claims if _digest_of(counted, s.scores.member) == s.scores.digest),
                key=lambda s: s.scores.member,
            )
        )
        record = RoundRecord(self.round, scores, refused, updates.dropouts, incidents)
        record = plot.record(record, self)
        self.send(decision, self.blobs.put(plot.record_blob(encode_record(record), self)), record)
        self.blobs.put(vector_bytes(decision.model))
        self.model = decision.model
        self.take_up()

    def send(self, decision: Decision, record: Digest, recorded: RoundRecord) -> None:
        first, second = (
            self.certificate(decision, phase, recorded.incidents)
            for phase in (Phase.AGGREGATION, Phase.ELECTION)
        )
        outcome = ledger_state.SubmittedDecision(
            self.committee,
            decision.ranking,
            decision.model_digest,
            decision.updates_root,
            decision.scores_root,
            decision.threshold_bits,
            record,
        )
        certificates = (submitted(first, self.committee), submitted(second, self.committee))
        self.ledger.decide(self.round, outcome, certificates)

    def certificate(
        self, decision: Decision, phase: Phase, incidents: tuple[Incident, ...]
    ) -> Certificate:
        view = sum(incident.phase is phase for incident in incidents)
        primary = self.primary(phase, view)
        what = decision.voted(phase)
        request = self.vote(VoteKind.REQUEST, phase, view, primary, what)
        voters = [m for m in self.committee if m != primary and not self.registry[m].banned][:3]
        replies = [self.vote(VoteKind.REPLY, phase, view, member, what) for member in voters]
        return Certificate(request, tuple(replies))

    def abandon(self) -> None:
        self.chain.mine(self.document.parameters.deadline_blocks)
        self.ledger.abandon_round(self.round)
        self.take_up()

    def ban(self, client: ClientId) -> None:
        """Let a client sign two votes, and report it."""
        sets = (set_digest((ClientId(1),)), set_digest((ClientId(2),)))
        one, other = (
            self.vote(VoteKind.REPLY, Phase.ELECTION, 0, client, (chosen, Digest(bytes(32))))
            for chosen in sets
        )
        self.ledger.report_equivocation(
            client, (one.vote, one.signature), (other.vote, other.signature)
        )
        self.registry[client] = replace(self.registry[client], banned=True)

    def update(self, client: ClientId) -> NDArray[np.float32]:
        rng = np.random.default_rng([self.round, client])
        return rng.normal(size=DIMENSION).astype(np.float32)

    def sign_scores(self, vector: ScoreVector, member: ClientId) -> SignedScores:
        digest = self.blobs.put(encode_score_vector(vector))
        scores = Scores(self.round, vector.member, digest)
        return SignedScores(scores, sign(SIGNERS[member], self.manifest.domain(), scores))

    def _vectors(self, updates: Updates) -> dict[ClientId, ScoreVector]:
        trainers = tuple(c for c in self.trainers if c in updates.vectors)
        members = tuple(sorted(c for c in self.committee if c in updates.vectors))
        distance = _distance(updates)
        return {
            member: ScoreVector(
                self.round,
                member,
                trainers,
                np.array([distance(client, member) for client in trainers]),
                tuple(other for other in members if other != member),
                np.array([distance(other, member) for other in members if other != member]),
            )
            for member in members
        }

    def _claims(self, vectors: dict[ClientId, ScoreVector]) -> list[SignedScores]:
        claims = {member: self.sign_scores(vector, member) for member, vector in vectors.items()}
        self.published = {
            member: CountedScores(vectors[member], signed.scores.digest)
            for member, signed in claims.items()
        }
        return list(claims.values())


def document_of(parameters: Parameters, initial: Digest) -> RunDocument:
    registry = tuple(
        RegisteredClient(signer.address, 10 + place) for place, signer in enumerate(SIGNERS)
    )
    return RunDocument(parameters, registry, initial, {"about": "played by hand"})


def honest_run(folder: Path, strategy: Strategy = Strategy.NEAREST) -> Game:
    """Play a run with everything that may befall it: a liar, dropouts, a ban, an abandonment."""
    game = Game.opened(folder, replace(PARAMETERS, strategy=strategy))
    game.play(Plot(payloads=_two_fail, vectors=_one_lies))
    game.play(Plot(failed=_wrong_proposal, strays=_bystanders(game)))
    game.ban(game.committee[0])
    game.commit({client: vector_bytes(game.update(client)) for client in game.trainers[:2]})
    game.abandon()
    game.play(Plot(failed=_silent_primary))
    game.play()
    return game


def _two_fail(payloads: dict[ClientId, bytes], game: Game) -> dict[ClientId, bytes]:
    """Let one trainer send a number that is none, and another nothing at all."""
    failing = {game.trainers[0]: np.full(DIMENSION, np.nan, dtype="<f4").tobytes()}
    return {c: failing.get(c, p) for c, p in payloads.items() if c != game.trainers[1]}


def _one_lies(vectors: dict[ClientId, ScoreVector], game: Game) -> dict[ClientId, ScoreVector]:
    liar = game.committee[1]
    return vectors | {liar: replace(vectors[liar], distances=2 * vectors[liar].distances)}


def _bystanders(game: Game) -> tuple[int, ...]:
    return tuple(set(range(CLIENTS)) - {*game.trainers, *game.committee})[:1]


def _wrong_proposal(_none: tuple[Incident, ...], game: Game) -> tuple[Incident, ...]:
    phase = Phase.AGGREGATION
    primary = game.primary(phase, 0)
    what = (set_digest(game.trainers[:2]), sha256(b"another result"))
    request = game.vote(VoteKind.REQUEST, phase, 0, primary, what)
    return (Incident(phase, 0, primary, "wrong proposal", (request,)),)


def _silent_primary(_none: tuple[Incident, ...], game: Game) -> tuple[Incident, ...]:
    primary = game.primary(Phase.ELECTION, 0)
    return (Incident(Phase.ELECTION, 0, primary, "silent", ()),)


def _distance(updates: Updates) -> Callable[[ClientId, ClientId], float]:
    return lambda client, member: squared_distance(updates.vectors[client], updates.vectors[member])


def _digest_of(counted: dict[ClientId, CountedScores], member: ClientId) -> Digest | None:
    return counted[member].digest if member in counted else None
