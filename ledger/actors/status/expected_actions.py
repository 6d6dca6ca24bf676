"""Expected actions of each active client of a closed round, and when each is late.

An honest client that is reached by everything has done each of these in time; one that has not
may be away, cut off, or right to wait. Being late is no proof of anything.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ledger.actors.status.status_types import ActionKind, ExpectedAction, RoundStage
from ledger.protocol.types import Phase, VoteKind

if TYPE_CHECKING:
    from ledger.actors.status.voting_progress import FirstSeen, VotingProgress
    from ledger.actors.view import RoundView
    from ledger.actors.view_timing import ViewSpan
    from ledger.protocol.types import ClientId

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
    """Return when each member's turn to send the decision is over; the first is the primary's."""
    seats = view.inputs.participants
    (first, *_) = view.certificates(Phase.ELECTION)
    start, seconds = (
        seats.committee.index(first.request.member),
        view.inputs.parameters.view_seconds,
    )
    expected = []
    for place, member in enumerate(seats.committee):
        turn = (place - start) % len(seats.committee) + 1
        if member not in seats.banned:
            expected.append(
                (member, ExpectedAction(ActionKind.DECISION, settled_at + turn * seconds / 4))
            )
    return expected
