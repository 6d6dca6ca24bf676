"""New rounds of a deployment since the last poll, and reorganised ones.

A round that has ended in a block that is not final may be taken back. The follower remembers the
block of each such round. If another block takes its place, the follower reports the first round to
discard, and reports the rounds from there again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.history.serialise.serialise_rounds import round_summary

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.rounds import DiscardedRounds, RoundSummary

MAX_ROUNDS_PER_POLL = 100


class NewsKind(StrEnum):
    """Kind of a change."""

    ROUND_OPENED = "round_opened"
    ROUND_ENDED = "round_ended"
    TAKEN_BACK = "taken_back"


@dataclass(frozen=True, slots=True)
class RoundNews:
    """One change.

    Attributes:
        position: the last reported round that has ended; a new follower continues from there.
        response: the round's line, or the first round to discard.
    """

    kind: NewsKind
    position: int
    response: RoundSummary | DiscardedRounds


@dataclass(slots=True)
class RoundFollower:
    """Follows one deployment; `position` is the last reported round that has ended."""

    position: int
    _opened: int = 0
    _blocks: dict[int, bytes] = field(default_factory=dict)

    def poll(self, history: FoldedHistory, final_block: int) -> list[RoundNews]:
        """Return the changes since the last poll, oldest first."""
        newest = history.newest()
        news = self._taken_back(history, newest)
        last = min(newest, self.position + MAX_ROUNDS_PER_POLL)
        for round_ in history.rounds(self.position + 1, last) if last > self.position else []:
            if round_.ended is None:
                if self._opened < round_.round:
                    self._opened = round_.round
                    summary = round_summary(history, round_)
                    news.append(RoundNews(NewsKind.ROUND_OPENED, self.position, summary))
                break
            self.position = round_.round
            if round_.ended.block_number > final_block:
                self._blocks[round_.round] = round_.ended.block_hash
            summary = round_summary(history, round_)
            news.append(RoundNews(NewsKind.ROUND_ENDED, round_.round, summary))
        self._forget_final(history, final_block)
        return news

    def _taken_back(self, history: FoldedHistory, newest: int) -> list[RoundNews]:
        """Return the news that reported rounds are void, if any are."""
        for number in sorted(self._blocks):
            ended = history.rounds(number, number)[0].ended if number <= newest else None
            if ended is None or ended.block_hash != self._blocks[number]:
                self._blocks = {n: block for n, block in self._blocks.items() if n < number}
                self.position, self._opened = number - 1, 0
                return [RoundNews(NewsKind.TAKEN_BACK, self.position, {"from_round": number})]
        if newest < self.position:
            self.position, self._opened = newest, 0
            return [RoundNews(NewsKind.TAKEN_BACK, self.position, {"from_round": newest + 1})]
        return []

    def _forget_final(self, history: FoldedHistory, final_block: int) -> None:
        for number in list(self._blocks):
            ended = history.rounds(number, number)[0].ended
            if ended is not None and ended.block_number <= final_block:
                del self._blocks[number]
