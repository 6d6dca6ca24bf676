"""An audit's report as lines of text for people."""

from __future__ import annotations

from ledger.audit.checks.chain import ROUNDS_NOT_WITNESSED
from ledger.audit.checks.rounds import INCIDENTS_MISSING, PAYLOAD_APPEARED
from ledger.audit.report import (
    MAX_NAMED,
    AuditOutcome,
    AuditReport,
    Finding,
    StepOutcome,
    subject_prefix,
)

_REMARKS = {INCIDENTS_MISSING.code, PAYLOAD_APPEARED.code, ROUNDS_NOT_WITNESSED.code}


def readable(report: AuditReport) -> list[str]:
    """Return a report as lines of text, without anything that could be markup."""
    facts = report.deployment
    lines = [
        f"Audit of {facts['address']} on chain {facts['chain_id']}, {report.rounds} rounds",
        f"run document  {facts['config']}",
        f"as of block   {facts['head_block']}, {facts['head_block_hash']}",
        f"head          {facts['head']}",
        "",
    ]
    for prior in (report.kept, report.witnessed, report.built_on):
        if prior is not None:
            lines += [prior.sentence, ""]
    for step in report.steps:
        lines += step.lines()
    lines += _finding_lines(report, "Who was caught at what, or failed to deliver:", remarks=False)
    lines += _finding_lines(report, "What nobody can tell true or false any more:", remarks=True)
    if facts["final_head"]:
        lines += ["", f"To keep for a later audit: --head {facts['final_head']}"]
        if facts["final_head"] != facts["head"]:
            lines.append(_age_of_final_head(report))
    else:
        lines += ["", "Nothing to keep: no block that was read is known to be final"]
    return [*lines, "", _verdict(report)]


def _finding_lines(report: AuditReport, title: str, *, remarks: bool) -> list[str]:
    """Return the first remarks, or other findings, under a title, and the number of the rest."""
    counts = {
        code: count
        for code, count in sorted(report.finding_counts.items())
        if (code in _REMARKS) is remarks and count
    }
    if not counts:
        return []
    named = [finding for finding in report.findings if finding.kind.is_remark is remarks]
    named = named[:MAX_NAMED]
    lines = ["", title, *(f"  {finding_line(finding)}" for finding in named)]
    rest = sum(counts.values()) - len(named)
    if rest > 0:
        by_kind = ", ".join(f"{count} {code}" for code, count in counts.items())
        lines.append(f"  ... and {rest} more; in all {by_kind}")
    return lines


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of text."""
    evidence = f" ({' '.join(finding.evidence)})"
    return (
        f"{subject_prefix(finding.round, finding.clients) or 'the run: '}{finding.kind}"
        f"{'' if finding.proven else ' (not proven)'}: {finding.sentence}"
        f"{evidence if finding.evidence else ''}"
    )


def _age_of_final_head(report: AuditReport) -> str:
    facts, newer = report.deployment, report.rounds - report.deployment["final_round"]
    later = "later events" if not newer else f"{newer} newer round{'s' * (newer > 1)}"
    return (
        f"This head is after round {facts['final_round']}, as of block {facts['final_block']}, the "
        f"newest final block. Up to block {facts['head_block']} there are {later}, which are not "
        f"final yet"
    )


def _verdict(report: AuditReport) -> str:
    if report.outcome is AuditOutcome.PASSED:
        return _passed(report)
    failed = _numbers(report, StepOutcome.FAILED)
    if failed:
        is_single = len(failed) == 1
        steps = (
            f"step {failed[0]} contradicts"
            if is_single
            else f"steps {', '.join(failed)} contradict"
        )
        return f"FAILED: {steps} the record"
    lacking = _numbers(report, StepOutcome.NOT_CHECKABLE)
    if not lacking:
        remarks = f"{report.remarks} remark{'s' * (report.remarks > 1)}"
        return f"INCOMPLETE: strictly, {remarks} can be told neither true nor false"
    is_single = len(lacking) == 1
    lack = f"step {lacking[0]} lacks" if is_single else f"steps {', '.join(lacking)} lack"
    return f"INCOMPLETE: nothing contradicts, but {lack} what to check by"


def _passed(report: AuditReport) -> str:
    if report.built_on is None:
        return f"PASSED: all ten steps hold for all {report.rounds} rounds"
    trusted = report.built_on.rounds
    if trusted == report.rounds:
        return "PASSED: nothing has ended since the earlier audit, which this one trusts"
    return (
        f"PASSED: all ten steps hold for rounds {trusted + 1} to {report.rounds}, on an earlier "
        f"audit, which this one trusts"
    )


def _numbers(report: AuditReport, outcome: StepOutcome) -> list[str]:
    return [str(int(step.number)) for step in report.steps if step.outcome is outcome]
