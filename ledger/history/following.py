"""What is new on a deployment since one has looked last: rounds that opened or ended.

A round that has ended in a block that is not final may be taken back. The follower remembers the
block of each such round; where another one stands in its place, it says from which round on what it
has told is void, and tells it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.history.serialise.rounds import round_summary

if TYPE_CHECKING:
    from ledger.history.responses.rounds import DiscardedRounds, RoundSummary
    from ledger.history.source import HistorySource

MAX_ROUNDS_PER_POLL = 100
"""Rounds that one look tells; the next look goes on."""


class NewsKind(StrEnum):
    """What happened."""

    ROUND_OPENED = "round_opened"
    ROUND_ENDED = "round_ended"
    TAKEN_BACK = "taken_back"


@dataclass(frozen=True, slots=True)
class RoundNews:
    """One thing that happened.

    Attributes:
        kind: what.
        position: the last round that has ended and been told; from there a follower goes on.
        response: the round's line, or the first round to be discarded.
    """

    kind: NewsKind
    position: int
    response: RoundSummary | DiscardedRounds


@dataclass(slots=True)
class RoundFollower:
    """Follows one deployment.

    Attributes:
        position: the last round that has ended and been told.
    """

    position: int
    _opened: int = 0
    _blocks: dict[int, bytes] = field(default_factory=dict)

    def look(self, history: HistorySource, final_block: int) -> list[RoundNews]:
        """Return what is new, oldest first.

        Args:
            history: as of now.
            final_block: up to which block nothing can change.
        """
        newest = history.newest()
        events = self._taken_back(history, newest)
        last = min(newest, self.position + MAX_ROUNDS_PER_POLL)
        for one in history.rounds(self.position + 1, last) if last > self.position else []:
            if one.ended is None:
                if self._opened < one.round:
                    self._opened = one.round
                    summary = round_summary(history, one)
                    events.append(RoundNews(NewsKind.ROUND_OPENED, self.position, summary))
                break
            self.position = one.round
            if one.ended.block_number > final_block:
                self._blocks[one.round] = one.ended.block_hash
            events.append(RoundNews(NewsKind.ROUND_ENDED, one.round, round_summary(history, one)))
        self._forget(history, final_block)
        return events

    def _taken_back(self, history: HistorySource, newest: int) -> list[RoundNews]:
        """Return the event that says from which round on what was told is void; none if none is."""
        for number in sorted(self._blocks):
            stands = history.rounds(number, number)[0].ended if number <= newest else None
            if stands is None or stands.block_hash != self._blocks[number]:
                self._blocks = {n: block for n, block in self._blocks.items() if n < number}
                self.position, self._opened = number - 1, 0
                return [RoundNews(NewsKind.TAKEN_BACK, self.position, {"from_round": number})]
        if newest < self.position:
            self.position, self._opened = newest, 0
            return [RoundNews(NewsKind.TAKEN_BACK, self.position, {"from_round": newest + 1})]
        return []

    def _forget(self, history: HistorySource, final_block: int) -> None:
        """Forget the blocks of rounds that are final by now."""
        for number in list(self._blocks):
            ended = history.rounds(number, number)[0].ended
            if ended is not None and ended.block_number <= final_block:
                del self._blocks[number]
