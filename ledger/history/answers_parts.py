"""Answers about one round: its numbers, commitments, updates, committee and aggregation.

Each type stands before the function that builds it from the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from ledger.history import fields
from ledger.history.fields import Answer, Response, code_of, doc, picked_or_null
from ledger.history.round import DocumentedRound, Documents, HistoryRound, Participation
from ledger.protocol import encoding
from ledger.protocol.documents.record import RefusedScores
from ledger.protocol.encoding import checksum, to_hex
from ledger.protocol.judgement import weights_of
from ledger.protocol.types import ClientId, RefusalReason

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory


View = Annotated[int, doc("v, from 0", ge=0, lt=2**32, examples=[0])]
Base = Annotated[
    fields.Digest32, doc("the commitments digest after the closing block: which inputs are meant")
]


class RecordPointer(Response):
    """The blob with the basis of the decision; the result that was voted on binds it."""

    digest: fields.Digest32
    available: Annotated[
        bool, doc("whether it is stored, and a record of this round", examples=[True])
    ]


class IncidentsPointer(Response):
    """The blob with the failures while voting; only the decision's sender names it."""

    digest: fields.Digest32
    available: Annotated[bool, doc("whether it is stored, and of this round", examples=[True])]


class RoundHeading(Answer):
    """First fields of every answer about one round."""

    round: fields.RoundNumber
    status: fields.Status


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """One round with its documents, and the history that they come from."""

    history: FoldedHistory
    parts: DocumentedRound

    @staticmethod
    def of(history: FoldedHistory, round_: HistoryRound) -> AnsweredRound:
        return AnsweredRound(history, history.documented(round_))

    @property
    def round(self) -> HistoryRound:
        return self.parts.round

    @property
    def documents(self) -> Documents:
        return self.parts.documents

    def heading(self) -> RoundHeading:
        return {"round": self.round.round, "status": self.round.status}

    def record(self) -> RecordPointer | None:
        decided = self.round.decided
        if decided is None:
            return None
        return {"digest": to_hex(decided.record), "available": not self.parts.lacks_record}

    def incidents(self) -> IncidentsPointer | None:
        decided = self.round.decided
        if decided is None or not self.documents.names_incidents:
            return None
        return {"digest": to_hex(decided.incidents), "available": self.documents.has_incidents}

    def address(self, client: ClientId) -> str:
        return checksum(self.round.registry[client].address)


Views = Annotated[
    tuple[int, int] | None,
    doc("views of aggregation and election, from 0", examples=[[0, 1]]),
]
NewModel = Annotated[fields.Digest32 | None, doc("w_{t+1}; null unless decided")]


class RoundNumbers(Response):
    """One round in numbers; its parts are linked."""

    round: fields.RoundNumber
    status: fields.Status
    opened_block: Annotated[fields.BlockNumber, doc("block that opened the round")]
    seed: fields.Digest32
    trainers: Annotated[fields.Count, doc("sampled, S_b", examples=[6])]
    members: Annotated[fields.Count, doc("S_c", examples=[4])]
    committed: Annotated[
        fields.Count, doc("active clients with a commitment by the closing block", examples=[10])
    ]
    ranked: Annotated[fields.Count, Field(examples=[6])]
    accepted: Annotated[fields.Count, doc("S_a", examples=[3])]
    banned: Annotated[
        list[fields.Client],
        doc("clients banned in this round, with effect from the next", examples=[[]]),
    ]
    base: Annotated[Base | None, doc("base in both certificates")]
    reveal: Annotated[
        fields.Digest32 | None, doc("keccak256 of the ranked trainers' payload digests")
    ]
    views: Views
    model: NewModel
    next_seed: fields.Digest32 | None
    head: Annotated[fields.Digest32 | None, doc("head after the round")]
    ended: fields.EndBlock | None
    record: RecordPointer | None
    incidents: Annotated[IncidentsPointer | None, doc("null if none are named")]
    links: fields.Links


def round_numbers(view: AnsweredRound) -> RoundNumbers:
    """Return a round in numbers."""
    round_, history = view.round, view.history
    decided, end = round_.decided, round_.end
    answer = {
        **view.heading(),
        "opened_block": round_.opening.opened_block,
        "seed": to_hex(round_.seed),
        "trainers": len(round_.trainers),
        "members": len(round_.committee),
        "committed": len(round_.counted),
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "banned": list(round_.bans),
        **picked_or_null("base reveal views model", decided),
        **picked_or_null("next_seed head", end),
        "ended": history.end_block(round_),
        "record": view.record(),
        "incidents": view.incidents(),
        "links": history.path.round_links(round_.round),
    }
    return cast("RoundNumbers", answer)


