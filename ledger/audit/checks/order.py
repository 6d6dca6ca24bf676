"""The ten steps in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ledger.audit.checks import (
    blob_commitments,
    certificates,
    completeness,
    deployment_parameters,
    distances,
    global_model,
    head_chain,
    means,
    ranking,
    sampling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.codes import Step
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult


class AuditCheck(Protocol):
    """What every module of a step has."""

    @property
    def NUMBER(self) -> Step:  # noqa: N802 - a module's constant
        """Which step it is."""

    @property
    def TITLE(self) -> str:  # noqa: N802 - a module's constant
        """What it checks."""

    def check(self, seen: Observation) -> Iterator[StepResult]:
        """Yield what an observation contradicts, leaves open, shows or adds to a count."""


CHECKS: tuple[AuditCheck, ...] = (
    deployment_parameters,
    head_chain,
    certificates,
    sampling,
    blob_commitments,
    distances,
    means,
    ranking,
    global_model,
    completeness,
)


def run_checks(seen: Observation) -> Iterator[tuple[Step, StepResult]]:
    """Yield what every step says of an observation, with the step.

    Args:
        seen: any observation.
    """
    for step in CHECKS:
        for said in step.check(seen):
            yield step.NUMBER, said
