"""The status of an open round: its stage, its votes, and who is missing.

An honest client that is reached by everything has done each expected action in time; one that has
not may be away, cut off, or right to wait. Being late is no proof of anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum

from ledger.actors.view import ChainView, RoundView, ViewSpan, seconds_of_turns, view_at
from ledger.protocol.inputs import Inputs, Participants, sending_order
from ledger.protocol.parameters import MAX_VIEWS
from ledger.protocol.types import ClientId, Digest, Phase, VoteKind


class RoundStage(StrEnum):
    """The stage of an open round."""

    COMMITTING = "committing"
    """Commitments are taken."""
    COLLECTING = "collecting"
    """Closed: payloads and the first score vectors are published."""
    AGGREGATING = "aggregating"
    """A view of phase 1 goes on."""
    ELECTING = "electing"
    """Phase 1 is certified, and a view of phase 2 goes on."""
    DECIDING = "deciding"
    """Both phases are certified: the decision is waited for."""
    EXHAUSTED = "exhausted"
    """All views have passed: the deadline is waited for."""


class ParticipantRole(StrEnum):
    """The role of an active client in a round."""

    TRAINER = "trainer"
    MEMBER = "member"
    EMPTY_SEAT = "empty_seat"
    """A member that was banned when the round opened."""


class ActionKind(StrEnum):
    """The kind of an action that is expected of a client."""

    COMMITMENT = "commitment"
    PAYLOAD = "payload"
    SCORES = "scores"
    REQUEST = "request"
    REPLY = "reply"
    DECISION = "decision"


@dataclass(frozen=True, slots=True)
class ExpectedAction:
    """One thing that is waited for from a client.

    Attributes:
        due: when an honest client that is reached by everything has done it, in the chain's
            seconds; None while a block decides and no clock.
    """

    act: ActionKind
    due: float | None


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """A set of updates for which a member has signed a score vector.

    Attributes:
        size: how many clients are in it; None where the vector is not one of this set.
    """

    clients: Digest
    size: int | None


@dataclass(frozen=True, slots=True)
class CastVote:
    """A slot in which a member has signed.

    Attributes:
        different: how many different votes it has signed there; two are equivocation.
    """

    kind: VoteKind
    phase: Phase
    view: int
    different: int


@dataclass(frozen=True, slots=True)
class PassedView:
    """A view that has passed without its primary's request."""

    phase: Phase
    view: int


@dataclass(frozen=True, slots=True)
class ClientRoundStatus:
    """One active client, by what chain and mailbox hold of it.

    Attributes:
        place: on the committee, from 0; None for a trainer.
        committed_block: block with its commitment; None without.
        is_banned: whether the chain holds a ban of it, which counts from the next round on.
        counts: whether that is known to have come by the closing block; None while it is open.
        announced: digest of the payload that opens its commitment; None before it is published.
        has_equivocated: whether it has signed two statements where one is allowed.
        late_since: when the first of it was due, in the chain's seconds; None if nothing is late.
    """

    client: ClientId
    role: ParticipantRole
    place: int | None
    committed_block: int | None
    is_banned: bool
    counts: bool | None = None
    announced: Digest | None = None
    scored: tuple[ScoredSet, ...] = ()
    votes: tuple[CastVote, ...] = ()
    has_equivocated: bool = False
    passed: tuple[PassedView, ...] = ()
    awaited: tuple[ExpectedAction, ...] = ()
    late_since: float | None = None


@dataclass(frozen=True, slots=True)
class OpenRoundStatus:
    """The status of an open round.

    Attributes:
        deadline_block: the first block in which it may be abandoned.
        clients: the active ones, ascending.
        closing_block: block up to which commitments count; None while that is open.
        closed_at: that block's time; None while that is open.
        phase: what is voted on; None before the first view, and after the last certificate.
        span: the view in time; None where no view is running. Of phase 2 it depends on when the
            certificate of phase 1 was first seen, which is not the same moment for everybody.
        primary: of the view; None where no view goes on.
        certified: view in which each phase was certified; None for one that is not.
    """

    round: int
    stage: RoundStage
    opened_block: int
    window_block: int
    deadline_block: int
    clients: tuple[ClientRoundStatus, ...]
    closing_block: int | None = None
    closed_at: float | None = None
    phase: Phase | None = None
    span: ViewSpan | None = None
    primary: ClientId | None = None
    certified: tuple[int | None, int | None] = (None, None)

    @property
    def late(self) -> tuple[ClientRoundStatus, ...]:
        """Late clients, the longest first."""
        since = [(c.late_since, c.client, c) for c in self.clients if c.late_since is not None]
        return tuple(client for *_, client in sorted(since, key=lambda one: one[:2]))


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """Times at which an observer first saw what no block records.

    Attributes:
        certified_at: phase 1 certified, in the chain's seconds; None before.
        settled_at: phase 2 certified, too; None before.
    """

    certified_at: float | None = None
    settled_at: float | None = None

    def after_poll(self, view: RoundView, now: float) -> FirstSeen:
        if not view.certificates(Phase.AGGREGATION):
            return self
        # Who looks late can tell from the votes how long others are in phase 2 already.
        latest = now - _begin_of(view.inputs, Phase.ELECTION, _reached(view))
        certified = latest if self.certified_at is None else min(self.certified_at, latest)
        is_settled = self.settled_at is None and view.certificates(Phase.ELECTION)
        return FirstSeen(certified, now if is_settled else self.settled_at)


