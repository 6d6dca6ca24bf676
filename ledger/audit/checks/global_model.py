"""Step 9: the global model, from round to round and bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ledger.audit.checks.common import UPDATES_MISSING, AuditCheck
from ledger.audit.observations import DecidedRound, Observation
from ledger.audit.report import AuditStep, Contradiction, Fact, MissingInput, Need, StepResult
from ledger.protocol.encoding import to_hex

if TYPE_CHECKING:
    from ledger.audit.evidence.model_chain import ModelStep

MODEL_DIFFERS = Fact("model", "the model is {recorded}", "the accepted updates make it {true}")
MODEL_MALFORMED = Fact("model malformed", "blob {recorded} is a model", "it is not: {true}")
MODEL_NOT_FINITE = Fact("model not finite", "the model is usable", "it is not finite")
MODEL_BEFORE_UNKNOWN = Need("model before", "the model before it is not known")


def check(observation: Observation) -> Iterator[StepResult]:
    """Yield a model that does not follow, is malformed, or is not finite."""
    if isinstance(observation, DecidedRound):
        at, step = observation.evidence.event.round, observation.model
        yield from _check_next(step, at)
        if step.malformed:
            recorded = to_hex(step.recorded)
            yield Contradiction(MODEL_MALFORMED, at, recorded=recorded, true=step.malformed)


def _check_next(step: ModelStep, at: int) -> Iterator[StepResult]:
    if not step.is_known_before:
        yield MissingInput(MODEL_BEFORE_UNKNOWN, at)
    elif step.computed is None or step.digest is None:
        yield MissingInput(UPDATES_MISSING, at, step.lacking)
    elif step.digest != step.recorded:
        values = to_hex(step.recorded), to_hex(step.digest)
        yield Contradiction(MODEL_DIFFERS, at, (), "", *values)
    elif not np.isfinite(step.computed).all():
        yield Contradiction(MODEL_NOT_FINITE, at)


CHECK = AuditCheck(AuditStep.MODEL, "the model, bit for bit", check)
