"""What a node's logs contradict, held back until it is known that none of them is missing.

A node that leaves one log out makes a right run look wrong: a decision without the commitments that
it ranks, a head that does not follow. Every head commits to all that was recorded before it. So an
end of a round or a ban whose head follows from the events so far confirms them; the rest, the
contract's own state does. What contradicts and is never confirmed proves nothing of the run, but
for what an event and its own transaction say against one another: no other event enters that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Need
from ledger.audit.observations import (
    ClosedRound,
    DecidedRound,
    Disagreement,
    EventCountMismatch,
    EventFieldMismatch,
    EventKindMismatch,
    KeptHeadPosition,
    RefusedCall,
    StateComparison,
    WatchedRound,
)
from ledger.audit.report import Contradiction, Finding, MissingInput
from ledger.protocol.ledger_state import RoundAbandoned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.codes import Step
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

_FROM_ALL_BEFORE = (
    *(
        RefusedCall,
        EventCountMismatch,
        EventKindMismatch,
        WatchedRound,
        ClosedRound,
        DecidedRound,
        StateComparison,
    ),
)
_FIELDS_FROM_ALL_BEFORE = frozenset(
    {"first", "registry", "seed", "committee", "round", "clients", "commitments"}
    | {"primaries", "next_seed", "head"}
)


def rests_on_all_logs(seen: Observation) -> bool:
    """Say whether a log that is missing could make an observation what it is.

    Args:
        seen: any observation.
    """
    match seen:
        case EventFieldMismatch(_, _, kind, name):
            drawn = kind is RoundAbandoned and name == "next_committee"
            return drawn or name in _FIELDS_FROM_ALL_BEFORE
        case KeptHeadPosition():
            return seen.round is None
        case Disagreement():
            return seen.fact is Fact.EARLIER_HEAD
        case _:
            return isinstance(seen, _FROM_ALL_BEFORE)


@dataclass(frozen=True, slots=True)
class PendingResult:
    """What a step says.

    Attributes:
        step: which.
        said: what.
        block: newest block that it rests on.
        is_final: whether nothing up to that block can be taken back.
        rests_on_all_logs: whether a missing log could be behind it.
    """

    step: Step
    said: StepResult
    block: int
    is_final: bool
    rests_on_all_logs: bool

    def unconfirmed(self) -> PendingResult:
        """Return what of it stands where a log may be missing."""
        match self.said:
            case Contradiction(fact=fact) as said if self.rests_on_all_logs:
                missing = MissingInput(Need.LOGS, said.round, said.clients, detail=str(fact))
                return replace(self, said=missing)
            case Finding() as said if self.rests_on_all_logs:
                return replace(self, said=replace(said, proven=False))
            case _:
                return self


@dataclass
class UnconfirmedResults:
    """What was said and rests on events that no head has confirmed yet, in its order."""

    _waiting: deque[PendingResult] = field(default_factory=deque)

    def hold(self, said: PendingResult) -> None:
        """Take what a step says.

        Args:
            said: the next.
        """
        self._waiting.append(said)

    def confirmed(self, complete_to: int) -> Iterator[PendingResult]:
        """Yield, and forget, what a head has confirmed by now.

        Args:
            complete_to: the block up to which no log is missing.
        """
        while self._waiting and self._waiting[0].block <= complete_to:
            yield self._waiting.popleft()

    def rest(self, complete_to: int) -> Iterator[PendingResult]:
        """Yield, and forget, all that is left, as far as it stands.

        Args:
            complete_to: the block up to which no log is missing.
        """
        while self._waiting:
            said = self._waiting.popleft()
            yield said if said.block <= complete_to else said.unconfirmed()
