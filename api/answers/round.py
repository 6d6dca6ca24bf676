"""One round's history as the answers about it and its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.reading import hexed
from api.schemas.rounds import (
    AcceptedUpdate,
    AggregationAnswer,
    CommitteeAnswer,
    CommitteeMember,
    EndBlock,
    IncidentsPointer,
    MemberEntry,
    RecordPointer,
    RoundAnswer,
    RoundSummary,
    Threshold,
    UpdateEntry,
    UpdatesAnswer,
    Weight,
)
from api.schemas.words import DropoutWhy, SelectionForm, name_of
from ledger.chain.addresses import checksum
from ledger.protocol import encoding
from ledger.protocol.types import NO_DIGEST, DropoutReason, Form, Phase

if TYPE_CHECKING:
    from typing import Literal, TypedDict

    from api.answers.outcomes import Outcome
    from api.deployments import Served
    from api.reading import Reading
    from api.schemas.words import AsOf, Status
    from ledger.audit.history import RoundHistory
    from ledger.chain.contract.events import Recorded
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.types import ClientId, Digest, RegisteredClient

    class Heading(TypedDict):
        """What every answer about a round begins with."""

        as_of: AsOf
        round: int
        status: Status


PARTS = ("updates", "scores", "votes", "committee", "aggregation")


def deployment_path(address: str) -> str:
    """Return the path of a deployment."""
    return f"/v1/deployments/{address}"


def round_path(address: str, number: int) -> str:
    """Return the path of a round."""
    return f"{deployment_path(address)}/rounds/{number}"


def round_links(address: str, number: int) -> dict[str, str]:
    """Return the paths of a round and its parts."""
    path = round_path(address, number)
    return {"self": path} | {part: f"{path}/{part}" for part in PARTS}


def end_block(ended: Recorded | None) -> EndBlock | None:
    """Return where a round ended."""
    if ended is None:
        return None
    return EndBlock(
        number=ended.block_number,
        hash=hexed(ended.block_hash),
        transaction=hexed(ended.transaction_hash),
    )


def summary(outcome: Outcome, served: Served) -> RoundSummary:
    """Return a round's line in the list."""
    decided = outcome.decided
    return RoundSummary(
        round=outcome.round,
        status=outcome.status,
        ranked=len(decided.ranking) if decided else 0,
        accepted=len(decided.accepted) if decided else 0,
        views=decided.views if decided else None,
        model=hexed(decided.model) if decided else None,
        ended=end_block(outcome.ended),
        links=round_links(served.manifest.address, outcome.round),
    )


@dataclass(frozen=True, slots=True)
class RoundView:
    """One round, and what its answers are made with.

    Attributes:
        reading: the request's.
        served: the deployment.
        history: the round.
    """

    reading: Reading
    served: Served
    history: RoundHistory

    @property
    def is_final(self) -> bool:
        """Whether the round has ended for ever."""
        return self.reading.is_final(self.history.ended)

    @property
    def is_recorded(self) -> bool:
        """Whether nothing is missing that the round's record should tell."""
        return self.history.decided is None or self.record is not None

    @property
    def has_incidents(self) -> bool:
        """Whether nothing is missing that the incidents document should tell."""
        pointer = self.incidents_pointer
        return pointer is None or pointer.available

    @property
    def heading(self) -> Heading:
        """What every answer about the round begins with."""
        ended = self.history.ended
        final = ended is not None and self.is_final
        return {
            "as_of": self.reading.as_of_end(ended) if ended and final else self.reading.as_of,
            "round": self.history.round,
            "status": self.history.status.value,
        }

    @property
    def record(self) -> RoundRecord | None:
        """The round's record, None if it is not there or is another's."""
        record, decided = self.history.record, self.history.decided
        if record is None or decided is None:
            return None
        own = (record.round, record.base) == (self.history.round, decided.base)
        return record if own else None

    @property
    def record_pointer(self) -> RecordPointer | None:
        """The pointer to the round's record."""
        decided = self.history.decided
        if decided is None:
            return None
        return RecordPointer(digest=hexed(decided.record), available=self.is_recorded)

    @property
    def incidents_pointer(self) -> IncidentsPointer | None:
        """The pointer to the incidents document; None if the decision names none."""
        decided = self.history.decided
        if decided is None or decided.incidents == NO_DIGEST:
            return None
        found = self.history.incidents is not None
        return IncidentsPointer(digest=hexed(decided.incidents), available=found)

    def client(self, client: ClientId) -> RegisteredClient:
        """Return a client as it was registered."""
        return self.served.registry()[client]

    def address(self, client: ClientId) -> str:
        """Return a client's address."""
        return checksum(self.client(client).address)

    def commitment(self, client: ClientId) -> str | None:
        """Return a client's word on the chain, None if it gave none."""
        return _hexed(self.history.commitments.get(client))

    def payload(self, client: ClientId) -> str | None:
        """Return the digest of a client's payload, None if the record does not tell it."""
        return _hexed(self.history.payloads.get(client)) if self.record is not None else None

    def places(self) -> dict[ClientId, tuple[int, int]]:
        """Return rank and distance bits of each ranked trainer."""
        decided = self.history.decided
        ranking = decided.ranking if decided else ()
        return {encoding.word_client(word): (rank, word >> 32) for rank, word in enumerate(ranking)}


