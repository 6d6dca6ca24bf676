"""What an audit has found so far, by step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ledger.audit.audit_options import AuditProgress, StepProgress
from ledger.audit.checks.order import CHECKS
from ledger.audit.codes import Need, Step, StepOutcome
from ledger.audit.report import (
    MAX_FINDINGS,
    MAX_NAMED,
    Contradiction,
    CountIncrement,
    Finding,
    MissingInput,
    StepReport,
)

if TYPE_CHECKING:
    from ledger.audit.report import StepResult


@dataclass
class AuditLog:
    """Contradictions and missing things by step, findings and counts."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    _contradictions: dict[Step, Contradiction] = field(default_factory=dict)
    _contradiction_counts: Counter[Step] = field(default_factory=Counter)
    _missing: dict[Step, dict[MissingInput, None]] = field(default_factory=dict)
    _missing_counts: Counter[Step] = field(default_factory=Counter)

    def take(self, step: Step, said: StepResult, *, is_final: bool = True) -> None:
        """Write down what a step says.

        Args:
            step: which.
            said: what; the first contradiction of each step is kept.
            is_final: whether nothing that it rests on can be taken back. What can be proves
                nothing yet: neither against the record nor against anybody.
        """
        match said:
            case Contradiction() if is_final:
                self._contradiction_counts[step] += 1
                self._contradictions.setdefault(step, said)
            case Contradiction():
                self._lack(step, _unsettled(said))
            case MissingInput():
                self._lack(step, said)
            case Finding():
                self._find(said if is_final else replace(said, proven=False))
            case CountIncrement(count, number):
                self.counts[count] += number

    def withdraw(self) -> None:
        """Take every contradiction back: the chain that they were read from did not stay."""
        for step, first in self._contradictions.items():
            self._lack(step, _unsettled(first))
        self._contradictions.clear()
        self._contradiction_counts.clear()

    def progress(self, done: int, total: int) -> AuditProgress:
        """Return how far the audit has come.

        Args:
            done: rounds that all steps have seen.
            total: rounds that have ended.
        """
        return AuditProgress(done, total, tuple(self._so_far(step) for step in Step))

    def steps(self) -> tuple[StepReport, ...]:
        """Return the ten steps as they stand."""
        return tuple(self._step(step.NUMBER, step.TITLE) for step in CHECKS)

    def _lack(self, step: Step, missing: MissingInput) -> None:
        named = self._missing.setdefault(step, {})
        if missing in named:
            return
        self._missing_counts[step] += 1
        if len(named) < MAX_NAMED:
            named[missing] = None

    def _find(self, finding: Finding) -> None:
        self.finding_counts[finding.kind] += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def _outcome(self, step: Step) -> StepOutcome:
        if self._contradiction_counts[step]:
            return StepOutcome.FAILED
        return StepOutcome.NOT_CHECKABLE if self._missing_counts[step] else StepOutcome.PASSED

    def _so_far(self, step: Step) -> StepProgress:
        outcome = self._outcome(step)
        return StepProgress(
            number=step,
            outcome=None if outcome is StepOutcome.PASSED else outcome,
            contradictions=self._contradiction_counts[step],
            missing_count=self._missing_counts[step],
        )

    def _step(self, step: Step, title: str) -> StepReport:
        return StepReport(
            number=step,
            title=title,
            outcome=self._outcome(step),
            contradiction=self._contradictions.get(step),
            contradictions=self._contradiction_counts[step],
            missing=tuple(self._missing.get(step, ())),
            missing_count=self._missing_counts[step],
        )


def _unsettled(contradiction: Contradiction) -> MissingInput:
    """Return what a contradiction comes to that rests on what may be taken back."""
    at, clients = contradiction.round, contradiction.clients
    return MissingInput(Need.FINALITY, at, clients, detail=str(contradiction.fact))
