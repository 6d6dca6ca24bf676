"""What an audit writes down while it reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.audit.codes import Step, StepOutcome
from ledger.audit.report import MOST_FINDINGS, MOST_NAMED, StepReport

if TYPE_CHECKING:
    from ledger.audit.report import Contradiction, Finding, Missing


@dataclass
class AuditLog:
    """Contradictions and missing things by step, findings and counts."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    _contradictions: dict[Step, Contradiction] = field(default_factory=dict)
    _contradiction_counts: Counter[Step] = field(default_factory=Counter)
    _missing: dict[Step, dict[Missing, None]] = field(default_factory=dict)
    _missing_counts: Counter[Step] = field(default_factory=Counter)

    def contradict(self, step: Step, contradiction: Contradiction) -> None:
        """Write down a contradiction; the first of each step is kept.

        Args:
            step: that it fails.
            contradiction: what it is.
        """
        self._contradiction_counts[step] += 1
        self._contradictions.setdefault(step, contradiction)

    def lack(self, missing: Missing, *steps: Step) -> None:
        """Write down what could not be checked, or for want of what.

        Args:
            missing: what it is.
            steps: that it leaves open.
        """
        for step in steps:
            named = self._missing.setdefault(step, {})
            if missing in named:
                continue
            self._missing_counts[step] += 1
            if len(named) < MOST_NAMED:
                named[missing] = None

    def find(self, finding: Finding) -> None:
        """Write down who was caught at what."""
        self.finding_counts[finding.kind] += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def steps(self) -> tuple[StepReport, ...]:
        """Return the ten steps as they stand."""
        return tuple(self._step(step) for step in Step)

    def _step(self, step: Step) -> StepReport:
        outcome = StepOutcome.PASSED
        if self._missing_counts[step]:
            outcome = StepOutcome.NOT_CHECKABLE
        if self._contradiction_counts[step]:
            outcome = StepOutcome.FAILED
        return StepReport(
            number=step,
            outcome=outcome,
            contradiction=self._contradictions.get(step),
            contradictions=self._contradiction_counts[step],
            missing=tuple(self._missing.get(step, ())),
            missing_count=self._missing_counts[step],
        )
