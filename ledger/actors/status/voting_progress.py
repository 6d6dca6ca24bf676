"""Voting progress of a closed round: the phase, its view in time, and when it started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.actors.status.status_types import PassedView, RoundStage
from ledger.actors.view_timing import ViewSpan, view_at
from ledger.protocol.consensus import MAX_VIEWS
from ledger.protocol.inputs import Inputs
from ledger.protocol.types import ClientId, Phase

if TYPE_CHECKING:
    from ledger.actors.view import RoundView


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
        """Return the times after one more poll."""
        if not view.certificates(Phase.AGGREGATION):
            return self
        # Who looks late can tell from the votes how long others are in phase 2 already.
        latest = now - _begin_of(view.inputs, Phase.ELECTION, _reached(view))
        certified = latest if self.certified_at is None else min(self.certified_at, latest)
        is_settled = self.settled_at is None and view.certificates(Phase.ELECTION)
        return FirstSeen(certified, now if is_settled else self.settled_at)


@dataclass(frozen=True, slots=True)
class VotingProgress:
    """Voting progress of a closed round at one time.

    Attributes:
        phase: what is voted on; None where nothing is.
        span: the view in time; None where no view goes on.
        certified: view in which each phase was certified; None for one that is not.
        passed: views without a request of their primary that are over, by the primary.
    """

    stage: RoundStage
    phase: Phase | None
    span: ViewSpan | None
    certified: tuple[int | None, int | None]
    passed: dict[ClientId, tuple[PassedView, ...]]


def voting_progress_of(view: RoundView, first_seen: FirstSeen, now: float) -> VotingProgress:
    """Return the voting progress of a closed round."""
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
    return VotingProgress(stage, phase, span, certified, _passed(view, certified, phase, span))


def _passed(
    view: RoundView,
    certified: tuple[int | None, int | None],
    phase: Phase | None,
    span: ViewSpan | None,
) -> dict[ClientId, tuple[PassedView, ...]]:
    """Return the views that passed without a request of their primary, by the primary."""
    passed: dict[ClientId, tuple[PassedView, ...]] = {}
    for voted, decided in zip(Phase, certified, strict=True):
        if decided is not None:
            over = decided
        elif voted is phase:
            over = MAX_VIEWS if span is None else span.view
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
    """Return how long after its view 0 a view of a phase begins."""
    at = 0.0
    while (span := view_at(inputs, phase, 0.0, at)) is not None and span.view < number:
        at = span.end
    return at
