"""Traffic of a CMFL run, counted from the actions of its actors.

A round in phases. Every active client fetches the model, sends its commitment, and publishes its
update once: blobs are content-addressed, so that it need not send it to every member. Then each
member reads the updates of all other n + C - 1, members vote by envelopes that all of them read,
and the settler of the round publishes the next model with the decision. Documents for auditors
(records, vectors, incidents) are sent once and not read in the run.

A commitment counts as one transaction with its bytes of call data, though a driver may
put many into one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from clients.experiments.baselines.traffic import NUMBER_BYTES, PhaseCounter, RoundTraffic
from ledger.actors.actions import (
    PostEnvelope,
    SendCommitment,
    SendDecision,
    SendReport,
    StoreBlobs,
)
from ledger.chain.contract.calls import (
    Call,
    CommitCall,
    DecideCall,
    ReportCall,
    encode_call,
)
from ledger.protocol.documents.envelope import EnvelopeKind, Proposal, encode_envelope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.runs.metrics import RoundMetrics
    from ledger.actors.actions import Action
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.types import ClientId, Digest, SignedCommitment


class CommitteeTraffic:
    """Counts a run: `simulation.on_step = traffic.take`, and `traffic.close` after each round.

    Attributes:
        rounds: what each closed round sent.

    Args:
        dimension: d.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._round = _OpenRound()
        self.rounds: list[RoundTraffic] = []

    def take(self, step: Sequence[Action]) -> None:
        """Count what one actor asks for."""
        self._round.take(step)

    def close(self, row: RoundMetrics) -> None:
        """End a round, and begin the next."""
        model_bytes = NUMBER_BYTES * self._dimension
        self.rounds.append(self._round.closed(row.trained, row.served, model_bytes))
        self._round = _OpenRound()


class _OpenRound:
    """Traffic of the open round."""

    def __init__(self) -> None:
        self._commitments = PhaseCounter("commitments")
        self._updates = PhaseCounter("updates")
        self._votes = PhaseCounter("votes")
        self._decision = PhaseCounter("decision")
        self._stored: set[Digest] = set()
        self._published: dict[ClientId, int] = {}
        self._board: dict[bytes, Envelope] = {}
        self._settler: ClientId | None = None
        self._commitment_bytes = 0

    def take(self, step: Sequence[Action]) -> None:
        """Count one actor's actions."""
        envelopes = [action.envelope for action in step if isinstance(action, PostEnvelope)]
        # Whoever led the election is the first to settle; it may say nothing else in that step.
        who = envelopes[0].client if envelopes else self._settler
        settles = any(isinstance(action, SendDecision) for action in step)
        for action in step:
            match action:
                case StoreBlobs():
                    self._store(action, who, self._decision if settles else self._votes)
                case PostEnvelope(envelope):
                    self._post(envelope)
                case SendCommitment(signed):
                    self._commit(signed)
                case SendDecision(number, decision, certificates):
                    self._transact(who, DecideCall(number, decision, certificates))
                case SendReport(report):
                    self._transact(who, ReportCall(report))

    def closed(
        self, trainers: Sequence[ClientId], members: Sequence[ClientId], model_bytes: int
    ) -> RoundTraffic:
        """Return the round with what its active clients and members have read."""
        model, reading = PhaseCounter("model"), PhaseCounter("reading")
        for client in (*trainers, *members):
            model.receive(client, model_bytes)
        updates = Counter(self._published)
        votes: Counter[ClientId] = Counter()
        for data, envelope in self._board.items():
            is_first = envelope.kind is EnvelopeKind.PAYLOAD
            (updates if is_first else votes)[envelope.client] += len(data)
        for member in members:  # each reads what all others have published and said
            reading.receive(member, updates.total() - updates[member])
            self._votes.receive(member, votes.total() - votes[member])
        phases = (
            model,
            self._commitments,
            self._updates,
            reading,
            self._votes,
            self._decision,
        )
        return RoundTraffic(tuple(counter.phase() for counter in phases))

    def _store(self, blobs: StoreBlobs, who: ClientId | None, counter: PhaseCounter) -> None:
        """Count blobs that were not sent before; a blob has one digest."""
        for client, payload in blobs.payloads.items():
            if payload.digest not in self._stored:
                self._stored.add(payload.digest)
                self._published[client] = payload.size
                self._updates.send(client, payload.size)
        for document in blobs.documents:
            if document.digest not in self._stored and who is not None:
                self._stored.add(document.digest)
                counter.send(who, document.size)

    def _commit(self, signed: SignedCommitment) -> None:
        """Count a commitment's transaction; nothing in it differs in size."""
        if not self._commitment_bytes:
            call = CommitCall(signed.commitment.round, (signed,))
            self._commitment_bytes = len(encode_call(call))
        self._commitments.send(signed.commitment.client, self._commitment_bytes)

    def _post(self, envelope: Envelope) -> None:
        data = encode_envelope(envelope)
        self._board[data] = envelope
        is_first = envelope.kind is EnvelopeKind.PAYLOAD
        (self._updates if is_first else self._votes).send(envelope.client, len(data))
        if isinstance(envelope.body, Proposal) and envelope.body.certificate is not None:
            self._settler = envelope.client

    def _transact(self, who: ClientId | None, call: Call) -> None:
        if who is not None:
            self._decision.send(who, len(encode_call(call)))
