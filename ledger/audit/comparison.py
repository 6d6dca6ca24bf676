"""A transaction's events as the specification makes them, against the logs, byte by byte."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed, text_of
from ledger.chain.contract.events import decode_log, encode_log
from ledger.protocol import errors, ledger_state
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.audit.transactions import RecordedTransaction
    from ledger.chain.ports import Log
    from ledger.protocol.errors import Refusal
    from ledger.protocol.ledger_state import Event

_REFUSED_BY_STEP: dict[Step, tuple[type[Refusal], ...]] = {
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
_STEP_OF_REFUSAL = {leaf: step for step, leaves in _REFUSED_BY_STEP.items() for leaf in leaves}

_STEP_OF_FIELD = {
    "head": Step.HEAD,
    "next_seed": Step.HEAD,
    "seed": Step.HEAD,
    "accepted": Step.RANKING,
    "next_committee": Step.RANKING,
}
_STEP_OF_EVENT: dict[type[Event], Step] = {
    ledger_state.ClientsRegistered: Step.DEPLOYMENT,
    ledger_state.LedgerOpened: Step.DEPLOYMENT,
}
_STEP_OF_DRAWN = {
    (ledger_state.LedgerOpened, "committee"): Step.SAMPLING,
    (ledger_state.RoundAbandoned, "next_committee"): Step.SAMPLING,
}


def contradict_refusal(
    transaction: RecordedTransaction, refusal: Refusal, at: int | None, log: AuditLog
) -> None:
    """Write down that the specification refuses a transaction that left events.

    Args:
        transaction: what the contract took.
        refusal: why it cannot have.
        at: the round that was open.
        log: where it is written down.
    """
    step = _STEP_OF_REFUSAL.get(type(refusal), Step.CERTIFICATES)
    subject = hexed(transaction.hash)
    log.contradict(step, Contradiction(Fact.REFUSED_CALL, at, subject=subject, true=refusal.fact))


def compare_events(
    events: tuple[Event, ...], transaction: RecordedTransaction, at: int | None, log: AuditLog
) -> None:
    """Compare what the contract must have logged with the logs.

    Args:
        events: as its transaction makes them.
        transaction: with its logs.
        at: the round that was open.
        log: where contradictions are written down.
    """
    if len(events) != len(transaction.logs):
        made = f"{len(events)}: {', '.join(type(event).__name__ for event in events)}"
        contradiction = Contradiction(
            Fact.EVENT_COUNT,
            at,
            subject=hexed(transaction.hash),
            recorded=str(len(transaction.logs)),
            true=made,
        )
        log.contradict(Step.COMPLETENESS, contradiction)
    for event, recorded in zip(events, transaction.logs, strict=False):
        if encode_log(event) != (recorded.topics, recorded.data):
            _differs(event, recorded, at, log)


def _differs(event: Event, recorded: Log, at: int | None, log: AuditLog) -> None:
    kind = type(event)
    step = _STEP_OF_EVENT.get(kind, Step.CERTIFICATES)
    try:
        found = decode_log(recorded).event
    except ChainError as error:
        log.contradict(step, Contradiction(Fact.EVENT_MALFORMED, at, true=str(error)))
        return
    if type(found) is not kind:
        values = type(found).__name__, kind.__name__
        log.contradict(step, Contradiction(Fact.EVENT_KIND, at, (), "", *values))
        return
    names = tuple(f.name for f in fields(kind) if getattr(event, f.name) != getattr(found, f.name))
    if not names:
        true = "its bytes are others"
        log.contradict(step, Contradiction(Fact.EVENT_MALFORMED, at, true=true))
    for name in names:
        own = _STEP_OF_DRAWN.get((kind, name), _STEP_OF_FIELD.get(name, step))
        values = text_of(getattr(found, name)), text_of(getattr(event, name))
        subject = f"{kind.__name__}.{name}"
        log.contradict(own, Contradiction(Fact.EVENT_FIELD, at, (), subject, *values))
