"""One round's history as the answers about it and its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from api.reading import hexed
from api.schemas_rounds import (
    AcceptedUpdate,
    AggregationAnswer,
    CommitteeAnswer,
    CommitteeMember,
    EndBlock,
    MemberEntry,
    RecordPointer,
    RoundAnswer,
    RoundSummary,
    Threshold,
    UpdateEntry,
    UpdatesAnswer,
    Weight,
)
from ledger.chain.addresses import checksum
from ledger.protocol import encoding
from ledger.protocol.counting import NO_COMMITMENT
from ledger.protocol.types import Strategy

if TYPE_CHECKING:
    from typing import Literal, TypedDict

    from api.deployments import Served
    from api.outcomes import Outcome
    from api.reading import Reading
    from api.schemas import AsOf, Status
    from ledger.audit.history import RoundHistory
    from ledger.chain.events import Recorded
    from ledger.protocol.types import ClientId

    class Heading(TypedDict):
        """What every answer about a round begins with."""

        as_of: AsOf
        round: int
        status: Status


MAX_REASON = 300
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
    """One round and what it is told with.

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
        return self.history.decided is None or self.record is None or self.record.available

    @property
    def heading(self) -> Heading:
        """What every answer about the round begins with."""
        ended = self.history.ended
        final = ended is not None and self.is_final
        return {
            "as_of": self.reading.as_of_end(ended) if ended and final else self.reading.as_of,
            "round": self.history.round,
            "status": cast("Status", self.history.status),
        }

    @property
    def record(self) -> RecordPointer | None:
        """The pointer to the round's record."""
        decided = self.history.decided
        if decided is None:
            return None
        record = self.history.record
        available = record is not None and record.round == self.history.round
        return RecordPointer(digest=hexed(decided.record), available=available)

    def address(self, client: ClientId) -> str:
        """Return a client's address."""
        return checksum(self.served.registry()[client].address)

    def payload(self, client: ClientId) -> str | None:
        """Return what a client committed to, None if it did not."""
        payload = self.history.commitments.get(client)
        return None if payload is None else hexed(payload)

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
        views=decided.views if decided else None,
        model=hexed(decided.model) if decided else None,
        next_seed=hexed(end.next_seed) if end else None,
        head=hexed(end.head) if end else None,
        ended=end_block(ended),
        ended_time=time,
        record=view.record,
        links=round_links(view.served.manifest.address, history.round),
    )


def updates_answer(view: RoundView) -> UpdatesAnswer:
    """Return every sampled trainer and what became of its update."""
    history, places = view.history, view.places()
    reasons = dict(history.record.dropouts) if history.record else {}
    accepted = set(history.decided.accepted) if history.decided else set()
    entries = []
    for client in history.trainers:
        rank, bits = places.get(client, (None, None))
        dropped = history.decided is not None and rank is None
        reason = NO_COMMITMENT if client not in history.commitments else reasons.get(client)
        entries.append(
            UpdateEntry(
                client=client,
                outcome=_fate(
                    ranked=rank is not None, accepted=client in accepted, dropped=dropped
                ),
                payload=view.payload(client),
                rank=rank,
                distance=None if bits is None else encoding.float_from_bits(bits),
                distance_bits=None if bits is None else str(bits),
                reason=reason[:MAX_REASON] if dropped and reason is not None else None,
            )
        )
    return UpdatesAnswer(**view.heading, updates=tuple(entries), record=view.record)


def _fate(
    *, ranked: bool, accepted: bool, dropped: bool
) -> Literal["accepted", "not accepted", "dropped out", "undecided"]:
    if dropped:
        return "dropped out"
    if not ranked:
        return "undecided"
    return "accepted" if accepted else "not accepted"


def committee_answer(view: RoundView) -> CommitteeAnswer:
    """Return the round's committee and the next one."""
    decided, end = view.history.decided, view.history.decided or view.history.abandoned
    primaries = decided.primaries if decided else ()
    phases: list[Literal["aggregation", "election"]] = ["aggregation", "election"]
    return CommitteeAnswer(
        **view.heading,
        committee=tuple(
            CommitteeMember(
                place=place,
                client=client,
                address=view.address(client),
                payload=view.payload(client),
                primary_of=tuple(
                    phase
                    for phase, primary in zip(phases, primaries, strict=False)
                    if primary == client
                ),
            )
            for place, client in enumerate(view.history.committee)
        ),
        next_committee=tuple(
            MemberEntry(place=place, client=client, address=view.address(client))
            for place, client in enumerate(end.next_committee if end else ())
        ),
    )


def aggregation_answer(view: RoundView) -> AggregationAnswer:
    """Return what was aggregated, with weights and roots."""
    decided, strategy = view.history.decided, view.served.sizes.strategy
    if decided is None:
        return AggregationAnswer(
            **view.heading,
            strategy=_strategy_number(strategy),
            accepted=(),
            set=None,
            threshold=None,
            model=None,
            updates_root=None,
            scores_root=None,
            ranking_digest=None,
            result=None,
        )
    bits = decided.threshold_bits
    return AggregationAnswer(
        **view.heading,
        strategy=_strategy_number(strategy),
        accepted=_accepted(view, decided.accepted),
        set=hexed(encoding.set_digest(decided.accepted)),
        threshold=Threshold(value=encoding.float_from_bits(bits), bits=str(bits))
        if strategy is Strategy.WITHIN_SPREAD
        else None,
        model=hexed(decided.model),
        updates_root=hexed(decided.updates_root),
        scores_root=hexed(decided.scores_root),
        ranking_digest=hexed(encoding.ranking_digest(decided.ranking)),
        result=hexed(decided.aggregation_result()),
    )


def _accepted(view: RoundView, accepted: tuple[ClientId, ...]) -> tuple[AcceptedUpdate, ...]:
    registry, places = view.served.registry(), view.places()
    total = sum(registry[client].samples for client in accepted)
    return tuple(
        AcceptedUpdate(
            client=client,
            rank=places[client][0],
            payload=view.payload(client),
            weight=Weight(
                numerator=str(registry[client].samples),
                denominator=str(total),
                value=registry[client].samples / total,
            ),
        )
        for client in accepted
    )


def _strategy_number(strategy: Strategy) -> Literal[1, 2, 3]:
    return cast("Literal[1, 2, 3]", int(strategy))