def round_answer(view: RoundView) -> RoundAnswer:
    """Return a round in numbers."""
    history, reading = view.history, view.reading
    decided, ended = history.decided, history.ended
    end = decided or history.abandoned
    time = None if ended is None else reading.chain.block(ended.block_number).timestamp
    return RoundAnswer(
        **view.heading,
        seed=hexed(history.seed),
        trainers=len(history.trainers),
        members=len(history.committee),
        committed=len(history.commitments),
        ranked=len(decided.ranking) if decided else 0,
        accepted=len(decided.accepted) if decided else 0,
        banned=history.banned,
        base=hexed(decided.base) if decided else None,
        reveal=hexed(decided.reveal) if decided else None,
        views=decided.views if decided else None,
        model=hexed(decided.model) if decided else None,
        next_seed=hexed(end.next_seed) if end else None,
        head=hexed(end.head) if end else None,
        ended=end_block(ended),
        ended_time=time,
        record=view.record_pointer,
        incidents=view.incidents_pointer,
        links=round_links(view.served.manifest.address, history.round),
    )


def updates_answer(view: RoundView) -> UpdatesAnswer:
    """Return every sampled trainer and what became of its update."""
    history, places = view.history, view.places()
    accepted = set(history.decided.accepted) if history.decided else set()
    reasons = _dropouts(view)
    entries = []
    for client in history.trainers:
        rank, bits = places.get(client, (None, None))
        dropped = history.decided is not None and rank is None
        entries.append(
            UpdateEntry(
                client=client,
                outcome=_fate(
                    ranked=rank is not None, accepted=client in accepted, dropped=dropped
                ),
                commitment=view.commitment(client),
                payload=view.payload(client),
                rank=rank,
                distance=None if bits is None else encoding.float_from_bits(bits),
                distance_bits=None if bits is None else str(bits),
                reason=reasons.get(client) if dropped else None,
            )
        )
    return UpdatesAnswer(**view.heading, updates=tuple(entries), record=view.record_pointer)


def _dropouts(view: RoundView) -> dict[ClientId, DropoutWhy]:
    """Return why trainers dropped out: by the record, or for want of a word on the chain."""
    absent = set(view.history.trainers).difference(view.history.commitments)
    reasons = dict.fromkeys(absent, DropoutReason.NO_COMMITMENT)
    if view.record is not None:
        reasons |= {dropout.client: dropout.reason for dropout in view.record.dropouts}
    return {
        client: DropoutWhy(code=reason, name=name_of(reason)) for client, reason in reasons.items()
    }


def _fate(
    *, ranked: bool, accepted: bool, dropped: bool
) -> Literal["accepted", "not_accepted", "dropped_out", "undecided"]:
    if dropped:
        return "dropped_out"
    if not ranked:
        return "undecided"
    return "accepted" if accepted else "not_accepted"


def committee_answer(view: RoundView) -> CommitteeAnswer:
    """Return the round's committee and the next one."""
    history = view.history
    end = history.decided or history.abandoned
    primaries = history.decided.primaries if history.decided else ()
    return CommitteeAnswer(
        **view.heading,
        committee=tuple(
            CommitteeMember(
                place=place,
                client=client,
                address=view.address(client),
                commitment=view.commitment(client),
                payload=view.payload(client),
                banned=client in history.empty_seats,
                primary_of=tuple(
                    phase_name(phase)
                    for phase, primary in zip(Phase, primaries, strict=False)
                    if primary == client
                ),
            )
            for place, client in enumerate(history.committee)
        ),
        next_committee=tuple(
            MemberEntry(place=place, client=client, address=view.address(client))
            for place, client in enumerate(end.next_committee if end else ())
        ),
        record=view.record_pointer,
    )


def aggregation_answer(view: RoundView) -> AggregationAnswer:
    """Return what was aggregated, with weights and roots."""
    decided, form = view.history.decided, view.served.sizes.form
    if decided is None:
        return AggregationAnswer(
            **view.heading,
            form=selection_form(form),
            accepted=(),
            set=None,
            threshold=None,
            model=None,
            updates_root=None,
            scores_root=None,
            ranking_digest=None,
            reveal=None,
            record=None,
            result=None,
        )
    opening, bits = decided.opening(), decided.threshold_bits
    return AggregationAnswer(
        **view.heading,
        form=selection_form(form),
        accepted=_accepted(view, decided.accepted),
        set=hexed(encoding.set_digest(decided.accepted)),
        threshold=Threshold(value=encoding.float_from_bits(bits), bits=str(bits))
        if form is Form.WITHIN_THRESHOLD
        else None,
        model=hexed(opening.model),
        updates_root=hexed(opening.updates_root),
        scores_root=hexed(opening.scores_root),
        ranking_digest=hexed(opening.ranking_digest),
        reveal=hexed(opening.reveal),
        record=view.record_pointer,
        result=hexed(decided.result()),
    )


def _accepted(view: RoundView, accepted: tuple[ClientId, ...]) -> tuple[AcceptedUpdate, ...]:
    places = view.places()
    total = sum(view.client(client).samples for client in accepted)
    return tuple(
        AcceptedUpdate(
            client=client,
            rank=places[client][0],
            payload=view.payload(client),
            weight=Weight(
                numerator=str(view.client(client).samples),
                denominator=str(total),
                value=view.client(client).samples / total,
            ),
        )
        for client in accepted
    )


def selection_form(form: Form) -> SelectionForm:
    """Return how the contract derives S_a, as number and name."""
    return SelectionForm(code=form, name=name_of(form))


def phase_name(phase: Phase) -> Literal["aggregation", "election"]:
    """Return the name of a phase."""
    return "aggregation" if phase is Phase.AGGREGATION else "election"


def _hexed(digest: Digest | None) -> str | None:
    return None if digest is None else hexed(digest)
