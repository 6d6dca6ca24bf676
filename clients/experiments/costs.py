"""Costs of a round: bytes on every client's link, and the time that follows (paper, section V-E).

Within a phase all links work side by side, in both directions: the busiest decides. Requests are
counted, latency is not. A server, the store and the board have no link that limits. Computation is
measured; transmission is bytes / rate by one of three models, in units of one model:

    per round       text        authors     counted
    typical FL      2           2           bytes of the busiest link
    CMFL            C + n       C + 1
    BrainTorrent    n           n
    GossipFL        n - 1       n - 1

`text` is section IV-B, `authors` the script behind figures 8 and 9. The paper's "CMFL is always
better than the other two" holds by the script alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate
from math import isfinite
from statistics import fmean

from clients.experiments.rows import CellRow, Traffic
from clients.runs.metrics import RoundMetrics
from ledger.actors import steps
from ledger.actors.steps import Action, PostEnvelope, StoreBlobs
from ledger.chain.contract.codec import CommitCall, DecideCall, ReportCall, encode_call
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind, Proposal, encode_envelope
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest

NUMBER_BYTES = 4  # bytes of one number of a model or an update: float32
COUNT_BYTES = 8  # bytes of a sample count, of a version, or of a question for one
RATES = (1.0, 10.0, 100.0)  # mbit/s of one client: the paper's 1, 10 and 100 "Mps"
_TRAININGS = {"brain-torrent": 2}  # in a round, if not 1: BrainTorrent's initiator trains again


class RoundTraffic:
    """Bytes that each client received and sent in a round, by phase, and questions asked."""

    def __init__(self, *phases: str) -> None:
        self.received: dict[str, Counter[ClientId]] = {phase: Counter() for phase in phases}
        self.sent: dict[str, Counter[ClientId]] = {phase: Counter() for phase in phases}
        self.requests = 0

    def ask(self, phase: str, asker: ClientId, asked: ClientId, question: int, answer: int) -> None:
        self.requests += 1
        self.move(phase, asker, asked, question)
        self.move(phase, asked, asker, answer)

    def move(self, phase: str, sender: ClientId, receiver: ClientId, size: int) -> None:
        self.sent[phase][sender] += size
        self.received[phase][receiver] += size

    @property
    def phases(self) -> dict[str, int]:
        """Bytes on the busiest link of each phase, in its busier direction."""
        return {
            phase: max([0, *self.received[phase].values(), *self.sent[phase].values()])
            for phase in self.sent
        }

    @property
    def busiest(self) -> int:
        return sum(self.phases.values())


def recorded_traffic(rounds: Sequence[RoundTraffic], dimension: int) -> Traffic:
    """Return a run's traffic for its row; `busiest` and `phases` are the bytes it waits for."""
    phases: Counter[str] = Counter()
    received: Counter[ClientId] = Counter()
    sent: Counter[ClientId] = Counter()
    for traffic in rounds:
        phases.update(traffic.phases)
        for phase in traffic.sent:
            received.update(traffic.received[phase])
            sent.update(traffic.sent[phase])
    clients = sorted({*received, *sent})
    return {
        "model": NUMBER_BYTES * dimension,
        "busiest": sum(traffic.busiest for traffic in rounds),
        "phases": dict(phases),
        "sent": sent.total(),
        "received": received.total(),
        "requests": sum(traffic.requests for traffic in rounds),
        "by_round": [traffic.busiest for traffic in rounds],
        "clients": [int(client) for client in clients],
        "client_sent": [sent[client] for client in clients],
        "client_received": [received[client] for client in clients],
    }


