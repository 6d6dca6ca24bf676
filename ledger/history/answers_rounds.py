"""Answers about rounds: in a list, in numbers, whole, in words, and as columns of a series.

`LocalHistory` gives all answers about one deployment; `RoundFollower` reports its changes.

Accuracy cannot be proven: only the process that has played the run reports it. It is shown as a
claim, with the accuracy of always predicting the most frequent class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from ledger.claims import claims_of
from ledger.history import answers_clients, answers_parts, answers_signed, fields
from ledger.history.answers_clients import DigestAnswer, client_entry, digest_place
from ledger.history.answers_parts import AnsweredRound, RoundHeading
from ledger.history.explain import explain_missing_payloads, explain_round
from ledger.history.fields import Answer, Response, RoundQuery, doc, to_hex_or_none
from ledger.history.round import read_run
from ledger.io.home import RunPaths
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.chain.round_ledger import RecordedEvent
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound


class RoundSummary(Response):
    """One round in the list."""

    round: fields.RoundNumber
    status: fields.Status
    ranked: fields.Count
    accepted: fields.Count
    views: answers_parts.Views
    model: answers_parts.NewModel
    ended: fields.EndBlock | None
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
        "ended": history.end_block(round_),
        "links": history.path.round_links(round_.round),
    }


class DiscardedRounds(Response):
    """An event's notice that a reorganisation of the chain has reverted rounds."""

    from_round: fields.RoundNumber


class RoundParts(Response):
    """All parts of a round but the score vectors."""

    commitments: Annotated[
        list[answers_parts.CommitmentEntry],
        doc(
            "in the chain's order, also of clients that are not active and after the "
            "closing block: the base follows from those up to that block, the head from all"
        ),
    ]
    updates: list[answers_parts.UpdateEntry]
    committee: list[answers_parts.CommitteeMember]
    next_committee: list[answers_parts.MemberEntry]
    aggregation: answers_parts.AggregationBody
    scores: answers_signed.ScoresBody
    votes: answers_signed.VotesBody


class FullRound(answers_parts.RoundNumbers):
    """One round whole."""

    parts: RoundParts


class RoundAnswer(answers_parts.RoundNumbers, Answer):
    """One round in numbers, and whole with `full=true`."""

    parts: Annotated[RoundParts | None, doc("null without `full=true`")]


def full_round(view: AnsweredRound) -> FullRound:
    """Return a round with all its parts but the score vectors."""
    members = answers_parts.committee(view)
    return {
        **answers_parts.round_numbers(view),
        "parts": {
            "commitments": answers_parts.commitments(view.round),
            "updates": answers_parts.updates(view)["updates"],
            "committee": members["committee"],
            "next_committee": members["next_committee"],
            "aggregation": answers_parts.aggregation_body(view),
            "scores": answers_signed.scores_body(view)[0],
            "votes": answers_signed.votes_body(view),
        },
    }


class RoundsAnswer(Answer):
    """A page of rounds; with filters, one page examines a limited number of rounds."""

    rounds: list[RoundSummary] | list[FullRound]
    scanned: fields.Scanned
    next_cursor: fields.NextCursor


class ExplanationAnswer(RoundHeading):
    """One round in plain words."""

    sentences: Annotated[
        list[str], Field(examples=[["Round 2 was decided, with 6 trainers and 4 members."]])
    ]


def explanation(view: AnsweredRound) -> ExplanationAnswer:
    """Return a round in plain words."""
    document = read_run(view.history.blobs, view.history.fixed.config)
    reports = [view.history.ban_report(recorded) for recorded in view.round.bans.values()]
    sentences = explain_round(view.round, view.documents, document, reports)
    sentences += explain_missing_payloads(view.documents, view.history.blobs)
    return {**view.heading(), "sentences": sentences}