class CommitmentEntry(Response):
    """A commitment that a round took."""

    client: fields.Client
    commitment: Annotated[fields.Digest32, doc("keccak256(client ‖ payload digest)")]
    block: Annotated[fields.BlockNumber, doc("block with the commitment")]


def commitments(round_: HistoryRound) -> list[CommitmentEntry]:
    """Return all commitments of a round in the chain's order, even if they do not count."""
    return [
        {"client": mined.client, "commitment": to_hex(mined.commitment), "block": mined.block}
        for mined in round_.mined
    ]


class Placed(Response):
    """Rank and distance of an update; null if it is not ranked."""

    rank: Annotated[int | None, doc("place in the ranking, from 0, best first", ge=0, examples=[0])]
    distance: fields.Distance | None
    distance_bits: fields.Bits | None


class UpdateEntry(Placed):
    """One sampled trainer and the outcome of its update."""

    client: fields.Client
    outcome: fields.TrainerOutcome
    committed: fields.Committed
    commitment: fields.CommitmentWord
    payload: fields.Payload
    reason: Annotated[
        fields.DropoutWhy | None, doc("reason for dropping out, if chain or record give one")
    ]


class UpdatesAnswer(RoundHeading):
    """Every sampled trainer, ascending."""

    updates: list[UpdateEntry]
    record: RecordPointer | None


def updates(view: AnsweredRound) -> UpdatesAnswer:
    """Return the outcome of each sampled trainer's update."""
    names = "client outcome committed commitment payload rank distance distance_bits reason"
    entries = [part_entry(names, part) for part in view.parts.trainers()]
    return {**view.heading(), "updates": entries, "record": view.record()}


class MemberEntry(Response):
    """A member by its seat index."""

    place: fields.Place
    client: fields.Client
    address: fields.Eip55


class Refusal(Response):
    """Reason why a member's scores do not count."""

    reason: fields.RefusalWhy
    named: fields.NamedClient


def refusal(entry: RefusedScores) -> Refusal:
    """Return why scores do not count, and the client whose distance is false if that is why."""
    is_false = entry.reason is RefusalReason.FALSE_DISTANCE
    return {"reason": code_of(entry.reason), "named": entry.client if is_false else None}


class Accusation(Response):
    """A member's failure as the decision's sender reports it; no vote binds it."""

    phase: fields.PhaseName
    view: View
    kind: fields.IncidentWhat


class Duties(Response):
    """Scores, votes and incidents of a member; null or empty for a trainer."""

    scores: Annotated[
        fields.MemberScores | None,
        doc("outcome of its scores; unknown without the round's record"),
    ]
    refused: list[Refusal]
    voted: Annotated[list[fields.PhaseName], doc("phases whose deciding certificate it signed")]
    primary_of: Annotated[
        list[fields.PhaseName], doc("phases that were decided with it as the primary")
    ]
    incidents: list[Accusation]


class CommitteeMember(Duties, MemberEntry):
    """A member of the round's committee."""

    empty_seat: Annotated[
        bool, doc("whether the member was banned when the round opened", examples=[False])
    ]
    committed: fields.Committed
    commitment: fields.CommitmentWord
    payload: fields.Payload
    reason: fields.NoUpdateWhy


def part_entry(names: str, part: Participation, **given: object) -> Any:
    """Return fields of a client's part in a round, with more that are given, in this order."""
    bits, outcome, scores = part.distance_bits, part.outcome, part.scores
    made = {  # enums as plain text, which JSON is written from much faster
        "client": part.client,
        "role": str(part.role),
        "place": part.place,
        "empty_seat": part.empty_seat,
        "committed": part.committed,
        "commitment": fields.to_hex_or_none(part.commitment),
        "payload": fields.to_hex_or_none(part.payload),
        "outcome": outcome and str(outcome),
        "rank": part.rank,
        "distance": None if bits is None else fields.finite(encoding.float_from_bits(bits)),
        "distance_bits": None if bits is None else str(bits),
        "reason": None if part.dropout is None else code_of(part.dropout),
        "scores": scores and str(scores),
        "refused": [refusal(entry) for entry in part.refused],
        "voted": list(map(fields.phase_name, part.voted)),
        "primary_of": list(map(fields.phase_name, part.primary_of)),
        "incidents": [
            {"phase": fields.phase_name(each.phase), "view": each.view, "kind": code_of(each.kind)}
            for each in part.incidents
        ],
        "banned": part.banned,
        **given,
    }
    return {name: made[name] for name in names.split()}


