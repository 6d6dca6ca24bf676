"""The ten checks in their order, and the one that fails for each difference the replay finds.

Every lookup has an answer, so that no difference is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.audit.checks import blobs, chain, completeness, decision, scores
from ledger.audit.observations import Disagreement, Observation, Remark, Unavailable
from ledger.audit.report import AuditStep, Contradiction, Fact, MissingInput, StepResult, text_of
from ledger.protocol.errors import Refusal
from ledger.protocol.ledger_state import Event, RoundAbandoned

REFUSED_CALL = Fact(
    "refused call", "the contract took transaction {subject}", "it refuses it: {true}"
)
EVENT_MALFORMED = Fact("event malformed", "a log is an event of the contract", "it is not: {true}")
EVENT_KIND = Fact("event kind", "the event is {recorded}", "its transaction made {true}")
EVENT_FIELD = Fact("event field", "{subject} is {recorded}", "its transaction gives {true}")
EVENT_UNFOUNDED = Fact("event unfounded", "{subject} is {recorded}", "it follows as {true}")

CHECKS = (
    chain.PARAMETERS_CHECK,
    chain.HEADS_CHECK,
    decision.CERTIFICATES_CHECK,
    chain.SAMPLING_CHECK,
    blobs.BLOBS_CHECK,
    scores.DISTANCES_CHECK,
    scores.MEANS_CHECK,
    decision.RANKING_CHECK,
    blobs.MODELS_CHECK,
    completeness.COMPLETENESS_CHECK,
)
_BY_REFUSAL = {refusal: check.step for check in CHECKS for refusal in check.refusals}
_BY_EVENT = {event: check.step for check in CHECKS for event in check.events}
_FIELDS_FROM_ALL_BEFORE = frozenset(
    {"first", "registry", "seed", "committee", "round", "clients", "commitments"}
    | {"primaries", "next_seed", "head"}
)
_BY_FIELD = {name: check.step for check in CHECKS for name in check.event_fields}


def run_checks(observation: Observation) -> Iterator[tuple[AuditStep, StepResult]]:
    """Yield the results of all checks of an observation, each with its step."""
    yield from _replay_results(observation)
    for check in CHECKS:
        for result in check.check(observation):
            yield check.step, result


def step_of_refusal(refusal: Refusal) -> AuditStep:
    """Return the step that fails where the specification refuses a recorded transaction."""
    return _BY_REFUSAL.get(refusal, AuditStep.CERTIFICATES)


def step_of_event(kind: type[Event] | None) -> AuditStep:
    """Return the step that fails where a log is not the event that it must be."""
    return AuditStep.HEAD if kind is None else _BY_EVENT.get(kind, AuditStep.CERTIFICATES)


def step_of_field(kind: type[Event], name: str) -> AuditStep:
    """Return the step that fails where a field of an event is wrong."""
    if (kind, name) == (RoundAbandoned, "next_committee"):
        return AuditStep.SAMPLING  # without a ranking the seed draws it
    return _BY_FIELD.get(name, step_of_event(kind))


def malformed_event(
    block: int, at: int | None, made: type[Event] | None, true: str
) -> Disagreement:
    """Return that a log is none of the contract's events, instead of one of a kind."""
    return Disagreement(block, EVENT_MALFORMED, true=true, round=at, step=step_of_event(made))


def wrong_field(
    block: int,
    at: int | None,
    kind: type[Event],
    name: str,
    values: Sequence[object],
    *,
    is_made: bool,
) -> Disagreement:
    """Return that a field of an event is not what its transaction, or the state before, makes."""
    step, fact = step_of_field(kind, name), EVENT_FIELD if is_made else EVENT_UNFOUNDED
    is_drawn = kind is RoundAbandoned and name == "next_committee"
    rests = is_drawn or name in _FIELDS_FROM_ALL_BEFORE
    subject, (recorded, true) = f"{kind.__name__}.{name}", map(text_of, values)
    return Disagreement(block, fact, subject, recorded, true, at, step, rests)


def _replay_results(observation: Observation) -> Iterator[tuple[AuditStep, StepResult]]:
    """Yield what an observation of the replay contradicts or leaves open."""
    match observation:
        case Unavailable(_, need, at, detail):
            for step in need.steps:
                yield step, MissingInput(need, at, detail=detail)
        case Disagreement(_, fact, subject, recorded, true, at):
            step = observation.step or fact.step
            yield step, Contradiction(fact, at, (), subject, recorded, true)
        case Remark(_, step, finding):
            yield step, finding
        case _:
            pass
