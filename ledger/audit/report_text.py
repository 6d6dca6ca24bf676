"""An audit's report as lines of text for people."""

from __future__ import annotations

from collections import defaultdict

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
    for prior in (report.kept, report.witnessed, *report.anchors, report.built_on):
        if prior is not None:
            lines += [prior.sentence, ""]
    for step in report.steps:
        lines += step.lines()
    lines += _finding_lines(report, "Misbehaviour and missing contributions:", remarks=False)
    lines += _finding_lines(report, "Claims that can no longer be checked:", remarks=True)
    if not facts["final_head"]:
        lines += ["", "No head to keep: no block that was read is known to be final"]
    else:
        lines += ["", f"To keep for a later audit: --head {facts['final_head']}"]
    if facts["final_head"] not in {"", facts["head"]}:
        newer = report.rounds - facts["final_round"]
        later = f"{newer} newer round{'s' * (newer > 1)}" if newer else "later events"
        lines.append(
            f"This head is after round {facts['final_round']}, as of block {facts['final_block']}, "
            f"the newest final block. Up to block {facts['head_block']} there are {later}, which "
            f"are not final yet"
        )
    return [*lines, "", _verdict(report)]


def _finding_lines(report: AuditReport, title: str, *, remarks: bool) -> list[str]:
    counts = {
        code: count
        for code, count in sorted(report.finding_counts.items())
        if (code in _REMARKS) is remarks and count
    }
    if not counts:
        return []
    named = [each for each in report.findings if each.kind.is_remark is remarks][:MAX_NAMED]
    lines = ["", title, *(f"  {finding_line(finding)}" for finding in named)]
    rest = sum(counts.values()) - len(named)
    if rest > 0:
        by_kind = ", ".join(f"{count} {code}" for code, count in counts.items())
        lines.append(f"  ... and {rest} more; in all {by_kind}")
    return lines


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of text."""
    about = subject_prefix(finding.round, finding.clients) or "the run: "
    evidence = f" ({' '.join(finding.evidence)})" if finding.evidence else ""
    doubt = "" if finding.proven else " (not proven)"
    return f"{about}{finding.kind}{doubt}: {finding.sentence}{evidence}"


def _verdict(report: AuditReport) -> str:
    numbers: dict[StepOutcome, list[str]] = defaultdict(list)
    for step in report.steps:
        numbers[step.outcome].append(str(int(step.number)))
    failed, lacking = numbers[StepOutcome.FAILED], numbers[StepOutcome.NOT_CHECKABLE]
    if failed:
        verb = "contradict" if len(failed) > 1 else "contradicts"
        return f"FAILED: step{'s' * (len(failed) > 1)} {', '.join(failed)} {verb} the record"
    if lacking:
        verb = "lack" if len(lacking) > 1 else "lacks"
        steps = f"step{'s' * (len(lacking) > 1)} {', '.join(lacking)}"
        return f"INCOMPLETE: no contradiction was found, but {steps} {verb} inputs"
    if report.outcome is AuditOutcome.INCOMPLETE:
        remarks = f"{report.remarks} remark{'s' * (report.remarks > 1)}"
        return f"INCOMPLETE: --strict, and {remarks} can be neither confirmed nor refuted"
    if report.built_on is None:
        return f"PASSED: all ten steps hold for all {report.rounds} rounds"
    trusted = report.built_on.rounds
    if trusted == report.rounds:
        return "PASSED: no round has ended since the earlier audit, which this audit trusts"
    return (
        f"PASSED: all ten steps hold for rounds {trusted + 1} to {report.rounds}; this audit "
        f"trusts an earlier audit for the rounds before"
    )
