"""The status of an open round, and of each active client: what is expected of it, and since when.

An honest client that is reached by everything has done each expected action in time; one that has
not may be away, cut off, or right to wait. Being late is no proof of anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.actors.status.status_types import (
    ActionKind,
    CastVote,
    ClientRoundStatus,
    ExpectedAction,
    OpenRoundStatus,
    ParticipantRole,
    RoundStage,
    ScoredSet,
)
from ledger.actors.status.voting_progress import FirstSeen, VotingProgress, voting_progress_of
from ledger.actors.view_timing import ViewSpan, seconds_of_turns
from ledger.protocol.consensus import sending_order
from ledger.protocol.encoding import set_digest
from ledger.protocol.inputs import Participants
from ledger.protocol.scores import parse_vector
from ledger.protocol.types import ClientId, Phase, VoteKind

if TYPE_CHECKING:
    from ledger.actors.view import ChainView, RoundView


def status_before_closing(chain: ChainView) -> OpenRoundStatus:
    """Return the status of a round whose inputs are not closed yet."""
    seats = chain.participants()
    blocks = {mined.client: mined.block for mined in chain.commitments}
    awaited = (ExpectedAction(ActionKind.COMMITMENT, None),)
    return OpenRoundStatus(
        round=chain.round,
        stage=RoundStage.COMMITTING,
        opened_block=chain.opened_block,
        window_block=chain.window_end,
        deadline_block=chain.opened_block + chain.parameters.deadline_blocks,
        clients=tuple(
            ClientRoundStatus(
                client=client,
                role=_role(seats, client),
                place=seats.committee.index(client) if client in seats.committee else None,
                committed_block=blocks.get(client),
                is_banned=chain.registry[client].banned_in > 0,
                awaited=awaited if client in seats.expected and client not in blocks else (),
            )
            for client in seats.active
        ),
    )


def status_after_closing(
    chain: ChainView,
    view: RoundView,
    first_seen: FirstSeen,
    now: float,
    *,
    mailbox_is_readable: bool = True,
) -> OpenRoundStatus:
    """Return the status of a round whose inputs are closed.

    Args:
        now: the time, in the chain's seconds.
        mailbox_is_readable: False if it could not be read; then no client is late or silent.
    """
    course = voting_progress_of(view, first_seen, now)
    primary = None
    if course.phase is not None and course.span is not None:
        primary = view.primary(course.phase, course.span.view)
    duties = expected_actions_of(view, course, first_seen) if mailbox_is_readable else {}
    passed = course.passed if mailbox_is_readable else {}
    liars = {report.client for report in view.equivocations()}

    def with_mail(status: ClientRoundStatus) -> ClientRoundStatus:
        client = status.client
        awaited = duties.get(client, ())
        due = [action.due for action in awaited if action.due is not None]
        return replace(
            status,
            counts=client in view.inputs.closing.commitments,
            announced=view.announced.get(client),
            scored=_scored(view, client),
            votes=_votes(view, client),
            has_equivocated=client in liars,
            passed=passed.get(client, ()),
            awaited=awaited,
            late_since=min((moment for moment in due if moment < now), default=None),
        )

    before = status_before_closing(chain)
    return replace(
        before,
        stage=course.stage,
        clients=tuple(map(with_mail, before.clients)),
        closing_block=view.inputs.closing.block,
        closed_at=view.closed_at,
        phase=course.phase,
        span=course.span,
        primary=primary,
        certified=course.certified,
    )


def _role(seats: Participants, client: ClientId) -> ParticipantRole:
    if client in seats.banned:
        return ParticipantRole.EMPTY_SEAT
    return ParticipantRole.MEMBER if client in seats.committee else ParticipantRole.TRAINER


def _scored(view: RoundView, client: ClientId) -> tuple[ScoredSet, ...]:
    """Return the sets for which a member has signed vectors, the largest first."""
    scored_sets = []
    for (member, clients), claims in view.claims.items():
        if member != client:
            continue
        vector = parse_vector(view.evidence.vectors[claims[0].scores.digest])
        is_of_it = vector is not None and set_digest(vector.clients) == clients
        size = len(vector.clients) if vector is not None and is_of_it else None
        scored_sets.append(ScoredSet(clients, size))
    return tuple(sorted(scored_sets, key=lambda one: (-(one.size or 0), one.clients)))


def _votes(view: RoundView, client: ClientId) -> tuple[CastVote, ...]:
    votes_cast = [
        CastVote(slot.kind, slot.phase, slot.view, len(votes))
        for (member, slot), votes in view.votes.items()
        if member == client
    ]
    return tuple(sorted(votes_cast, key=lambda vote: (vote.phase, vote.view, vote.kind)))


ExpectedActions = dict["ClientId", tuple[ExpectedAction, ...]]


def expected_actions_of(
    view: RoundView, course: VotingProgress, first_seen: FirstSeen
) -> ExpectedActions:
    """Return the expected actions by client; a client without any has done everything."""
    expected: defaultdict[ClientId, list[ExpectedAction]] = defaultdict(list)
    if course.certified[0] is None and course.stage is not RoundStage.EXHAUSTED:
        for client in sorted(view.inputs.participants.expected):
            expected[client] += _inputs_of(view, client)
    if course.phase is not None and course.span is not None:
        for client, awaited in _votes_of(view, course.phase, course.span):
            expected[client].append(awaited)
    if course.stage is RoundStage.DECIDING and first_seen.settled_at is not None:
        for client, awaited in _decisions_of(view, first_seen.settled_at):
            expected[client].append(awaited)
    return {client: tuple(awaited) for client, awaited in expected.items() if awaited}


def _inputs_of(view: RoundView, client: ClientId) -> list[ExpectedAction]:
    """Return what is missing of what the first phase is made of: each thing needs the one before.

    A commitment that has not come by the closing block is late for this round for ever, but
    without it nothing else can come.
    """
    seconds = view.inputs.parameters.view_seconds
    if client not in view.inputs.closing.commitments:
        return [ExpectedAction(ActionKind.COMMITMENT, view.closed_at)]
    if client not in view.announced:
        # Members score without it from then on.
        return [ExpectedAction(ActionKind.PAYLOAD, view.closed_at + seconds / 2)]
    is_member = client in view.inputs.participants.members
    if is_member and not any(member == client for member, _ in view.claims):
        return [ExpectedAction(ActionKind.SCORES, view.closed_at + seconds)]
    return []


def _votes_of(
    view: RoundView, phase: Phase, span: ViewSpan
) -> list[tuple[ClientId, ExpectedAction]]:
    """Return whose votes are missing in a view: the primary's request, or replies to it."""
    primary = view.primary(phase, span.view)
    if len(view.requests(phase, span.view)) > 1:
        return []  # no member answers a primary that contradicts itself
    if not _is_answerable(view, phase, span.view):
        return [(primary, ExpectedAction(ActionKind.REQUEST, span.half))]
    replied = {
        member
        for member, slot in view.votes
        if slot.kind is VoteKind.REPLY and (slot.phase, slot.view) == (phase, span.view)
    }
    # A request may come as late as half time, and takes a while to be answered.
    due = (span.half + span.end) / 2
    return [
        (member, ExpectedAction(ActionKind.REPLY, due))
        for member in view.inputs.participants.members
        if member != primary and member not in replied
    ]


def _is_answerable(view: RoundView, phase: Phase, number: int) -> bool:
    """Say whether a view's request is there with what it rests on; members wait for no less."""
    proposed = {
        proposal.request.vote.result for proposal in view.proposals.get((phase, number), ())
    }
    if phase is Phase.AGGREGATION:
        return bool(proposed)
    return not proposed.isdisjoint(c.vote.result for c in view.certificates(Phase.AGGREGATION))


def _decisions_of(view: RoundView, settled_at: float) -> list[tuple[ClientId, ExpectedAction]]:
    inputs = view.inputs
    return [
        (
            member,
            ExpectedAction(ActionKind.DECISION, settled_at + seconds_of_turns(inputs, turns)),
        )
        for turns, member in enumerate(sending_order(inputs.seed, inputs.participants.members), 1)
    ]
