"""A run with all actors in one process, each with its own key.

The actors do what separate workers do: train, sign, commit, publish, score, vote. Only
`algorithms.training_round` says in which order, and only the contract moves the run on; nothing
is kept in memory that a killed run could not take up again from the chain and the blobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.attacks import attack_named, faulty_payload
from clients.chance import named_stream
from clients.local_sgd import TrainingJob
from clients.member import MEMBERS
from clients.round_view import RoundView
from ledger.chain.committee_ledger import MAX_COMMITMENTS, submitted
from ledger.protocol import ledger_state
from ledger.protocol.algorithms import EQUIVOCATION, training_round
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.counting import Electorate, collect_updates
from ledger.protocol.documents import RoundRecord, decode_record, encode_record
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.sampling import sample_trainers, training_seed
from ledger.protocol.signing import is_signed_by, sign
from ledger.protocol.types import ClientId, Commitment, Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from clients.metrics import Measure, RoundMetrics
    from clients.population import Population
    from clients.training import TrainingEngine
    from ledger.blobs.store import BlobStore
    from ledger.chain.committee_ledger import LedgerWriter
    from ledger.protocol.algorithms import Member
    from ledger.protocol.consensus import Certificate
    from ledger.protocol.decision import Decision
    from ledger.protocol.documents import Incident
    from ledger.protocol.errors import ConsensusError
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import Domain, RegisteredClient, SignedVote


@dataclass(frozen=True, slots=True)
class Scene:
    """What the actors of a run share.

    Attributes:
        parameters: of the deployment.
        domain: the contract and its chain.
        ledger: the contract.
        blobs: where everybody publishes.
        population: the clients, with their keys, data and faults.
        engine: trains them.
    """

    parameters: Parameters
    domain: Domain
    ledger: LedgerWriter
    blobs: BlobStore
    population: Population
    engine: TrainingEngine


class Simulation:
    """All actors of a run; plays `Clients` and `Ledger` of Algorithm 3.

    Attributes:
        round: t, the round that is open, or the last.
        rounds: T.
        clients: K.
        trainers: n.
        seed: seed_t.
        committee: S_c, by places.
        finished: no round is open any more.
        head: commits to the whole history.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.rounds = scene.parameters.rounds
        self.clients = scene.parameters.clients
        self.trainers = scene.parameters.trainers
        self._registry: list[RegisteredClient] = list(scene.ledger.registry())
        for recorded in scene.ledger.bans():
            if isinstance(recorded.event, ledger_state.ClientBanned):
                self._ban(recorded.event.client)
        self._model: NDArray[np.float32] | None = None
        self._view: RoundView | None = None
        self._take_up()

    @property
    def model(self) -> NDArray[np.float32]:
        """w_t, shape (d,), as the ledger has it."""
        if self._model is None:
            digest = self._scene.ledger.state().model
            dimension = self._scene.parameters.dimension
            data = self._scene.blobs.get(digest, 4 * dimension)
            self._model = vector_from_bytes(data, dimension)
        return self._model

    def run(self, measure: Measure, on_round: Callable[[RoundMetrics], None]) -> None:
        """Run every round that is left.

        Args:
            measure: makes a round's row.
            on_round: called with each row, after the round is on the chain.
        """
        self._report(self._left_to_report())
        while not self.finished:
            number = self.round
            training_round(self, self, self.is_signed)
            on_round(measure.row(self._scene.ledger, number, self.model))

    def is_signed(self, vote: SignedVote) -> bool:
        """Say whether a vote carries the signature of a member that is not banned."""
        member = self._registry[vote.member]
        return not member.banned and is_signed_by(
            member.address, self._scene.domain, vote.vote, vote.signature
        )

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        """Let the active clients train, commit and, once that is mined, publish."""
        payloads = self._payloads(active)
        self._commit(round_number, payloads)
        for payload in payloads.values():
            self._scene.blobs.put(payload)
        self._view = self._see(round_number, active)

    def members(self) -> Sequence[Member]:
        """Return the members of the open round, by places."""
        assert self._view is not None, "members act after the clients have trained"
        population = self._scene.population
        return [
            MEMBERS[population.member_faults.get(client)](
                client, population.signers[client], self._view
            )
            for client in self.committee
        ]

    def decide(
        self,
        decision: Decision,
        certificates: tuple[Certificate, Certificate],
        incidents: tuple[Incident, ...],
    ) -> None:
        """Publish model and record, send the decision, then report equivocation."""
        assert self._view is not None, "a decision follows from a round's view"
        blobs = self._scene.blobs
        blobs.put(vector_bytes(decision.model))
        record = blobs.put(encode_record(_record(self._view, incidents)))
        first, second = (submitted(c, self.committee) for c in certificates)
        self._scene.ledger.decide(
            self.round,
            ledger_state.SubmittedDecision(
                committee=self.committee,
                ranking=decision.ranking,
                model=decision.model_digest,
                updates_root=decision.updates_root,
                scores_root=decision.scores_root,
                threshold_bits=decision.threshold_bits,
                record=record,
            ),
            (first, second),
        )
        self._model = decision.model
        self._take_up()
        self._report(incidents)

    def abandon(self, reason: ConsensusError) -> None:
        """Report equivocation, wait for the deadline, and end the round without a decision."""
        self._report(reason.incidents)
        ledger = self._scene.ledger
        deadline = ledger.state().opened_block + self._scene.parameters.deadline_blocks
        # The transaction's own block is one more than the head.
        missing = deadline - ledger.chain.head().number - 1
        ledger.writer.mine(max(0, missing))
        ledger.abandon_round(self.round)
        self._take_up()

    def _take_up(self) -> None:
        """Read from the contract where the run stands."""
        ledger = self._scene.ledger
        state = ledger.state()
        self.round, self.seed, self.head = state.round, state.seed, state.head
        self.finished = state.stage is ledger_state.Stage.FINISHED
        opening = None if self.finished else ledger.opening(state.round)
        self.committee: tuple[ClientId, ...] = opening[0] if opening else ()
        self._view = None

    def _payloads(self, active: Sequence[ClientId]) -> dict[ClientId, bytes]:
        """Return what each active client publishes; nothing of those that are silent or banned."""
        able = [client for client in sorted(active) if not self._registry[client].banned]
        jobs = [TrainingJob(int(c), training_seed(self.seed, c)) for c in able]
        trained = self._scene.engine.train(self.model, jobs)
        payloads = {}
        for client, update in zip(able, trained, strict=True):
            payload = self._published(client, update)
            if payload is not None:
                payloads[client] = payload
        return payloads

    def _published(self, client: ClientId, update: NDArray[np.float32]) -> bytes | None:
        population = self._scene.population
        if client in population.malicious and population.attack is not None:
            stream = named_stream(self.seed, "attack", int(client))
            attack = attack_named(population.attack)
            update = attack(update, stream, population.attack_parameters)
        fault = population.trainer_faults.get(client)
        return vector_bytes(update) if fault is None else faulty_payload(update, fault)

    def _commit(self, round_number: int, payloads: dict[ClientId, bytes]) -> None:
        """Commit what is not committed yet: a resumed round finds some on the chain."""
        done, _ = self._commitments(round_number)
        signed = []
        for client, payload in payloads.items():
            if client in done:
                continue
            commitment = Commitment(round_number, client, sha256(payload))
            signer = self._scene.population.signers[client]
            signature = sign(signer, self._scene.domain, commitment)
            signed.append((client, commitment.payload, signature))
        for start in range(0, len(signed), MAX_COMMITMENTS):
            self._scene.ledger.commit_updates(round_number, signed[start : start + MAX_COMMITMENTS])

    def _commitments(self, round_number: int) -> tuple[dict[ClientId, Digest], int | None]:
        """Return the commitments on the chain, and the block of the last of them."""
        found: dict[ClientId, Digest] = {}
        last = None
        for recorded in self._scene.ledger.round_events(round_number):
            if isinstance(recorded.event, ledger_state.UpdatesCommitted):
                found |= zip(recorded.event.clients, recorded.event.payloads, strict=True)
                last = recorded.block_number
        return found, last

    def _see(self, round_number: int, active: Sequence[ClientId]) -> RoundView:
        """Return what everybody sees once the payloads are published."""
        scene, parameters = self._scene, self._scene.parameters
        commitments, last = self._commitments(round_number)
        if last is None:
            last = scene.ledger.state().opened_block
        limit = 4 * parameters.dimension
        trainers = sample_trainers(self.seed, self.clients, self.committee, self.trainers)
        return RoundView(
            parameters=parameters,
            electorate=Electorate(
                scene.domain, round_number, tuple(self._registry), trainers, self.committee
            ),
            seed=self.seed,
            timestamp=scene.ledger.chain.block(last).timestamp,
            model=self.model,
            updates=collect_updates(
                active,
                commitments,
                lambda digest: scene.blobs.get(digest, limit),
                parameters.dimension,
            ),
            blobs=scene.blobs,
            device=scene.population.device,
        )

    def _report(self, incidents: Iterable[Incident]) -> None:
        """Bring every proof of equivocation to the contract; the accused is banned."""
        for incident in incidents:
            if incident.kind != EQUIVOCATION or self._registry[incident.member].banned:
                continue
            first, second = incident.votes[:2]
            if self.finished:  # the last round is over: the proof stays in its record
                return
            self._scene.ledger.report_equivocation(
                incident.member,
                (first.vote, first.signature),
                (second.vote, second.signature),
            )
            self._ban(incident.member)

    def _left_to_report(self) -> tuple[Incident, ...]:
        """Return the incidents of the last decision: a run may be killed before it reports."""
        ledger, blobs = self._scene.ledger, self._scene.blobs
        for recorded in ledger.round_events(self.round - 1):
            if isinstance(recorded.event, ledger_state.RoundDecided):
                return decode_record(blobs.get(recorded.event.record, MAX_DOCUMENT_BYTES)).incidents
        return ()

    def _ban(self, client: ClientId) -> None:
        accused = self._registry[client]
        self._registry[client] = type(accused)(accused.address, accused.samples, banned=True)


def _record(view: RoundView, incidents: tuple[Incident, ...]) -> RoundRecord:
    counted = view.counted()
    return RoundRecord(
        round=view.electorate.round,
        scores=tuple(
            sorted(
                (
                    signed
                    for signed in view.published
                    if signed.scores.member in counted
                    and signed.scores.digest == counted[signed.scores.member].digest
                ),
                key=lambda signed: signed.scores.member,
            )
        ),
        refused=view.refused(),
        dropouts=view.updates.dropouts,
        incidents=incidents,
    )
