"""One client's part in a round, its counts over many rounds, and the definition of each term.

A client is *sampled* if the seed draws it as a trainer, and a *member* if it is on the committee;
a member that was banned when the round opened has an empty seat and does not *serve*. It has
*committed* if a commitment of it came by the closing block; it is *ranked* if the decision ranks
it, *accepted* if its update is one of S_a, and has *dropped out* if it was sampled and a decided
round does not rank it. A member's scores *count* or are *refused* as the round's record has it. A
member has *voted* on a phase if the certificate that decided it holds its signature, as primary or
in a reply. A client is *banned* from the round after the one that records its ban.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.protocol.types import ClientId, Digest, DropoutReason, Phase

if TYPE_CHECKING:
    from ledger.history.documents import Documents
    from ledger.history.round import HistoryRound
    from ledger.protocol.documents.incidents import Incident
    from ledger.protocol.documents.record import RefusedScores, RoundRecord


class RoundRole(StrEnum):
    """Role of a participant."""

    TRAINER = "trainer"
    MEMBER = "member"


class UpdateOutcome(StrEnum):
    """Outcome of a trainer's update."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    DROPPED_OUT = "dropped_out"
    UNDECIDED = "undecided"


class ScoresOutcome(StrEnum):
    """Outcome of a member's scores."""

    COUNTED = "counted"
    REFUSED = "refused"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Participation:
    """The part of one client in one round.

    Attributes:
        place: seat index on the committee; None for a trainer.
        empty_seat: whether it is a member that was banned when the round opened.
        payload: digest of its payload, from the record.
        outcome: of its update; None for a member.
        rank: from 0, best first; None if it is not ranked.
        dropout: reason, if chain or record give one.
        scores: outcome of its scores; None for a trainer.
        refused: its scores that do not count, with reasons.
        banned: whether a ban of it was recorded during the round.
    """

    client: ClientId
    role: RoundRole
    place: int | None = None
    empty_seat: bool = False
    committed: bool | None = None
    commitment: Digest | None = None
    payload: Digest | None = None
    outcome: UpdateOutcome | None = None
    rank: int | None = None
    distance_bits: int | None = None
    dropout: DropoutReason | None = None
    scores: ScoresOutcome | None = None
    refused: tuple[RefusedScores, ...] = ()
    voted: tuple[Phase, ...] = ()
    primary_of: tuple[Phase, ...] = ()
    incidents: tuple[Incident, ...] = ()
    banned: bool = False

    @property
    def served(self) -> bool:
        """True for a member that was not banned."""
        return self.role is RoundRole.MEMBER and not self.empty_seat


def participation_of(
    round_: HistoryRound, documents: Documents, client: ClientId
) -> Participation | None:
    """Return the part of a client in a round; None if it was neither trainer nor member."""
    return RoundParts.of(round_, documents).part(client)


