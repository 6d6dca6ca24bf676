"""The results of an audit so far: held back until no log can be missing, then kept by step.

A node that omits one log makes a right run look wrong: a decision without the commitments that it
ranks, a head that does not follow. The head after a round commits to all logs before it. If it
follows from the logs so far, it confirms each of them. It confirms no later log, not even of its
own block. The head of a ban confirms nothing: it does not commit to the open round's commitments.
The contract's state after a block confirms all logs up to this block. A contradiction that is never
confirmed proves nothing, unless an event and its own transaction contradict each other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ledger.audit.checks.common import LOGS_INCOMPLETE, NOT_FINAL, CheckResult
from ledger.audit.report import (
    MAX_FINDINGS,
    MAX_NAMED,
    AuditStep,
    Contradiction,
    CountIncrement,
    Finding,
    MissingInput,
    StepOutcome,
    StepReport,
)


@dataclass
class AuditLog:
    """Contradictions and missing inputs by step, findings and counts."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    remarks: int = 0
    _contradictions: dict[AuditStep, Contradiction] = field(default_factory=dict)
    _contradiction_counts: Counter[AuditStep] = field(default_factory=Counter)
    _missing: dict[AuditStep, dict[MissingInput, None]] = field(default_factory=dict)
    _missing_counts: Counter[AuditStep] = field(default_factory=Counter)

    def take(self, found: CheckResult, *, is_final: bool = True) -> None:
        """Add a result; the first contradiction of each step is kept.

        Args:
            is_final: whether nothing that it rests on can be taken back; otherwise it proves
                nothing yet, neither against the record nor against a client.
        """
        step, result = found.step, found.result
        match result:
            case Contradiction() if is_final:
                self._contradiction_counts[step] += 1
                self._contradictions.setdefault(step, result)
            case Contradiction():
                self._add_missing(step, _not_final(result))
            case MissingInput():
                self._add_missing(step, result)
            case Finding():
                self._add_finding(result if is_final else replace(result, proven=False))
            case CountIncrement(count, number):
                self.counts[count] += number

    def withdraw(self) -> None:
        """Take every contradiction back: the chain that they were read from has changed."""
        for step, first in self._contradictions.items():
            self._add_missing(step, _not_final(first))
        self._contradictions.clear()
        self._contradiction_counts.clear()

    def steps(self) -> tuple[StepReport, ...]:
        """Return the ten steps so far."""
        return tuple(map(self._step_report, AuditStep))

    def _add_missing(self, step: AuditStep, missing: MissingInput) -> None:
        named = self._missing.setdefault(step, {})
        if missing in named:
            return
        self._missing_counts[step] += 1
        if len(named) < MAX_NAMED:
            named[missing] = None

    def _add_finding(self, finding: Finding) -> None:
        self.finding_counts[str(finding.kind)] += 1
        self.remarks += finding.kind.is_remark
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def _outcome(self, step: AuditStep) -> StepOutcome:
        if self._contradiction_counts[step]:
            return StepOutcome.FAILED
        return StepOutcome.NOT_CHECKABLE if self._missing_counts[step] else StepOutcome.PASSED

    def _step_report(self, step: AuditStep) -> StepReport:
        return StepReport(
            number=step,
            title=step.title,
            outcome=self._outcome(step),
            contradiction=self._contradictions.get(step),
            contradictions=self._contradiction_counts[step],
            missing=tuple(self._missing.get(step, ())),
            missing_count=self._missing_counts[step],
        )


class UnconfirmedResults:
    """Results that rest on events that no head has confirmed yet, in their order."""

    def __init__(self) -> None:
        self._pending: deque[CheckResult] = deque()

    def hold(self, result: CheckResult) -> None:
        """Add the next result."""
        self._pending.append(result)

    def confirmed(self) -> Iterator[CheckResult]:
        """Yield, and forget, all results: the end of a round has confirmed the logs before it."""
        while self._pending:
            yield self._pending.popleft()

    def rest(self, complete_to: int) -> Iterator[CheckResult]:
        """Yield, and forget, all that is left; unconfirmed where a log may be missing."""
        while self._pending:
            pending = self._pending.popleft()
            yield pending if pending.block <= complete_to else _unconfirmed(pending)


def _unconfirmed(found: CheckResult) -> CheckResult:
    """Return what remains of a result where a log may be missing."""
    match found.result:
        case Contradiction(fact=fact) as contradiction if found.rests_on_all_logs:
            at, clients = contradiction.round, contradiction.clients
            missing = MissingInput(LOGS_INCOMPLETE, at, clients, detail=str(fact))
            return replace(found, result=missing)
        case Finding() as finding if found.rests_on_all_logs:
            return replace(found, result=replace(finding, proven=False))
        case _:
            return found


def _not_final(contradiction: Contradiction) -> MissingInput:
    """Return what a contradiction is worth that rests on a block that may be taken back."""
    at, clients = contradiction.round, contradiction.clients
    return MissingInput(NOT_FINAL, at, clients, detail=str(contradiction.fact))