ClaimsState = Literal["read", "absent", "unreadable"]
Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Response):
    """Claims of the run's own files, which no audit checks."""

    accuracy: Annotated[
        list[Share | None], doc("accuracy on the test set after the round; null if not measured")
    ]
    floor: Annotated[
        list[Share | None], doc("accuracy of always predicting the most frequent class")
    ]
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
        doc("deciding views of aggregation and election, from 0", examples=[[[0, 1]]]),
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
    """Return a run's rounds, ascending, as columns; its folder, if available, has the claims."""
    points, claimed = list(rounds), None
    state: ClaimsState = "absent"
    if folder is not None:
        try:
            claims, state = claims_of(folder, {point.round for point in points}), "read"
            rows = [claims.get(point.round) for point in points]
            names = ("accuracy", "floor", "malicious_accepted")
            claimed = {name: [getattr(row, name, None) for row in rows] for name in names}
        except (EncodingError, OSError):
            state = "unreadable"
    return {
        "round": [point.round for point in points],
        "status": [point.status for point in points],
        "ranked": [len(point.decided.ranking) if point.decided else None for point in points],
        "accepted": [len(point.decided.accepted) if point.decided else None for point in points],
        "views": [point.decided.views if point.decided else None for point in points],
        "committee": [list(point.committee) for point in points],
        "claims": state,
        "claimed": cast("Claimed | None", claimed),
    }


MAX_POINTS = 2_000
"""Rounds in one response; a longer run is thinned evenly, and keeps its last round."""