def _with_votes(
    before: OpenRoundStatus, view: RoundView, first_seen: FirstSeen, now: float
) -> OpenRoundStatus:
    certified = (_certified(view, Phase.AGGREGATION), _certified(view, Phase.ELECTION))
    aggregated, elected = certified
    voted = Phase.AGGREGATION if aggregated is None else Phase.ELECTION
    begin = view.voting_begins
    if voted is Phase.ELECTION and first_seen.certified_at is not None:
        begin = first_seen.certified_at
    phase: Phase | None = voted
    span = view_at(view.inputs, voted, begin, now)
    if aggregated is not None and elected is not None:
        stage, phase, span = RoundStage.DECIDING, None, None
    elif span is not None:
        stage = RoundStage.AGGREGATING if aggregated is None else RoundStage.ELECTING
    elif now < begin:
        stage, phase = RoundStage.COLLECTING, None
    else:
        stage = RoundStage.EXHAUSTED
    return replace(
        before,
        stage=stage,
        closing_block=view.inputs.closing.block,
        closed_at=view.closed_at,
        phase=phase,
        span=span,
        primary=None if phase is None or span is None else view.primary(phase, span.view),
        certified=certified,
    )


def _passed(view: RoundView, status: OpenRoundStatus) -> dict[ClientId, tuple[PassedView, ...]]:
    """Return the views that passed without a request of their primary, by the primary."""
    passed: dict[ClientId, tuple[PassedView, ...]] = {}
    for voted, decided in zip(Phase, status.certified, strict=True):
        if decided is not None:
            over = decided
        elif voted is status.phase:
            over = MAX_VIEWS if status.span is None else status.span.view
        else:
            over = 0
        for number in range(over):
            primary = view.primary(voted, number)
            is_silent = not view.requests(voted, number)
            if is_silent and primary not in view.inputs.participants.banned:
                passed[primary] = (*passed.get(primary, ()), PassedView(voted, number))
    return passed


def _certified(view: RoundView, phase: Phase) -> int | None:
    certificates = view.certificates(phase)
    return certificates[0].vote.view if certificates else None


def _reached(view: RoundView) -> int:
    """Return the highest view of phase 2 that more members have voted in than may be faulty.

    Two of them at least: a single one can sign in views that are to come, so that the primaries
    of those before would seem to have been silent.
    """
    highest: dict[ClientId, int] = {}
    for member, slot in view.votes:
        if slot.phase is Phase.ELECTION:
            highest[member] = max(slot.view, highest.get(member, 0))
    needed = max(2, view.inputs.parameters.members - view.inputs.parameters.replies)
    reached = sorted(highest.values(), reverse=True)
    return reached[needed - 1] if len(reached) >= needed else 0


def _begin_of(inputs: Inputs, phase: Phase, number: int) -> float:
    at = 0.0
    while (span := view_at(inputs, phase, 0.0, at)) is not None and span.view < number:
        at = span.end
    return at


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
    voting = _with_votes(status_before_closing(chain), view, first_seen, now)
    duties = _expected_actions(view, voting, first_seen) if mailbox_is_readable else {}
    passed = _passed(view, voting) if mailbox_is_readable else {}
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

    return replace(voting, clients=tuple(map(with_mail, voting.clients)))


def _role(seats: Participants, client: ClientId) -> ParticipantRole:
    if client in seats.banned:
        return ParticipantRole.EMPTY_SEAT
    return ParticipantRole.MEMBER if client in seats.committee else ParticipantRole.TRAINER


def _scored(view: RoundView, client: ClientId) -> tuple[ScoredSet, ...]:
    """Return the sets for which a member has signed vectors, the largest first."""
    sets = [
        ScoredSet(digest, None if clients is None else len(clients))
        for digest, clients in view.sets_scored(client)
    ]
    return tuple(sorted(sets, key=lambda one: (-(one.size or 0), one.clients)))


def _votes(view: RoundView, client: ClientId) -> tuple[CastVote, ...]:
    votes_cast = [
        CastVote(slot.kind, slot.phase, slot.view, len(votes))
        for (member, slot), votes in view.votes.items()
        if member == client
    ]
    return tuple(sorted(votes_cast, key=lambda vote: (vote.phase, vote.view, vote.kind)))


def _expected_actions(
    view: RoundView, voting: OpenRoundStatus, first_seen: FirstSeen
) -> dict[ClientId, tuple[ExpectedAction, ...]]:
    """Return the expected actions by client; a client without any has done everything."""
    expected: defaultdict[ClientId, list[ExpectedAction]] = defaultdict(list)
    if voting.certified[0] is None and voting.stage is not RoundStage.EXHAUSTED:
        for client in sorted(view.inputs.participants.expected):
            expected[client] += _inputs_of(view, client)
    if voting.phase is not None and voting.span is not None:
        for client, awaited in _votes_of(view, voting.phase, voting.span):
            expected[client].append(awaited)
    if voting.stage is RoundStage.DECIDING and first_seen.settled_at is not None:
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
