"""The views of a phase in time: view v lasts `view_seconds * 2**v`, an empty seat's none at all."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.protocol.consensus import MAX_VIEWS, primary_seat
from ledger.protocol.inputs import Inputs
from ledger.protocol.types import Phase


@dataclass(frozen=True, slots=True)
class ViewSpan:
    """One view in time.

    Attributes:
        begin: when it is entered, in seconds.
        seconds: how long it lasts; 0 if its primary was banned when the round opened.
    """

    view: int
    begin: float
    seconds: float

    @property
    def quarter(self) -> float:
        """When the primary publishes its vector for all that it then holds."""
        return self.begin + self.seconds / 4

    @property
    def half(self) -> float:
        """When the primary makes its record."""
        return self.begin + self.seconds / 2

    @property
    def end(self) -> float:
        """When the next view begins."""
        return self.begin + self.seconds


@dataclass(frozen=True, slots=True)
class VotingPosition:
    """The phase and view of a member in a round.

    Attributes:
        phase: aggregation until it sees a certificate of it, then election.
        span: the view that it is in; None before the first and after the last.
    """

    phase: Phase
    span: ViewSpan | None


def view_at(inputs: Inputs, phase: Phase, begin: float, now: float) -> ViewSpan | None:
    """Return the view of a phase at a time.

    Args:
        begin: when its view 0 begins.
        now: the time, in the chain's seconds.

    Returns:
        The view; None before the first and after the last.
    """
    if now < begin:
        return None
    seats = inputs.participants
    for view in range(MAX_VIEWS):
        is_empty = bool(seats.banned) and _has_empty_seat(inputs, phase, view)
        seconds = 0.0 if is_empty else float(inputs.parameters.view_seconds * 2**view)
        if now < begin + seconds:
            return ViewSpan(view, begin, seconds)
        begin += seconds
    return None


def seconds_of_turns(inputs: Inputs, turns: int) -> float:
    """Return how long so many members have to send the decision where no block comes.

    Elsewhere a turn ends with a block, so that a sender who waits for a better next seed has a
    choice between one or two block hashes.
    """
    return turns * inputs.parameters.view_seconds / 4


def _has_empty_seat(inputs: Inputs, phase: Phase, view: int) -> bool:
    seats = inputs.participants
    place = primary_seat(inputs.seed, phase, view, len(seats.committee))
    return seats.committee[place] in seats.banned
