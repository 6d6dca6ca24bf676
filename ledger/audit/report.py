"""What an audit found: ten steps with their outcomes, and who was caught at what.

A report is plain data: the CLI renders it with `readable`, the API sends `as_dict`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

REPORT_VERSION = 1
MOST_NAMED = 50
"""Missing things that a step names; of the others only the number is kept."""
MOST_FINDINGS = 10_000
"""Findings that are kept; of the others only the number by kind is."""

Outcome = Literal["passed", "failed", "incomplete"]
StepOutcome = Literal["passed", "failed", "not checkable"]

DEPLOYMENT, HEAD, CERTIFICATES, SAMPLING, BLOBS = 1, 2, 3, 4, 5
DISTANCES, MEANS, RANKING, MODEL, COMPLETENESS = 6, 7, 8, 9, 10

TITLES = {
    DEPLOYMENT: "deployment and parameters",
    HEAD: "head chain and seeds",
    CERTIFICATES: "certificates and signatures",
    SAMPLING: "sampling from the seed",
    BLOBS: "blobs equal to their commitments",
    DISTANCES: "each member's distances",
    MEANS: "means and medians, bit for bit",
    RANKING: "ranking, accepted set and election",
    MODEL: "the model, bit for bit",
    COMPLETENESS: "nothing missing in between",
}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Where the record and the truth part.

    Attributes:
        round: t; None where it concerns no round.
        clients: clients or members whom it concerns.
        recorded: what the record says.
        true: what follows from the rest of the record.
    """

    round: int | None
    clients: tuple[int, ...]
    recorded: str
    true: str

    @property
    def sentence(self) -> str:
        """All of it as one sentence."""
        who = [f"round {self.round}"] if self.round is not None else []
        if self.clients:
            who.append(f"client{'s' * (len(self.clients) > 1)} {listed(self.clients)}")
        place = f"{', '.join(who)}: " if who else ""
        return f"{place}the record says that {self.recorded}; in truth {self.true}"


@dataclass(frozen=True, slots=True)
class StepReport:
    """One of the ten steps over the whole run.

    Attributes:
        number: 1 to 10.
        title: what is checked.
        outcome: how it ended.
        contradiction: the first one, if it failed.
        contradictions: how many there are.
        missing: what could not be checked, and for want of what; the first of them.
        missing_count: how many things could not be checked.
    """

    number: int
    title: str
    outcome: StepOutcome
    contradiction: Contradiction | None
    contradictions: int
    missing: tuple[str, ...]
    missing_count: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Misbehaviour or misfortune that the record names; it does not make the audit fail.

    Attributes:
        kind: "false scores", "refused scores", "wrong proposal", "no quorum", "equivocation",
            "ban", "silent member", "unexplained view", "dropout", "stray commitment" or
            "abandoned round".
        round: t.
        clients: who.
        sentence: what happened.
        evidence: digests that prove it, hex: of blobs, signed messages or transactions.
        proven: whether the evidence proves it; silence, for one, cannot be proven.
    """

    kind: str
    round: int
    clients: tuple[int, ...]
    sentence: str
    evidence: tuple[str, ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        version: of this report's format.
        deployment: which contract on which chain, and where it stands.
        rounds: how many ended rounds were audited, from round 1 on.
        steps: the ten steps in order.
        findings: who was caught at what, in the order of rounds.
        finding_counts: number of findings by kind, those not kept too.
        counts: what was read and recomputed.
    """

    version: int
    deployment: Mapping[str, Any]
    rounds: int
    steps: tuple[StepReport, ...]
    findings: tuple[Finding, ...]
    finding_counts: Mapping[str, int]
    counts: Mapping[str, int]

    @property
    def outcome(self) -> Outcome:
        """Failed if a step failed, else incomplete if something could not be checked."""
        found = {step.outcome for step in self.steps}
        if "failed" in found:
            return "failed"
        return "incomplete" if "not checkable" in found else "passed"

    @property
    def ok(self) -> bool:
        """Whether nothing failed; an incomplete audit is no failure."""
        return self.outcome != "failed"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {
            "version": self.version,
            "outcome": self.outcome,
            "ok": self.ok,
            "deployment": dict(self.deployment),
            "rounds": self.rounds,
            "steps": [_step_dict(step) for step in self.steps],
            "findings": [_finding_dict(finding) for finding in self.findings],
            "finding_counts": dict(self.finding_counts),
            "counts": dict(self.counts),
        }


