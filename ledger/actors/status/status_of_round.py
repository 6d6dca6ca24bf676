"""The status of an open round, and of each client that is active in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.actors.status.expected_actions import expected_actions_of
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
from ledger.actors.status.voting_progress import voting_progress_of
from ledger.protocol.encoding import set_digest
from ledger.protocol.scores import parse_vector

if TYPE_CHECKING:
    from ledger.actors.status.voting_progress import FirstSeen
    from ledger.actors.view import ChainView, RoundView
    from ledger.protocol.inputs import Participants
    from ledger.protocol.types import ClientId


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
        chain: the round.
        view: what was published of it so far.
        first_seen: first sightings up to now.
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
    """Return the slots in which a member has signed, by phase and view."""
    votes_cast = [
        CastVote(slot.kind, slot.phase, slot.view, len(votes))
        for (member, slot), votes in view.votes.items()
        if member == client
    ]
    return tuple(sorted(votes_cast, key=lambda vote: (vote.phase, vote.view, vote.kind)))
