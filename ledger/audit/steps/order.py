"""The ten steps in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ledger.audit.steps import (
    blobs,
    certificates,
    completeness,
    deployment,
    distances,
    heads,
    means,
    model,
    ranking,
    sampling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.codes import Step
    from ledger.audit.observations import Observation
    from ledger.audit.report import Said


class AuditStep(Protocol):
    """What every module of a step has."""

    @property
    def NUMBER(self) -> Step:  # noqa: N802 - a module's constant
        """Which step it is."""

    @property
    def TITLE(self) -> str:  # noqa: N802 - a module's constant
        """What it checks."""

    def check(self, seen: Observation) -> Iterator[Said]:
        """Yield what an observation contradicts, leaves open, shows or adds to a count."""


STEPS: tuple[AuditStep, ...] = (
    deployment,
    heads,
    certificates,
    sampling,
    blobs,
    distances,
    means,
    ranking,
    model,
    completeness,
)


def said_by_steps(seen: Observation) -> Iterator[tuple[Step, Said]]:
    """Yield what every step says of an observation, with the step.

    Args:
        seen: any observation.
    """
    for step in STEPS:
        for said in step.check(seen):
            yield step.NUMBER, said
