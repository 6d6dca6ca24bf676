"""Step 9: the global model, from round to round and bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.audit.checks.belonging import replayed
from ledger.audit.codes import Fact, Need, Step
from ledger.audit.observations import DecidedRound
from ledger.audit.report import Contradiction, MissingInput
from ledger.audit.sentences import hexed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.model_chain import ModelStep
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult

NUMBER = Step.MODEL
TITLE = "the model, bit for bit"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield a model that is not the one that follows, that is none, or that is not finite.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    if isinstance(seen, DecidedRound):
        at, step = seen.found.event.round, seen.model
        yield from _of_next(step, at)
        if step.malformed:
            recorded = hexed(step.recorded)
            yield Contradiction(Fact.MODEL_MALFORMED, at, recorded=recorded, true=step.malformed)


def _of_next(step: ModelStep, at: int) -> Iterator[StepResult]:
    if not step.is_known_before:
        yield MissingInput(Need.MODEL_BEFORE, at)
    elif step.computed is None or step.digest is None:
        yield MissingInput(Need.UPDATES, at, step.lacking)
    elif step.digest != step.recorded:
        values = hexed(step.recorded), hexed(step.digest)
        yield Contradiction(Fact.MODEL, at, (), "", *values)
    elif not np.isfinite(step.computed).all():
        yield Contradiction(Fact.MODEL_NOT_FINITE, at)