@dataclass
class Notebook:
    """What the audit writes down while it reads; `report` makes the steps of it."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    _contradictions: dict[int, Contradiction] = field(default_factory=dict)
    _contradiction_counts: Counter[int] = field(default_factory=Counter)
    _missing: dict[int, dict[str, None]] = field(default_factory=dict)
    _missing_counts: Counter[int] = field(default_factory=Counter)

    def contradict(
        self,
        step: int,
        recorded: str,
        true: str,
        round_number: int | None = None,
        clients: tuple[int, ...] = (),
    ) -> None:
        """Write down a contradiction.

        Args:
            step: 1 to 10.
            recorded: what the record says, to follow "the record says that".
            true: what is true, to follow "in truth".
            round_number: t.
            clients: whom it concerns.
        """
        self._contradiction_counts[step] += 1
        first = Contradiction(round_number, clients, recorded, true)
        self._contradictions.setdefault(step, first)

    def lack(self, step: int, what: str) -> None:
        """Write down what could not be checked and for want of what."""
        named = self._missing.setdefault(step, {})
        if what in named:
            return
        self._missing_counts[step] += 1
        if len(named) < MOST_NAMED:
            named[what] = None

    def find(self, finding: Finding) -> None:
        """Write down who was caught at what."""
        self.finding_counts[finding.kind] += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def steps(self) -> tuple[StepReport, ...]:
        """Return the ten steps as they stand."""
        return tuple(self._step(number) for number in TITLES)

    def _step(self, number: int) -> StepReport:
        outcome: StepOutcome = "passed"
        if self._missing_counts[number]:
            outcome = "not checkable"
        if self._contradiction_counts[number]:
            outcome = "failed"
        return StepReport(
            number=number,
            title=TITLES[number],
            outcome=outcome,
            contradiction=self._contradictions.get(number),
            contradictions=self._contradiction_counts[number],
            missing=tuple(self._missing.get(number, ())),
            missing_count=self._missing_counts[number],
        )


def listed(values: tuple[int, ...], most: int = 20) -> str:
    """Return numbers as text, the first of them if there are many."""
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def shown(digest: bytes) -> str:
    """Return a digest as 0x-hex."""
    return f"0x{digest.hex()}"


def readable(report: AuditReport) -> list[str]:
    """Return a report as lines of text.

    Args:
        report: of an audit.

    Returns:
        Deployment, steps, findings and the outcome, without trailing newlines.
    """
    facts = report.deployment
    lines = [
        f"Audit of {facts['address']} on chain {facts['chain_id']}, "
        f"{report.rounds} rounds up to block {facts['head_block']}",
        f"configuration {facts['config']}",
        f"head          {facts['head']}",
        "",
    ]
    for step in report.steps:
        lines += _step_lines(step)
    if report.findings:
        lines += ["", "Who was caught at what, or failed to deliver:"]
        lines += [f"  {_finding_line(finding)}" for finding in report.findings[:MOST_NAMED]]
        rest = sum(report.finding_counts.values()) - MOST_NAMED
        if rest > 0:
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(report.finding_counts.items()))
            lines.append(f"  ... and {rest} more; in all {kinds}")
    return [*lines, "", _verdict(report)]


def _step_lines(step: StepReport) -> list[str]:
    lines = [f"{step.number:2d} {step.title:<36} {step.outcome}"]
    if step.contradiction is not None:
        lines.append(f"     {step.contradiction.sentence}")
        if step.contradictions > 1:
            lines.append(f"     and {step.contradictions - 1} more contradictions")
    lines += [f"     not checkable: {what}" for what in step.missing[:5]]
    if step.missing_count > 5:
        lines.append(f"     and {step.missing_count - 5} more things that could not be checked")
    return lines


def _finding_line(finding: Finding) -> str:
    who = f", client {listed(finding.clients)}" if finding.clients else ""
    proof = "" if finding.proven else " (not proven)"
    evidence = f" [{' '.join(digest[:18] for digest in finding.evidence)}]"
    return (
        f"round {finding.round}{who}: {finding.kind}{proof}: {finding.sentence}"
        f"{evidence if finding.evidence else ''}"
    )


def _verdict(report: AuditReport) -> str:
    if report.outcome == "passed":
        return f"PASSED: all ten steps hold for all {report.rounds} rounds"
    names = [str(step.number) for step in report.steps if step.outcome == "failed"]
    if names:
        if len(names) == 1:
            return f"FAILED: step {names[0]} contradicts the record"
        return f"FAILED: steps {', '.join(names)} contradict the record"
    names = [str(step.number) for step in report.steps if step.outcome == "not checkable"]
    return f"INCOMPLETE: nothing contradicts, but step {', '.join(names)} lacks what it checks by"


def _step_dict(step: StepReport) -> dict[str, Any]:
    found = step.contradiction
    return {
        "number": step.number,
        "title": step.title,
        "outcome": step.outcome,
        "contradiction": None
        if found is None
        else {
            "round": found.round,
            "clients": list(found.clients),
            "recorded": found.recorded,
            "true": found.true,
            "sentence": found.sentence,
        },
        "contradictions": step.contradictions,
        "missing": list(step.missing),
        "missing_count": step.missing_count,
    }


def _finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "round": finding.round,
        "clients": list(finding.clients),
        "sentence": finding.sentence,
        "evidence": list(finding.evidence),
        "proven": finding.proven,
    }