@dataclass(frozen=True, slots=True)
class RoundParts:
    """The parts of all participants in a round, from chain and documents."""

    round: HistoryRound
    committed: frozenset[ClientId]
    commitments: Mapping[ClientId, Digest]
    banned: frozenset[ClientId]
    accepted: frozenset[ClientId]
    places: Mapping[ClientId, tuple[int, int]]
    phases: tuple[tuple[Phase, ClientId, int], ...]
    record: RoundRecord | None
    payloads: Mapping[ClientId, Digest]
    dropouts: Mapping[ClientId, DropoutReason]
    scored: frozenset[ClientId]
    refused: tuple[RefusedScores, ...]
    incidents: tuple[Incident, ...]

    @staticmethod
    def of(round_: HistoryRound, documents: Documents) -> RoundParts:
        """Return the parts of a round."""
        decided, record = round_.decided, documents.record
        phases = zip(_PHASES, decided.primaries, decided.signers, strict=True) if decided else ()
        scores = () if record is None else record.scores
        return RoundParts(
            round=round_,
            committed=round_.counted,
            commitments=round_.commitments,
            banned=frozenset(round_.banned),
            accepted=frozenset(decided.accepted if decided else ()),
            places=round_.places,
            phases=tuple(phases),
            record=record,
            payloads=documents.payloads,
            dropouts={} if record is None else {d.client: d.reason for d in record.dropouts},
            scored=frozenset(signed.scores.member for signed in scores),
            refused=() if record is None else record.refused,
            incidents=documents.reported_incidents,
        )

    def all(self) -> list[Participation]:
        """Return the parts of all: trainers ascending, then members by seat index."""
        return self.trainers() + self.members()

    def part(self, client: ClientId) -> Participation | None:
        """Return the part of a client; None if it was neither trainer nor member."""
        committee = self.round.committee
        if client in committee:
            return self.member(committee.index(client), client)
        return self.trainer(client) if client in self.round.trainers else None

    def trainers(self) -> list[Participation]:
        """Return the parts of the trainers, ascending."""
        return [self.trainer(client) for client in self.round.trainers]

    def members(self) -> list[Participation]:
        """Return the parts of the members, by seat index."""
        return [self.member(place, client) for place, client in enumerate(self.round.committee)]

    def trainer(self, client: ClientId) -> Participation:
        """Return the part of one trainer."""
        rank, bits = self.places.get(client, (None, None))
        committed = client in self.committed
        outcome = self._outcome(client, rank)
        is_out = outcome is UpdateOutcome.DROPPED_OUT
        return Participation(
            client,
            RoundRole.TRAINER,
            committed=committed,
            commitment=self.commitments.get(client),
            payload=self.payloads.get(client),
            outcome=outcome,
            rank=rank,
            distance_bits=bits,
            dropout=self._dropout(client, committed=committed) if is_out else None,
            banned=client in self.banned,
        )

    def member(self, place: int, client: ClientId) -> Participation:
        """Return the part of one member."""
        committed = client in self.committed
        scores, refused = self._scores(client)
        primary_of = tuple(phase for phase, primary, _ in self.phases if primary == client)
        replied = [phase for phase, _, signers in self.phases if signers >> place & 1]
        return Participation(
            client,
            RoundRole.MEMBER,
            place=place,
            empty_seat=self.round.registry[client].is_banned_in(self.round.round),
            committed=committed,
            commitment=self.commitments.get(client),
            payload=self.payloads.get(client),
            dropout=self._dropout(client, committed=committed) if self.round.decided else None,
            scores=scores,
            refused=refused,
            voted=tuple(phase for phase in _PHASES if phase in replied or phase in primary_of),
            primary_of=primary_of,
            incidents=tuple(i for i in self.incidents if i.member == client),
            banned=client in self.banned,
        )

    def _outcome(self, client: ClientId, rank: int | None) -> UpdateOutcome:
        if self.round.decided is None:
            return UpdateOutcome.UNDECIDED
        if rank is None:
            return UpdateOutcome.DROPPED_OUT
        return UpdateOutcome.ACCEPTED if client in self.accepted else UpdateOutcome.NOT_ACCEPTED

    def _dropout(self, client: ClientId, *, committed: bool) -> DropoutReason | None:
        """Return why a client has no usable update: from the record, or from the chain alone."""
        if self.record is not None:
            return self.dropouts.get(client)
        return None if committed else DropoutReason.NO_COMMITMENT

    def _scores(self, member: ClientId) -> tuple[ScoresOutcome, tuple[RefusedScores, ...]]:
        if self.record is None:
            return ScoresOutcome.UNKNOWN, ()
        refused = tuple(entry for entry in self.refused if entry.signed.scores.member == member)
        if refused:
            return ScoresOutcome.REFUSED, refused
        return (ScoresOutcome.COUNTED if member in self.scored else ScoresOutcome.NONE), ()


_PHASES = tuple(Phase)


@dataclass(slots=True)
class ParticipationCounts:
    """One client's counts over many rounds, including abandoned ones.

    Attributes:
        dropped_out: rounds in which it was sampled, and a decision does not rank it.
    """

    sampled: int = 0
    ranked: int = 0
    accepted: int = 0
    dropped_out: int = 0
    served: int = 0
    scored: int = 0
    refused: int = 0
    voted: int = 0
    primary: int = 0
    incidents: int = 0

    def add(self, part: Participation) -> None:
        """Add one round."""
        self.sampled += part.role is RoundRole.TRAINER
        self.ranked += part.rank is not None
        self.accepted += part.outcome is UpdateOutcome.ACCEPTED
        self.dropped_out += part.outcome is UpdateOutcome.DROPPED_OUT
        self.served += part.served
        self.scored += part.scores is ScoresOutcome.COUNTED
        self.refused += part.scores is ScoresOutcome.REFUSED
        self.voted += len(part.voted)
        self.primary += len(part.primary_of)
        self.incidents += len(part.incidents)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of all clients over the ended rounds.

    Attributes:
        records_missing: decided rounds without an available record, whose dropout reasons and
            score outcomes are unknown.
    """

    rounds: int
    records_missing: int
    clients: tuple[ParticipationCounts, ...]

    @staticmethod
    def empty(clients: int) -> Tally:
        """Return the counts of K clients before the first round."""
        return Tally(0, 0, tuple(ParticipationCounts() for _ in range(clients)))

    def with_rounds(self, rounds: Iterable[tuple[HistoryRound, Documents]]) -> Tally:
        """Return new counts that include more ended rounds, given with their documents."""
        counts = tuple(map(replace, self.clients))
        ended, missing = self.rounds, self.records_missing
        for round_, documents in rounds:
            ended += 1
            missing += lacks_record(round_, documents)
            for part in RoundParts.of(round_, documents).all():
                counts[part.client].add(part)
        return Tally(ended, missing, counts)


def lacks_record(round_: HistoryRound, documents: Documents) -> bool:
    """Return whether a round is decided and its record is not available."""
    return round_.decided is not None and documents.record is None
