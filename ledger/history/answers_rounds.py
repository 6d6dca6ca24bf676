"""Answers about rounds: in a list, in numbers, whole, in words, and as columns of a series.

Nothing proves accuracy: only the process that has played the run reports it. It is shown as a
claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from ledger.claims import ClaimedRound, claims_of
from ledger.history import fields
from ledger.history.answers_parts import (
    AggregationBody,
    AnsweredRound,
    CommitmentEntry,
    CommitteeMember,
    EndBlock,
    MemberEntry,
    NewModel,
    RoundHeading,
    RoundNumbers,
    UpdateEntry,
    Views,
    aggregation_body,
    commitments,
    committee,
    end_block,
    round_numbers,
    updates,
)
from ledger.history.answers_signed import ScoresBody, VotesBody, scores_body, votes_body
from ledger.history.explain import explain_missing_payloads, explain_round
from ledger.history.fields import Answer, Response, doc, to_hex_or_none
from ledger.history.round import read_run
from ledger.io.home import RunPaths
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory, RoundPage
    from ledger.history.round import HistoryRound


class RoundSummary(Response):
    """One round in the list."""

    round: fields.RoundNumber
    status: fields.Status
    ranked: fields.Count
    accepted: fields.Count
    views: Views
    model: NewModel
    ended: EndBlock | None
    links: fields.Links


def round_summary(history: FoldedHistory, round_: HistoryRound) -> RoundSummary:
    """Return a round's line in a list."""
    decided = round_.decided
    return {
        "round": round_.round,
        "status": round_.status,
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "views": decided.views if decided else None,
        "model": to_hex_or_none(decided.model if decided else None),
        "ended": end_block(history, round_),
        "links": history.path.round_links(round_.round),
    }


class DiscardedRounds(Response):
    """An event's notice that rounds were taken back by a reorganisation of the chain."""

    from_round: fields.RoundNumber


class RoundParts(Response):
    """All parts of a round but the score vectors."""

    commitments: Annotated[
        list[CommitmentEntry],
        doc(
            "in the chain's order, also of clients that are not active and after the "
            "closing block: the base follows from those up to that block, the head from all"
        ),
    ]
    updates: list[UpdateEntry]
    committee: list[CommitteeMember]
    next_committee: list[MemberEntry]
    aggregation: AggregationBody
    scores: ScoresBody
    votes: VotesBody


class FullRound(RoundNumbers):
    """One round whole."""

    parts: RoundParts


class RoundAnswer(RoundNumbers, Answer):
    """One round in numbers, and whole with `full=true`."""

    parts: Annotated[RoundParts | None, doc("null without `full=true`")]


def full_round(view: AnsweredRound) -> FullRound:
    """Return a round with all its parts but the score vectors."""
    scores, _ = scores_body(view)
    members = committee(view)
    return {
        **round_numbers(view),
        "parts": {
            "commitments": commitments(view.round),
            "updates": updates(view)["updates"],
            "committee": members["committee"],
            "next_committee": members["next_committee"],
            "aggregation": aggregation_body(view),
            "scores": scores,
            "votes": votes_body(view),
        },
    }


class RoundsAnswer(Answer):
    """A page of rounds; with filters, one page examines a limited number of rounds."""

    rounds: list[RoundSummary] | list[FullRound]
    scanned: Annotated[
        fields.Count, doc("rounds that this page examined; a page may be short of `limit`")
    ]
    next_cursor: fields.NextCursor


def rounds_page(history: FoldedHistory, page: RoundPage, *, full: bool = False) -> RoundsAnswer:
    """Return a page of rounds, each as a line or whole."""
    rounds: list[RoundSummary] | list[FullRound]
    if full:
        rounds = [full_round(AnsweredRound.of(history, round_)) for round_ in page.rounds]
    else:
        rounds = [round_summary(history, round_) for round_ in page.rounds]
    return {"rounds": rounds, "scanned": page.scanned, "next_cursor": page.next_cursor}