class CommitteeTraffic:
    """Counts a run of CMFL by `take` for each step and `close` for each round; blobs go once."""

    def __init__(self, dimension: int) -> None:
        self._model_bytes = NUMBER_BYTES * dimension
        self.rounds: list[RoundTraffic] = []
        self._settler: ClientId | None = None
        self._begin()

    def take(self, step: Sequence[Action]) -> None:
        envelopes = [action.envelope for action in step if isinstance(action, PostEnvelope)]
        # The leader of the election settles first; it may post nothing else in that step.
        actor = envelopes[0].client if envelopes else self._settler
        settles = any(isinstance(action, steps.SendDecision) for action in step)
        for action in step:
            match action:
                case StoreBlobs():
                    self._store(action, actor, "decision" if settles else "votes")
                case PostEnvelope(envelope):
                    data, body = encode_envelope(envelope), envelope.body
                    self._board[data] = envelope
                    is_first = envelope.kind is EnvelopeKind.PAYLOAD
                    self._send("updates" if is_first else "votes", envelope.client, len(data))
                    if isinstance(body, Proposal) and body.certificate is not None:
                        self._settler = envelope.client
                case steps.SendCommitment(signed):
                    call = CommitCall(signed.commitment.round, (signed,))
                    self._send("commitments", signed.commitment.client, len(encode_call(call)))
                case steps.SendDecision(number, decision, certificates):
                    size = len(encode_call(DecideCall(number, decision, certificates)))
                    self._send("decision", actor, size)
                case steps.SendReport(report):
                    self._send("decision", actor, len(encode_call(ReportCall(report))))

    def close(self, row: RoundMetrics) -> None:
        traffic, updates = self._round, self._published
        votes: Counter[ClientId] = Counter()
        for data, envelope in self._board.items():
            is_first = envelope.kind is EnvelopeKind.PAYLOAD
            (updates if is_first else votes)[envelope.client] += len(data)
        for client in (*row.trained, *row.served):
            traffic.received["model"][client] += self._model_bytes
        for member in row.served:
            traffic.received["reading"][member] += updates.total() - updates[member]
            traffic.received["votes"][member] += votes.total() - votes[member]
        self.rounds.append(traffic)
        self._begin()

    def _begin(self) -> None:
        phases = ("model", "commitments", "updates", "reading", "votes", "decision")
        self._round = RoundTraffic(*phases)
        self._stored: set[Digest] = set()
        self._published: Counter[ClientId] = Counter()
        self._board: dict[bytes, Envelope] = {}
        self._settler = None

    def _send(self, phase: str, client: ClientId | None, size: int) -> None:
        if client is not None and size:
            self._round.sent[phase][client] += size

    def _store(self, blobs: StoreBlobs, actor: ClientId | None, phase: str) -> None:
        for client, payload in blobs.payloads.items():
            if payload.digest not in self._stored:
                self._stored.add(payload.digest)
                self._published[client] = payload.size
                self._send("updates", client, payload.size)
        for document in blobs.documents:
            if document.digest not in self._stored and actor is not None:
                self._stored.add(document.digest)
                self._send(phase, actor, document.size)


class Transmission(StrEnum):
    """A model of a round's transfers."""

    TEXT = "text"
    AUTHORS = "authors"
    COUNTED = "counted"


def computation_of(row: CellRow, training: float | None = None) -> float:
    """Return the seconds of computation on the critical path of an average round.

    Training, then one member's scoring, the server's aggregation or one participant's merge. The
    ledger's part is left out: one process plays all actors.
    """
    scorers = _size(row, "committee") + _size(row, "trainers") if row.kind == "gossip" else 1
    scoring = (row.seconds.scoring or 0.0) / (row.rounds * scorers)
    each = _training_of(row) if training is None else training
    return each * _TRAININGS.get(row.kind, 1) + scoring


def transfers(kind: str, transmission: Transmission, committee: int, trainers: int) -> int:
    """Return how many models, one after the other, a round of `text` or `authors` takes."""
    cmfl = committee + (trainers if transmission is Transmission.TEXT else 1)
    units = {"federated": 2, "cmfl": cmfl, "brain-torrent": trainers, "gossip": trainers - 1}
    if kind not in units:
        raise ConfigurationError(f"kind {kind!r} sends nothing")
    return units[kind]


def transmission_of(row: CellRow, transmission: Transmission, rate: float) -> tuple[float, ...]:
    """Return the seconds of each round of a cell on the wire, at a rate in Mbit/s."""
    if not (isfinite(rate) and rate > 0):
        raise ConfigurationError(f"rate = {rate} Mbit/s: must be above 0")
    sizes = row.bytes.get("by_round", ())
    if "model" not in row.bytes or len(sizes) != row.rounds:
        raise ConfigurationError(f"cell {row.cell}: its bytes were not counted in every round")
    if transmission is not Transmission.COUNTED:
        units = transfers(row.kind, transmission, _size(row, "committee"), _size(row, "trainers"))
        sizes = [units * row.bytes["model"]] * row.rounds
    return tuple(8 * size / (1_000_000 * rate) for size in sizes)


def solo_training_seconds(rows: Iterable[CellRow]) -> float | None:
    """Return the seconds of one client that trains alone, from the methods without a server."""
    seconds = [
        _training_of(row)
        for row in rows
        if row.kind in {"brain-torrent", "gossip"} and row.seconds.training is not None
    ]
    return fmean(seconds) if seconds else None


def time_axis(
    row: CellRow, transmission: Transmission, rate: float, *, training: float | None = None
) -> tuple[float, ...]:
    """Return the simulated seconds at the end of each round."""
    each = computation_of(row, training)
    return tuple(accumulate(wire + each for wire in transmission_of(row, transmission, rate)))


def _training_of(row: CellRow) -> float:
    if row.seconds.training is None:
        raise ConfigurationError(f"cell {row.cell}: its training was not timed")
    trainers = _size(row, "trainers")
    active = trainers if row.kind == "federated" else _size(row, "committee") + trainers
    participants = _size(row, "participants") if "participants" in row.extra else active
    return row.seconds.training / (row.rounds * (participants + _TRAININGS.get(row.kind, 1) - 1))


def _size(row: CellRow, name: str) -> int:
    value = row.extra.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"cell {row.cell}: extra.{name} = {value!r} must be at least 1")
    return value