def chart_points(newest: int) -> list[int]:
    """Return the numbers of the rounds that a chart shows: all, or evenly thinned ones."""
    step = -(-newest // MAX_POINTS) if newest else 1
    numbers = list(range(1, newest + 1, step))
    return numbers if not numbers or numbers[-1] == newest else [*numbers, newest]


@dataclass(frozen=True, slots=True)
class LocalHistory:
    """Answers about one deployment; raises UnknownRoundError and UnknownClientError."""

    source: FoldedHistory

    @property
    def address(self) -> str:
        return self.source.ledger.address

    def rounds(
        self, query: RoundQuery, limit: int, cursor: str | None, *, full: bool = False
    ) -> RoundsAnswer:
        history = self.source
        page = history.page(query, limit, cursor)
        rounds: list[RoundSummary] | list[FullRound]
        if full:
            rounds = [full_round(AnsweredRound.of(history, round_)) for round_ in page.entries]
        else:
            rounds = [round_summary(history, round_) for round_ in page.entries]
        return {"rounds": rounds, "scanned": page.scanned, "next_cursor": page.next_cursor}

    def full_round(self, number: int) -> FullRound:
        return full_round(self.view(number))

    def explanation(self, number: int) -> ExplanationAnswer:
        return explanation(self.view(number))

    def missing_payloads(self, number: int) -> list[str]:
        return explain_missing_payloads(self.view(number).documents, self.source.blobs)

    def clients(self, limit: int, cursor: str | None) -> answers_clients.ClientsAnswer:
        history = self.source
        clients, scope = len(history.registered()), repr(("clients", str(history.path)))
        start = 0 if cursor is None else fields.decode_cursor(cursor, scope, clients - 1)[0]
        end, tally = min(start + limit, clients), history.tally()
        return {
            "ended_rounds": tally.rounds,
            "records_missing": tally.records_missing,
            "clients": [client_entry(history, tally, client) for client in range(start, end)],
            "next_cursor": fields.encode_cursor(end, scope) if end < clients else None,
        }

    def client(self, client: int) -> answers_clients.ClientAnswer:
        history = self.source
        index, tally = history.known(client, is_registered=True), history.tally()
        banned_in = history.registered()[index].banned_in
        held = history.round(banned_in) if banned_in else None
        bans = held.bans if held else {}
        return {
            "ended_rounds": tally.rounds,
            "records_missing": tally.records_missing,
            "client": client_entry(history, tally, index),
            "ban": answers_signed.ban_body(history, bans[index]) if index in bans else None,
        }

    def client_rounds(
        self, client: int, query: RoundQuery, limit: int, cursor: str | None
    ) -> answers_clients.ClientRoundsAnswer:
        history = self.source
        index = history.known(client, is_registered=True)
        query = replace(query, listing="client rounds", client=index)
        page = history.page(query, limit, cursor)
        names = answers_clients.CLIENT_ROUND_FIELDS
        parts: list[answers_clients.ClientRound] = []
        for each in page.entries:
            part = history.documented(each).part(index)
            if part is None:
                raise ValueError(f"client {client} took no part in round {each.round}")
            links, ended = history.path.round_links(each.round), history.end_block(each)
            given = {"round": each.round, "status": str(each.status), "ended": ended}
            parts.append(answers_parts.part_entry(names, part, links=links, **given))
        return {"rounds": parts, "scanned": page.scanned, "next_cursor": page.next_cursor}

    def evidence(
        self, query: RoundQuery, limit: int, cursor: str | None
    ) -> answers_signed.EvidenceAnswer:
        history = self.source

        def evidence_of(round_: HistoryRound) -> list[answers_signed.EvidenceEntry]:
            return [
                entry
                for entry in answers_signed.round_evidence(AnsweredRound.of(history, round_))
                if query.client in {None, entry["client"]} and query.kind in {None, entry["kind"]}
            ]

        page = history.page_of(replace(query, listing="evidence"), limit, cursor, evidence_of)
        return {"evidence": page.entries, "scanned": page.scanned, "next_cursor": page.next_cursor}

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestAnswer:
        history = self.source
        scope = repr(("digests", str(history.path), digest.hex()))
        start = 0 if cursor is None else fields.decode_cursor(cursor, scope, 2**32 - 1)[0]
        places = history.occurrences(digest, start, limit + 1)
        has_more = len(places) > limit
        return {
            "digest": to_hex(digest),
            "items": [digest_place(history, place) for place in places[:limit]],
            "next_cursor": fields.encode_cursor(start + limit, scope) if has_more else None,
        }

    def view(self, number: int) -> AnsweredRound:
        return AnsweredRound.of(self.source, self.source.opened(number))


@dataclass(frozen=True, slots=True)
class RoundNews:
    """One change, with the round's line, or the first round to discard."""

    kind: Literal["round_opened", "round_ended", "taken_back"]
    position: int  # the last reported round that has ended; a new follower continues from there
    response: RoundSummary | DiscardedRounds


@dataclass(slots=True)
class RoundFollower:
    """Follows one deployment; `position` is the last reported round that has ended.

    A round whose last block is not final may be reverted. If another block takes its place, the
    follower reports the first round to discard, and then the rounds from there again.
    """

    position: int
    _opened: int = 0
    _blocks: dict[int, bytes] = field(default_factory=dict)

    def poll(self, history: FoldedHistory, final_block: int) -> list[RoundNews]:
        """Return the changes since the last poll, of at most 100 rounds, oldest first."""
        newest = history.newest()
        news = self._taken_back(history, newest)
        last = min(newest, self.position + 100)
        for round_ in history.rounds(self.position + 1, last) if last > self.position else []:
            if round_.ended is None:
                if self._opened < round_.round:
                    self._opened = round_.round
                    summary = round_summary(history, round_)
                    news.append(RoundNews("round_opened", self.position, summary))
                break
            self.position = round_.round
            if round_.ended.block_number > final_block:
                self._blocks[round_.round] = round_.ended.block_hash
            summary = round_summary(history, round_)
            news.append(RoundNews("round_ended", self.position, summary))
        for number in list(self._blocks):
            ended = _end(history, number)
            if ended is not None and ended.block_number <= final_block:
                del self._blocks[number]
        return news

    def _taken_back(self, history: FoldedHistory, newest: int) -> list[RoundNews]:
        """Return the news that reported rounds are void, if any are."""
        for number in sorted(self._blocks):
            ended = _end(history, number)
            if ended is None or ended.block_hash != self._blocks[number]:
                self._blocks = {n: block for n, block in self._blocks.items() if n < number}
                self.position, self._opened = number - 1, 0
                return [RoundNews("taken_back", self.position, {"from_round": number})]
        if newest < self.position:
            self.position, self._opened = newest, 0
            return [RoundNews("taken_back", self.position, {"from_round": newest + 1})]
        return []


def _end(history: FoldedHistory, number: int) -> RecordedEvent | None:
    round_ = history.round(number)
    return None if round_ is None else round_.ended