class ExplanationAnswer(RoundHeading):
    """One round in plain words."""

    sentences: Annotated[
        list[str], Field(examples=[["Round 2 was decided, with 6 trainers and 4 members."]])
    ]


def explanation(view: AnsweredRound) -> ExplanationAnswer:
    """Return a round in plain words."""
    document = read_run(view.history.blobs, view.history.fixed.config)
    reports = [view.history.ban_report(recorded) for recorded in view.round.bans]
    sentences = explain_round(view.round, view.documents, document, reports)
    sentences += explain_missing_payloads(view.documents, view.history.blobs)
    return {**view.heading(), "sentences": sentences}


ClaimsState = Literal["read", "absent", "unreadable"]
Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Response):
    """Claims of the run's own files, which no audit checks."""

    accuracy: Annotated[
        list[Share | None], doc("on the test set, after the round; null where it was not measured")
    ]
    floor: Annotated[list[Share | None], doc("accuracy of always answering the commonest class")]
    malicious_accepted: Annotated[
        list[fields.Count | None], doc("accepted updates that attackers sent")
    ]


class SeriesAnswer(Answer):
    """A run over its rounds, ascending."""

    round: list[fields.RoundNumber]
    status: list[fields.Status]
    ranked: list[fields.Count | None]
    accepted: list[fields.Count | None]
    views: Annotated[
        list[tuple[int, int] | None],
        doc("of the aggregation and the election, from 0", examples=[[[0, 1]]]),
    ]
    committee: Annotated[list[list[fields.Client]], doc("S_c of each round, by places")]
    claims: Annotated[
        ClaimsState,
        doc(
            "whether the run's own files were read; unreadable ones are damaged, "
            "larger than 32 MiB, or no files"
        ),
    ]
    claimed: Annotated[Claimed | None, doc("null unless they were read")]


def series_response(rounds: Iterable[HistoryRound], folder: RunPaths | None) -> SeriesAnswer:
    """Return a run's rounds as columns of equal length.

    Args:
        rounds: ascending, by their openings and ends.
        folder: of the run, for its claims; None where it is not available.
    """
    points = list(rounds)
    state, rows = _claims(points, folder)
    claimed = _columns([rows.get(point.round) for point in points]) if state == "read" else None
    return {
        "round": [point.round for point in points],
        "status": [point.status for point in points],
        "ranked": [len(point.decided.ranking) if point.decided else None for point in points],
        "accepted": [len(point.decided.accepted) if point.decided else None for point in points],
        "views": [point.decided.views if point.decided else None for point in points],
        "committee": [list(point.committee) for point in points],
        "claims": state,
        "claimed": claimed,
    }


MAX_POINTS = 2_000
"""Rounds in one response; a longer run is thinned evenly, and keeps its last round."""


def chart_rounds(history: FoldedHistory) -> list[HistoryRound]:
    """Return the rounds that a chart shows, ascending, by their openings and ends."""
    newest = history.newest()
    numbers = chart_points(newest)
    if len(numbers) == newest:
        return history.rounds(1, newest) if newest else []
    return history.some(numbers)


def chart_points(newest: int) -> list[int]:
    """Return the numbers of the rounds that a chart shows: all, or evenly thinned ones."""
    step = -(-newest // MAX_POINTS) if newest else 1
    numbers = list(range(1, newest + 1, step))
    return numbers if not numbers or numbers[-1] == newest else [*numbers, newest]


def _claims(
    points: Sequence[HistoryRound], folder: RunPaths | None
) -> tuple[ClaimsState, dict[int, ClaimedRound]]:
    """Return the claims of a run's files about some rounds, and whether they could be read."""
    if folder is None:
        return "absent", {}
    try:
        return "read", claims_of(folder, {point.round for point in points})
    except (EncodingError, OSError):
        return "unreadable", {}


def _columns(rows: Sequence[ClaimedRound | None]) -> Claimed:
    names = ("accuracy", "floor", "malicious_accepted")
    return cast("Claimed", {name: [getattr(row, name, None) for row in rows] for name in names})