class CommitteeAnswer(RoundHeading):
    """S_c of the round and of the next."""

    committee: list[CommitteeMember]
    next_committee: list[MemberEntry]
    record: RecordPointer | None


_MEMBER = (
    "place client address empty_seat committed commitment payload reason "
    "scores refused voted primary_of incidents"
)


def committee(view: AnsweredRound) -> CommitteeAnswer:
    """Return the members by their places, with what they did, and the next committee."""
    following = view.round.end.next_committee if view.round.end else ()
    return {
        **view.heading(),
        "committee": [
            part_entry(_MEMBER, part, address=view.address(part.client))
            for part in view.parts.members()
        ],
        "next_committee": [
            {"place": place, "client": client, "address": view.address(client)}
            for place, client in enumerate(following)
        ],
        "record": view.record(),
    }


class Weight(Response):
    """The share of an update: n_k / Σ n_k, or 1 / m of the clipped one in strategy 3."""

    numerator: Annotated[fields.Uint, Field(examples=["119"])]
    denominator: Annotated[fields.Uint, Field(examples=["357"])]
    value: Annotated[float, Field(ge=0, le=1, examples=[0.3333333333333333])]


class AcceptedUpdate(Response):
    """One client of S_a."""

    client: fields.Client
    rank: Annotated[int, Field(ge=0, examples=[0])]
    payload: fields.Payload
    weight: Weight


class Opening(Response):
    """Preimage of an aggregation result, which is keccak256 of its abi.encode."""

    model: fields.Digest32
    updates_root: fields.Digest32
    scores_root: fields.Digest32
    ranking_digest: fields.Digest32
    reveal: fields.Digest32
    record: fields.Digest32


def opening_of(preimage: encoding.ResultPreimage | None) -> Any:
    """Return the preimage of an aggregation result; all None without one."""
    return picked_or_null(" ".join(Opening.__annotations__), preimage)


class AggregationBody(Response):
    """The aggregation; all null and empty unless decided."""

    form: fields.SelectionForm
    accepted: Annotated[list[AcceptedUpdate], doc("S_a, in ranking order")]
    set: Annotated[fields.Digest32 | None, doc("set digest of S_a")]
    model: Annotated[fields.Digest32 | None, doc("sha256 of w_{t+1}")]
    updates_root: fields.Digest32 | None
    scores_root: fields.Digest32 | None
    ranking_digest: fields.Digest32 | None
    reveal: fields.Digest32 | None
    result: Annotated[fields.Digest32 | None, doc("digest that the committee voted on")]


def aggregation_body(view: AnsweredRound) -> AggregationBody:
    """Return what was aggregated, without the round's heading and record."""
    decided, form = view.round.decided, view.history.fixed.form
    opening = opening_of(None if decided is None else decided.opening())
    weights = weights_of(form, view.round.registry, decided.accepted if decided else ())
    total, payloads, places = sum(weights.values()), view.documents.payloads, view.round.places
    answer = {
        "form": code_of(form),
        "accepted": [
            {
                "client": client,
                "rank": places[client][0],
                "payload": fields.to_hex_or_none(payloads.get(client)),
                "weight": {"numerator": str(own), "denominator": str(total), "value": own / total},
            }
            for client, own in weights.items()
        ],
        "set": None if decided is None else to_hex(encoding.set_digest(decided.accepted)),
        **{name: digest for name, digest in opening.items() if name != "record"},
        "result": None if decided is None else to_hex(decided.result()),
    }
    return cast("AggregationBody", answer)


class AggregationAnswer(AggregationBody, RoundHeading):
    """The aggregation; all null and empty unless decided."""

    record: RecordPointer | None


def aggregation(view: AnsweredRound) -> AggregationAnswer:
    """Return what was aggregated; all empty unless the round is decided."""
    answer: Any = {**view.heading(), **aggregation_body(view)}
    result = answer.pop("result")  # comes last
    return cast("AggregationAnswer", {**answer, "record": view.record(), "result": result})
