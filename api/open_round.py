"""The status of an open round, as the service answers: stage, votes, and missing clients.

An honest client that is reached by everything has done each expected action in time; one that has
not may be away, cut off, or right to wait. Being late proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from api import schemas
from ledger.actors.view import ChainView, RoundView, ViewSpan, seconds_of_turns, view_at
from ledger.history.fields import phase_name, time_of, to_hex_or_none
from ledger.protocol.encoding import to_hex
from ledger.protocol.inputs import sending_order
from ledger.protocol.parameters import MAX_VIEWS
from ledger.protocol.types import ClientId, Phase, VoteKind

BlockTimes = Callable[[int], int]  # returns the time of a block by its number


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """When an observer first saw phase 1, and both phases, certified, in the chain's seconds."""

    certified_at: float | None = None
    settled_at: float | None = None

    def after_poll(self, view: RoundView, now: float) -> FirstSeen:
        if not view.certificates(Phase.AGGREGATION):
            return self
        # The votes show a late observer how long others are in phase 2 already.
        reached, elapsed = _reached(view), 0.0
        election = view.inputs, Phase.ELECTION, 0.0
        while (span := view_at(*election, elapsed)) is not None and span.view < reached:
            elapsed = span.end
        latest = now - elapsed
        certified = latest if self.certified_at is None else min(self.certified_at, latest)
        is_settled = self.settled_at is None and view.certificates(Phase.ELECTION)
        return FirstSeen(certified, now if is_settled else self.settled_at)


def _reached(view: RoundView) -> int:
    """Return the highest view of phase 2 that more members have voted in than may be faulty.

    At least two: one member can sign in future views, to make earlier primaries seem silent.
    """
    highest: dict[ClientId, int] = {}
    for member, slot in view.votes:
        if slot.phase is Phase.ELECTION:
            highest[member] = max(slot.view, highest.get(member, 0))
    needed = max(2, view.inputs.parameters.members - view.inputs.parameters.replies)
    reached = sorted(highest.values(), reverse=True)
    return reached[needed - 1] if len(reached) >= needed else 0


@dataclass(frozen=True, slots=True)
class _Voting:
    """The progress of both votes: the current view, if any, and the certified views."""

    stage: schemas.RoundStage
    phase: Phase
    span: ViewSpan | None
    certified: tuple[int | None, int | None]


def round_before_closing(chain: ChainView, block_time: BlockTimes) -> schemas.OpenRound:
    """Return the status of a round whose inputs are not closed yet."""
    seats = chain.participants()
    blocks = {mined.client: mined.block for mined in chain.commitments}
    clients: list[schemas.ActiveClient] = []
    for client in seats.active:
        is_member = client in seats.committee
        is_awaited = client in seats.expected and client not in blocks
        role = "member" if is_member else "trainer"
        clients.append(
            {
                "client": client,
                "role": "empty_seat" if client in seats.banned else role,
                "place": seats.committee.index(client) if is_member else None,
                "committed_block": blocks.get(client),
                "counts": None,
                "payload": None,
                "scored": [],
                "votes": [],
                "equivocated": False,
                "banned": chain.registry[client].banned_in > 0,
                "passed": [],
                "awaited": [{"act": "commitment", "due": None}] if is_awaited else [],
                "late_since": None,
            }
        )
    return {
        "round": chain.round,
        "stage": "committing",
        "opened": block_in_time(chain.opened_block, block_time),
        "window_block": chain.window_end,
        "closing": None,
        "deadline_block": chain.opened_block + chain.parameters.deadline_blocks,
        "view": None,
        "certified": {"aggregation": None, "election": None},
        "late": [],
        "clients": clients,
    }


def round_after_closing(
    chain: ChainView,
    view: RoundView,
    first_seen: FirstSeen,
    now: float,
    block_time: BlockTimes,
    *,
    mailbox_is_readable: bool = True,
) -> schemas.OpenRound:
    """Return the status of a round with closed inputs; without mail no client is late or silent."""
    before, voting = round_before_closing(chain, block_time), _voting(view, first_seen, now)
    acts = _awaited(view, voting, first_seen) if mailbox_is_readable else {}
    passed = _passed(view, voting) if mailbox_is_readable else {}
    liars = {report.client for report in view.equivocations()}
    clients: list[schemas.ActiveClient] = []
    for entry in before["clients"]:
        client = ClientId(entry["client"])
        awaited = acts.get(client, [])
        overdue = [due for act in awaited if (due := act["due"]) is not None and due < now]
        clients.append(
            {
                **entry,
                "counts": client in view.inputs.closing.commitments,
                "payload": to_hex_or_none(view.announced.get(client)),
                "scored": _scored(view, client),
                "votes": _votes(view, client),
                "equivocated": client in liars,
                "passed": passed.get(client, []),
                "awaited": awaited,
                "late_since": min(overdue, default=None),
            }
        )
    late = sorted(
        (since, one["client"]) for one in clients if (since := one["late_since"]) is not None
    )
    aggregated, elected = voting.certified
    return {
        **before,
        "stage": voting.stage,
        "closing": block_in_time(view.inputs.closing.block, block_time),
        "view": None if voting.span is None else _current(view, voting.phase, voting.span),
        "certified": {"aggregation": aggregated, "election": elected},
        "late": [client for _, client in late],
        "clients": clients,
    }


