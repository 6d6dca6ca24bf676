"""To which step a thing belongs that the replay or the protocol's judges have found.

Every lookup has an answer, so that nothing that was found can be passed over in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Need, Step
from ledger.audit.observations import (
    Disagreement,
    EventCountMismatch,
    EventFieldMismatch,
    EventKindMismatch,
    MalformedEvent,
    RefusedCall,
    Unavailable,
)
from ledger.audit.report import Contradiction, MissingInput
from ledger.audit.sentences import hexed, text_of
from ledger.protocol import errors, ledger_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.protocol.errors import Refusal
    from ledger.protocol.ledger_state import Event

_REFUSED: dict[Step, tuple[type[Refusal], ...]] = {
    Step.DEPLOYMENT: (
        errors.NotRegisteringError,
        errors.RegistryMismatchError,
        errors.MalformedClientError,
        errors.ClientsNotAscendingError,
        errors.RegistryEndError,
    ),
    Step.SAMPLING: (errors.WrongCommitteeError, errors.MemberRankedError),
    Step.RANKING: (
        errors.RankingTooLongError,
        errors.RankingTooShortError,
        errors.RankingNotSortedError,
        errors.DistanceNotFiniteError,
        errors.RepeatedClientError,
        errors.ThresholdUnusedError,
        errors.ThresholdNotFiniteError,
        errors.WrongAggregationSetError,
        errors.WrongNextCommitteeError,
    ),
    Step.COMPLETENESS: (
        errors.NoRoundOpenError,
        errors.NotOpenedError,
        errors.WrongRoundError,
        errors.NoCommitmentError,
        errors.NoCommitmentsError,
        errors.NothingTakenError,
        errors.CommitmentsClosedError,
        errors.RankingTooEarlyError,
        errors.DeadlineNotReachedError,
    ),
}
_REFUSED_IN = {leaf: step for step, leaves in _REFUSED.items() for leaf in leaves}

_REGISTRATION: tuple[type[Event], ...] = (
    ledger_state.LedgerDeployed,
    ledger_state.ClientsRegistered,
    ledger_state.LedgerOpened,
)
_FIELDS = {
    "head": Step.HEAD,
    "next_seed": Step.HEAD,
    "seed": Step.HEAD,
    "committee": Step.SAMPLING,
    "accepted": Step.RANKING,
    "next_committee": Step.RANKING,
    "round": Step.COMPLETENESS,
    "client": Step.COMPLETENESS,
}

_RESTING_ON_PARAMETERS = (
    Step.DEPLOYMENT,
    Step.BLOBS,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)
_RESTING_ON_ROUND_BEFORE = (
    Step.SAMPLING,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)
_RESTING_ON_RECORD = (
    Step.BLOBS,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)
_REPLAYED = (
    Step.DEPLOYMENT,
    Step.HEAD,
    Step.CERTIFICATES,
    Step.SAMPLING,
    Step.RANKING,
    Step.COMPLETENESS,
)
_LEFT_OPEN: dict[Need, tuple[Step, ...]] = {
    Need.DEPLOYMENT: tuple(Step),
    Need.CHAIN: tuple(Step),
    Need.REORGANISED: tuple(Step),
    Need.LOGS: tuple(Step),
    Need.CODE: (Step.DEPLOYMENT,),
    Need.PARAMETERS: _RESTING_ON_PARAMETERS,
    Need.CALL_DATA: (Step.CERTIFICATES,),
    Need.BLOCK: _REPLAYED,
    Need.ROUND_BEFORE: _RESTING_ON_ROUND_BEFORE,
    Need.RECORD: _RESTING_ON_RECORD,
}


def step_of_refusal(refusal: type[Refusal]) -> Step:
    """Return the step that fails where the specification refuses a recorded transaction."""
    return _REFUSED_IN.get(refusal, Step.CERTIFICATES)


def step_of_event(kind: type[Event] | None) -> Step:
    """Return the step that fails where a log is not the event that it must be."""
    if kind is None:
        return Step.HEAD
    return Step.DEPLOYMENT if kind in _REGISTRATION else Step.CERTIFICATES


def step_of_field(kind: type[Event], name: str) -> Step:
    """Return the step that fails where a field of an event is wrong."""
    if (kind, name) == (ledger_state.RoundAbandoned, "next_committee"):
        return Step.SAMPLING  # without a ranking the seed draws it
    return _FIELDS.get(name, step_of_event(kind))


def left_open(need: Need) -> tuple[Step, ...]:
    """Return the steps that cannot be checked for want of something."""
    return _LEFT_OPEN.get(need, (Step.HEAD,))


def replayed(step: Step, seen: Observation) -> Iterator[Contradiction | MissingInput]:
    """Yield what an observation of the replay says, if it belongs to a step.

    Args:
        step: which.
        seen: any observation.
    """
    match seen:
        case Unavailable(_, need, at, detail) if step in left_open(need):
            yield MissingInput(need, at, detail=detail)
        case Disagreement(_, fact, subject, recorded, true) if step is _step_of_answer(fact):
            yield Contradiction(fact, None, (), subject, recorded, true)
        case RefusedCall(_, at, transaction, refusal) if step is step_of_refusal(type(refusal)):
            subject, true = hexed(transaction), refusal.fact
            yield Contradiction(Fact.REFUSED_CALL, at, subject=subject, true=true)
        case EventCountMismatch(_, at, transaction, made, recorded) if step is Step.COMPLETENESS:
            names = ", ".join(type(event).__name__ for event in made)
            values = hexed(transaction), str(recorded), f"{len(made)}: {names}"
            yield Contradiction(Fact.EVENT_COUNT, at, (), *values)
        case MalformedEvent(_, at, made, true) if step is step_of_event(made):
            yield Contradiction(Fact.EVENT_MALFORMED, at, true=true)
        case EventKindMismatch(_, at, made, recorded) if step is step_of_event(made):
            values = "", recorded.__name__, made.__name__
            yield Contradiction(Fact.EVENT_KIND, at, (), *values)
        case EventFieldMismatch(_, at, kind, name, recorded, true, is_made):
            if step is step_of_field(kind, name):
                fact = Fact.EVENT_FIELD if is_made else Fact.EVENT_UNFOUNDED
                values = f"{kind.__name__}.{name}", text_of(recorded), text_of(true)
                yield Contradiction(fact, at, (), *values)
        case _:
            pass


def _step_of_answer(fact: Fact) -> Step:
    if fact in {Fact.DEPLOYMENT_UNREADABLE, Fact.DEPLOYMENT_UNLOGGED}:
        return Step.DEPLOYMENT
    return Step.CERTIFICATES if fact is Fact.TRANSACTION else Step.HEAD