def block_in_time(number: int, block_time: BlockTimes) -> schemas.BlockInTime:
    """Return a block's number and time."""
    return {"number": number, **time_of(block_time(number))}


def _current(view: RoundView, phase: Phase, span: ViewSpan) -> schemas.CurrentView:
    return {
        "phase": phase_name(phase),
        "number": span.view,
        "primary": view.primary(phase, span.view),
        "begins": round(span.begin, 3),
        "ends": round(span.end, 3),
    }


def _voting(view: RoundView, first_seen: FirstSeen, now: float) -> _Voting:
    found = (view.certificates(phase) for phase in Phase)
    aggregated, elected = (each[0].vote.view if each else None for each in found)
    phase = Phase.AGGREGATION if aggregated is None else Phase.ELECTION
    begin = view.voting_begins
    if phase is Phase.ELECTION and first_seen.certified_at is not None:
        begin = first_seen.certified_at
    span = view_at(view.inputs, phase, begin, now)
    stage: schemas.RoundStage = "collecting" if now < begin else "exhausted"
    if aggregated is not None and elected is not None:
        stage, span = "deciding", None
    elif span is not None:
        stage = "aggregating" if aggregated is None else "electing"
    return _Voting(stage, phase, span, (aggregated, elected))


def _passed(view: RoundView, voting: _Voting) -> dict[ClientId, list[schemas.PassedWithoutRequest]]:
    passed: defaultdict[ClientId, list[schemas.PassedWithoutRequest]] = defaultdict(list)
    for phase, decided in zip(Phase, voting.certified, strict=True):
        over = decided or 0
        if decided is None and phase is voting.phase and voting.stage != "collecting":
            over = MAX_VIEWS if voting.span is None else voting.span.view
        for number in range(over):
            primary = view.primary(phase, number)
            is_silent = not view.requests(phase, number)
            if is_silent and primary not in view.inputs.participants.banned:
                passed[primary].append({"phase": phase_name(phase), "view": number})
    return passed


def _scored(view: RoundView, client: ClientId) -> list[schemas.ScoredUpdates]:
    sets = sorted(view.sets_scored(client), key=lambda one: (-len(one[1] or ()), one[0]))
    return [
        {"clients": to_hex(digest), "size": None if clients is None else len(clients)}
        for digest, clients in sets
    ]


def _votes(view: RoundView, client: ClientId) -> list[schemas.SignedSlot]:
    slots = [(slot, len(votes)) for (member, slot), votes in view.votes.items() if member == client]
    slots.sort(key=lambda one: (one[0].phase, one[0].view, one[0].kind))
    return [
        {
            "kind": "request" if slot.kind is VoteKind.REQUEST else "reply",
            "phase": phase_name(slot.phase),
            "view": slot.view,
            "different": different,
        }
        for slot, different in slots
    ]


def _awaited(
    view: RoundView, voting: _Voting, first_seen: FirstSeen
) -> dict[ClientId, list[schemas.AwaitedAct]]:
    awaited: defaultdict[ClientId, list[schemas.AwaitedAct]] = defaultdict(list)
    if voting.certified[0] is None and voting.stage != "exhausted":
        for client in sorted(view.inputs.participants.expected):
            if (missing := _missing_input(view, client)) is not None:
                awaited[client].append(missing)
    if voting.span is not None:
        for client, missing in _missing_votes(view, voting.phase, voting.span):
            awaited[client].append(missing)
    if voting.stage == "deciding" and first_seen.settled_at is not None:
        order = sending_order(view.inputs.seed, view.inputs.participants.members)
        for turns, member in enumerate(order, 1):
            due = first_seen.settled_at + seconds_of_turns(view.inputs, turns)
            awaited[member].append({"act": "decision", "due": due})
    return awaited


def _missing_input(view: RoundView, client: ClientId) -> schemas.AwaitedAct | None:
    seconds = view.inputs.parameters.view_seconds
    if client not in view.inputs.closing.commitments:
        return {"act": "commitment", "due": view.closed_at}
    if client not in view.announced:
        # Members score without it from then on.
        return {"act": "payload", "due": view.closed_at + seconds / 2}
    is_member = client in view.inputs.participants.members
    if is_member and not any(member == client for member, _ in view.claims):
        return {"act": "scores", "due": view.closed_at + seconds}
    return None


def _missing_votes(
    view: RoundView, phase: Phase, span: ViewSpan
) -> list[tuple[ClientId, schemas.AwaitedAct]]:
    """Return whose votes are missing in a view: the primary's request, or replies to it."""
    primary = view.primary(phase, span.view)
    if len(view.requests(phase, span.view)) > 1:
        return []  # no member answers a primary that contradicts itself
    # Members wait for a request with all that it rests on.
    proposed = {p.request.vote.result for p in view.proposals.get((phase, span.view), ())}
    if phase is Phase.ELECTION:
        proposed &= {c.vote.result for c in view.certificates(Phase.AGGREGATION)}
    if not proposed:
        return [(primary, {"act": "request", "due": span.half})]
    replied = {
        member
        for member, slot in view.votes
        if slot.kind is VoteKind.REPLY and (slot.phase, slot.view) == (phase, span.view)
    }
    # A request may come as late as half time, and takes a while to be answered.
    due = (span.half + span.end) / 2
    return [
        (member, {"act": "reply", "due": due})
        for member in view.inputs.participants.members
        if member != primary and member not in replied
    ]
